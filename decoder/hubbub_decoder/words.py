"""Numbers and strings of strangers as people read them, in a terminal too."""

from __future__ import annotations

_LONGEST = 80


def counted(number: int, noun: str) -> str:
    """Count things.

    >>> counted(1, "report"), counted(2000, "report")
    ('1 report', '2,000 reports')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


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
