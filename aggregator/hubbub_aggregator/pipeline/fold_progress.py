"""Time of the last successful folding, and the age of the oldest unfolded segment in rounds of folding.

The arrival time of a segment is not stored, not even in memory, because a segment may hold one person's report. Each round
of folding stores the largest segment id at its start instead. A segment that a complete round did not fold has been late
since the start of that round. While folding works no segment is left after a round, and the age is 0.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Lock

from hubbub_aggregator.errors import StoreError


class FoldProgress:
    """Run rounds of folding in one thread; any thread may read the figures.

    segment_ids : returns the smallest and the largest segment id; None: there is no segment
    clock       : returns seconds since 1970
    stopwatch   : returns monotonic seconds
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
        self._rounds: deque[tuple[int, float]] = deque()  # largest id at the start of a round, and the start
        self.last_fold = 0.0
        """End of the last round without a failure, in seconds since 1970; 0: none since the start."""

    def round(self, fold: Callable[[], object]) -> None:
        """Run `fold` once and record the round; exceptions of `fold` propagate."""
        began, before = self._stopwatch(), self._segment_ids()
        try:
            fold()
            self.last_fold = self._clock()
        finally:
            with suppress(StoreError):
                self._record(began, before, self._segment_ids())

    def oldest_segment_age(self) -> float:
        """Return the seconds since the start of the first round that did not fold the oldest segment; 0: no such segment."""
        with self._lock:
            return self._stopwatch() - self._rounds[0][1] if self._rounds else 0.0

    def _record(self, began: float, before: tuple[int, int] | None, after: tuple[int, int] | None) -> None:
        with self._lock:
            if before is not None:
                self._rounds.append((before[1], began))
            while self._rounds and (after is None or self._rounds[0][0] < after[0]):
                self._rounds.popleft()
