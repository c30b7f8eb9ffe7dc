"""Simulated time: events in their order. A process is a generator that yields the time at which it continues."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Generator
from datetime import datetime

Process = Generator[datetime, None, None]


class World:
    """The true time, and the processes that wait for theirs."""

    def __init__(self, start: datetime) -> None:
        self.now = start
        self._waiting: list[tuple[datetime, int, Process]] = []
        self._numbers = itertools.count()

    def __call__(self) -> datetime:
        return self.now

    def begin(self, process: Process) -> None:
        """Let a process begin now."""
        self._continue(process)

    def run(self, end: datetime) -> None:
        """Let all processes continue at their times, until the end. A process that waits longer is closed."""
        while self._waiting and self._waiting[0][0] <= end:
            self.now, _, process = heapq.heappop(self._waiting)
            self._continue(process)
        self.now = end
        for _, _, process in self._waiting:
            process.close()
        self._waiting.clear()

    def _continue(self, process: Process) -> None:
        for wanted in itertools.islice(process, 1):
            heapq.heappush(self._waiting, (max(wanted, self.now), next(self._numbers), process))
