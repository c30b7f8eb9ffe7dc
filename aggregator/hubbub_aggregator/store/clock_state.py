"""State of the clock by which data may be deleted, and its transitions; pure functions.

The store remembers a time, `credible`, that only elapsed time moves. The wall clock is compared with it:

    within TOLERANCE of `credible`      the wall clock is right; after 24 hours of this the service closes and purges
    farther away                        the wall clock has jumped, or the service was down for an unknown time

After a jump there are two candidates for the true time, `credible` and the wall clock's `candidate`. Nothing is closed,
purged or dropped. When the wall clock has agreed with `candidate` for 24 hours of elapsed time, `candidate` becomes
`credible`. `observed` is the whole rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Protocol

TOLERANCE = 600.0
"""Largest distance, in seconds, of two times that agree: leap seconds, steps of NTP, a restart of a few minutes."""
SETTLING = 86_400.0
"""Seconds of agreement after which the service may delete data again."""
MAX_DRIFT = 1e-3
"""Seconds by which `credible` follows the wall clock in each elapsed second; clocks drift by at most 5e-4."""


class ClockStatus(StrEnum):
    """CREDIBLE: data may be deleted    SETTLING: right, but for less than 24 hours    IN_DOUBT: two candidates."""

    CREDIBLE = "credible"
    SETTLING = "settling"
    IN_DOUBT = "in_doubt"


@dataclass(frozen=True, slots=True)
class ClockState:
    """What is remembered of the clock; times are seconds since 1970.

    generation : raised by each jump and each acceptance, so that replicas see those of others
    credible   : the remembered time; only elapsed time moves it
    candidate  : the time since the last jump, by the wall clock; None: the wall clock agrees with `credible`
    agreed     : elapsed seconds since the last jump in which the wall clock agreed, at most SETTLING
    """

    generation: int
    credible: float
    candidate: float | None = None
    agreed: float = SETTLING

    @property
    def status(self) -> ClockStatus:
        """Whether data may be deleted, and if not, why."""
        if self.candidate is not None:
            return ClockStatus.IN_DOUBT
        return ClockStatus.CREDIBLE if self.agreed >= SETTLING else ClockStatus.SETTLING


@dataclass(frozen=True, slots=True)
class StoredClock:
    """A state as it was saved.

    boot_id : of the machine that saved it; None: unknown
    elapsed : its elapsed clock then, in seconds; comparable within one boot
    """

    state: ClockState
    boot_id: str | None
    elapsed: float


class ClockStore(Protocol):
    """Part of `Store` that keeps the clock's state; every method may raise StoreError."""

    def wall_clock(self) -> float:
        """Return the wall clock that all replicas share, in seconds since 1970: on PostgreSQL the server's."""

    def clock(self) -> StoredClock | None:
        """Return the clock's saved state; None: none was saved yet."""

    def save_clock(self, new: StoredClock, replaces: int | None) -> bool:
        """Save a state in the place of one of generation `replaces` (None: of none); False, and nothing, if it is another."""


def first(wall: float) -> ClockState:
    """Return the state of a database that remembers no time: the wall clock is accepted."""
    return ClockState(1, wall)


def accepted(state: ClockState | None, wall: float) -> ClockState:
    """Return the state after an operator has accepted the wall clock."""
    return first(wall) if state is None else ClockState(state.generation + 1, wall)


def observed(state: ClockState, wall: float, elapsed: float | None) -> ClockState:
    """Return the state after a look at the wall clock.

    elapsed : seconds since the state was made, in [0, inf); None: unknown, and up to TOLERANCE are believed
    """
    passed = elapsed or 0.0
    agreed = min(state.agreed + passed, SETTLING)
    credible = _followed(state.credible + passed, wall, elapsed)
    candidate = None if state.candidate is None else _followed(state.candidate + passed, wall, elapsed)
    if abs(wall - credible) <= TOLERANCE:
        if candidate is None:
            return replace(state, credible=credible, agreed=agreed)
        return ClockState(state.generation + 1, credible, agreed=0.0)
    if candidate is None or abs(wall - candidate) > TOLERANCE:
        return ClockState(state.generation + 1, credible, wall, agreed=0.0)
    if agreed >= SETTLING:
        return ClockState(state.generation + 1, candidate)
    return replace(state, credible=credible, candidate=candidate, agreed=agreed)


def _followed(expected: float, wall: float, elapsed: float | None) -> float:
    """Move a time towards the wall clock, if they agree, by as much as clocks drift, or as was not measured."""
    if abs(wall - expected) > TOLERANCE:
        return expected
    if elapsed is None:
        return max(expected, wall)
    most = MAX_DRIFT * elapsed
    return expected + min(max(wall - expected, -most), most)


def merged(mine: ClockState, stored: ClockState, elapsed: float) -> ClockState:
    """Return the state `elapsed` seconds ago as this replica and the others of one generation know it.

    Each replica measures elapsed time by itself and may have stood still, so the one that measured most is right.
    """
    candidate = mine.candidate
    if candidate is not None and stored.candidate is not None:
        candidate = max(candidate, stored.candidate - elapsed)
    return replace(
        mine,
        credible=max(mine.credible, stored.credible - elapsed),
        candidate=candidate,
        agreed=max(mine.agreed, stored.agreed - elapsed),
    )


def time_text(seconds: float) -> str:
    """Write a time in seconds since 1970."""
    return f"{moment(seconds):%Y-%m-%d %H:%M} UTC"


def moment(seconds: float) -> datetime:
    """Return a time in seconds since 1970 as a UTC datetime."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
