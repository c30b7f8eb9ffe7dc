"""Leases of periods: of several replicas, one folds or deletes a period at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, select, text

from hubbub_aggregator.database.engine import fetch_all, transaction
from hubbub_aggregator.database.schema import collection

_LEASES = 7235941  # the class of these advisory locks; the lock for setup is 7235940


class SqlLeases:
    """Part of `SqlStore`: leases.

    On PostgreSQL a lease is an advisory lock, which the server releases when the transaction or its connection ends. A lock of the row
    of `collection` would not do: the fold replaces this row in a transaction of its own. One machine's SQLite needs no lease: its
    processes may fold the same segments, and all but one fold is refused.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @contextmanager
    def lease(self, digest: str, period: str) -> Iterator[bool]:
        if self._engine.dialect.name != "postgresql":
            yield True
            return
        is_this = (collection.c.digest == digest) & (collection.c.period == period)
        numbers = [number for (number,) in fetch_all(self._engine, select(collection.c.id).where(is_this))]
        if not numbers:
            yield False
            return
        # This transaction reads no table: an upgrade that waits for the table's lock would stop the fold, and the fold the upgrade.
        with transaction(self._engine, writes=True) as connection:
            take = text("SELECT pg_try_advisory_xact_lock(:leases, :number)")
            yield bool(connection.scalar(take, {"leases": _LEASES, "number": numbers[0]}))
