"""Compare SQLite's write-ahead log with the index by which the running process reads it.

The `-wal` is a header of 32 bytes and frames, each with one page. The `-shm` is the index of these frames in shared memory.
After a crash SQLite rebuilds the index from the log, and ends at the first frame with a wrong checksum. A running
process trusts the index and verifies no checksum. So it can read and write with a damaged log, and commit what a restart
would not find. A checkpoint would copy the damaged frames into the database file.
Source: https://www.sqlite.org/walformat.html and section 4 of https://www.sqlite.org/fileformat.html.

Files are read through descriptors that SQLite has open, because this process would release SQLite's locks on the `-shm` if
it opened and closed the file itself (POSIX).
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Identity = tuple[int, int]
"""Device and inode of a file."""

_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
_MAGIC = {b"\x37\x7f\x06\x82": "<u4", b"\x37\x7f\x06\x83": ">u4"}
"""First bytes of a log, and the order of the bytes of the words that its checksums add."""

_INDEX_VERSION = 3_007_000
_INDEX_HEADER = struct.Struct("=I8xBxHI4x8s8s8x")
"""iVersion, isInit, szPage, mxFrame, aFrameCksum and aSalt of the index; the header is there twice."""
_INDEX_START_BYTES = 136
_BLOCK_BYTES = 32_768
"""The index has blocks: the page numbers of up to 4096 frames, then a hash table with a frame for each slot."""
_SLOTS = 8_192
_FRAMES_PER_BLOCK = 4_096
_FRAMES_IN_FIRST_BLOCK = _FRAMES_PER_BLOCK - _INDEX_START_BYTES // 4
_HASH_FACTOR = 383

_MAX_TRIES = 100
_RETRY_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """Header of the index: what the running process knows of the log."""

    page_bytes: int
    num_frames: int  # of committed transactions since the log began
    checksum: bytes  # of the last frame, as two native words
    salt: bytes

    @property
    def log_bytes(self) -> int:
        """Return the smallest size of a log with these frames."""
        return self.num_frames and _HEADER_BYTES + self.num_frames * (_FRAME_HEADER_BYTES + self.page_bytes)


def find_descriptor(identity: Identity) -> int | None:
    """Return a descriptor by which this process has a file open; None: it has not."""
    descriptors = [int(entry.name) for entry in Path("/dev/fd").iterdir()]
    return next((each for each in descriptors if identity_of(each) == identity), None)


@contextmanager
def reopened(identity: Identity) -> Iterator[int | None]:
    """Yield a descriptor of a file that this process has open and that may have no name; None: it does not have it open.

    Not for a `-shm`: closing the new descriptor would release SQLite's locks on it.
    """
    found = find_descriptor(identity)
    try:
        descriptor = None if found is None else os.open(f"/dev/fd/{found}", os.O_RDONLY)
    except OSError:  # another thread has closed it
        descriptor = None
    try:
        yield descriptor if descriptor is not None and identity_of(descriptor) == identity else None
    finally:
        if descriptor is not None:
            os.close(descriptor)


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


def read_index_header(index: int) -> IndexHeader | None:
    """Return the header of an index; None: it is being written, has another format, or SQLite will rebuild it at its next use."""
    both = os.pread(index, 2 * _INDEX_HEADER.size, 0)
    if len(both) < 2 * _INDEX_HEADER.size or both[: _INDEX_HEADER.size] != both[_INDEX_HEADER.size :]:
        return None
    version, is_valid, page, frames, checksum, salt = _INDEX_HEADER.unpack_from(both)
    if version != _INDEX_VERSION or not is_valid:
        return None
    return IndexHeader(65_536 if page == 1 else page, frames, checksum, salt)


def find_log_damage(log: int, index: int) -> str | None:
    """Return what differs between a log and its index; None: a restart reads what the running process reads.

    Needs no lock: the frames of committed transactions stay as they are until the log begins anew with another salt.
    """
    for _ in range(_MAX_TRIES):
        header = read_index_header(index)
        if header is not None:
            damage = _differences(log, index, header)
            after = read_index_header(index)
            if damage is None or (
                after is not None and after.salt == header.salt and after.num_frames >= header.num_frames
            ):
                return damage
        time.sleep(_RETRY_SECONDS)
    return None  # SQLite rebuilds the index from the log, or the log begins anew all the time


def _differences(log: int, index: int, header: IndexHeader) -> str | None:
    if not header.num_frames:
        return None
    start = os.pread(log, _HEADER_BYTES, 0)
    if len(start) < _HEADER_BYTES or start[:4] not in _MAGIC or start[16:24] != header.salt:
        return "its header is not the one with which it began"
    order = _MAGIC[start[:4]]
    weights = _weights(header.page_bytes + 8)
    checksum = np.frombuffer(start[24:], ">u4").astype(np.uint32)
    if (np.frombuffer(start[:24], order).astype(np.uint32) @ weights[-6:] != checksum).any():
        return "its header has a wrong checksum"
    frame_bytes, done = _FRAME_HEADER_BYTES + header.page_bytes, 0
    while done < header.num_frames:
        first = done == 0
        num = min(header.num_frames - done, _FRAMES_IN_FIRST_BLOCK if first else _FRAMES_PER_BLOCK)
        data = os.pread(log, num * frame_bytes, _HEADER_BYTES + done * frame_bytes)
        if len(data) < num * frame_bytes:
            return f"it ends before frame {header.num_frames}, the last one of a committed transaction"
        frames = np.frombuffer(data, np.uint8).reshape(num, frame_bytes)
        checksums = frames[:, 16:24].copy().view(">u4").astype(np.uint32)
        wrong = _wrong_checksums(frames, order, weights, np.vstack([checksum, checksums]))
        if wrong.size:
            return f"frame {done + wrong[0] + 1} of {header.num_frames} has a wrong checksum"
        if (frames[:, 8:16] != np.frombuffer(header.salt, np.uint8)).any():
            return "a frame has the salt of another log"
        checksum = checksums[-1]
        block = os.pread(index, _BLOCK_BYTES, 0 if first else _BLOCK_BYTES * (1 + done // _FRAMES_PER_BLOCK))
        if not _lists(block, _INDEX_START_BYTES if first else 0, frames[:, :4].copy().view(">u4").ravel()):
            return f"the index of the frames {done + 1} to {done + num} is wrong"
        done += num
    return None if checksum.tobytes() == header.checksum else "its last frame is not the one of the last commit"


def _weights(num_bytes: int) -> NDArray[np.uint32]:
    """Weights of the words of one frame in its checksum, modulo 2**32, of shape (num_bytes / 4, 2).

    The checksum (s0, s1) is updated by each pair of words (a, b):

        s0 += a + s1;  s1 += b + s0

    So word j of n has the weight F(n - 1 - j) in s0 and F(n - j) in s1, where F are the Fibonacci numbers.
    """
    numbers = [0, 1]
    while len(numbers) <= num_bytes // 4:
        numbers.append((numbers[-1] + numbers[-2]) % 2**32)
    backwards = np.array(numbers[::-1], dtype=np.uint32)
    return np.stack([backwards[1:], backwards[:-1]], axis=1)


def _wrong_checksums(
    frames: NDArray[np.uint8], order: str, weights: NDArray[np.uint32], checksums: NDArray[np.uint32]
) -> NDArray[np.intp]:
    """Return the rows of the frames whose checksum does not follow from the checksum before.

    checksums : (n + 1, 2), with the one before the first frame

        (s0, s1) after n words = (F(n - 1) s0 + F(n) s1, F(n) s0 + F(n + 1) s1) + words @ weights
    """
    words = frames.view(order).astype(np.uint32)
    last, this = weights[0].tolist()
    carried = checksums[:-1] @ np.array([[last, this], [this, (last + this) % 2**32]], dtype=np.uint32)
    return np.flatnonzero(
        (carried + words[:, :2] @ weights[:2] + words[:, 6:] @ weights[2:] != checksums[1:]).any(axis=1)
    )


def _lists(block: bytes, start: int, pages: NDArray[np.uint32]) -> bool:
    """Return whether a block of the index has these pages, in the order of their frames, and its hash table finds them.

    Slots of later frames, of transactions that are not committed, may have any value above the number of pages.
    """
    if len(block) < _BLOCK_BYTES or (np.frombuffer(block, "=u4", len(pages), start) != pages).any():
        return False
    slots = [0] * _SLOTS
    for number, page in enumerate(pages.tolist(), 1):
        slot = page * _HASH_FACTOR % _SLOTS
        while slots[slot]:
            slot = (slot + 1) % _SLOTS
        slots[slot] = number
    found = np.frombuffer(block, "=u2", _SLOTS, _BLOCK_BYTES - 2 * _SLOTS)
    is_free = np.array(slots) == 0
    return bool(np.where(is_free, (found == 0) | (found > len(pages)), found == slots).all())
