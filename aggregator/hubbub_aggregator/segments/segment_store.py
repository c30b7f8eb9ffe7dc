"""Reports in an object store; tokens, sessions, the clock and closed periods stay in the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from uuid import UUID

from sqlalchemy import Engine

from hubbub.metrics.metric import Metric
from hubbub.wire.batch import Batch
from hubbub_aggregator.database.engine import insert_new, transaction
from hubbub_aggregator.database.location import is_postgres, locked
from hubbub_aggregator.database.schema import due_mark
from hubbub_aggregator.segments.manifest import closed_name
from hubbub_aggregator.segments.object_store import ObjectStore
from hubbub_aggregator.segments.segment_file import SegmentFolder, segment_to_bytes
from hubbub_aggregator.store.append import Collections
from hubbub_aggregator.store.interface import AppendResult
from hubbub_aggregator.store.sql_store import SqlStore


def open_segment_store(
    database: str | Path, objects: ObjectStore, new_id: Callable[[], UUID], *, create: bool = True
) -> SqlStore:
    """Open a database as `SqlStore.open`, with an object store that receives the reports.

    new_id : source of the names of segments
    """
    lock_file = None if is_postgres(database) else Path(f"{Path(database).resolve()}-segments.lock")
    return SqlStore.open(
        database, create=create, appender=lambda engine: SegmentAppender(engine, objects, new_id, lock_file)
    )


class SegmentAppender:
    """Puts reports into an object store, one segment for each metric version and period.

    Duplicates are removed when segments are folded (`hubbub fold`), so every accepted batch is STORED.

    lock_file : beside a SQLite file; locked while segments are put, and while a period is closed. None: PostgreSQL locks the periods' rows
    """

    def __init__(
        self, engine: Engine, objects: ObjectStore, new_id: Callable[[], UUID], lock_file: Path | None
    ) -> None:
        self._engine, self._objects, self._new_id, self._lock_file = engine, objects, new_id, lock_file
        self._collections = Collections(engine)

    def append(self, batches: Sequence[Batch]) -> list[AppendResult]:
        groups: dict[SegmentFolder, dict[UUID, Batch]] = {}
        for given in batches:
            groups.setdefault(_folder_of(given), {}).setdefault(given.batch_id, given)
        with self._closed_among(groups) as closed:
            for folder, group in sorted(groups.items()):
                if folder not in closed:
                    name = f"{folder.path}/segments/{self._new_id()}.parquet"
                    self._objects.create(name, segment_to_bytes(group.values()))
        return [AppendResult.CLOSED if _folder_of(given) in closed else AppendResult.STORED for given in batches]

    @contextmanager
    def _closed_among(self, groups: Mapping[SegmentFolder, Mapping[UUID, Batch]]) -> Iterator[set[SegmentFolder]]:
        """Provide the folders of periods that are closed; the others cannot be closed until the block ends.

        On PostgreSQL a transaction locks their rows. On SQLite it would lock the whole database, so it ends before the block begins.
        """
        with self._closing_lock(), ExitStack() as stack:
            connection = stack.enter_context(transaction(self._engine, writes=True))
            find = self._collections.find
            closed = {
                folder for folder, group in sorted(groups.items()) if find(connection, next(iter(group.values())))[1]
            }
            if self._lock_file is not None:
                stack.close()
            yield closed

    def _closing_lock(self) -> AbstractContextManager[None]:
        return nullcontext() if self._lock_file is None else locked(self._lock_file)

    def close_period(self, metric: Metric, period: str) -> list[int]:
        """Close a period of all values of a group, and mark each in the object store, so that `hubbub fold` deletes its ids.

        A row of `due_mark` makes the period half closed until the mark exists. So the service finds the periods without it without
        listing the object store.
        """
        with self._closing_lock(), transaction(self._engine, writes=True) as connection:
            numbers = self._collections.close(connection, metric, period)
            connection.execute(insert_new(connection, due_mark), [{"collection_id": number} for number in numbers])
        for value in metric.in_group(None).collections:
            self._objects.create(closed_name(SegmentFolder(metric.name, value.digest, period).path), b"closed\n")
        return numbers

    def probe(self) -> None:
        self._objects.probe()


def _folder_of(given: Batch) -> SegmentFolder:
    return SegmentFolder(given.metric, given.collection_digest, given.period)
