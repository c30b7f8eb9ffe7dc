"""Dates and periods as the wire and the files write them."""

from __future__ import annotations

from datetime import date

from hubbub.metrics.periods import Period, PeriodKind
from hubbub.wire.problems import ProblemType, RefusedError


def parse_day(text: object) -> date:
    """Read a date in the one form the wire has, `YYYY-MM-DD`."""
    try:
        day = date.fromisoformat(text)  # type: ignore[arg-type]  # a TypeError says it as well
    except (TypeError, ValueError):
        day = None
    if day is None or day.isoformat() != text:
        raise RefusedError(
            ProblemType.MALFORMED, f"period must be a date YYYY-MM-DD, got {str(text)[:40]!r}: the UTC day it starts on"
        )
    return day


def parse_period(kind: PeriodKind, text: str) -> Period:
    """Read `YYYY-MM-DD`, the first day of a period of this kind.

    >>> parse_period(PeriodKind.MONTH, "2013-01-02")
    Traceback (most recent call last):
    hubbub.wire.problems.RefusedError: period must be the first day of a month, got 2013-01-02: that month is 2013-01-01
    """
    day = parse_day(text)
    first = Period.containing(kind, day).start
    if first != day:
        raise RefusedError(
            ProblemType.PERIOD_MISALIGNED,
            f"period must be the first day of a {kind}, got {text}: that {kind} is {first}",
        )
    return Period(day, kind)
