"""Wall clock by which the service may delete data: compared with elapsed time and with the time that the store remembers.

The rule is `store.clock_state.observed`; `CredibleClock` gives it the clocks and the store.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import NamedTuple, Protocol

from hubbub_aggregator.store.clock_state import (
    ClockState,
    ClockStatus,
    ClockStore,
    StoredClock,
    accepted,
    first,
    merged,
    moment,
    observed,
    time_text,
)

logger = logging.getLogger(__name__)

_SAVE_EVERY = 60.0
_MAX_TRIES = 5
_ACCEPT = "run `hubbub db accept-clock` if the wall clock is right now"


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the clock.

    now   : the time to go by
    other : the time by the wall clock while that is in doubt
    """

    now: datetime
    other: datetime | None = None
    status: ClockStatus = ClockStatus.CREDIBLE

    @property
    def candidates(self) -> tuple[datetime, ...]:
        """Return each time that may be the true one."""
        return (self.now,) if self.other is None else (self.now, self.other)

    @property
    def may_delete(self) -> bool:
        """Whether data may be deleted by this clock."""
        return self.status is ClockStatus.CREDIBLE


class ServiceClock(Protocol):
    """Clock of the service."""

    def __call__(self) -> datetime:
        """Return the time to go by."""

    def reading(self) -> Reading:
        """Return the time to go by, and whether it is in doubt; from memory."""

    def observe(self) -> Reading:
        """Compare the wall clock with elapsed time first; reads the store, and may save in it."""


def accept(store: ClockStore, wall: float | None = None) -> tuple[float | None, float]:
    """Save the wall clock (default: the store's) as accepted; return the time as it was remembered, and the wall clock."""
    wall = store.wall_clock() if wall is None else wall
    while True:
        stored = store.clock()
        state = accepted(None if stored is None else stored.state, wall)
        new = StoredClock(state, read_boot_id(), elapsed_clock())
        if store.save_clock(new, None if stored is None else stored.state.generation):
            return None if stored is None else stored.state.credible, wall


def elapsed_clock() -> float:
    """Return seconds since the boot, those of suspension included where the system counts them (CLOCK_BOOTTIME)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def read_boot_id(file: Path = Path("/proc/sys/kernel/random/boot_id")) -> str | None:
    """Return the random name of this boot, where the system has one."""
    with suppress(OSError):
        return file.read_text(encoding="ascii").strip()[:36] or None
    return None


class _Look(NamedTuple):
    """A state, and what the elapsed and the wall clock showed then."""

    state: ClockState
    elapsed: float
    wall: float


class CredibleClock:
    """Clock of the service, compared with elapsed time and with the time that the store remembers; for any thread."""

    def __init__(
        self,
        store: ClockStore,
        wall: Callable[[], float] | None = None,
        elapsed: Callable[[], float] = elapsed_clock,
        boot_id: str | None = None,
    ) -> None:
        self._store = store
        self._wall = wall or store.wall_clock
        self._elapsed = elapsed
        self._boot_id = boot_id or read_boot_id()
        self._lock = Lock()
        self._saved = -math.inf
        self._last = self._look(None)

    def __call__(self) -> datetime:
        return self.reading().now

    def reading(self) -> Reading:
        """Return the time to go by, and whether it is in doubt; from memory."""
        state, at, wall = self._last
        passed = max(self._elapsed() - at, 0.0)
        if state.candidate is None:
            return Reading(moment(wall + passed), status=state.status)
        return Reading(moment(state.credible + passed), moment(state.candidate + passed), state.status)

    def observe(self) -> Reading:
        """Compare the wall clock with elapsed time; save what is to be remembered, once a minute and after a jump."""
        with self._lock:
            self._last = self._look(self._last)
        return self.reading()

    def _look(self, last: _Look | None) -> _Look:
        for _ in range(_MAX_TRIES):
            stored = self._store.clock()
            wall, at = self._wall(), self._elapsed()
            known, state = self._next(last, stored, wall, at)
            if self._is_saved(stored, state, at):
                break
        if known is not None:
            _log(known, state)
        return _Look(state, at, wall)

    def _next(
        self, last: _Look | None, stored: StoredClock | None, wall: float, at: float
    ) -> tuple[ClockState | None, ClockState]:
        """Return the state that was known, and the one after this look."""
        if last is None:
            if stored is None:
                return None, first(wall)
            measured = stored.boot_id is not None and stored.boot_id == self._boot_id and at >= stored.elapsed
            return stored.state, observed(stored.state, wall, at - stored.elapsed if measured else None)
        mine, passed = last.state, max(at - last.elapsed, 0.0)
        if stored is None or stored.state.generation < mine.generation:
            return mine, observed(mine, wall, passed)
        if stored.state.generation > mine.generation:
            return mine, observed(stored.state, wall, None)
        return mine, observed(merged(mine, stored.state, passed), wall, passed)

    def _is_saved(self, stored: StoredClock | None, state: ClockState, at: float) -> bool:
        """Save a state if that is due; False if another replica has saved one of a new generation meanwhile."""
        replaces = None if stored is None else stored.state.generation
        if replaces == state.generation and at - self._saved < _SAVE_EVERY:
            return True
        if not self._store.save_clock(StoredClock(state, self._boot_id, at), replaces):
            return False
        self._saved = at
        return True


def _log(known: ClockState, state: ClockState) -> None:
    if known.generation == state.generation:
        if known.status is not state.status:
            logger.warning("the clock is credible again: closing, purging and dropping go on")
    elif state.candidate is not None:
        logger.warning(
            "the wall clock says %s, the remembered time is %s: closing, purging and dropping pause, and uploads to periods "
            "that are open by one of them only are answered 503. After 24 hours of agreement the wall clock is accepted; %s",
            time_text(state.candidate),
            time_text(state.credible),
            _ACCEPT,
        )
    elif state.status is ClockStatus.SETTLING:
        logger.warning(
            "the wall clock agrees with the remembered time again, %s: closing, purging and dropping go on after 24 hours of "
            "agreement; %s",
            time_text(state.credible),
            _ACCEPT,
        )
    else:
        logger.warning(
            "the wall clock is accepted, %s: closing, purging and dropping go on by it", time_text(state.credible)
        )
