"""When folding last succeeded, and for how long segments have been left unfolded.

The time at which a segment arrived is never kept, not even in memory, because a segment may hold one person's report.
Instead each round of folding remembers how far the segments' ids had come when it began. A segment that a whole round
left unfolded is late by the rounds since then. Where folding works, every round ends with nothing left, and the age is 0.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Lock

from hubbub_aggregator.errors import StoreError


class FoldProgress:
    """Runs rounds of folding in one thread; its figures may be read from any thread.

    segment_ids : returns the smallest and the largest id of the segments; None: there is no segment
    clock       : returns seconds since 1970      stopwatch : returns seconds that never go back
    """

    def __init__(
        self,
        segment_ids: Callable[[], tuple[int, int] | None],
        clock: Callable[[], float],
        stopwatch: Callable[[], float] = time.monotonic,
    ) -> None:
        self._segment_ids = segment_ids
        self._clock = clock
        self._stopwatch = stopwatch
        self._lock = Lock()
        self._rounds: deque[tuple[int, float]] = deque()  # newest id at the start of a round, and when that was
        self.last_fold = 0.0
        """End of the last round without a failure, in seconds since 1970; 0: none since the start."""

    def round(self, fold: Callable[[], object]) -> None:
        """Fold once; whatever `fold` raises is passed on."""
        began, before = self._stopwatch(), self._segment_ids()
        try:
            fold()
            self.last_fold = self._clock()
        finally:
            with suppress(StoreError):
                self._note(began, before, self._segment_ids())

    def oldest_segment_age(self) -> float:
        """Return the seconds since the start of the first round that left the oldest segment unfolded; 0: none did."""
        with self._lock:
            return self._stopwatch() - self._rounds[0][1] if self._rounds else 0.0

    def _note(self, began: float, before: tuple[int, int] | None, after: tuple[int, int] | None) -> None:
        with self._lock:
            if before is not None:
                self._rounds.append((before[1], began))
            while self._rounds and (after is None or self._rounds[0][0] < after[0]):
                self._rounds.popleft()
