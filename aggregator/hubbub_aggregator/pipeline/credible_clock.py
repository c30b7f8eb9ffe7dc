"""Clock of the service: the wall clock, compared with elapsed time and with the time in the store.

`CredibleClock` reads the clocks and the store; `store.clock_state.observed` decides whether data may be deleted.
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

_SAVE_INTERVAL_SECONDS = 60.0
_MAX_TRIES = 5
_ACCEPT = "if the wall clock is correct now, run `hubbub db accept-clock`"


@dataclass(frozen=True, slots=True)
class Reading:
    """Time read from the service's clock, and whether data may be deleted by it."""

    now: datetime
    status: ClockStatus = ClockStatus.CREDIBLE

    @property
    def may_delete(self) -> bool:
        """Return whether data may be deleted by this clock."""
        return self.status is ClockStatus.CREDIBLE


class ServiceClock(Protocol):
    """Clock of the service."""

    def __call__(self) -> datetime:
        """Return the time that the service uses."""

    def reading(self) -> Reading:
        """Return the current time and status, without reading the store."""

    def observe(self) -> Reading:
        """Compare the wall clock with elapsed time and the store; return the time and status. May save in the store."""


def accept(store: ClockStore, wall: float | None = None) -> tuple[float | None, float]:
    """Accept the wall clock (default: the store's); return the time remembered before, and the accepted time."""
    wall = store.wall_clock() if wall is None else wall
    while True:
        stored = store.clock()
        state = accepted(None if stored is None else stored.state, wall)
        new = StoredClock(state, read_boot_id(), elapsed_clock())
        if store.save_clock(new, None if stored is None else stored.state.generation):
            return None if stored is None else stored.state.remembered, wall


def elapsed_clock() -> float:
    """Return seconds since boot, including suspension on systems with CLOCK_BOOTTIME."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def read_boot_id() -> str | None:
    """Return the random id of this boot; None if the system has none."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()[:36] or None
    return None


class _Observation(NamedTuple):
    """A state, with the elapsed time and the wall clock at which it was computed."""

    state: ClockState
    elapsed: float
    wall: float


class CredibleClock:
    """Wall clock that is compared with elapsed time and with the time in the store; thread-safe."""

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
        self._last = self._compare(None)

    def __call__(self) -> datetime:
        return self.reading().now

    def reading(self) -> Reading:
        """Return the current time and status, without reading the store."""
        state, at, wall = self._last
        return Reading(moment(wall + max(self._elapsed() - at, 0.0)), state.status)

    def observe(self) -> Reading:
        """Compare the wall clock with elapsed time; save the state once a minute and after each jump."""
        with self._lock:
            self._last = self._compare(self._last)
        return self.reading()

    def _compare(self, last: _Observation | None) -> _Observation:
        for _ in range(_MAX_TRIES):
            stored = self._store.clock()
            wall, at = self._wall(), self._elapsed()
            known, state = self._next(last, stored, wall, at)
            if self._is_saved(stored, state, at):
                break
        if known is not None:
            _log(known, state)
        return _Observation(state, at, wall)

    def _next(
        self, last: _Observation | None, stored: StoredClock | None, wall: float, at: float
    ) -> tuple[ClockState | None, ClockState]:
        """Return the state before and after this comparison."""
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
        """Save a state if due; return False if another replica saved a new generation in the meantime."""
        replaces = None if stored is None else stored.state.generation
        if replaces == state.generation and at - self._saved < _SAVE_INTERVAL_SECONDS:
            return True
        if not self._store.save_clock(StoredClock(state, self._boot_id, at), replaces):
            return False
        self._saved = at
        return True


def _log(known: ClockState, state: ClockState) -> None:
    if known.generation == state.generation:
        if known.status is not state.status:
            logger.info("the clock is credible again: closing, purging and dropping resume")
    elif state.status is ClockStatus.IN_DOUBT:
        logger.warning(
            "the wall clock is %s, the remembered time was %s: closing, purging and dropping pause, and uploads that are too late "
            "by the wall clock are answered 503, until it has agreed with elapsed time for 24 hours; %s",
            time_text(state.remembered),
            time_text(known.remembered),
            _ACCEPT,
        )
    else:
        logger.warning(
            "the wall clock is accepted, %s: closing, purging and dropping resume", time_text(state.remembered)
        )
