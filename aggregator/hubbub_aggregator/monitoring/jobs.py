"""Background jobs: run a function periodically in a thread; log and count its failures, and continue with the next run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from hubbub_aggregator.errors import FilesInDoubtError, JobError, StoreError, loggable_cause

logger = logging.getLogger(__name__)

JOBS = (
    "commit",
    "fold_and_expire",
    "compute_figures",
    "flush_refusals",
    "check_disk",
    "check_clock",
    "check_retention",
)


def failure_text(problem: Exception) -> str:
    """Return the loggable text of a failure: a store's or job's message, else its `loggable_cause`."""
    return str(problem) if isinstance(problem, (StoreError, JobError)) else loggable_cause(problem)


def log_failure(log: logging.Logger, job: str, problem: Exception) -> None:
    """Log a failure of a job; moved or damaged database files have been logged already."""
    if not isinstance(problem, FilesInDoubtError):
        log.error("%s failed: %s", job, failure_text(problem))


class JobHealth:
    """Failures of each job since the start; each job runs in one thread at a time."""

    def __init__(self) -> None:
        self._failures = dict.fromkeys(JOBS, 0)
        self._failing = dict.fromkeys(JOBS, False)

    @contextmanager
    def guard(self, job: str) -> Iterator[None]:
        """Log and count an exception of the block and suppress it; the job's next run tries again."""
        try:
            yield
        except Exception as problem:  # noqa: BLE001  (a failed job must not stop the service)
            log_failure(logger, job, problem)
            self._failures[job] += 1
            self._failing[job] = True
        else:
            if self._failing[job]:
                logger.warning("%s works again", job)
                self._failing[job] = False

    def failures(self) -> dict[str, int]:
        """Return the number of failures of each job since the start."""
        return dict(self._failures)

    def failing(self) -> dict[str, bool]:
        """Return for each job whether its last run failed."""
        return dict(self._failing)


class PeriodicJob:
    """Thread that calls `job` every `seconds` until it is closed; `name` is one of `JOBS`."""

    def __init__(
        self, name: str, job: Callable[[], object], seconds: float, job_health: JobHealth | None = None
    ) -> None:
        self._name = name
        self._job = job
        self._seconds = seconds
        self._job_health = job_health or JobHealth()
        self._closing = Event()
        self._thread = Thread(target=self._run, name=f"hubbub {name}")
        self._thread.start()

    def close(self) -> None:
        """Wait for the current run, then stop the thread."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(self._seconds):
            with self._job_health.guard(self._name):
                self._job()
