"""`Store` on SQLite and PostgreSQL."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
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
    text,
    union_all,
    update,
)

from hubbub.metrics.metric import Metric
from hubbub.wire.batch import Batch
from hubbub.wire.urls import mask_url
from hubbub_aggregator.database.engine import (
    SQLITE_LOCK_POLL_SECONDS,
    checkpoint,
    close,
    fetch_all,
    lock_for_setup,
    open_postgres,
    open_sqlite,
    require_intact,
    transaction,
    truncate_wal,
)
from hubbub_aggregator.database.failpoints import reach
from hubbub_aggregator.database.location import is_postgres, require_file
from hubbub_aggregator.database.schema import batch, collection, due_mark, is_period, retained, schema, segment
from hubbub_aggregator.database.schema_version import prepare, require_served
from hubbub_aggregator.errors import StoppedError, StoreError
from hubbub_aggregator.store.append import Appender, SqlAppender
from hubbub_aggregator.store.clock_state import SqlClock
from hubbub_aggregator.store.interface import AppendResult, StoredPeriod, StoredReports
from hubbub_aggregator.store.period_figures import PeriodFigures
from hubbub_aggregator.store.shuffle import sort_reports
from hubbub_aggregator.store.sql_figures import SqlFigures, figure_columns
from hubbub_aggregator.store.tokens import SqlTokens

_MAX_IDS_PER_STATEMENT = 1_000
_MAX_TRUNCATE_TRIES = 20
_SEGMENTS_PER_FETCH = 64
_REPORTS_PER_BLOCK = 1 << 16
_BLOCKS_PER_FETCH = 8
_REPORT_TABLES = (retained, segment)
"""Tables with reports."""
_LEASES = 7235941  # class of the advisory locks that are leases; the lock for setup is 7235940
_DIGEST = re.compile(r"[0-9a-f]{64}")


def _do_nothing() -> None:
    pass


class SqlStore(SqlTokens, SqlClock, SqlFigures):
    """Store of an aggregator on SQLite or PostgreSQL.

    `SqlStore.open` makes it from an address. The methods of the store are those of the internal protocol `Store`.

    Parameters
    ----------
    engine
        SQLAlchemy engine of an open database.
    appender
        Function that returns, for an engine, the object that receives reports. Default: the database receives them.
    pause
        Function that sleeps between two attempts, in seconds.
    create
        Create the tables of an empty database (`created` is then True). False: change nothing.

    Raises
    ------
    HubbubError
        This release does not work with the tables, or there are none and `create` is False.
    """

    def __init__(
        self,
        engine: Engine,
        appender: Callable[[Engine], Appender] = SqlAppender,
        pause: Callable[[float], None] = time.sleep,
        *,
        create: bool = True,
    ) -> None:
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
        self._appender = appender(engine)

    @classmethod
    def open(
        cls, path: str | Path, *, create: bool = True, appender: Callable[[Engine], Appender] = SqlAppender
    ) -> Self:
        """Return the store of a SQLite file or a PostgreSQL database.

        Parameters
        ----------
        path
            Path of the file, or `postgresql://...`.
        create
            Create the file and the tables if they do not exist. False: raise HubbubError.
        appender
            Function that returns, for an engine, the object that receives reports. Default: the database receives them.

        Returns
        -------
        Self
            The open store.

        Raises
        ------
        HubbubError
            The database cannot be opened.
        """
        engine = None
        try:
            if not is_postgres(path) and not create:
                require_file(Path(path))
            engine = open_postgres(str(path)) if is_postgres(path) else open_sqlite(Path(path))
            return cls(engine, appender, create=create)
        except StoreError as problem:
            if engine is not None:
                engine.dispose()
            raise type(problem)(f"{mask_url(str(path))}: {problem}") from None

    def append(self, batches: Sequence[Batch]) -> list[AppendResult]:
        return self._appender.append(batches)

    def contains(self, batch_: Batch) -> bool:
        if not _DIGEST.fullmatch(batch_.digest):
            return False  # a database cannot compare every text: NUL, a lone surrogate
        stored = (
            select(batch.c.batch_id)
            .join(collection)
            .where(collection.c.digest == batch_.collection_digest, collection.c.period == batch_.period)
            .where(batch.c.batch_id == batch_.batch_id.bytes, collection.c.closed.is_(False))
        )
        return bool(fetch_all(self._engine, stored))

    def read(
        self, digest: str, periods: Collection[str] | None = None, max_reports: int | None = None
    ) -> Iterator[StoredPeriod]:
        query = (
            select(collection.c.id, collection.c.period)
            .where(collection.c.digest == digest)
            .order_by(collection.c.period)
        )
        if periods is not None:
            query = query.where(collection.c.period.in_(periods))
        with transaction(self._engine, writes=False) as connection:
            for number, period in connection.execute(query).all():
                self._require_running()
                row = connection.execute(select(collection).where(collection.c.id == number)).one()
                segments = _segments(connection, number, max_reports)
                yield StoredPeriod(
                    digest=digest,
                    period=period,
                    revision=row.revision,
                    summary=row.summary,
                    segments=tuple(number for number, _, _ in segments),
                    cohorts=b"".join(cohorts for _, cohorts, _ in segments),
                    rows=b"".join(rows for _, _, rows in segments),
                    smallest=min((len(cohorts) for _, cohorts, _ in segments), default=0),
                    closed=bool(row.closed),
                )

    def unfolded(self, digest: str) -> list[str]:
        return self._periods_in(digest, segment)

    @contextmanager
    def lease(self, digest: str, period: str) -> Iterator[bool]:
        # On PostgreSQL a lease is an advisory lock, which the server releases when the transaction or its connection ends. A lock of the row
        # of `collection` would not do, because the fold replaces this row in a transaction of its own. SQLite needs no lease: its
        # processes may fold the same segments, and all but one fold is refused.
        if self._engine.dialect.name != "postgresql":
            yield True
            return
        is_this = is_period(digest, period)
        numbers = [number for (number,) in fetch_all(self._engine, select(collection.c.id).where(is_this))]
        if not numbers:
            yield False
            return
        # This transaction reads no table: an upgrade that waits for the table's lock would stop the fold, and the fold the upgrade.
        with transaction(self._engine, writes=True) as connection:
            take = text("SELECT pg_try_advisory_xact_lock(:leases, :number)")
            yield bool(connection.scalar(take, {"leases": _LEASES, "number": numbers[0]}))

    def fold(
        self, stored: StoredPeriod, summary: bytes, retain: bool = False, figures: PeriodFigures | None = None
    ) -> bool:
        is_this, revision = is_period(stored.digest, stored.period), stored.revision + 1
        columns = {} if figures is None else figure_columns(figures, revision)
        reach("fold: before its transaction")
        with transaction(self._engine, writes=True) as connection:
            put = update(collection).where(is_this, collection.c.revision == stored.revision)
            done = connection.execute(put.values(revision=revision, summary=summary, **columns)).rowcount
            reach("fold: between summary and segments")
            if retain and stored.segments:
                _retain(connection, is_this, stored)
            for start in range(0, len(stored.segments), _MAX_IDS_PER_STATEMENT):
                part = stored.segments[start : start + _MAX_IDS_PER_STATEMENT]
                done += connection.execute(delete(segment).where(segment.c.id.in_(part))).rowcount
            if done != 1 + len(stored.segments):
                connection.rollback()
                return False
            reach("fold: before its commit")
        reach("fold: after its commit")
        return True

    @contextmanager
    def reports(self, digest: str, periods: Collection[str]) -> Iterator[StoredReports]:
        is_selected = (collection.c.digest == digest) & collection.c.period.in_(periods)
        sizes = union_all(
            *(
                select(collection.c.period, func.length(t.c.cohorts).label("n")).join(t).where(is_selected)
                for t in _REPORT_TABLES
            )
        ).subquery()
        query = select(sizes.c.period, func.sum(sizes.c.n)).group_by(sizes.c.period).order_by(sizes.c.period)
        with transaction(self._engine, writes=False) as connection:
            reports_per_period = {period: int(reports) for period, reports in connection.execute(query)}

            def blocks() -> Iterator[tuple[bytes, bytes]]:
                streaming = connection.execution_options(yield_per=_BLOCKS_PER_FETCH)
                for table in _REPORT_TABLES:
                    query_of_table = (
                        select(table.c.cohorts, table.c.reports)
                        .join(collection)
                        .where(is_selected)
                        .order_by(table.c.id)
                    )
                    with streaming.execute(query_of_table) as found:
                        for cohorts, rows in found:
                            self._require_running()
                            yield cohorts, rows

            yield StoredReports(tuple(reports_per_period), sum(reports_per_period.values()), blocks)

    def periods_with_reports(self, digest: str) -> list[str]:
        return self._periods_in(digest, *_REPORT_TABLES)

    def periods_retained(self) -> list[tuple[str, str]]:
        query = select(collection.c.digest, collection.c.period).where(
            collection.c.id.in_(select(retained.c.collection_id).distinct())
        )
        return [(digest, period) for digest, period in fetch_all(self._engine, query.order_by(collection.c.period))]

    def num_retained(self, digest: str) -> int:
        query = select(func.sum(func.length(retained.c.cohorts))).join(collection).where(collection.c.digest == digest)
        return sum(int(number or 0) for (number,) in fetch_all(self._engine, query))

    def _periods_in(self, digest: str, *tables: Table) -> list[str]:
        """Return the periods with reports in any of these tables."""
        query = select(collection.c.period).where(collection.c.digest == digest, _has_reports_in(*tables))
        return [period for (period,) in fetch_all(self._engine, query.order_by(collection.c.period))]

    def drop_reports(self, digest: str, period: str, between_steps: Callable[[], None] = _do_nothing) -> None:
        is_this = is_period(digest, period)
        collection_id = select(collection.c.id).where(is_this).scalar_subquery()
        part = select(retained.c.id).where(retained.c.collection_id == collection_id).limit(1).scalar_subquery()
        more = True
        while more:
            with self._short_transaction(between_steps) as connection:
                connection.execute(delete(retained).where(retained.c.id == part))
                more = connection.scalar(select(part)) is not None
                if not more:
                    connection.execute(update(collection).where(is_this).values(smallest_segment=None))
        self._truncate_wal()

    def smallest_segment(self, digest: str, period: str) -> int | None:
        is_this = is_period(digest, period)
        waiting = select(func.min(func.length(segment.c.cohorts))).join(collection).where(is_this).scalar_subquery()
        sizes = chain.from_iterable(
            fetch_all(self._engine, select(collection.c.smallest_segment, waiting).where(is_this))
        )
        return min((size for size in sizes if size is not None), default=None)

    def open_periods(self) -> list[tuple[str, str]]:
        query = select(collection.c.digest, collection.c.period).where(collection.c.closed.is_(False))
        return [(digest, period) for digest, period in fetch_all(self._engine, query.order_by(collection.c.period))]

    def metric_of(self, digest: str) -> str | None:
        query = select(collection.c.metric).where(collection.c.digest == digest).limit(1)
        return next((metric for (metric,) in fetch_all(self._engine, query)), None)

    def close_period(self, metric: Metric, period: str, between_steps: Callable[[], None] = _do_nothing) -> None:
        numbers = self._appender.close_period(metric, period)
        reach("close: between mark and ids")
        with transaction(self._engine, writes=True) as connection:
            connection.execute(delete(due_mark).where(due_mark.c.collection_id.in_(numbers)))
        collection_id = select(collection.c.id).where(is_period(metric.digest, period)).scalar_subquery()
        is_here = batch.c.collection_id == collection_id
        after: bytes | None = b""
        while after is not None:
            more = is_here & (batch.c.batch_id > after)
            last = (
                select(batch.c.batch_id)
                .where(more)
                .order_by(batch.c.batch_id)
                .offset(_MAX_IDS_PER_STATEMENT - 1)
                .limit(1)
            )
            with self._short_transaction(between_steps) as connection:
                after = connection.scalar(last)
                connection.execute(delete(batch).where(more if after is None else more & (batch.c.batch_id <= after)))
            reach("close: between ids")

    def half_closed_periods(self) -> list[tuple[str, str]]:
        has_ids, needs_mark = (exists().where(table.c.collection_id == collection.c.id) for table in (batch, due_mark))
        query = select(collection.c.digest, collection.c.period).where(collection.c.closed, has_ids | needs_mark)
        return [(digest, period) for digest, period in fetch_all(self._engine, query.order_by(collection.c.period))]

    def purge(self, digest: str, period: str, between_steps: Callable[[], None] = _do_nothing) -> None:
        is_this = is_period(digest, period)
        if period not in self.closed_periods(digest):
            return
        self.drop_reports(digest, period, between_steps)
        collection_id = select(collection.c.id).where(is_this).scalar_subquery()
        with transaction(self._engine, writes=True) as connection:
            connection.execute(delete(segment).where(segment.c.collection_id == collection_id))
            reach("purge: between segments and summary")
            revision = collection.c.revision + 1
            nothing = {"summary": None, "revision": revision, **figure_columns(PeriodFigures(), revision)}
            connection.execute(update(collection).where(is_this).values(nothing))
        self._truncate_wal()

    def _truncate_wal(self) -> None:
        """Truncate the write-ahead log, which has deleted data; give up if other connections stay active for half a second."""
        for _ in range(_MAX_TRUNCATE_TRIES):
            if truncate_wal(self._engine):
                return
            self._pause(SQLITE_LOCK_POLL_SECONDS)

    @contextmanager
    def _short_transaction(self, between_steps: Callable[[], None]) -> Iterator[Connection]:
        """Run one of many short writing transactions, then pause as long as it took plus SQLite's poll interval.

        SQLite's lock has no queue: waiting writers poll for it, and without the pause they would rarely get it.
        """
        with transaction(self._engine, writes=True) as connection:
            began = time.perf_counter()
            yield connection
        took = time.perf_counter() - began
        checkpoint(self._engine)
        self._pause(took + SQLITE_LOCK_POLL_SECONDS)
        between_steps()
        self._require_running()

    def closed_periods(self, digest: str) -> list[str]:
        has_data = collection.c.summary.is_not(None) | _has_reports_in(*_REPORT_TABLES)
        query = select(collection.c.period).where(collection.c.digest == digest, collection.c.closed, has_data)
        return [period for (period,) in fetch_all(self._engine, query)]

    def require_intact(self) -> None:
        require_intact(self._engine)

    def probe(self) -> None:
        with transaction(self._engine, writes=True) as connection:
            require_served(connection)
            connection.execute(update(schema).values(write_probes=schema.c.write_probes + 1))
        self._appender.probe()

    def stop(self) -> None:
        self._stopping.set()

    def _require_running(self) -> None:
        if self._stopping.is_set():
            raise StoppedError("the aggregator is stopping")

    def close(self) -> None:
        """Close the connections of the store."""
        close(self._engine)


def _has_reports_in(*tables: Table) -> ColumnElement[bool]:
    """Return the condition that a collection has reports in any of these tables."""
    return or_(*(exists().where(table.c.collection_id == collection.c.id) for table in tables))


def _segments(connection: Connection, collection_id: int, max_reports: int | None) -> list[tuple[int, bytes, bytes]]:
    query = (
        select(segment.c.id, segment.c.cohorts, segment.c.reports)
        .where(segment.c.collection_id == collection_id)
        .order_by(segment.c.id)
    )
    taken, reports = [], 0
    with connection.execution_options(yield_per=_SEGMENTS_PER_FETCH).execute(query) as found:
        for number, cohorts, rows in found:
            taken.append((number, cohorts, rows))
            reports += len(cohorts)
            if max_reports is not None and reports >= max_reports:
                break
    return taken


def _retain(connection: Connection, is_this: ColumnElement[bool], stored: StoredPeriod) -> None:
    """Store the reports of folded segments in `retained`, sorted, and update the smallest segment size."""
    cohorts, rows = sort_reports(stored.cohorts, stored.rows)
    collection_id = connection.scalar(select(collection.c.id).where(is_this))
    blocks = [
        {
            "collection_id": collection_id,
            "cohorts": cohorts[start : start + _REPORTS_PER_BLOCK].tobytes(),
            "reports": rows[start : start + _REPORTS_PER_BLOCK].tobytes(),
        }
        for start in range(0, len(cohorts), _REPORTS_PER_BLOCK)
    ]
    connection.execute(insert(retained), blocks)
    is_smaller = collection.c.smallest_segment <= stored.smallest
    smallest = case((is_smaller, collection.c.smallest_segment), else_=stored.smallest)
    connection.execute(update(collection).where(is_this).values(smallest_segment=smallest))
