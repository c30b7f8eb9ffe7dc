"""Parse dates and periods of requests and files."""

from __future__ import annotations

from datetime import date

from hubbub.metrics.periods import Period, PeriodKind
from hubbub.wire.problems import ProblemType, RefusedError


def parse_day(text: object) -> date:
    """Return the date of `YYYY-MM-DD`; raises RefusedError for any other form."""
    try:
        day = date.fromisoformat(text)  # type: ignore[arg-type]  # another type raises TypeError
    except (TypeError, ValueError):
        day = None
    if day is None or day.isoformat() != text:
        raise RefusedError(
            ProblemType.MALFORMED,
            f"period must be a date YYYY-MM-DD, got {str(text)[:40]!r}: use the UTC day on which the period starts",
        )
    return day


def parse_period(kind: PeriodKind, text: str) -> Period:
    """Return the period with the first day `YYYY-MM-DD`.

    Raises RefusedError if there is no such day, if no period of this kind starts on it, and if it closes after the last day of the calendar.

    >>> parse_period(PeriodKind.MONTH, "2013-01-02")
    Traceback (most recent call last):
    hubbub.wire.problems.RefusedError: period must be the first day of a month, got 2013-01-02: use 2013-01-01
    """
    day = parse_day(text)
    first = Period.containing(kind, day).start
    if first != day:
        raise RefusedError(
            ProblemType.PERIOD_MISALIGNED,
            f"period must be the first day of a {kind}, got {text}: use {first}",
        )
    period = Period(day, kind)
    try:
        period.closes()
    except OverflowError:
        raise RefusedError(
            ProblemType.PERIOD_NOT_STARTED,
            f"the {kind} {text} accepts reports until after {date.max}, the last day of the calendar: check the clock of the sender",
        ) from None
    return period
