"""Group commit: one transaction stores all batches that arrived since the commit before began."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import NamedTuple

from prometheus_client import Histogram

from hubbub.wire.batch import Batch
from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.monitoring.jobs import JobHealth
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.interface import AppendResult, ReportStore

_BATCH_OVERHEAD_BYTES = 1_024
"""Memory of a queued batch without its reports: id, future, request."""

COMMIT_INTERVAL_SECONDS = 0.002
"""Least time between the starts of two commits. A batch that arrives later does not wait; under load more batches share a commit."""

_COMMIT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)  # seconds


class _QueuedBatch(NamedTuple):
    batch: Batch
    result: asyncio.Future[AppendResult]
    num_bytes: int


class GroupCommit:
    """A writer thread behind a bounded queue of batches.

    Create, use and close it in one event loop; only `_run` runs in the thread.
    """

    stored_at: float | None = None
    """Clock time of the last commit that stored a batch; None: no such commit, or the last one failed."""

    def __init__(
        self,
        store: ReportStore,
        settings: Settings,
        job_health: JobHealth | None = None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_QueuedBatch | None] = SimpleQueue()
        self._job_health = job_health or JobHealth()
        self._clock, self._pause = clock, pause
        self._queued_bytes = 0
        self.commits = Histogram(
            "hubbub_commit_seconds", "Duration of a commit.", registry=None, buckets=_COMMIT_BUCKETS
        )
        self._thread = Thread(target=self._run, name="hubbub-writer")
        self._thread.start()

    async def write(self, batch: Batch) -> AppendResult:
        """Queue a batch; return its result after the commit is durable.

        Raises RefusedError (503) if the queue is full or the commit failed.
        """
        num_bytes = len(batch.cohorts) + len(batch.rows) + _BATCH_OVERHEAD_BYTES
        self.require_room(num_bytes)
        result: asyncio.Future[AppendResult] = self._loop.create_future()
        self._queued_bytes += num_bytes
        self._queue.put(_QueuedBatch(batch, result, num_bytes))
        return await result

    def require_room(self, num_bytes: int = _BATCH_OVERHEAD_BYTES) -> None:
        """Raise RefusedError (503) unless the queue has room for a batch of this size; default: for an empty batch."""
        if self._queued_bytes and self._queued_bytes + num_bytes > self._settings.max_queue_bytes:
            raise RefusedError(
                ProblemType.UNAVAILABLE, "too many batches are waiting to be stored: send the batch again later"
            )

    @property
    def queued_bytes(self) -> int:
        """Return the size of the batches that wait for their commit, in bytes."""
        return self._queued_bytes

    @property
    def is_alive(self) -> bool:
        """Return whether the writer thread runs."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Store the queued batches, then stop the thread. Blocks until then."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        next_commit = -math.inf
        while (first := self._queue.get()) is not None:
            if (wait := next_commit - self._clock()) > 0:
                self._pause(wait)
            next_commit = self._clock() + COMMIT_INTERVAL_SECONDS
            group = self._take_queued([first], self._settings.max_commit_bytes)
            appended: list[AppendResult] | None = None
            began = time.perf_counter()
            with self._job_health.guard("commit"):  # after a failure the next group is tried
                appended = self._store.append([queued.batch for queued in group])
            if appended is None:
                self.stored_at = None
                self._take_queued(group, math.inf)  # they are refused now, and do not wait for a failure of their own
            elif AppendResult.STORED in appended:
                self.stored_at = self._clock()
            self.commits.observe(time.perf_counter() - began)
            self._loop.call_soon_threadsafe(self._resolve, group, appended)

    def _take_queued(self, group: list[_QueuedBatch], max_bytes: float) -> list[_QueuedBatch]:
        """Append queued batches to a group until it has `max_bytes` or the queue is empty; return the group."""
        num_bytes = sum(queued.num_bytes for queued in group)
        with suppress(Empty):
            while num_bytes < max_bytes:
                queued = self._queue.get_nowait()
                if queued is None:
                    self._queue.put(None)
                    break
                group.append(queued)
                num_bytes += queued.num_bytes
        return group

    def _resolve(self, group: list[_QueuedBatch], appended: list[AppendResult] | None) -> None:
        self._queued_bytes -= sum(queued.num_bytes for queued in group)
        for number, queued in enumerate(group):
            if queued.result.done():  # the request was cancelled
                continue
            if appended is None:
                problem = RefusedError(ProblemType.UNAVAILABLE, "the batch could not be stored: send it again later")
                queued.result.set_exception(problem)
            else:
                queued.result.set_result(appended[number])
