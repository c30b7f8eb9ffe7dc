"""What the service does by itself, and whether it works: the log says why it does not, and when it does again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from hubbub.errors import HubbubError
from hubbub_aggregator.shared_numbers import SharedNumbers
from hubbub_aggregator.store import StoreError

logger = logging.getLogger(__name__)

JOBS = ("storing batches", "upkeep", "counting refusals", "watching the disk")
_FAILURES = {job: f"failures: {job}" for job in JOBS}
_FAILING = {job: f"failing: {job}" for job in JOBS}


class JobError(HubbubError):
    """A job was done in part only; says of what it was not, and why."""


def cause(problem: Exception) -> str:
    """Return what may be logged of a failure: a database's own words, else its kind alone, since a text may hold anything."""
    return str(problem) if isinstance(problem, (StoreError, JobError)) else type(problem).__name__


class Troubles:
    """Counts failures, of all workers; each job is done by one thread at a time.

    numbers : has the NAMES
    """

    NAMES = (*_FAILURES.values(), *_FAILING.values())

    def __init__(self, numbers: SharedNumbers | None = None) -> None:
        self._numbers = numbers or SharedNumbers(self.NAMES)
        self._failing = dict.fromkeys(JOBS, False)
        for job in JOBS:
            self._numbers.put(_FAILING[job], 0)  # what failed in a worker that died fails no more

    @contextmanager
    def survived(self, job: str) -> Iterator[None]:
        """Log a failure, and go on: what was worked on stays, and is tried again next time."""
        try:
            yield
        except Exception as problem:  # noqa: BLE001  (nothing may stop the service)
            logger.error("%s failed: %s", job, cause(problem))
            self._numbers.add(_FAILURES[job])
            self._say(job, True)
        else:
            if self._failing[job]:
                logger.warning("%s works again", job)
                self._say(job, False)

    def _say(self, job: str, failing: bool) -> None:
        self._failing[job] = failing
        self._numbers.put(_FAILING[job], failing)

    def failures(self) -> dict[str, int]:
        """Return how often each job failed since the start."""
        return {job: int(self._numbers[_FAILURES[job]]) for job in JOBS}

    def failing(self) -> dict[str, int]:
        """Return in how many workers each job failed the last time."""
        return {job: int(self._numbers[_FAILING[job]]) for job in JOBS}
