"""The clock, the rules about a clock that may be wrong, and the current periods."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import NamedTuple

from hubbub.metrics.periods import OPEN_BEFORE, Period, PeriodKind

EARLIEST_DAY, LATEST_DAY = date(2026, 1, 1), date(9998, 12, 31)
CLOCK_TOLERANCE = timedelta(days=1)
MAX_SEND_DELAY = timedelta(days=40)


class ClockRule(NamedTuple):
    """A limit beyond which a client does not believe a clock.

    The clients in Python and TypeScript, the conformance kit and docs/reference/format.md have the same limits: tests/contracts/test_clock_rules.py.

    name   : of the limit
    limit  : first or last day in UTC, or a duration
    beyond : what the client does beyond the limit
    """

    name: str
    limit: date | timedelta
    beyond: str


CLOCK_RULES = (
    ClockRule(
        "EARLIEST_DAY",
        EARLIEST_DAY,
        "An earlier clock cannot be right, because there was no client. The client records nothing, makes no report and notes no run.",
    ),
    ClockRule(
        "LATEST_DAY",
        LATEST_DAY,
        "A later clock cannot be right, because its dates have no next period. The client records nothing, makes no report and notes no run.",
    ),
    ClockRule(
        "CLOCK_TOLERANCE",
        CLOCK_TOLERANCE,
        "A clock that is further behind a time that an aggregator confirmed is wrong: the client makes no report and notes no run. "
        "A clock that differs more from the `Date` of an aggregator's answer is not confirmed by it.",
    ),
    ClockRule(
        "OPEN_BEFORE",
        OPEN_BEFORE,
        "A batch of a period that begins later than this from now was made under a wrong clock. It is not sent before.",
    ),
    ClockRule(
        "MAX_SEND_DELAY",
        MAX_SEND_DELAY,
        "A time of upload further ahead was set under a wrong clock. The batch is due at once.",
    ),
)


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
        now = self.now()
        day = now.date()
        if self._day != day:
            self.went_back |= self._day is not None and day < self._day
            self._current = {kind: current_at(kind, now) for kind in PeriodKind}
            self._day = day
        return self._current[kind]


def current_at(kind: PeriodKind, moment: datetime) -> CurrentPeriod:
    """Return the period of a kind that was current at a moment."""
    period = Period.containing(kind, moment.date())
    return CurrentPeriod(period, str(period), str(period.next().next()))
