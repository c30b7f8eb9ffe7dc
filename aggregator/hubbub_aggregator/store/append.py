"""Append batches in one transaction: their ids, and one segment of shuffled reports per metric version and period."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Sequence
from typing import Protocol

from sqlalchemy import Connection, Engine, bindparam, insert, select, text, update

from hubbub.metrics.metric import Metric
from hubbub.randomness import RandomBytes
from hubbub.wire.batch import Batch
from hubbub_aggregator.database.engine import DriverConnection, Statement, driver_transaction, insert_new, transaction
from hubbub_aggregator.database.failpoints import reach
from hubbub_aggregator.database.schema import collection, is_period, segment
from hubbub_aggregator.store.interface import AppendResult
from hubbub_aggregator.store.shuffle import shuffle_reports

_FIND = (
    select(collection.c.id, collection.c.closed)
    .where(collection.c.digest == bindparam("digest"), collection.c.period == bindparam("period"))
    .with_for_update(read=True, key_share=True)  # the period cannot be closed until this append ends
)
_INSERT = "INSERT INTO batch (collection_id, batch_id) VALUES (?, ?) ON CONFLICT DO NOTHING"
_INSERT_NEW = text(
    "INSERT INTO batch (collection_id, batch_id) SELECT :collection_id, unnest(CAST(:ids AS bytea[])) "
    "ON CONFLICT DO NOTHING RETURNING batch_id"
)
_NEW_COLLECTION = ("metric", "digest", "period", "revision", "closed")


class BatchIds:
    """Insert the batch ids that are new to a collection."""

    def __init__(self, engine: Engine) -> None:
        self._insert_new = Statement(engine, _INSERT_NEW)

    def insert(self, connection: DriverConnection, collection_id: int, ids: Collection[bytes]) -> set[bytes]:
        """Insert ids; return those that were new."""
        if isinstance(connection, sqlite3.Connection):  # one by one takes less time than one statement with all ids
            return {new for new in ids if connection.execute(_INSERT, (collection_id, new)).rowcount}
        # Sorted, so that two transactions with the same ids cannot deadlock.
        given = {"collection_id": collection_id, "ids": sorted(ids)}
        return {new for (new,) in self._insert_new.execute(connection, given).fetchall()}


class Collections:
    """The row of `collection` of each metric version and period."""

    def __init__(self, engine: Engine) -> None:
        self._find = Statement(engine, _FIND)
        self._create = Statement(engine, insert_new(engine, collection), _NEW_COLLECTION)

    def find(self, connection: DriverConnection, of: Batch) -> tuple[int, bool]:
        """Return the id of a batch's collection, created if missing, and whether it is closed.

        The period cannot be closed until this transaction ends.
        """
        is_this = {"digest": of.collection_digest, "period": of.period}
        found = self._find.execute(connection, is_this).fetchone()
        if found is None:
            self._create.execute(connection, is_this | {"metric": of.metric, "revision": 0, "closed": False})
            found = self._find.execute(connection, is_this).fetchone()
        number, closed = found
        return number, bool(closed)

    def close(self, connection: Connection, metric: Metric, period: str) -> list[int]:
        """Close a period of all values of a metric's group, once running appends have ended; return the ids of its collections.

        A value without reports gets a row too: its first report could otherwise be stored after the sum was read as closed.
        """
        # In the order of `SqlAppender.append`, so that the two cannot deadlock.
        digests = sorted(value.digest for value in metric.in_group(None).collections)
        return [self._close_one(connection, metric.name, digest, period) for digest in digests]

    def _close_one(self, connection: Connection, metric: str, digest: str, period: str) -> int:
        new = {"metric": metric, "digest": digest, "period": period, "revision": 0, "closed": True}
        connection.execute(insert_new(connection, collection), new)
        is_this = is_period(digest, period)
        # The lock waits for running appends.
        number = int(connection.execute(select(collection.c.id).where(is_this).with_for_update()).scalar_one())
        connection.execute(update(collection).where(is_this).values(closed=True))
        return number


class Appender(Protocol):
    """Where a `SqlStore` puts the reports that it receives: its own database, or an object store."""

    def append(self, batches: Sequence[Batch]) -> list[AppendResult]:
        """Store batches as `ReportStore.append`."""

    def close_period(self, metric: Metric, period: str) -> list[int]:
        """Refuse new reports of a period permanently, of all values of the metric's group, once running appends have ended.

        May be repeated. Returns the ids of the collections of all values.
        """

    def probe(self) -> None:
        """Write durably as a test where the database does not; raise StoreError if that fails."""


class SqlAppender:
    """Puts reports into the database, and counts each batch once."""

    def __init__(self, engine: Engine, random_bytes: RandomBytes = os.urandom) -> None:
        self._engine = engine
        self._random_bytes = random_bytes
        self._ids = BatchIds(engine)
        self._collections = Collections(engine)
        self._insert_segment = Statement(engine, insert(segment).inline(), ("collection_id", "cohorts", "reports"))

    def append(self, batches: Sequence[Batch]) -> list[AppendResult]:
        groups: dict[tuple[str, str], dict[bytes, Batch]] = {}
        for batch in batches:
            groups.setdefault((batch.collection_digest, batch.period), {}).setdefault(batch.batch_id.bytes, batch)
        reach("append: before its transaction")
        with driver_transaction(self._engine) as connection:
            fresh = {key: self._append_group(connection, group) for key, group in sorted(groups.items())}
            reach("append: before its commit")
        reach("append: after its commit")
        return [_result_of(fresh[batch.collection_digest, batch.period], batch.batch_id.bytes) for batch in batches]

    def close_period(self, metric: Metric, period: str) -> list[int]:
        with transaction(self._engine, writes=True) as connection:
            return self._collections.close(connection, metric, period)

    def probe(self) -> None:
        """The probe of the database is enough."""

    def _append_group(self, connection: DriverConnection, group: dict[bytes, Batch]) -> set[bytes] | None:
        """Store the new batches of one period; return their ids; None: the period is closed."""
        to, closed = self._collections.find(connection, next(iter(group.values())))
        if closed:
            return None
        fresh = self._ids.insert(connection, to, group)
        reach("append: between ids and reports")
        if fresh:
            new = [group[batch_id] for batch_id in fresh]
            cohorts, rows = shuffle_reports(
                b"".join([batch.cohorts for batch in new]), b"".join([batch.rows for batch in new]), self._random_bytes
            )
            self._insert_segment.execute(connection, {"collection_id": to, "cohorts": cohorts, "reports": rows})
        return fresh


def _result_of(fresh: set[bytes] | None, batch_id: bytes) -> AppendResult:
    """Return the result for one batch id and remove it from `fresh`, so that its repetition is a duplicate."""
    if fresh is None:
        return AppendResult.CLOSED
    if batch_id not in fresh:
        return AppendResult.DUPLICATE
    fresh.discard(batch_id)
    return AppendResult.STORED
