"""Numbers that all workers of one service count together, so that whichever is asked can tell them."""

from __future__ import annotations

from collections.abc import Iterable
from mmap import mmap

_BYTES = 8


class SharedNumbers:
    """Numbers by name, in memory that the processes forked from here share: a row for each, and a number is the sum of its column.

    A process writes in its own row only, and each number from one thread at a time, so that nothing waits for anything.
    A worker that is started again goes on with the row of the one that died: what was counted stays counted.

    >>> numbers = SharedNumbers(["stored"], workers=2)
    >>> numbers.of(0).add("stored"), numbers.of(1).add("stored", 2)
    (None, None)
    >>> numbers["stored"]
    3.0
    """

    def __init__(self, names: Iterable[str], workers: int = 1) -> None:
        self._column = {name: column for column, name in enumerate(names)}
        self._cells = memoryview(mmap(-1, _BYTES * len(self._column) * workers)).cast("d")
        self._row = 0
        self.workers = workers

    def of(self, worker: int) -> SharedNumbers:
        """Return the same numbers, to be written as this worker."""
        mine = object.__new__(SharedNumbers)
        mine._column, mine._cells, mine.workers = self._column, self._cells, self.workers
        mine._row = worker * len(self._column)
        return mine

    def add(self, name: str, amount: float = 1) -> None:
        """Add to a number."""
        self._cells[self._row + self._column[name]] += amount

    def put(self, name: str, value: float) -> None:
        """Say what this worker's part of a number is now."""
        self._cells[self._row + self._column[name]] = value

    def __getitem__(self, name: str) -> float:
        """Return a number, of all workers."""
        return sum(self._cells[self._column[name] :: len(self._column)])
