"""The clock, and today's periods by it: it may be set back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from typing import NamedTuple

from hubbub.metrics.periods import Period, PeriodKind


class Current(NamedTuple):
    """The period that is now, its name, and the last one that the account of a clock that was always right may have come to."""

    period: Period
    name: str
    latest: str


class Today:
    """What a clock says, as periods."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self.now = clock
        self._day: date | None = None
        self._current: dict[PeriodKind, Current] = {}
        self.may_be_earlier = True
        """Whether the clock went back since somebody made this False; at the start nobody knows."""

    def current(self, kind: PeriodKind) -> Current:
        """Return the current period of a kind."""
        day = self.now().date()
        if self._day != day:
            self.may_be_earlier |= self._day is not None and day < self._day
            periods = [Period.containing(kind, day) for kind in PeriodKind]
            self._current = {each.kind: Current(each, str(each), str(each.next().next())) for each in periods}
            self._day = day
        return self._current[kind]
