"""`Store` that appends reports to an object store instead of the database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self
from uuid import UUID

from sqlalchemy import select

from hubbub.wire.batch import Batch
from hubbub_aggregator.database.engine import fetch_all, transaction
from hubbub_aggregator.database.schema import collection
from hubbub_aggregator.segments.manifest import closed_name
from hubbub_aggregator.segments.object_store import ObjectStore
from hubbub_aggregator.segments.segment_file import SegmentFolder, segment_to_bytes
from hubbub_aggregator.store.append import Collections
from hubbub_aggregator.store.interface import AppendResult
from hubbub_aggregator.store.sql_store import SqlStore


class SegmentStore(SqlStore):
    """Tokens, sessions, the clock and closed periods are in the database; reports and batch ids in segments.

    Duplicates are removed when segments are folded (`hubbub fold`), so every accepted batch is STORED.
    """

    _objects: ObjectStore
    _new_id: Callable[[], UUID]
    _unmarked: set[SegmentFolder] | None = None
    """Closed periods without the mark in the object store; None: not known yet."""

    @classmethod
    def open_with(
        cls, database: str | Path, objects: ObjectStore, new_id: Callable[[], UUID], *, create: bool = True
    ) -> Self:
        """Open a database as `SqlStore.open`, and append to an object store."""
        store = cls.open(database, create=create)
        store._objects, store._new_id = objects, new_id
        return store

    def append(self, batches: Sequence[Batch]) -> list[AppendResult]:
        groups: dict[SegmentFolder, dict[UUID, Batch]] = {}
        for each in batches:
            folder = SegmentFolder(each.metric, each.digest, each.period)
            groups.setdefault(folder, {}).setdefault(each.batch_id, each)
        closed = set[SegmentFolder]()
        with transaction(self._engine, writes=True) as connection:
            collections = Collections(self._engine)
            for folder, group in sorted(groups.items()):
                if collections.find(connection, next(iter(group.values())))[1]:
                    closed.add(folder)
                    continue
                self._objects.create(
                    f"{folder.path}/segments/{self._new_id()}.parquet", segment_to_bytes(group.values())
                )
        folders = [SegmentFolder(each.metric, each.digest, each.period) for each in batches]
        return [AppendResult.CLOSED if folder in closed else AppendResult.STORED for folder in folders]

    def contains(self, batch_: Batch) -> bool:  # noqa: ARG002
        return False

    def close_period(self, digest: str, period: str, between_steps: Callable[[], None] = lambda: None) -> None:
        """Close a period, then mark it in the object store, so that `hubbub fold` deletes its ids."""
        super().close_period(digest, period, between_steps)
        metric = self.metric_of(digest)
        if metric is None:
            return
        folder = SegmentFolder(metric, digest, period)
        self._objects.create(closed_name(folder.path), b"closed\n")
        if self._unmarked is not None:
            self._unmarked.discard(folder)

    def half_closed_periods(self) -> list[tuple[str, str]]:
        """Return the closed periods that have no mark because a process ended before it; reads the object store once."""
        if self._unmarked is None:
            query = select(collection.c.metric, collection.c.digest, collection.c.period).where(collection.c.closed)
            closed = {SegmentFolder(*row) for row in fetch_all(self._engine, query)}
            names = list(self._objects.names())
            marked = {SegmentFolder.of(name) for name in names if name.endswith(closed_name(""))}
            self._unmarked = closed & {folder for folder in map(SegmentFolder.of, names) if folder not in marked}
        unmarked = {(folder.digest, folder.period) for folder in self._unmarked}
        return sorted({*super().half_closed_periods(), *unmarked})
