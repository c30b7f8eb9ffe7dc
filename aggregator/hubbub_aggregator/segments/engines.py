"""Engines count the batches of new segments, each id once: Arrow on one machine, Spark (`spark_engine`) on many.

    NewSegments.rows      ids of each object  ->  rows that repeat an id       sorted in this process, or by bucket in the cluster
    NewSegments.count     parts of segments   ->  counts, and id files         in processes, or in tasks of the cluster

Among the rows with one id, the row of the first segment counts, and there the first row. None counts if the id was counted before.
Both engines find repeated ids and count with the same functions, so that their summaries are equal byte for byte.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import add
from types import TracebackType
from typing import Protocol, Self

import numpy as np

from hubbub.metrics.metric import Metric
from hubbub.wire.urls import mask_url
from hubbub.worker_processes import worker_pool
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.pipeline.folding import summary_type
from hubbub_aggregator.segments.counting import Counted, Part, count_part
from hubbub_aggregator.segments.manifest import read_ids
from hubbub_aggregator.segments.object_store import ObjectStore
from hubbub_aggregator.segments.repeated_ids import (
    Ints,
    known_rows,
    new_rows,
    per_segment,
    positions_in,
    repeated_positions,
)
from hubbub_aggregator.segments.segment_file import SegmentFolder, batch_ids

_MIN_ROWS_FOR_PROCESSES = 3_000_000
"""Fewer rows are counted sooner than processes start."""
_MIN_ROWS_OF_PART, _MAX_ROWS_OF_PART = 1_000_000, 4_000_000
_PARTS_PER_PROCESS = 4


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

    @property
    def num_objects(self) -> int:
        """Number of segments and id files."""
        return len(self.segments) + len(self.known)

    def rows(self, number: int) -> Ints:
        """Return the rows (`repeated_ids`) of the ids in one object: a segment or, after the segments, an id file."""
        if number < len(self.segments):
            name = self.segments[number]
            return new_rows(number, batch_ids(name, self.objects.read(name)))
        name = self.known[number - len(self.segments)]
        return known_rows(read_ids(name, self.objects.read(name)))

    def count(self, segments: range, repeated: Ints, task: int) -> Counted:
        """Count a part of the segments without the rows at these positions, ascending; the id file has the task's number."""
        names = self.segments[segments.start : segments.stop]
        part = Part(names, per_segment(repeated, segments), f"{self.ids}-{task}.parquet")
        return count_part(self.objects, self.metric, self.folder.period, part)

    def delete_ids_except(self, valid: Sequence[str]) -> None:
        """Delete the id files that tasks created in vain."""
        names = self.objects.names(self.ids.rpartition("/")[0])
        self.objects.delete([name for name in names if name.startswith(f"{self.ids}-") and name not in valid])


class Engine(Protocol):
    """Counts new segments."""

    def count(self, new: NewSegments) -> Counted:
        """Count each batch once, and create the id files of the counted batches.

        Raises MissingObjectError if another fold has deleted a segment, and StoreError for a damaged one.
        """


class ArrowEngine:
    """Counts on one machine: it finds repeated ids in threads, and counts in processes, by default as many as there are cores."""

    def __init__(self, processes: int | None = None) -> None:
        self._processes = processes or os.cpu_count() or 1

    def repeated(self, blocks: Iterable[Ints]) -> Ints:
        """Return the positions, ascending, of all rows (`repeated_ids`) but the first of each id, without KNOWN.

        Ids are sorted with numpy, beyond two million in temporary files.
        """
        try:
            return repeated_positions(blocks, self._processes)
        except OSError as problem:
            raise StoreError(
                f"temporary files for batch ids: {problem.strerror}. Nothing was counted: set TMPDIR to a directory "
                "with room for 24 bytes a batch, and `ulimit -n` to 512 files or more"
            ) from None

    def count(self, new: NewSegments) -> Counted:
        try:
            return self._count(new)
        except StoreError:  # all processes have ended
            new.delete_ids_except([])
            raise

    def _count(self, new: NewSegments) -> Counted:
        sizes, num_rows = list[int](), 0
        with Workers(self._processes) as workers:

            def blocks() -> Iterator[Ints]:
                nonlocal num_rows
                for number in range(new.num_objects):
                    rows = new.rows(number)
                    if number < len(new.segments):
                        sizes.append(len(rows))
                        num_rows += len(rows)
                    if num_rows >= _MIN_ROWS_FOR_PROCESSES:
                        workers.start()
                    yield rows

            repeated = self.repeated(blocks())
            return workers.count(new, repeated, _parts(sizes, self._processes))


def _parts(sizes: Sequence[int], processes: int) -> list[range]:
    """Divide segments, with `sizes` rows, into parts of about equal size."""
    size_of_part = np.clip(sum(sizes) / (_PARTS_PER_PROCESS * processes), _MIN_ROWS_OF_PART, _MAX_ROWS_OF_PART)
    before = np.cumsum([0, *sizes[:-1]])
    cuts = np.flatnonzero(np.diff(before // size_of_part, prepend=-1)).tolist()
    return [range(low, high) for low, high in pairwise([*cuts, len(sizes)])]


class Workers:
    """Counts parts in this process or, after `start`, in several. A context manager, which ends the processes."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._pool: ProcessPoolExecutor | None = None

    def start(self) -> None:
        """Start the processes without waiting for them; a second call does nothing."""
        if self._pool is None and self._processes > 1:
            self._pool = worker_pool(self._processes)
            self._pool.submit(_import_this_module)

    def count(self, new: NewSegments, repeated: Ints, parts: Sequence[range]) -> Counted:
        """Return the sum of the counts of all parts; raises what `count_part` raises, and StoreError if a process dies."""
        nothing = Counted(summary_type(new.metric).empty(new.metric), [], 0, 0)
        if self._pool is None:
            counted = (new.count(part, repeated, task) for task, part in enumerate(parts))
            return reduce(add, counted, nothing)
        try:
            tasks = [
                self._pool.submit(_count, new, part, positions_in(repeated, part), task)
                for task, part in enumerate(parts)
            ]
            return reduce(add, (task.result() for task in as_completed(tasks)), nothing)
        except BrokenProcessPool:
            raise StoreError(
                f"{mask_url(new.objects.place)}: a process that counts was killed, perhaps for lack of memory. "
                "Nothing was counted: run fold again, on a machine with more memory, or with --jobs 1"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _import_this_module() -> None:
    """First work of a pool, which starts its processes: the import takes them half a second."""


def _count(new: NewSegments, part: range, repeated: Ints, task: int) -> Counted:
    return new.count(part, repeated, task)
