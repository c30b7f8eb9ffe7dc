"""Counting of segments: the kernel of both engines, on whole segments without the rows that repeat a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hubbub.metrics.metric import Metric
from hubbub.summary import Summary
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.pipeline.folding import summary_type
from hubbub_aggregator.segments.manifest import ids_to_bytes
from hubbub_aggregator.segments.object_store import ObjectStore
from hubbub_aggregator.segments.segment_file import batches_of

Bytes = NDArray[np.uint8]
_MAX_REPORTS_AT_ONCE = 1 << 19
"""The kernel needs 10 MB for so many, which fit into the processor's cache, and 40 % more time for parts of 20,000."""


@dataclass(frozen=True, slots=True)
class Part:
    """Segments that are counted by one task.

    segments : names
    repeated : for each, its rows not to count, ascending
    ids      : name of the id file that the task creates
    """

    segments: Sequence[str]
    repeated: Sequence[NDArray[np.int64]]
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

    def __add__(self, other: Counted) -> Counted:
        return Counted(
            self.summary + other.summary,  # type: ignore[operator]
            [*self.ids, *other.ids],
            self.num_batches + other.num_batches,
            self.num_repeated + other.num_repeated,
        )


def count_part(objects: ObjectStore, metric: Metric, period: str, part: Part) -> Counted:
    """Count some segments, and create an id file of their batches; one segment and half a million reports are in memory at a time.

    Raises MissingObjectError if another fold has deleted a segment, and StoreError for a damaged one.
    """
    counts, ids = summary_type(metric), list[pa.Array]()

    def reports() -> Iterator[Sequence[Bytes]]:
        for name, repeated in zip(part.segments, part.repeated, strict=True):
            batches = batches_of(name, objects.read(name), metric.row_bytes, repeated)
            if len(batches.cohorts) and batches.cohorts.max() >= metric.num_cohorts:
                raise StoreError(
                    f"{name}: the segment has cohort {batches.cohorts.max()}, but the definition has {metric.num_cohorts} cohorts: "
                    "the segment is damaged. Restore it, or move it out of the folder"
                )
            ids.append(batches.ids)
            yield batches.cohorts, batches.reports

    total: Summary = counts.empty(metric)
    for cohorts, rows in _joined(reports()):
        total = total + counts.from_rows(metric, cohorts, rows, [period])  # type: ignore[operator]
    num_batches = sum(map(len, ids))
    if num_batches:
        objects.create(part.ids, ids_to_bytes(ids))
    return Counted(total, [part.ids] if num_batches else [], num_batches, sum(map(len, part.repeated)))


def _joined(parts: Iterable[Sequence[Bytes]]) -> Iterator[Sequence[Bytes]]:
    """Yield cohorts and reports of several segments at once, as views that are valid until the next; nothing if there is no report.

    The memory is used again, which saves the kernel's time of a third: the system clears each new page.
    """
    some, size = list[Sequence[Bytes]](), 0
    memory: list[Bytes] = [np.zeros(0, np.uint8)] * 2

    def joined() -> Sequence[Bytes]:
        columns = list(zip(*some, strict=True))
        sizes = [sum(map(len, column)) for column in columns]
        memory[:] = (
            old if len(old) >= size else np.empty(size, np.uint8) for old, size in zip(memory, sizes, strict=True)
        )
        return [
            np.concatenate(column, out=place[:size]) for column, place, size in zip(columns, memory, sizes, strict=True)
        ]

    for part in parts:
        some.append(part)
        size += len(part[0])
        if size >= _MAX_REPORTS_AT_ONCE:
            yield joined()
            some, size = [], 0
    if size:
        yield joined()
