"""Free disk space, below which batches are refused: folding a full disk's store would fail."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path


def free_bytes_at(path: Path) -> Callable[[], int]:
    """Return a function that returns the free bytes on the disk of a file."""
    return lambda: shutil.disk_usage(path.parent).free


class DiskSpace:
    """Free space of the last measurement.

    free : returns the free bytes; None: the database is on another machine
    min_free : bytes below which the disk counts as full
    """

    def __init__(self, free: Callable[[], int] | None, min_free_disk: float) -> None:
        self._free = free
        self._min_free_disk = min_free_disk
        self.free: int | None = None
        self.measure()

    def measure(self) -> None:
        """Measure the free space."""
        self.free = self._free() if self._free else None

    @property
    def is_full(self) -> bool:
        """Return whether less than `min_free` bytes are free."""
        return self.free is not None and self.free < self._min_free_disk
