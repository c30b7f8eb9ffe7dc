"""How people read numbers, and how they install what is missing."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Say how many of something there are.

    >>> counted(1, "report"), counted(0, "report"), counted(1200, "batch")
    ('1 report', '0 reports', '1,200 batches')
    """
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith('ch') else 's'}"


def how_to_install(extra: str) -> str:
    """Say how to install an extra. The name `hubbub` on PyPI is not this project's, so no message may say `pip install hubbub`.

    >>> how_to_install("decoder")
    "run pip install '.[decoder]' in a checkout of hubbub"
    """
    return f"run pip install '.[{extra}]' in a checkout of hubbub"
