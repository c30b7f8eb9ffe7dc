"""`Store` that appends reports to an object store instead of the database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self
from uuid import UUID

from hubbub.wire.batch import Batch
from hubbub_aggregator.database.engine import transaction
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
