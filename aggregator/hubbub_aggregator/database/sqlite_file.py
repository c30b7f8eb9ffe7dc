"""Check the path of a SQLite file, create the file for its owner only, and lock a file beside it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hubbub_aggregator.errors import StoreError

FIND_OR_CREATE = "check the path, and that its volume is mounted; before the first start run `hubbub db create`"
"""Next step if a database file does not exist."""


def require_place(file: Path, *, read_only: bool = False) -> None:
    """Raise StoreError with the reason if a SQLite file cannot be at this path; SQLite gives no reason."""
    if _is_directory(file):
        raise StoreError("the path is a directory: give a file in it")
    if read_only:
        return
    if not _is_directory(file.parent):
        raise StoreError(
            f"the directory {file.parent} does not exist or is not readable: create it, or give another --database"
        )
    for place in (file.parent, file):
        if is_there(place) and not os.access(place, os.W_OK, effective_ids=True):
            raise StoreError(
                f"this user may not write to {place}: change its owner or mode, or give another --database "
                "(SQLite creates two files beside the database)"
            )


def require_file(file: Path) -> None:
    """Raise StoreError if the file does not exist: the path may be mistyped, or its volume not mounted."""
    if not is_there(file):
        require_place(file)
        raise StoreError(f"the file does not exist: {FIND_OR_CREATE}")


def is_there(path: Path) -> bool:
    """Return whether a path exists; unlike Path.exists, False in a directory that is not readable."""
    return os.path.exists(path)  # noqa: PTH110


def _is_directory(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112  (as in is_there)


def claim(file: Path) -> None:
    """Create an empty file of mode 0600 unless it exists; SQLite gives its `-wal` and `-shm` the same mode."""
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        pass  # an existing file is not opened: closing it would release this process's locks on it
    except OSError as problem:
        raise StoreError(f"the file cannot be created ({problem.strerror}): give another --database") from None


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Lock a file, created if it does not exist, until the block ends; the system also releases it when the process ends.

    The file must not be the database: closing it would release this process's locks on it.
    """
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as problem:
        raise StoreError(
            f"{file} cannot be opened ({problem.strerror}): let this user write to it and to its directory"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
