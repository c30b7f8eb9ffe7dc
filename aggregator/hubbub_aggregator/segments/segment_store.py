"""`Store` that appends reports to an object store instead of the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Self
from uuid import UUID

from hubbub.wire.batch import Batch
from hubbub_aggregator.database.engine import insert_new, transaction
from hubbub_aggregator.database.location import is_postgres, locked
from hubbub_aggregator.database.schema import batch
from hubbub_aggregator.segments.manifest import closed_name
from hubbub_aggregator.segments.object_store import ObjectStore
from hubbub_aggregator.segments.segment_file import SegmentFolder, segment_to_bytes
from hubbub_aggregator.store.append import Collections
from hubbub_aggregator.store.interface import AppendResult
from hubbub_aggregator.store.sql_store import SqlStore, mark_closed

_UNMARKED = bytes(16)
"""Batch id of a closed period without the mark in the object store; as a UUID, it is the nil UUID, which no client sends."""


class SegmentStore(SqlStore):
    """`ReportStore` in an object store. Tokens, sessions, the clock and closed periods are in the database.

    Duplicates are removed when segments are folded (`hubbub fold`), so every accepted batch is STORED.
    """

    _objects: ObjectStore
    _new_id: Callable[[], UUID]
    _lock_file: Path | None
    """Beside a SQLite file: locked while segments are put, and while a period is closed. None: PostgreSQL locks the periods' rows."""

    @classmethod
    def open_with(
        cls, database: str | Path, objects: ObjectStore, new_id: Callable[[], UUID], *, create: bool = True
    ) -> Self:
        """Open a database as `SqlStore.open`, and append to an object store."""
        store = cls.open(database, create=create)
        store._objects, store._new_id = objects, new_id
        store._lock_file = None if is_postgres(database) else Path(f"{Path(database).resolve()}-segments.lock")
        return store

    def append(self, batches: Sequence[Batch]) -> list[AppendResult]:
        groups: dict[SegmentFolder, dict[UUID, Batch]] = {}
        for each in batches:
            groups.setdefault(_folder_of(each), {}).setdefault(each.batch_id, each)
        with self._closed_among(groups) as closed:
            for folder, group in sorted(groups.items()):
                if folder not in closed:
                    name = f"{folder.path}/segments/{self._new_id()}.parquet"
                    self._objects.create(name, segment_to_bytes(group.values()))
        return [AppendResult.CLOSED if _folder_of(each) in closed else AppendResult.STORED for each in batches]

    @contextmanager
    def _closed_among(self, groups: Mapping[SegmentFolder, Mapping[UUID, Batch]]) -> Iterator[set[SegmentFolder]]:
        """Provide the folders of periods that are closed; the others cannot be closed until the block ends.

        On PostgreSQL a transaction locks their rows. On SQLite it would lock the whole database, so it ends before the block begins.
        """
        with self._closing_lock(), ExitStack() as stack:
            connection = stack.enter_context(transaction(self._engine, writes=True))
            find = Collections(self._engine).find
            closed = {
                folder for folder, group in sorted(groups.items()) if find(connection, next(iter(group.values())))[1]
            }
            if self._lock_file is not None:
                stack.close()
            yield closed

    def _closing_lock(self) -> AbstractContextManager[None]:
        return nullcontext() if self._lock_file is None else locked(self._lock_file)

    def close_period(self, digest: str, period: str, between_steps: Callable[[], None] = lambda: None) -> None:
        """Close a period, and mark it in the object store, so that `hubbub fold` deletes its ids.

        A batch id in the database makes the period half closed until the mark exists. So the service finds the periods without it
        without listing the object store.
        """
        metric = self.metric_of(digest)
        with self._closing_lock(), transaction(self._engine, writes=True) as connection:
            collection_id = mark_closed(connection, digest, period)
            if collection_id is None or metric is None:  # it has no reports
                return
            unmarked = {"collection_id": collection_id, "batch_id": _UNMARKED}
            connection.execute(insert_new(connection, batch).values(unmarked))
        self._objects.create(closed_name(SegmentFolder(metric, digest, period).path), b"closed\n")
        super().close_period(digest, period, between_steps)

    def probe(self) -> None:
        super().probe()
        self._objects.probe()


def _folder_of(batch_: Batch) -> SegmentFolder:
    return SegmentFolder(batch_.metric, batch_.collection_digest, batch_.period)
