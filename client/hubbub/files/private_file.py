"""Create files that only their owner may read, whatever the umask of the process is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO


def open_private(path: str | Path) -> BinaryIO:
    """Open a file for writing; a new file has mode 0600, an existing one keeps its mode."""
    return open(path, "wb", opener=_create_private)


def _create_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def make_private_directory(path: Path) -> None:
    """Create a directory and its missing parents with mode 0700; existing ones keep their modes."""
    missing = [directory for directory in (path, *path.parents) if not directory.exists()]
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)  # raises FileExistsError for a file
