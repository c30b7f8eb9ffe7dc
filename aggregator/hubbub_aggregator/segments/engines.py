"""Engines: count the batches of new segments, each id once.

An engine chooses, among the rows with one id, the row of the first segment, and there the first row. It counts none of them if the id
was counted before. Both engines count with the same kernel, so that their summaries are equal byte for byte.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import reduce
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
from hubbub_aggregator.segments.repeated_ids import Ints, known_rows, new_rows, per_segment, repeated_positions
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
    """Counts on one machine: it finds repeated ids in this process, and counts in several, by default one for each core."""

    def __init__(self, processes: int | None = None) -> None:
        self._processes = processes or os.cpu_count() or 1

    def repeated(self, blocks: Iterable[Ints]) -> Ints:
        """Return the positions, ascending, of all rows (`repeated_ids`) but the first of each id, without KNOWN.

        Ids are sorted with numpy, beyond two million in temporary files.
        """
        try:
            return repeated_positions(blocks)
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
        read, sizes, num_rows = new.objects.read, list[int](), 0
        with Workers(self._processes) as workers:

            def blocks() -> Iterator[Ints]:
                nonlocal num_rows
                for name in new.known:
                    yield known_rows(read_ids(name, read(name)))
                for number, name in enumerate(new.segments):
                    ids = batch_ids(name, read(name))
                    sizes.append(len(ids))
                    num_rows += len(ids)
                    if num_rows >= _MIN_ROWS_FOR_PROCESSES:
                        workers.start()
                    yield new_rows(number, ids)

            repeated = per_segment(self.repeated(blocks()), len(new.segments))
            parts = _parts(new, sizes, repeated, self._processes)
            return workers.count(new.objects, new.metric, new.folder.period, parts)


def _parts(new: NewSegments, sizes: Sequence[int], repeated: Sequence[Ints], processes: int) -> list[Part]:
    """Divide segments, with `sizes` rows, into parts of about equal size."""
    each = np.clip(sum(sizes) / (_PARTS_PER_PROCESS * processes), _MIN_ROWS_OF_PART, _MAX_ROWS_OF_PART)
    before = np.cumsum([0, *sizes[:-1]])
    cuts = np.flatnonzero(np.diff(before // each, prepend=-1)).tolist()
    return [
        Part(new.segments[low:high], repeated[low:high], f"{new.ids}-{number}.parquet")
        for number, (low, high) in enumerate(zip(cuts, [*cuts[1:], len(sizes)], strict=True))
    ]


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

    def count(self, objects: ObjectStore, metric: Metric, period: str, parts: Sequence[Part]) -> Counted:
        """Return the sum of the counts of all parts; raises what `count_part` raises, and StoreError if a process dies."""
        nothing = Counted(summary_type(metric).empty(metric), [], 0, 0)
        if self._pool is None:
            return reduce(add, (count_part(objects, metric, period, part) for part in parts), nothing)
        try:
            futures = as_completed([self._pool.submit(_count, objects.place, metric, period, part) for part in parts])
            return reduce(add, (future.result() for future in futures), nothing)
        except BrokenProcessPool:
            raise StoreError(
                f"{mask_url(objects.place)}: a process that counts was killed, perhaps for lack of memory. "
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


def _count(place: str, metric: Metric, period: str, part: Part) -> Counted:
    return count_part(ObjectStore.open(place), metric, period, part)
