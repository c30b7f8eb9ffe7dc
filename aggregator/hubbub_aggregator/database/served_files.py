"""Detect that the files of a SQLite database were moved or truncated while they are open.

SQLite keeps writing into a file that was removed, renamed or replaced, and every commit succeeds. It keeps trusting pages and
an index in memory when the files were truncated, and every commit succeeds. A restart would not find these commits. When the
last connection is closed, SQLite copies the write-ahead log into the database file. If the log was truncated, this overwrites
sound pages.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NoReturn

from hubbub_aggregator.database.write_ahead_log import (
    Identity,
    LastFrame,
    find_descriptor,
    identity_of,
    read_last_frame,
    status_of,
)
from hubbub_aggregator.errors import FilesInDoubtError

logger = logging.getLogger(__name__)

_ADVICE = {
    "": "Put the same file back; if it is lost, stop the service and restore the last backup into a new file",
    "-wal": "Put the same file back, or stop the service with SIGTERM: it then writes the contents of the -wal into the database file",
    "-shm": "Restart the service: the -shm has no data, and SQLite builds it again from the -wal",
}
"""Next step if a file was moved, by the end of its name."""
_DAMAGED = (
    "no batch is acknowledged until a restart. Stop the service: it leaves the files as they are. Then copy the database file and "
    "its -wal to another place, run `hubbub db check`, and if it finds damage restore the last backup into a new file"
)


class ServedFiles:
    """The database file, its `-wal` and its `-shm`, as they are while this process has connections to them.

    Device and inode of each are recorded with the first connection. SQLite creates and deletes the `-wal` and the `-shm` only while
    no process has a connection. So theirs are forgotten with the last one. A moved file may come back. Damage is permanent.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        real = os.path.realpath(path)
        self._paths = {"": self.path, "-wal": Path(f"{real}-wal"), "-shm": Path(f"{real}-shm")}
        self._lock = Lock()
        self._recorded: dict[str, Identity] = {}
        self._entry: Identity | None = None  # of the path itself, which may be a symbolic link
        self._sizes = {"": 0, "-shm": 0}  # the largest so far, because SQLite does not make these files smaller
        self._index: int | None = None  # SQLite's descriptor of the `-shm`
        self._last_frame: LastFrame | None = None  # of the `-wal`, as the latest check found it
        self._connections = 0
        self._moved: str | None = None
        self._damage: str | None = None

    def connection_opened(self) -> None:
        """Record the files after the first connection's first read; check them for later connections."""
        with self._lock:
            if not self._connections:
                self._record()
            self._connections += 1
        try:
            self.require_intact()
        except FilesInDoubtError:
            self.connection_closed()
            raise

    def _record(self) -> None:
        found = {suffix: identity_of(path) for suffix, path in self._paths.items()}
        self._recorded = {suffix: identity for suffix, identity in found.items() if identity} | self._recorded
        self._entry = self._entry or _entry_of(self.path)
        self._index = find_descriptor(self._recorded["-shm"]) if "-shm" in self._recorded else None

    def connection_closed(self) -> None:
        """Forget the `-wal` and the `-shm` with the last connection, because SQLite may delete them."""
        with self._lock:
            self._connections -= 1
            if not self._connections:
                self._recorded = {suffix: identity for suffix, identity in self._recorded.items() if not suffix}
                self._sizes["-shm"], self._index, self._last_frame = 0, None, None

    def require_intact(self) -> None:
        """Raise FilesInDoubtError if a file was moved, or is or was smaller than it should be.

        Logs an error the first time, and a warning on recovery.
        """
        if self._damage is not None:
            raise FilesInDoubtError(self._damage)
        moved = self._moved_file()
        with self._lock:
            is_new, self._moved = self._moved != moved, moved
        if moved is not None:
            problem = f"{self._paths[moved]} was removed, renamed, replaced or unmounted while it is served"
            if is_new:
                logger.error("%s: no batch is acknowledged. %s", problem, _ADVICE[moved])
            raise FilesInDoubtError(problem)
        if is_new:
            logger.warning("%s: the database file is back, and batches are stored again", self.path)

    def _report_damage(self, damage: str) -> NoReturn:
        """Record damage, which is final, log it, and raise FilesInDoubtError."""
        with self._lock:
            is_new, self._damage = self._damage is None, damage
        if is_new:
            logger.error("%s: %s", damage, _DAMAGED)
        raise FilesInDoubtError(damage)

    def require_closable(self) -> None:
        """Raise FilesInDoubtError if closing the last connection could destroy what the files still hold.

        Closing it copies the write-ahead log into the database file. That saves the contents of a `-wal` that was removed. If the `-shm`
        was removed, other processes may have written to the `-wal` with another index.
        """
        with suppress(FilesInDoubtError):
            self.require_intact()
        if self._damage is not None:
            raise FilesInDoubtError(self._damage)
        if self._moved == "-shm":
            raise FilesInDoubtError(f"{self._paths['-shm']} was removed or replaced while it was served")

    def _moved_file(self) -> str | None:
        """Return the end of the name of a path that leads to another file; None: there is none.

        Raises FilesInDoubtError if a file was truncated.
        """
        for suffix, recorded in list(self._recorded.items()):
            known = self._read_last_frame() if suffix == "-wal" else None
            least = known.end if known else self._sizes.get(suffix, 0)
            status = status_of(self._paths[suffix])
            if status is None or (status.st_dev, status.st_ino) != recorded:
                return suffix
            if status.st_size < least and (known is None or self._is_still_read(known)):
                self._report_damage(
                    f"{self._paths[suffix]} was truncated while it is open: it has {status.st_size} bytes, and should have {least}"
                )
            if suffix in self._sizes:
                self._sizes[suffix] = max(self._sizes[suffix], status.st_size)
            elif known is not None:
                if (earlier := self._lost_frame()) is not None:
                    if identity_of(self._paths[suffix]) != recorded:  # it was moved since its status was read
                        return suffix
                    self._report_damage(
                        f"{self._paths[suffix]} was truncated during a commit: the commit before, which ended at byte {earlier.end}, is lost"
                    )
                self._last_frame = known
        if self._entry is not None and _entry_of(self.path) != self._entry:  # SQLite would look for another `-wal`
            return ""
        return None

    def _read_last_frame(self) -> LastFrame | None:
        return None if self._index is None else read_last_frame(self._index)

    def _is_still_read(self, frame: LastFrame) -> bool:
        """Return whether SQLite still reads this frame, because no checkpoint has let the log begin anew."""
        known = self._read_last_frame()
        return known is not None and known.salt == frame.salt and known.number >= frame.number

    def _lost_frame(self) -> LastFrame | None:
        """Return the frame that the check before found, if the file by the log's name does not have it and SQLite still reads it."""
        earlier = self._last_frame
        if earlier is None:
            return None
        try:
            is_lost = not earlier.is_in(self._paths["-wal"])
        except FileNotFoundError:
            is_lost = True
        return earlier if is_lost and self._is_still_read(earlier) else None


def _entry_of(path: Path) -> Identity | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
