"""What the service does by itself, and whether it works: the log says why it does not, and when it does again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from hubbub_aggregator.errors import DatabaseMovedError, JobError, StoreError

logger = logging.getLogger(__name__)

JOBS = ("commit", "fold_and_expire", "compute_figures", "flush_refusals", "check_disk")


def failure_text(problem: Exception) -> str:
    """Return what may be logged of a failure: a database's own words, else its kind alone, since a text may hold anything."""
    return str(problem) if isinstance(problem, (StoreError, JobError)) else type(problem).__name__


def log_failure(log: logging.Logger, job: str, problem: Exception) -> None:
    """Log that something failed, and why; a database file that was moved has an error of its own in the log already."""
    if not isinstance(problem, DatabaseMovedError):
        log.error("%s failed: %s", job, failure_text(problem))


class JobHealth:
    """Counts the failures of each job; one thread at a time runs a job."""

    def __init__(self) -> None:
        self._failures = dict.fromkeys(JOBS, 0)
        self._failing = dict.fromkeys(JOBS, False)

    @contextmanager
    def guard(self, job: str) -> Iterator[None]:
        """Log a failure, and go on: what was worked on stays, and is tried again next time."""
        try:
            yield
        except Exception as problem:  # noqa: BLE001  (nothing may stop the service)
            log_failure(logger, job, problem)
            self._failures[job] += 1
            self._failing[job] = True
        else:
            if self._failing[job]:
                logger.warning("%s works again", job)
                self._failing[job] = False

    def failures(self) -> dict[str, int]:
        """Return how often each job failed since the start."""
        return dict(self._failures)

    def failing(self) -> dict[str, bool]:
        """Return whether each job failed the last time it ran."""
        return dict(self._failing)
