"""The place of a SQLite file: whether it is there, may be there, and is its owner's alone."""

from __future__ import annotations

import os
from pathlib import Path

from hubbub_aggregator.errors import StoreError


def require_place(file: Path, *, read_only: bool = False) -> None:
    """Say what is in the way of a file: SQLite says `unable to open database file` of all that."""
    if _is_directory(file):
        raise StoreError("is a directory: name a file in it")
    if read_only:
        return
    if not _is_directory(file.parent):
        raise StoreError(
            f"there is no directory {file.parent} that this user can reach: make it, or give another --database"
        )
    for place in (file.parent, file):
        if is_there(place) and not os.access(place, os.W_OK, effective_ids=True):
            raise StoreError(
                f"this user may not write to {place}: change its owner or mode, or give another --database "
                "(SQLite keeps two files beside its own)"
            )


def require_file(file: Path) -> None:
    """Refuse a path without a file: it may be mistyped, or its volume not mounted, so no new database is made there."""
    if not is_there(file):
        require_place(file)
        raise StoreError(
            "there is no such file, and only `hubbub db create` or --create makes one: "
            "check the path, and that its volume is mounted"
        )


def is_there(path: Path) -> bool:
    """Say whether a file can be seen; Path.exists raises where a directory may not be looked into."""
    return os.path.exists(path)  # noqa: PTH110


def _is_directory(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112  (Path's raises where a directory may not be looked into)


def claim(file: Path) -> None:
    """Make a new file, for its owner alone: SQLite gives those beside it the same mode."""
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        pass  # and is not opened: closing it would drop the locks that this process has on it
    except OSError as problem:
        raise StoreError(f"cannot be made: {problem.strerror}: give another --database") from None
