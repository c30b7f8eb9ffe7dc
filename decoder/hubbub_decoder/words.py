"""Strings of strangers as people read them, in a terminal too."""

from __future__ import annotations

_LONGEST = 80


def shown(value: str) -> str:
    """Show a string on one line: what a terminal would obey or hide is escaped, the middle of a long one left out.

    >>> shown("a\\x1b[31m\\u202eb"), shown("")
    ('a\\\\x1b[31m\\\\u202eb', '""')
    >>> shown("x" * 1000)[36:]
    'xxxx...xxxx (1,000 characters)'
    """
    head, tail = (value, "") if len(value) <= _LONGEST else (value[:40], value[-4:])
    escaped = ["".join(c if c.isprintable() else repr(c)[1:-1] for c in part) for part in (head, tail)]
    return "...".join(escaped) + f" ({len(value):,} characters)" if tail else escaped[0] or '""'
