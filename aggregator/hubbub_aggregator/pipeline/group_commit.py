"""Group commit: all batches that arrived while the last commit was being written go into the next one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import NamedTuple

from prometheus_client import Histogram

from hubbub.wire.batch import Batch
from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.monitoring.job_health import JobHealth
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.interface import AppendResult, Store

_PER_BATCH = 1_024
"""What a waiting batch weighs beside its reports, in bytes: its id, its future, the request around it."""

_COMMIT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)  # seconds


class _QueuedBatch(NamedTuple):
    batch: Batch
    answer: asyncio.Future[AppendResult]
    weight: int


class GroupCommit:
    """One thread that writes, and a bounded queue in front of it.

    Made, asked and closed in one event loop; only `_run` runs in the thread.
    """

    stored_at: float | None = None
    """When, by the clock, the last commit stored a batch; None: none has, or the last one failed."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        job_health: JobHealth | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_QueuedBatch | None] = SimpleQueue()
        self._troubles = job_health or JobHealth()
        self._clock = clock
        self._weight = 0
        self.commits = Histogram(
            "hubbub_commit_seconds", "Duration of a commit.", registry=None, buckets=_COMMIT_BUCKETS
        )
        self._thread = Thread(target=self._run, name="hubbub-writer")
        self._thread.start()

    async def write(self, batch: Batch) -> AppendResult:
        """Return, once it is durable, what became of the batch; raises RefusedError if it could not be stored."""
        weight = len(batch.cohorts) + len(batch.rows) + _PER_BATCH
        self.require_room(weight)
        answer: asyncio.Future[AppendResult] = self._loop.create_future()
        self._weight += weight
        self._queue.put(_QueuedBatch(batch, answer, weight))
        return await answer

    def require_room(self, weight: int = _PER_BATCH) -> None:
        """Refuse what has no room in the queue; by default anything, where there is no room even for an empty batch."""
        if self._weight and self._weight + weight > self._settings.max_queue_bytes:
            raise RefusedError(ProblemType.UNAVAILABLE, "too many batches are waiting to be stored")

    @property
    def waiting(self) -> int:
        """How many bytes of batches wait for their commit."""
        return self._weight

    @property
    def alive(self) -> bool:
        """Whether batches are still being written."""
        return self._thread.is_alive()

    async def close(self) -> None:
        """Write what is waiting, then stop."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            group = [first, *self._arrived()]
            appended: list[AppendResult] | None = None
            began = time.perf_counter()
            with self._troubles.guard("commit"):  # whatever fails, the next group gets its chance
                appended = self._store.append([waiting.batch for waiting in group])
            if appended is None:
                self.stored_at = None
            elif AppendResult.STORED in appended:
                self.stored_at = self._clock()
            self.commits.observe(time.perf_counter() - began)
            self._loop.call_soon_threadsafe(self._settle, group, appended)

    def _arrived(self) -> list[_QueuedBatch]:
        arrived: list[_QueuedBatch] = []
        try:
            while len(arrived) + 1 < self._settings.max_batches_per_commit:
                waiting = self._queue.get_nowait()
                if waiting is None:
                    self._queue.put(None)
                    break
                arrived.append(waiting)
        except Empty:
            pass
        return arrived

    def _settle(self, group: list[_QueuedBatch], appended: list[AppendResult] | None) -> None:
        self._weight -= sum(waiting.weight for waiting in group)
        for number, waiting in enumerate(group):
            if waiting.answer.done():  # cancelled: nobody waits for it any more
                continue
            if appended is None:
                waiting.answer.set_exception(
                    RefusedError(ProblemType.UNAVAILABLE, "the store could not take the batch")
                )
            else:
                waiting.answer.set_result(appended[number])
