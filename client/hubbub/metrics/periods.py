"""Periods: the time one report stands for, named by the UTC date of its first day.

A period is a day, a week (from Monday) or a month. It is open from one day before it starts until `open_for`
after it ends; outside that its reports are refused, so nothing can be replayed once its batch ids are gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum

from hubbub.errors import DefinitionError

OPEN_BEFORE = timedelta(days=1)
OPEN_FOR = timedelta(days=30)


class PeriodKind(StrEnum):
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


@dataclass(frozen=True, slots=True, order=True)
class Period:
    """One period of one kind, by its first day.

    >>> period = Period.containing(PeriodKind.WEEK, date(2013, 1, 4))
    >>> str(period), str(period.next())
    ('2012-12-31', '2013-01-07')
    """

    start: date
    kind: PeriodKind

    def __post_init__(self) -> None:
        if first_day(self.kind, self.start) != self.start:
            raise DefinitionError(
                f"a {self.kind} starts on {first_day(self.kind, self.start)}, got {self.start}: "
                "a period is named by its first day"
            )

    @classmethod
    def containing(cls, kind: PeriodKind, day: date) -> Period:
        """Return the period that this UTC day belongs to."""
        return cls(first_day(kind, day), kind)

    def next(self) -> Period:
        """Return the period that follows."""
        match self.kind:
            case PeriodKind.DAY:
                return Period(self.start + timedelta(days=1), self.kind)
            case PeriodKind.WEEK:
                return Period(self.start + timedelta(days=7), self.kind)
            case PeriodKind.MONTH:
                return Period((self.start + timedelta(days=31)).replace(day=1), self.kind)

    def opens(self) -> datetime:
        """Return when its first report is taken: a day before it starts, since clocks differ."""
        return midnight(self.start) - OPEN_BEFORE

    def closes(self, open_for: timedelta = OPEN_FOR) -> datetime:
        """Return from when on its reports are refused."""
        return midnight(self.next().start) + open_for

    def __str__(self) -> str:
        return self.start.isoformat()


def period_number(kind: PeriodKind, start: str) -> int:
    """Number a period, so that epochs begin at the same time for everybody.

    >>> period_number(PeriodKind.DAY, "1970-01-02"), period_number(PeriodKind.WEEK, "1970-01-05"), period_number(PeriodKind.MONTH, "1970-02-01")
    (1, 1, 1)
    """
    day = date.fromisoformat(start)
    if kind is PeriodKind.MONTH:
        return (day.year - 1970) * 12 + day.month - 1
    days = day.toordinal() - date(1970, 1, 1).toordinal()
    return days if kind is PeriodKind.DAY else (days + 3) // 7


def first_day(kind: PeriodKind, day: date) -> date:
    match kind:
        case PeriodKind.DAY:
            return day
        case PeriodKind.WEEK:
            return day - timedelta(days=day.weekday())
        case PeriodKind.MONTH:
            return day.replace(day=1)


def midnight(day: date) -> datetime:
    """Return when a UTC day begins."""
    return datetime.combine(day, time(), tzinfo=UTC)


def utc_now() -> datetime:
    """The system's clock."""
    return datetime.now(UTC)
