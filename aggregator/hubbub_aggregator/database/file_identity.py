"""Whether the path of a SQLite database still leads to the file that is served, and to its write-ahead log.

A file that is removed, renamed or replaced stays open: SQLite goes on writing into it, and every commit succeeds, but a
restart on the same path would not find what was committed. A write-ahead log that is truncated in place is written on
behind a hole, and can never be read.
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
"""First bytes of a write-ahead log (SQLite file format, section 4.1); of one that was truncated and written on: zeros."""


class FileIdentity:
    """Device and inode of a database file and of its `-wal`, as they were when the connections were opened.

    SQLite deletes and makes the `-wal` only when no process has a connection open. So its identity is that of the time when the
    first connection was opened, and it is forgotten when the last one is closed.
    """

    def __init__(self, path: Path, stat: Callable[[Path], os.stat_result] = os.stat) -> None:
        self._path = path.absolute()
        self._wal_path = Path(f"{os.path.realpath(path)}-wal")
        self._stat = stat
        self._lock = Lock()
        self._file: Identity | None = None
        self._entry: Identity | None = None  # of the path itself, which may be a link
        self._wal: Identity | None = None
        self._connections = 0
        self._moved = False

    def connection_opened(self) -> None:
        """Record both files when the first connection has read; require that a later one has met the same."""
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
        """Forget the `-wal` with the last connection: SQLite may delete it now."""
        with self._lock:
            self._connections -= 1
            if not self._connections:
                self._wal = None

    def require_unmoved(self) -> None:
        """Raise DatabaseMovedError unless both paths lead to the files that are open. Logs an error, once, and when they are back."""
        missed = self._moved_file()
        with self._lock:
            changed, self._moved = self._moved != (missed is not None), missed is not None
        if missed is None:
            if changed:
                logger.warning("%s: the database file is back, and batches are stored again", self._path)
            return
        if changed:
            logger.error(
                "%s was removed, renamed, replaced, truncated or unmounted while it is served: no batch is acknowledged. "
                "Put the same file back; or stop the service, restore a backup and start again",
                missed,
            )
        raise DatabaseMovedError(f"{missed} was removed, renamed, replaced, truncated or unmounted while it is served")

    def _moved_file(self) -> Path | None:
        """Return the path that leads elsewhere, or whose file was truncated."""
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
    """Return whether a file has fewer bytes on the disk than its size: only such a `-wal` need be read."""
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
