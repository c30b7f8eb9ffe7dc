"""State of the credible clock in the database: one row, replaced by compare-and-set on its generation."""

from __future__ import annotations

import math
import time

from sqlalchemy import Engine, select, text, update

from hubbub_aggregator.database.engine import fetch_all, insert_new, transaction
from hubbub_aggregator.database.schema import clock
from hubbub_aggregator.store.clock_state import ClockState, StoredClock


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
