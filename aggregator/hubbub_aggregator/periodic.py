"""A thread that does one thing again and again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

logger = logging.getLogger(__name__)


@contextmanager
def survived(what: str) -> Iterator[None]:
    """Log a failure by its kind alone, and go on: what was worked on stays, and is tried again next time."""
    try:
        yield
    except Exception as problem:  # noqa: BLE001  (nothing may stop the service)
        logger.error("%s failed: %s", what, type(problem).__name__)


class Periodic:
    """Call `job` every `seconds` until closed."""

    def __init__(self, name: str, job: Callable[[], object], seconds: float) -> None:
        self._name = name
        self._job = job
        self._seconds = seconds
        self._closing = Event()
        self._thread = Thread(target=self._run, name=f"hubbub {name}")
        self._thread.start()

    def close(self) -> None:
        """Finish what is under way, and stop."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(self._seconds):
            with survived(self._name):
                self._job()
