"""Reporting periods (day, week, month), identified by the UTC date of their first day.

Weeks start on Monday. An aggregator accepts reports of a period from one day before its start until `open_for` after its end.
Reports outside that time are refused, so a batch cannot be replayed after its id was deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum

from hubbub.errors import DefinitionError

OPEN_BEFORE = timedelta(days=1)
OPEN_FOR = timedelta(days=30)
_LAST_SECOND = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()


class PeriodKind(StrEnum):
    """Length of a reporting period.

    Attributes
    ----------
    DAY
        One day, UTC.
    WEEK
        Seven days from Monday on, UTC.
    MONTH
        One calendar month, UTC.
    """

    DAY = "day"
    WEEK = "week"
    MONTH = "month"


@dataclass(frozen=True, slots=True, order=True)
class Period:
    """Reporting period of one kind, identified by its first day.

    Parameters
    ----------
    start
        First day of the period, UTC.
    kind
        Length of the period.

    Raises
    ------
    DefinitionError
        No period of this kind begins at this day.

    Examples
    --------
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
                "use the first day of the period"
            )

    @classmethod
    def containing(cls, kind: PeriodKind, day: date) -> Period:
        """Return the period that contains a UTC day.

        Parameters
        ----------
        kind
            Length of the period.
        day
            A UTC day.

        Returns
        -------
        Period
            Period of this kind with the day.
        """
        return cls(first_day(kind, day), kind)

    def next(self) -> Period:
        """Return the following period.

        Returns
        -------
        Period
            Period that begins where this one ends.
        """
        match self.kind:
            case PeriodKind.DAY:
                return Period(self.start + timedelta(days=1), self.kind)
            case PeriodKind.WEEK:
                return Period(self.start + timedelta(days=7), self.kind)
            case PeriodKind.MONTH:
                return Period((self.start + timedelta(days=31)).replace(day=1), self.kind)

    def opens(self) -> datetime:
        """Return the time from which reports are accepted.

        Returns
        -------
        datetime
            One day before the start, because clients' clocks differ.
        """
        return midnight(self.start) - OPEN_BEFORE

    def closes(self, open_for: timedelta = OPEN_FOR) -> datetime:
        """Return the time from which reports are refused.

        Parameters
        ----------
        open_for
            Time after the end in which reports are still accepted.

        Returns
        -------
        datetime
            `open_for` after the end.
        """
        return midnight(self.next().start) + open_for

    def __str__(self) -> str:
        return self.start.isoformat()


def period_number(kind: PeriodKind, start: str) -> int:
    """Return the number of a period since 1970, by which all clients begin their epochs at the same time.

    start : first day of the period, ISO 8601


    >>> period_number(PeriodKind.DAY, "1970-01-02"), period_number(PeriodKind.WEEK, "1970-01-05"), period_number(PeriodKind.MONTH, "1970-02-01")
    (1, 1, 1)
    """
    day = date.fromisoformat(start)
    if kind is PeriodKind.MONTH:
        return (day.year - 1970) * 12 + day.month - 1
    days = day.toordinal() - date(1970, 1, 1).toordinal()
    return days if kind is PeriodKind.DAY else (days + 3) // 7


def first_day(kind: PeriodKind, day: date) -> date:
    """Return the first day of the period that contains a day."""
    match kind:
        case PeriodKind.DAY:
            return day
        case PeriodKind.WEEK:
            return day - timedelta(days=day.weekday())
        case PeriodKind.MONTH:
            return day.replace(day=1)


def midnight(day: date) -> datetime:
    """Return the start of a UTC day."""
    return datetime.combine(day, time(), tzinfo=UTC)


def from_timestamp(seconds: float) -> datetime:
    """Return a time in POSIX seconds, in UTC; the last second of the year 9999 for all later ones.

    >>> from_timestamp(0.0).isoformat(), from_timestamp(1e300).isoformat()
    ('1970-01-01T00:00:00+00:00', '9999-12-31T23:59:59+00:00')
    """
    return datetime.fromtimestamp(min(seconds, _LAST_SECOND), UTC)


def utc_now() -> datetime:
    """Return the time of the system clock, in UTC."""
    return datetime.now(UTC)
