"""Engines: count the batches of new segments, each id once.

An engine chooses, among the rows with one id, the row of the first segment, and there the first row. It counts none of them if the id
was counted before. All engines count with the same kernel, so that their summaries are equal byte for byte.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hubbub.metrics.metric import Metric
from hubbub.summary import Summary
from hubbub.text import install_hint
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.segments.counting import count_segments
from hubbub_aggregator.segments.id_file import ids_to_bytes, read_ids
from hubbub_aggregator.segments.object_store import ObjectStore
from hubbub_aggregator.segments.segment_file import SegmentFolder, batch_ids

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NewSegments:
    """Segments of one metric version and period that are to be counted.

    segments : names, ascending
    known    : names of the id files of all batches that were counted before
    ids      : prefix of the names of the id files that the engine creates
    """

    objects: ObjectStore
    folder: SegmentFolder
    metric: Metric
    segments: Sequence[str]
    known: Sequence[str]
    ids: str


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts of new segments.

    summary      : of these segments
    ids          : names of the id files that were created
    num_repeated : rows that were not counted
    """

    summary: Summary
    ids: Sequence[str]
    num_batches: int
    num_repeated: int


class Engine(Protocol):
    """Counts new segments."""

    def count(self, new: NewSegments) -> Counted:
        """Count each batch once, and create the id files of the counted batches.

        Raises MissingObjectError if another fold has deleted a segment, and StoreError for a damaged one.
        """


class OneProcessEngine(ABC):
    """Counts one segment after the other in this process; subclasses remove duplicates."""

    @abstractmethod
    def first_rows(self, segments: Sequence[pa.Array], known: Iterable[pa.Array]) -> list[Rows]:
        """Return, for each segment, its rows to count, in ascending order.

        segments : ids of the batches of each segment, binary(16)
        known    : ids that were counted before
        """

    def count(self, new: NewSegments) -> Counted:
        read = new.objects.read
        ids = [batch_ids(name, read(name)) for name in new.segments]
        rows = self.first_rows(ids, (read_ids(name, read(name)) for name in new.known))
        summary = count_segments(new.metric, new.folder.period, read, zip(new.segments, rows, strict=True))
        name = f"{new.ids}.parquet"
        new.objects.create(name, ids_to_bytes(each.take(pa.array(kept)) for each, kept in zip(ids, rows, strict=True)))
        batches = sum(map(len, rows))
        return Counted(summary, [name], batches, sum(map(len, ids)) - batches)


class ArrowEngine(OneProcessEngine):
    """Arrow's hash tables, in memory: about 60 bytes an id."""

    def first_rows(self, segments: Sequence[pa.Array], known: Iterable[pa.Array]) -> list[Rows]:
        table = _numbered(segments)
        for ids in known:
            table = table.filter(pc.invert(pc.is_in(table["batch_id"], ids)))
        first = table.group_by("batch_id").aggregate([("row", "min")])["row_min"].to_numpy()
        return _per_segment(np.sort(first), segments)


class DuckDBEngine(OneProcessEngine):
    """DuckDB: uses all cores, and spills to disk beyond `memory_limit`, such as "2GB"."""

    def __init__(self, memory_limit: str | None = None, directory: str | None = None) -> None:
        self._settings = {"memory_limit": memory_limit, "temp_directory": directory}

    def first_rows(self, segments: Sequence[pa.Array], known: Iterable[pa.Array]) -> list[Rows]:
        try:
            import duckdb
        except ImportError:
            raise StoreError(f"--engine duckdb needs duckdb: {install_hint('segments')}") from None
        config: dict[str, str | bool | int | float | list[str]] = {
            name: value for name, value in self._settings.items() if value is not None
        }
        try:
            with duckdb.connect(config=config) as connection:
                connection.register("segments", _numbered(segments))
                counted = pa.chunked_array(list(known), pa.binary(16))
                connection.register("known", pa.table({"batch_id": counted}))
                query = "SELECT min(row) AS row FROM segments ANTI JOIN known USING (batch_id) GROUP BY batch_id ORDER BY row"
                first = connection.execute(query).fetchnumpy()["row"]
        except duckdb.Error as problem:
            raise StoreError(f"DuckDB: {(str(problem).splitlines() or [''])[0]}") from None
        return _per_segment(np.asarray(first, np.int64), segments)


def _numbered(segments: Sequence[pa.Array]) -> pa.Table:
    """Ids of all segments with the number of each row, counted through all segments."""
    ids = pa.chunked_array(list(segments), pa.binary(16))
    return pa.table({"batch_id": ids, "row": pa.array(np.arange(len(ids)))})


def _per_segment(rows: Rows, segments: Sequence[pa.Array]) -> list[Rows]:
    """Split ascending row numbers of all segments into those of each."""
    starts = np.cumsum([0, *map(len, segments)])
    cuts = np.searchsorted(rows, starts)
    return [rows[low:high] - start for low, high, start in zip(cuts[:-1], cuts[1:], starts[:-1], strict=True)]
