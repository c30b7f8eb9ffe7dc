"""Readiness: whether the service would store a batch now."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock

from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.monitoring.disk_space import DiskSpace
from hubbub_aggregator.pipeline.group_commit import GroupCommit
from hubbub_aggregator.store.interface import ReportStore

FRESH_SECONDS = 10.0
"""A commit in the last 10 seconds proves readiness. A probe would have to wait behind the commits of a busy, slow disk."""


class ReadinessCheck:
    """Checks readiness by the writer's last commit while it is fresh, else by a probe: a durable write.

    At most one probe runs at a time; concurrent callers share it.
    """

    def __init__(self, store: ReportStore, disk: DiskSpace, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._disk = disk
        self._clock = clock
        self._lock = Lock()
        self._executor = ThreadPoolExecutor(1, "hubbub-probe")
        self._probe: Future[None] | None = None

    def require(self, writer: GroupCommit) -> Future[None] | None:
        """Raise the error that a batch would get; return the probe that must also succeed, or None if none is needed."""
        self._store.require_intact()
        if self._disk.is_full:
            raise RefusedError(ProblemType.DISK_FULL, "free disk space is below --min-free-disk: free some space")
        if not writer.is_alive:
            raise StoreError("the writer thread has stopped: restart the service")
        stored_at = writer.stored_at
        if stored_at is not None and self._clock() - stored_at <= FRESH_SECONDS:
            return None
        with self._lock:
            if self._probe is None or self._probe.done():
                self._probe = self._executor.submit(self._store.probe)
            return self._probe

    def close(self) -> None:
        """Finish the probe that is running."""
        self._executor.shutdown()


def readiness_error(readiness: ReadinessCheck, writer: GroupCommit) -> str | None:
    """Return the reason for which batches are not stored, None if they are."""
    try:
        probe = readiness.require(writer)
        if probe is not None:
            probe.result()
    except RefusedError as refused:
        return refused.detail
    except StoreError as failed:
        return str(failed)
    return None
