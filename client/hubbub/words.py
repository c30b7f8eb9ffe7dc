"""How people read numbers."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Say how many of something there are.

    >>> counted(1, "report"), counted(0, "report"), counted(1200, "batch")
    ('1 report', '0 reports', '1,200 batches')
    """
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith('ch') else 's'}"
