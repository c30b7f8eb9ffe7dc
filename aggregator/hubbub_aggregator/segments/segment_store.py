"""`Store` that appends reports to an object store instead of the database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self
from uuid import UUID

from hubbub.wire.batch import Batch
from hubbub_aggregator.database.engine import insert_new, transaction
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

    def close_period(self, digest: str, period: str, between_steps: Callable[[], None] = lambda: None) -> None:
        """Close a period, and mark it in the object store, so that `hubbub fold` deletes its ids.

        A batch id in the database makes the period half closed until the mark exists. So the service finds the periods without it
        without listing the object store.
        """
        metric = self.metric_of(digest)
        with transaction(self._engine, writes=True) as connection:
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
