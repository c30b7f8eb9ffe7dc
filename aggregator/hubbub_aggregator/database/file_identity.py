"""Detect that a SQLite file, or its write-ahead log, was moved, replaced or truncated while it is open.

SQLite keeps writing into a file that was removed, renamed or replaced, and every commit succeeds. A restart on the same
path would not find these commits. A write-ahead log that was truncated in place is continued behind a hole and cannot be
read.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from hubbub_aggregator.errors import DatabaseMovedError

logger = logging.getLogger(__name__)

Identity = tuple[int, int]
"""Device and inode of a file."""

_WAL_MAGIC = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
"""First bytes of a write-ahead log (SQLite file format, section 4.1); after a truncation in place they are zeros."""


class FileIdentity:
    """Device and inode of a database file and of its `-wal`, recorded when the first connection is opened.

    SQLite creates and deletes the `-wal` only while no process has a connection open. So the identity of the `-wal` is
    recorded with the first connection and forgotten with the last one.
    """

    def __init__(self, path: Path, stat: Callable[[Path], os.stat_result] = os.stat) -> None:
        self._path = path.absolute()
        self._wal_path = Path(f"{os.path.realpath(path)}-wal")
        self._stat = stat
        self._lock = Lock()
        self._file: Identity | None = None
        self._entry: Identity | None = None  # of the path itself, which may be a symbolic link
        self._wal: Identity | None = None
        self._connections = 0
        self._moved = False

    def connection_opened(self) -> None:
        """Record both files after the first connection's first read; check them for later connections."""
        with self._lock:
            if self._file is None:
                self._file, self._entry = self._identity(self._path), _entry_of(self._path)
            if not self._connections:
                self._wal = self._identity(self._wal_path)
            self._connections += 1
        try:
            self.require_unmoved()
        except DatabaseMovedError:
            self.connection_closed()
            raise

    def connection_closed(self) -> None:
        """Forget the `-wal` with the last connection, because SQLite may delete it."""
        with self._lock:
            self._connections -= 1
            if not self._connections:
                self._wal = None

    def require_unmoved(self) -> None:
        """Raise DatabaseMovedError if the file or its `-wal` was moved, replaced or truncated while open.

        Logs an error the first time, and a warning on recovery.
        """
        moved = self._moved_file()
        with self._lock:
            changed, self._moved = self._moved != (moved is not None), moved is not None
        if moved is None:
            if changed:
                logger.warning("%s: the database file is back, and batches are stored again", self._path)
            return
        if changed:
            logger.error(
                "%s was removed, renamed, replaced, truncated or unmounted while it is served: no batch is acknowledged. "
                "Put the same file back; or stop the service, restore a backup and start again",
                moved,
            )
        raise DatabaseMovedError(f"{moved} was removed, renamed, replaced, truncated or unmounted while it is served")

    def _moved_file(self) -> Path | None:
        """Return the path that leads to another file, or to a truncated one; None: neither."""
        for path, recorded in ((self._path, self._file), (self._wal_path, self._wal)):
            if recorded is not None and self._identity(path) != recorded:
                return path
        if self._entry is not None and _entry_of(self._path) != self._entry:  # SQLite would look for another `-wal`
            return self._path
        if self._wal is not None and _has_hole(self._wal_path) and not _begins_like_a_log(self._wal_path):
            return self._wal_path
        return None

    def _identity(self, path: Path) -> Identity | None:
        try:
            found = self._stat(path)
        except OSError:
            return None
        return found.st_dev, found.st_ino


def _entry_of(path: Path) -> Identity | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _has_hole(path: Path) -> bool:
    """Return whether a file has fewer bytes on the disk than its size; only then is the `-wal` read."""
    try:
        found = path.stat()
    except OSError:
        return True
    return found.st_blocks * 512 < found.st_size


def _begins_like_a_log(path: Path) -> bool:
    """Return whether a `-wal` is empty, as after a checkpoint that truncates it, or has the header of one."""
    try:
        with path.open("rb", buffering=0) as log:
            magic = log.read(4)
    except OSError:
        return False
    return magic in (b"", *_WAL_MAGIC)
