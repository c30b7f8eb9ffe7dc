"""The clock and the current periods."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from typing import NamedTuple

from hubbub.metrics.periods import Period, PeriodKind

EARLIEST_DAY, LATEST_DAY = date(2026, 1, 1), date(9998, 12, 31)
"""A clock on another day is wrong: before this the client did not exist, and later dates have no next period."""


def is_plausible(now: datetime) -> bool:
    """Return whether a clock may be right, as it is not on a board without a battery before its network is up."""
    return EARLIEST_DAY <= now.date() <= LATEST_DAY


class CurrentPeriod(NamedTuple):
    """The current period of one kind.

    name   : its first day, ISO 8601
    latest : the latest `next_period_start` of an account, unless the clock was wrong once
    """

    period: Period
    name: str
    latest: str


class PeriodClock:
    """The current periods of a clock, which may be set back.

    now       : the clock
    went_back : whether the clock went back since a caller set this to False; True at the start, because the past is unknown
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self.now = clock
        self.went_back = True
        self._day: date | None = None
        self._current: dict[PeriodKind, CurrentPeriod] = {}

    def current(self, kind: PeriodKind) -> CurrentPeriod:
        """Return the current period of a kind."""
        day = self.now().date()
        if self._day != day:
            self.went_back |= self._day is not None and day < self._day
            periods = [Period.containing(kind, day) for kind in PeriodKind]
            self._current = {
                period.kind: CurrentPeriod(period, str(period), str(period.next().next())) for period in periods
            }
            self._day = day
        return self._current[kind]
