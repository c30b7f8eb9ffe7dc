"""Whether a batch would be stored now."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING

from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.store.interface import Store

if TYPE_CHECKING:
    from hubbub_aggregator.api.service import Service
    from hubbub_aggregator.monitoring.disk_space import DiskSpace
    from hubbub_aggregator.pipeline.group_commit import GroupCommit

FRESH_SECONDS = 10.0
"""A batch that was stored at most so long ago shows that batches are stored. On a slow disk a probe would get no turn beside them."""


class Readiness:
    """Answers from the writer's last commit while it is fresh, else from a probe: a durable write.

    At most one probe is under way at a time, and all who ask meanwhile share its answer.
    """

    def __init__(self, store: Store, disk: DiskSpace, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._disk = disk
        self._clock = clock
        self._lock = Lock()
        self._prober = ThreadPoolExecutor(1, "hubbub-probe")
        self._probe: Future[None] | None = None

    def require(self, writer: GroupCommit) -> Future[None] | None:
        """Raise what a batch would be answered with; return the probe that must succeed, too, or None if none is needed."""
        self._store.require_unmoved()
        if self._disk.is_full:
            raise RefusedError(ProblemType.DISK_FULL, "less is free on the disk than must be: make room")
        if not writer.is_alive:
            raise StoreError("the writer has stopped: restart the service")
        stored_at = writer.stored_at
        if stored_at is not None and self._clock() - stored_at <= FRESH_SECONDS:
            return None
        with self._lock:
            if self._probe is None or self._probe.done():
                self._probe = self._prober.submit(self._store.probe)
            return self._probe

    def close(self) -> None:
        """Finish the probe that is under way."""
        self._prober.shutdown()


def trouble(service: Service, writer: GroupCommit) -> str | None:
    """Return what keeps batches from being stored; None: nothing does."""
    try:
        probe = service.readiness.require(writer)
        if probe is not None:
            probe.result()
    except RefusedError as refused:
        return refused.detail
    except StoreError as failed:
        return str(failed)
    return None
