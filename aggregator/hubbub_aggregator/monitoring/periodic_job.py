"""Run a function periodically in a thread."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread

from hubbub_aggregator.monitoring.job_health import JobHealth


class PeriodicJob:
    """Thread that calls `job` every `seconds` until it is closed; `name` is one of `job_health.JOBS`."""

    def __init__(
        self, name: str, job: Callable[[], object], seconds: float, job_health: JobHealth | None = None
    ) -> None:
        self._name = name
        self._job = job
        self._seconds = seconds
        self._troubles = job_health or JobHealth()
        self._closing = Event()
        self._thread = Thread(target=self._run, name=f"hubbub {name}")
        self._thread.start()

    def close(self) -> None:
        """Wait for the current run, then stop the thread."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(self._seconds):
            with self._troubles.guard(self._name):
                self._job()
