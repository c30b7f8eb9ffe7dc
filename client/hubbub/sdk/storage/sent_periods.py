"""Sent periods: a separate file of the periods that were ever sent, so that a damaged journal does not report a period twice.

The sender appends a record before it sends the first batch of a definition and period. If the journal has no attempt of such a period at a
start, records of the journal were lost, see `State.restore_sent_periods`.

    record = SHA-256 digest of the definition (32 bytes) + first day (4) + first day after it (4) + CRC-32 of the 40 bytes (4)

Days are proleptic Gregorian ordinals; numbers are little-endian. Records start at multiples of 44, so a damaged one costs itself alone.
"""

from __future__ import annotations

import struct
from binascii import crc32
from datetime import date
from pathlib import Path

from hubbub.sdk.storage.events import Runs
from hubbub.sdk.storage.filesystem import Disk
from hubbub.sdk.storage.state import merge_runs

FILE_NAME = "sent-periods"
_RECORD = struct.Struct("<32sIII")
_MAX_BYTES = 1 << 16


class SentPeriods:
    """The file of one directory. Only the process that holds the sender's lease appends to it."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk
        self.path = directory / FILE_NAME
        self._added: set[tuple[str, str]] = set()
        self._rewrite_above = _MAX_BYTES

    def add(self, digest: str, start: str, end: str) -> None:
        """Append the days [start, end) of a definition; durable on return. Raises OSError if the disk fails."""
        if (digest, start) in self._added:
            return
        is_new = self._disk.identity(self.path) is None
        file = self._disk.open(self.path)
        try:
            size = file.identity()[1]
            until_multiple = bytes(-size % _RECORD.size)  # of a torn record before
            file.append(until_multiple + _record(digest, start, end))
            file.sync()
        finally:
            file.close()
        if is_new:
            self._disk.sync_directory(self._directory)
        self._added.add((digest, start))
        if size > self._rewrite_above:
            self._rewrite()

    def read(self) -> dict[str, Runs]:
        """Return the days of the undamaged records, by digest."""
        if self._disk.identity(self.path) is None:
            return {}
        file = self._disk.open(self.path)
        try:
            data = file.read(0, file.identity()[1])
        finally:
            file.close()
        runs: dict[str, Runs] = {}
        for at in range(0, len(data) - _RECORD.size + 1, _RECORD.size):
            digest, start, end, checksum = _RECORD.unpack_from(data, at)
            if checksum == crc32(data[at : at + _RECORD.size - 4]) and 1 <= start < end <= date.max.toordinal():
                days = date.fromordinal(start).isoformat(), date.fromordinal(end).isoformat()
                runs[digest.hex()] = merge_runs(runs.get(digest.hex(), []), *days)
        return runs

    def _rewrite(self) -> None:
        """Rewrite the file, with adjacent periods in one record."""
        data = b"".join(_record(digest, *run) for digest, runs in self.read().items() for run in runs)
        new = self.path.with_name(f"{FILE_NAME}.new")
        file = self._disk.open_new(new)
        try:
            file.append(data)
            file.sync()
        finally:
            file.close()
        self._disk.replace(new, self.path)
        self._disk.sync_directory(self._directory)
        self._rewrite_above = max(_MAX_BYTES, 2 * len(data))


def _record(digest: str, start: str, end: str) -> bytes:
    days = (date.fromisoformat(day).toordinal() for day in (start, end))
    data = _RECORD.pack(bytes.fromhex(digest), *days, 0)[:-4]
    return data + crc32(data).to_bytes(4, "little")
