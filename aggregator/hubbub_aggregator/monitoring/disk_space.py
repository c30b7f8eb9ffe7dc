"""Whether the disk has room: a store that fills it up could not even be folded any more."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path


def free_bytes_at(path: Path) -> Callable[[], int]:
    """Return a function that says how many bytes are free where a file is."""
    return lambda: shutil.disk_usage(path.parent).free


class DiskSpace:
    """Looks at the free space when told to, and remembers what it saw."""

    def __init__(self, free: Callable[[], int] | None, min_free_disk: float) -> None:
        self._free = free
        self._min_free_disk = min_free_disk
        self.free: int | None = None
        self.look()

    def look(self) -> None:
        """Measure; without a function there is no disk of ours to watch."""
        self.free = self._free() if self._free else None

    @property
    def full(self) -> bool:
        """Whether less is free than must be."""
        return self.free is not None and self.free < self._min_free_disk
