"""The last committed frame of SQLite's write-ahead log, read from its index: what a log that is whole must still have.

The `-wal` is a header of 32 bytes and frames, each with one page. A checkpoint may shrink it. So only the `-shm`, the index of the
frames in shared memory, knows how many frames the running process still reads.
Source: https://www.sqlite.org/walformat.html and section 4 of https://www.sqlite.org/fileformat.html.

The index is read through the descriptor that SQLite has open, because this process would release SQLite's locks on the `-shm` if
it opened and closed the file itself (POSIX). SQLite takes no lock on the `-wal`.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

Identity = tuple[int, int]
"""Device and inode of a file."""

_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
_INDEX_VERSION = 3_007_000
_INDEX_HEADER = struct.Struct("=I8xBxHI4xII8s8x")
"""iVersion, isInit, szPage, mxFrame, aFrameCksum and aSalt of the index; the header is there twice."""
_CHECKSUM = struct.Struct(">II")
_CHECKSUM_POSITION = 16
"""Of the checksum in the header of a frame."""


@dataclass(frozen=True, slots=True)
class LastFrame:
    """Last frame of a committed transaction; all frames before it stay in the log until it begins anew with another salt."""

    number: int  # from 1 on
    page_bytes: int
    checksum: bytes  # as in the log
    salt: bytes

    @property
    def end(self) -> int:
        """Return the size of a log that ends with this frame."""
        return _HEADER_BYTES + self.number * (_FRAME_HEADER_BYTES + self.page_bytes)

    def is_in(self, log: Path) -> bool:
        """Return whether the log has this frame; a hole that a commit left after a truncation has zeros instead."""
        with log.open("rb", buffering=0) as opened:
            opened.seek(self.end - self.page_bytes - _FRAME_HEADER_BYTES + _CHECKSUM_POSITION)
            return opened.read(_CHECKSUM.size) == self.checksum


def find_descriptor(identity: Identity) -> int | None:
    """Return a descriptor by which this process has a file open; None: it has not."""
    descriptors = [int(entry.name) for entry in Path("/dev/fd").iterdir()]
    return next((number for number in descriptors if identity_of(number) == identity), None)


def identity_of(file: int | Path) -> Identity | None:
    """Return the device and the inode of a descriptor or a path; None: there is no file."""
    status = status_of(file)
    return None if status is None else (status.st_dev, status.st_ino)


def status_of(file: int | Path) -> os.stat_result | None:
    """Return the status of a descriptor or a path; None: there is no file."""
    try:
        return os.stat(file)  # noqa: PTH116  (Path.stat takes no descriptor)
    except OSError:
        return None


def read_last_frame(index: int) -> LastFrame | None:
    """Return the last frame that the index with this descriptor knows.

    Returns None if the log has no frame, or if the index is being written, has another format, or will be rebuilt by SQLite.
    """
    both = os.pread(index, 2 * _INDEX_HEADER.size, 0)
    if len(both) < 2 * _INDEX_HEADER.size or both[: _INDEX_HEADER.size] != both[_INDEX_HEADER.size :]:
        return None
    version, is_valid, page, number, first, second, salt = _INDEX_HEADER.unpack_from(both)
    if version != _INDEX_VERSION or not is_valid or not number:
        return None
    return LastFrame(number, 65_536 if page == 1 else page, _CHECKSUM.pack(first, second), salt)
