"""State of the clock by which data may be deleted, its transitions, and its row in the database.

The store remembers a time that elapsed time advances. The wall clock is compared with it:

    within TOLERANCE    the two agree; after 24 hours of agreement data may be deleted
    farther away        the wall clock has jumped, or the service was down for an unknown time; the wall clock's time is
                        remembered from now on, and the 24 hours begin anew

The function `observed` contains this rule. The row is replaced by compare-and-set on its generation.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Protocol

from sqlalchemy import Engine, select, text, update

from hubbub_aggregator.database.engine import fetch_all, insert_new, transaction
from hubbub_aggregator.database.schema import clock

TOLERANCE = 600.0
"""Largest distance, in seconds, of two times that agree: leap seconds, steps of NTP, a restart of a few minutes."""
SETTLING = 86_400.0
"""Seconds of agreement after which the service may delete data again."""
MAX_DRIFT = 1e-3
"""Seconds by which the remembered time follows the wall clock in each elapsed second; clocks drift by at most 5e-4."""


class ClockStatus(StrEnum):
    """Status of the clock.

    CREDIBLE : data may be deleted
    IN_DOUBT : less than 24 hours since a jump
    """

    CREDIBLE = "credible"
    IN_DOUBT = "in_doubt"


@dataclass(frozen=True, slots=True)
class ClockState:
    """State of the clock.

    generation : number of jumps and acceptances, by which replicas notice those of others
    remembered : seconds since 1970; only elapsed time and jumps move it
    agreed     : elapsed seconds since the last jump, at most SETTLING
    """

    generation: int
    remembered: float
    agreed: float = SETTLING

    @property
    def status(self) -> ClockStatus:
        """Return the status that follows from the time of agreement."""
        return ClockStatus.CREDIBLE if self.agreed >= SETTLING else ClockStatus.IN_DOUBT


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
    expected = state.remembered + passed
    if abs(wall - expected) > TOLERANCE:
        return ClockState(state.generation + 1, wall, agreed=0.0)
    if elapsed is None:
        remembered = max(expected, wall)
    else:  # a wall clock that gains small steps is not followed, so that it jumps some time
        remembered = expected + min(max(wall - expected, -MAX_DRIFT * elapsed), MAX_DRIFT * elapsed)
    return replace(state, remembered=remembered, agreed=min(state.agreed + passed, SETTLING))


def merged(mine: ClockState, stored: ClockState, elapsed: float) -> ClockState:
    """Return the state of `elapsed` seconds ago, combined from this replica and the others of its generation.

    Replicas measure elapsed time separately, and a suspended one measures too little, so the largest time is used.
    """
    return replace(
        mine,
        remembered=max(mine.remembered, stored.remembered - elapsed),
        agreed=max(mine.agreed, stored.agreed - elapsed),
    )


def time_text(seconds: float) -> str:
    """Write a time in seconds since 1970."""
    return f"{moment(seconds):%Y-%m-%d %H:%M} UTC"


def moment(seconds: float) -> datetime:
    """Return a time in seconds since 1970 as a UTC datetime."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


class SqlClock:
    """`ClockStore` on SQLite and PostgreSQL."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def wall_clock(self) -> float:
        if self._engine.dialect.name != "postgresql":
            return time.time()
        with transaction(self._engine, writes=False) as connection:
            query = text("SELECT extract(epoch FROM clock_timestamp())::float8")
            return float(connection.execute(query).scalar_one())

    def clock(self) -> StoredClock | None:
        for row in fetch_all(self._engine, select(clock).where(clock.c.id == 0)):
            state = ClockState(row.generation, row.credible if row.candidate is None else row.candidate, row.agreed)
            return StoredClock(state, row.boot_id, row.elapsed)
        return None

    def save_clock(self, new: StoredClock, replaces: int | None) -> bool:
        values = {
            "generation": new.state.generation,
            "credible": math.floor(new.state.remembered),
            "candidate": None,
            "agreed": math.floor(new.state.agreed),
            "boot_id": new.boot_id,
            "elapsed": math.ceil(new.elapsed),  # rounded up, so that a later difference is not too large
        }
        with transaction(self._engine, writes=True) as connection:
            if replaces is None:
                insertion = insert_new(connection, clock).execution_options(preserve_rowcount=True)
                return connection.execute(insertion, {"id": 0, **values}).rowcount == 1
            is_this = (clock.c.id == 0) & (clock.c.generation == replaces)
            return connection.execute(update(clock).where(is_this).values(values)).rowcount == 1
