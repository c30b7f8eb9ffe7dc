"""State of the clock by which data may be deleted, and its transitions; pure functions.

The store has a time, `credible`, that only elapsed time moves. The wall clock is compared with it:

    within TOLERANCE of `credible`      they agree; after 24 hours of agreement data may be deleted
    farther away                        the wall clock has jumped, or the service was down for an unknown time

After a jump there are two candidates for the true time, `credible` and the wall clock's `candidate`. Nothing is closed,
purged or dropped. When the wall clock has agreed with `candidate` for 24 hours of elapsed time, `candidate` becomes
`credible`. The function `observed` contains this rule.
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
    """Status of the clock.

    CREDIBLE : data may be deleted
    SETTLING : the wall clock agrees, for less than 24 hours since a jump
    IN_DOUBT : there are two candidates for the true time
    """

    CREDIBLE = "credible"
    SETTLING = "settling"
    IN_DOUBT = "in_doubt"


@dataclass(frozen=True, slots=True)
class ClockState:
    """State of the clock; times are seconds since 1970.

    generation : number of jumps and acceptances, by which replicas notice those of others
    credible   : the remembered time; only elapsed time moves it
    candidate  : second candidate for the true time, by the wall clock; None: the wall clock agrees with `credible`
    agreed     : elapsed seconds since the last jump in which the wall clock agreed, at most SETTLING
    """

    generation: int
    credible: float
    candidate: float | None = None
    agreed: float = SETTLING

    @property
    def status(self) -> ClockStatus:
        """Return the status that follows from the candidates and the time of agreement."""
        if self.candidate is not None:
            return ClockStatus.IN_DOUBT
        return ClockStatus.CREDIBLE if self.agreed >= SETTLING else ClockStatus.SETTLING


@dataclass(frozen=True, slots=True)
class StoredClock:
    """A saved state.

    boot_id : boot id of the machine that saved it; None: unknown
    elapsed : that machine's elapsed clock at the time, in seconds; comparable within one boot
    """

    state: ClockState
    boot_id: str | None
    elapsed: float


class ClockStore(Protocol):
    """Keeps the clock's state; every method may raise StoreError."""

    def wall_clock(self) -> float:
        """Return the wall clock that all replicas share, in seconds since 1970: on PostgreSQL the server's."""

    def clock(self) -> StoredClock | None:
        """Return the clock's saved state; None: none was saved yet."""

    def save_clock(self, new: StoredClock, replaces: int | None) -> bool:
        """Replace the state of generation `replaces` (None: no state); return False, without a change, if another is stored."""


def first(wall: float) -> ClockState:
    """Return the first state of a database: the wall clock is accepted."""
    return ClockState(1, wall)


def accepted(state: ClockState | None, wall: float) -> ClockState:
    """Return the state after an operator accepts the wall clock."""
    return first(wall) if state is None else ClockState(state.generation + 1, wall)


def observed(state: ClockState, wall: float, elapsed: float | None) -> ClockState:
    """Return the state after a comparison with the wall clock.

    elapsed : seconds since `state`, in [0, inf); None: unknown, then up to TOLERANCE are accepted
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
    """Return a time moved towards an agreeing wall clock, by at most MAX_DRIFT per elapsed second; freely if unknown."""
    if abs(wall - expected) > TOLERANCE:
        return expected
    if elapsed is None:
        return max(expected, wall)
    most = MAX_DRIFT * elapsed
    return expected + min(max(wall - expected, -most), most)


def merged(mine: ClockState, stored: ClockState, elapsed: float) -> ClockState:
    """Return the state of `elapsed` seconds ago, combined from this replica and the others of its generation.

    Replicas measure elapsed time separately, and a suspended one measures too little, so the largest time is used.
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
