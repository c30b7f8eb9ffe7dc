"""The Store on a SQL database."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from threading import Event
from typing import Self

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Table,
    case,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    union_all,
    update,
)

from hubbub.randomness import RandomBytes
from hubbub.wire.batch import Batch
from hubbub_aggregator.database.database_url import is_postgres, without_password
from hubbub_aggregator.database.engine import (
    SQLITE_LOCK_POLL_SECONDS,
    checkpoint,
    fetch_all,
    insert_new,
    lock_for_setup,
    open_postgres,
    open_sqlite,
    require_unmoved,
    transaction,
    truncate_wal,
)
from hubbub_aggregator.database.failpoints import reach
from hubbub_aggregator.database.schema import batch, collection, refusal, retained, schema, segment
from hubbub_aggregator.database.schema_version import prepare, require_served
from hubbub_aggregator.database.sqlite_file import require_file
from hubbub_aggregator.errors import StoppedError, StoreError
from hubbub_aggregator.store.append import Appender
from hubbub_aggregator.store.interface import AppendResult, StoredPeriod, StoredReports
from hubbub_aggregator.store.period_figures import PeriodFigures
from hubbub_aggregator.store.shuffle import sort_reports
from hubbub_aggregator.store.sql_clock import SqlClock
from hubbub_aggregator.store.sql_figures import SqlFigures, figure_columns
from hubbub_aggregator.store.sql_tokens import SqlTokens

_IDS_A_STATEMENT = 1_000
_TRIES = 20
_SEGMENTS_A_FETCH = 64
_REPORTS_A_BLOCK = 1 << 16
_BLOCKS_A_FETCH = 8
_HELD = (retained, segment)
"""The tables that hold reports."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


def _nothing() -> None:
    pass


class SqlStore(SqlTokens, SqlClock, SqlFigures):
    """Batch ids, segments and summaries in the tables of `schema.py`; what it promises is said at `Store`."""

    def __init__(
        self,
        engine: Engine,
        random_bytes: RandomBytes = os.urandom,
        pause: Callable[[float], None] = time.sleep,
        *,
        create: bool = True,
    ) -> None:
        """Check the schema version of an open database.

        create : create the tables of an empty database (`created` is True then); False: change nothing

        Raises SchemaError if this release does not work with the tables, or if there are none and `create` is False.
        """
        super().__init__(engine)
        self._pause = pause
        self._stopping = Event()
        self.created = False
        with transaction(engine, writes=create) as connection:
            if create:
                lock_for_setup(connection)
                self.created = prepare(connection)
            else:
                require_served(connection)
        self._appender = Appender(engine, random_bytes)

    @classmethod
    def open(cls, path: str | Path, *, create: bool = True) -> Self:
        """Open `postgresql://...` or a SQLite file; raise StoreError if that is not possible.

        create : create the file and the tables if they do not exist; False: raise StoreError
        """
        engine = None
        try:
            if not is_postgres(path) and not create:
                require_file(Path(path))
            engine = open_postgres(str(path)) if is_postgres(path) else open_sqlite(Path(path))
            return cls(engine, create=create)
        except StoreError as problem:
            if engine is not None:
                engine.dispose()
            raise type(problem)(f"{without_password(str(path))}: {problem}") from None

    def append(self, batches: Sequence[Batch]) -> list[AppendResult]:
        return self._appender.append(batches)

    def contains(self, batch_: Batch) -> bool:
        if not _DIGEST.fullmatch(batch_.digest):
            return False  # and a database may have no such text: NUL, a lone surrogate
        stored = (
            select(batch.c.batch_id)
            .join(collection)
            .where(collection.c.digest == batch_.digest, collection.c.period == batch_.period)
            .where(batch.c.batch_id == batch_.batch_id.bytes, collection.c.closed.is_(False))
        )
        return bool(fetch_all(self._engine, stored))

    def read(
        self, digest: str, periods: Collection[str] | None = None, max_reports: int | None = None
    ) -> Iterator[StoredPeriod]:
        each = select(collection.c.id, collection.c.period)
        asked = each.where(collection.c.digest == digest).order_by(collection.c.period)
        if periods is not None:
            asked = asked.where(collection.c.period.in_(periods))
        with transaction(self._engine, writes=False) as connection:
            for number, period in connection.execute(asked).all():
                self._require_running()
                row = connection.execute(select(collection).where(collection.c.id == number)).one()
                segments = _segments(connection, number, max_reports)
                if not segments and row.summary is None:
                    continue  # purged
                yield StoredPeriod(
                    digest=digest,
                    period=period,
                    revision=row.revision,
                    summary=row.summary,
                    segments=tuple(number for number, _, _ in segments),
                    cohorts=b"".join(cohorts for _, cohorts, _ in segments),
                    rows=b"".join(rows for _, _, rows in segments),
                    smallest=min((len(cohorts) for _, cohorts, _ in segments), default=0),
                )

    def unfolded(self, digest: str) -> list[str]:
        return self._periods_in(digest, segment)

    def fold(
        self, holding: StoredPeriod, summary: bytes, retain: bool = False, figures: PeriodFigures | None = None
    ) -> bool:
        this, revision = _of(holding.digest, holding.period), holding.revision + 1
        columns = {} if figures is None else figure_columns(figures, revision)
        reach("fold: before its transaction")
        with transaction(self._engine, writes=True) as connection:
            put = update(collection).where(this, collection.c.revision == holding.revision)
            done = connection.execute(put.values(revision=revision, summary=summary, **columns)).rowcount
            reach("fold: between summary and segments")
            if retain and holding.segments:
                _retain(connection, this, holding)
            for start in range(0, len(holding.segments), _IDS_A_STATEMENT):
                some = holding.segments[start : start + _IDS_A_STATEMENT]
                done += connection.execute(delete(segment).where(segment.c.id.in_(some))).rowcount
            if done != 1 + len(holding.segments):
                connection.rollback()
                return False
            reach("fold: before its commit")
        reach("fold: after its commit")
        return True

    @contextmanager
    def reports(self, digest: str, periods: Collection[str]) -> Iterator[StoredReports]:
        of = (collection.c.digest == digest) & collection.c.period.in_(periods)
        sizes = union_all(
            *(select(collection.c.period, func.length(t.c.cohorts).label("n")).join(t).where(of) for t in _HELD)
        ).subquery()
        asked = select(sizes.c.period, func.sum(sizes.c.n)).group_by(sizes.c.period).order_by(sizes.c.period)
        with transaction(self._engine, writes=False) as connection:
            held = {period: int(reports) for period, reports in connection.execute(asked)}

            def blocks() -> Iterator[tuple[bytes, bytes]]:
                few = connection.execution_options(yield_per=_BLOCKS_A_FETCH)
                for table in _HELD:
                    each = select(table.c.cohorts, table.c.reports).join(collection).where(of).order_by(table.c.id)
                    with few.execute(each) as found:
                        for cohorts, rows in found:
                            self._require_running()
                            yield cohorts, rows

            yield StoredReports(tuple(held), sum(held.values()), blocks)

    def periods_with_reports(self, digest: str) -> list[str]:
        return self._periods_in(digest, *_HELD)

    def periods_retained(self) -> list[tuple[str, str]]:
        asked = select(collection.c.digest, collection.c.period).where(
            collection.c.id.in_(select(retained.c.collection_id).distinct())
        )
        return [(digest, period) for digest, period in fetch_all(self._engine, asked.order_by(collection.c.period))]

    def _periods_in(self, digest: str, *held_in: Table) -> list[str]:
        """Return the periods that any of these tables has reports of."""
        asked = select(collection.c.period).where(collection.c.digest == digest, _has_reports_in(*held_in))
        return [period for (period,) in fetch_all(self._engine, asked.order_by(collection.c.period))]

    def drop_reports(self, digest: str, period: str, between: Callable[[], None] = _nothing) -> None:
        this = _of(digest, period)
        of = select(collection.c.id).where(this).scalar_subquery()
        some = select(retained.c.id).where(retained.c.collection_id == of).limit(1).scalar_subquery()
        more = True
        while more:
            with self._short_transaction(between) as connection:
                connection.execute(delete(retained).where(retained.c.id == some))
                more = connection.scalar(select(some)) is not None
                if not more:
                    connection.execute(update(collection).where(this).values(smallest_segment=None))
        self._empty_log()

    def smallest_segment(self, digest: str, period: str) -> int | None:
        this = _of(digest, period)
        waiting = select(func.min(func.length(segment.c.cohorts))).join(collection).where(this).scalar_subquery()
        sizes = chain.from_iterable(fetch_all(self._engine, select(collection.c.smallest_segment, waiting).where(this)))
        return min((size for size in sizes if size is not None), default=None)

    def open_periods(self) -> list[tuple[str, str]]:
        asked = select(collection.c.digest, collection.c.period).where(collection.c.closed.is_(False))
        return [(digest, period) for digest, period in fetch_all(self._engine, asked.order_by(collection.c.period))]

    def metric_of(self, digest: str) -> str | None:
        asked = select(collection.c.metric).where(collection.c.digest == digest).limit(1)
        return next((metric for (metric,) in fetch_all(self._engine, asked)), None)

    def close_period(self, digest: str, period: str, between: Callable[[], None] = _nothing) -> None:
        this = _of(digest, period)
        with transaction(self._engine, writes=True) as connection:
            closed = connection.scalar(select(collection.c.id).where(this).with_for_update())  # no append is under way
            connection.execute(update(collection).where(this).values(closed=True))
        reach("close: between mark and ids")
        of = batch.c.collection_id == closed
        after: bytes | None = b""
        while after is not None:
            more = of & (batch.c.batch_id > after)
            upto = select(batch.c.batch_id).where(more).order_by(batch.c.batch_id).offset(_IDS_A_STATEMENT - 1).limit(1)
            with self._short_transaction(between) as connection:
                after = connection.scalar(upto)
                connection.execute(delete(batch).where(more if after is None else more & (batch.c.batch_id <= after)))
            reach("close: between ids")

    def half_closed_periods(self) -> list[tuple[str, str]]:
        left = exists().where(batch.c.collection_id == collection.c.id)
        asked = select(collection.c.digest, collection.c.period).where(collection.c.closed, left)
        return [(digest, period) for digest, period in fetch_all(self._engine, asked.order_by(collection.c.period))]

    def purge(self, digest: str, period: str, between: Callable[[], None] = _nothing) -> None:
        this = _of(digest, period)
        if period not in self.closed_periods(digest):
            return
        self.drop_reports(digest, period, between)
        of = select(collection.c.id).where(this).scalar_subquery()
        with transaction(self._engine, writes=True) as connection:
            connection.execute(delete(segment).where(segment.c.collection_id == of))
            reach("purge: between segments and summary")
            revision = collection.c.revision + 1
            nothing = {"summary": None, "revision": revision, **figure_columns(PeriodFigures(), revision)}
            connection.execute(update(collection).where(this).values(nothing))
        self._empty_log()

    def _empty_log(self) -> None:
        """Let what was dropped be nowhere any more; given up where others leave no moment for it."""
        for _ in range(_TRIES):
            if truncate_wal(self._engine):
                return
            self._pause(SQLITE_LOCK_POLL_SECONDS)

    @contextmanager
    def _short_transaction(self, between: Callable[[], None]) -> Iterator[Connection]:
        """Write, one of many times, and leave the database to others for as long as it took, and until all of them have looked.

        SQLite's lock has no queue: who waits for it looks now and then, and would hardly ever find it free.
        """
        with transaction(self._engine, writes=True) as connection:
            began = time.perf_counter()
            yield connection
        took = time.perf_counter() - began
        checkpoint(self._engine)
        self._pause(took + SQLITE_LOCK_POLL_SECONDS)
        between()
        self._require_running()

    def closed_periods(self, digest: str) -> list[str]:
        left = collection.c.summary.is_not(None) | _has_reports_in(*_HELD)
        asked = select(collection.c.period).where(collection.c.digest == digest, collection.c.closed, left)
        return [period for (period,) in fetch_all(self._engine, asked)]

    def add_refusals(self, counts: Mapping[tuple[str, str], int]) -> None:
        with transaction(self._engine, writes=True) as connection:
            for (metric, reason), count in sorted(counts.items()):
                this = (refusal.c.metric == metric) & (refusal.c.reason == reason)
                connection.execute(insert_new(connection, refusal), {"metric": metric, "reason": reason, "count": 0})
                connection.execute(update(refusal).where(this).values(count=refusal.c.count + count))

    def refusals(self) -> dict[tuple[str, str], int]:
        return {(row.metric, row.reason): row[2] for row in fetch_all(self._engine, select(refusal))}

    def segments_waiting(self) -> int:
        ((waiting,),) = fetch_all(self._engine, select(func.count()).select_from(segment))
        return int(waiting)

    def require_unmoved(self) -> None:
        require_unmoved(self._engine)

    def last_backup(self) -> int | None:
        return next((last for (last,) in fetch_all(self._engine, select(schema.c.last_backup))), None)

    def probe(self) -> None:
        with transaction(self._engine, writes=True) as connection:
            require_served(connection)
            connection.execute(update(schema).values(write_probes=schema.c.write_probes + 1))

    def stop(self) -> None:
        self._stopping.set()

    def _require_running(self) -> None:
        if self._stopping.is_set():
            raise StoppedError("the aggregator is stopping")

    def close(self) -> None:
        self._engine.dispose()


def _of(digest: str, period: str) -> ColumnElement[bool]:
    return (collection.c.digest == digest) & (collection.c.period == period)


def _has_reports_in(*tables: Table) -> ColumnElement[bool]:
    """Of a collection: whether any of these tables has reports of it."""
    return or_(*(exists().where(table.c.collection_id == collection.c.id) for table in tables))


def _segments(connection: Connection, collection_id: int, max_reports: int | None) -> list[tuple[int, bytes, bytes]]:
    asked = (
        select(segment.c.id, segment.c.cohorts, segment.c.reports)
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


def _retain(connection: Connection, this: ColumnElement[bool], holding: StoredPeriod) -> None:
    """Keep a holding's reports, which are now in the summary; however they came, they are sorted together."""
    cohorts, rows = sort_reports(holding.cohorts, holding.rows)
    of = connection.scalar(select(collection.c.id).where(this))
    blocks = [
        {
            "collection_id": of,
            "cohorts": cohorts[start : start + _REPORTS_A_BLOCK].tobytes(),
            "reports": rows[start : start + _REPORTS_A_BLOCK].tobytes(),
        }
        for start in range(0, len(cohorts), _REPORTS_A_BLOCK)
    ]
    connection.execute(insert(retained), blocks)
    known = collection.c.smallest_segment <= holding.smallest
    smallest = case((known, collection.c.smallest_segment), else_=holding.smallest)
    connection.execute(update(collection).where(this).values(smallest_segment=smallest))
