"""Counting of parts on all cores of one machine."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import reduce
from operator import add
from types import TracebackType
from typing import Self

from hubbub.metrics.metric import Metric
from hubbub.wire.url_masking import mask_url
from hubbub.worker_processes import worker_pool
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.pipeline.folding import summary_type
from hubbub_aggregator.segments.counting import Counted, Part, count_part
from hubbub_aggregator.segments.object_store import ObjectStore


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
                "Nothing was counted: run fold again, on a machine with more memory, or with --processes 1"
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
