"""The Store on a SQL database."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Self

from sqlalchemy import Connection, Engine, delete, exists, insert, select, update

from hubbub.batch import Batch
from hubbub.coins import Coins
from hubbub_aggregator.engine import insert_new, open_sqlite, transaction
from hubbub_aggregator.schema import SCHEMA_VERSION, batch, collection, schema, segment, tables
from hubbub_aggregator.shuffle import shuffled
from hubbub_aggregator.store import Holding, StoreError

_IDS_A_STATEMENT = 1_000
_SEGMENTS_A_FETCH = 64


class SqlStore:
    """Batch ids, segments and summaries in the tables of `schema.py`; what it promises is said at `Store`."""

    def __init__(self, engine: Engine, coins: Coins = os.urandom) -> None:
        self._engine = engine
        self._coins = coins
        with transaction(engine, writes=True) as connection:
            tables.create_all(connection)
            connection.execute(insert_new(schema), {"version": SCHEMA_VERSION, "probes": 0})
            _require_version(connection)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a SQLite file, made if it is not there; what is in the way is a StoreError that names the file."""
        try:
            return cls(open_sqlite(Path(path)))
        except StoreError as problem:
            raise StoreError(f"{path}: {problem}: give another --database") from None

    def append(self, batches: Sequence[Batch]) -> list[bool]:
        groups: dict[tuple[str, str], dict[bytes, Batch]] = {}
        for each in batches:
            groups.setdefault((each.digest, each.period), {}).setdefault(each.batch_id.bytes, each)
        with transaction(self._engine, writes=True) as connection:
            fresh = {key: self._append_group(connection, group) for key, group in groups.items()}
        return [_take(fresh[each.digest, each.period], each.batch_id.bytes) for each in batches]

    def _append_group(self, connection: Connection, group: dict[bytes, Batch]) -> set[bytes]:
        to = _collection_id(connection, next(iter(group.values())))
        ids = [{"collection_id": to, "batch_id": batch_id} for batch_id in group]
        fresh = set(connection.scalars(insert_new(batch).returning(batch.c.batch_id), ids))
        if fresh:
            cohorts, rows = shuffled(
                b"".join(group[batch_id].cohorts for batch_id in fresh),
                b"".join(group[batch_id].rows for batch_id in fresh),
                self._coins,
            )
            connection.execute(insert(segment), {"collection_id": to, "cohorts": cohorts, "rows": rows})
        return fresh

    def holds(self, batch_: Batch) -> bool:
        stored = (
            select(batch.c.batch_id)
            .join(collection)
            .where(collection.c.digest == batch_.digest, collection.c.period == batch_.period)
            .where(batch.c.batch_id == batch_.batch_id.bytes)
        )
        with transaction(self._engine, writes=False) as connection:
            return connection.scalar(stored) is not None

    def read(
        self, digest: str, periods: Collection[str] | None = None, max_reports: int | None = None
    ) -> Iterator[Holding]:
        asked = select(collection).where(collection.c.digest == digest).order_by(collection.c.period)
        if periods is not None:
            asked = asked.where(collection.c.period.in_(periods))
        with transaction(self._engine, writes=False) as connection:
            for row in connection.execute(asked).all():
                segments = _segments(connection, row.id, max_reports)
                yield Holding(
                    digest=digest,
                    period=row.period,
                    revision=row.revision,
                    summary=row.summary,
                    segments=tuple(number for number, _, _ in segments),
                    cohorts=b"".join(cohorts for _, cohorts, _ in segments),
                    rows=b"".join(rows for _, _, rows in segments),
                )

    def unfolded(self, digest: str) -> list[str]:
        waiting = exists().where(segment.c.collection_id == collection.c.id)
        asked = select(collection.c.period).where(collection.c.digest == digest, waiting).order_by(collection.c.period)
        with transaction(self._engine, writes=False) as connection:
            return list(connection.scalars(asked))

    def fold(self, holding: Holding, summary: bytes) -> bool:
        this = (collection.c.digest == holding.digest) & (collection.c.period == holding.period)
        with transaction(self._engine, writes=True) as connection:
            put = update(collection).where(this, collection.c.revision == holding.revision)
            done = connection.execute(put.values(revision=holding.revision + 1, summary=summary)).rowcount
            for start in range(0, len(holding.segments), _IDS_A_STATEMENT):
                some = holding.segments[start : start + _IDS_A_STATEMENT]
                done += connection.execute(delete(segment).where(segment.c.id.in_(some))).rowcount
            if done != 1 + len(holding.segments):
                connection.rollback()
                return False
        return True

    def probe(self) -> None:
        with transaction(self._engine, writes=True) as connection:
            _require_version(connection)
            connection.execute(update(schema).values(probes=schema.c.probes + 1))

    def close(self) -> None:
        self._engine.dispose()


def _require_version(connection: Connection) -> None:
    versions = list(connection.scalars(select(schema.c.version)))
    if versions != [SCHEMA_VERSION]:
        raise StoreError(
            f"the database has schema {', '.join(map(str, versions))}, this hubbub knows {SCHEMA_VERSION} only"
        )


def _collection_id(connection: Connection, of: Batch) -> int:
    find = select(collection.c.id).where(collection.c.digest == of.digest, collection.c.period == of.period)
    found: int | None = connection.scalar(find)
    if found is not None:
        return found
    new = {"metric": of.metric, "digest": of.digest, "period": of.period, "revision": 0}
    connection.execute(insert_new(collection), new)
    made: int = connection.scalars(find).one()
    return made


def _segments(connection: Connection, collection_id: int, max_reports: int | None) -> list[tuple[int, bytes, bytes]]:
    asked = (
        select(segment.c.id, segment.c.cohorts, segment.c.rows)
        .where(segment.c.collection_id == collection_id)
        .order_by(segment.c.id)
    )
    taken, reports = [], 0
    with connection.execution_options(yield_per=_SEGMENTS_A_FETCH).execute(asked) as found:
        for number, cohorts, rows in found:
            taken.append((number, cohorts, rows))
            reports += len(cohorts)
            if max_reports is not None and reports >= max_reports:
                break
    return taken


def _take(fresh: set[bytes], batch_id: bytes) -> bool:
    """Say whether the id is new, the first time it is asked for."""
    new = batch_id in fresh
    fresh.discard(batch_id)
    return new
