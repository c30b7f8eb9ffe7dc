"""A thread that does one thing again and again."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread

from hubbub_aggregator.monitoring.job_health import JobHealth


class PeriodicJob:
    """Call `job` every `seconds` until closed; `name` is one of `troubles.JOBS`."""

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
        """Finish what is under way, and stop."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(self._seconds):
            with self._troubles.guard(self._name):
                self._job()
