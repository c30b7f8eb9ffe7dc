"""Records in a file that only grows: each framed by a mark, its length and a checksum.

    record = mark (4 bytes) + length (4, little-endian) + CRC-32 of payload, started at the length (4) + payload

Whatever happens to some bytes, exactly the records they belong to are lost: the scan looks for the next mark.
"""

from __future__ import annotations

import struct
from binascii import crc32
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

MARK = b"\xb5hb\x01"
MAX_PAYLOAD = 1 << 22
_HEAD = struct.Struct("<4sII")


@dataclass(frozen=True, slots=True)
class Scan:
    """What a file's bytes hold: whole payloads in their order, and how many records were damaged."""

    payloads: list[bytes]
    damaged: int


def record(payload: bytes) -> bytes:
    """Frame one payload.

    >>> scan(record(b"one") + record(b"two")[:-1] + record(b"three"))
    Scan(payloads=[b'one', b'three'], damaged=1)
    """
    return _HEAD.pack(MARK, len(payload), crc32(payload, len(payload))) + payload


def scan(data: bytes) -> Scan:
    """Read all records that are whole."""
    found = list(payloads((data,)))
    whole = [payload for payload in found if payload is not None]
    return Scan(whole, len(found) - len(whole))


def payloads(chunks: Iterable[bytes]) -> Iterator[bytes | None]:
    """Read records from bytes that come in chunks, cut anywhere; yield None where one is damaged.

    >>> data = record(b"one") + record(b"two")
    >>> list(payloads([data[:5], data[5:20], data[20:-1]]))
    [b'one', None]
    """
    data, searching = b"", False
    for chunk in chain(chunks, (None,)):
        data, at = data + (chunk or b""), 0
        while at < len(data) and (chunk is None or _end_at(data, at) <= len(data)):
            if searching:
                found = data.find(MARK, at)
                if found < 0:
                    at = max(at, len(data) - len(MARK) + 1)  # the next chunk may end a mark
                    break
                at, searching = found, False
                continue
            payload = _payload_at(data, at)
            yield payload
            searching = payload is None
            at += 1 if payload is None else _HEAD.size + len(payload)
        data = data[at:]


def is_foreign(start: bytes) -> bool:
    """Say whether a file that begins so holds something else: no mark in it, and more than a power loss leaves of a torn record.

    >>> is_foreign(b"Dear diary, today"), is_foreign(record(b"one")), is_foreign(b""), is_foreign(bytes(100) + MARK[:3])
    (True, False, False, False)
    """
    return MARK not in start and len(start.replace(b"\0", b"")) > _HEAD.size


def _end_at(data: bytes, at: int) -> int:
    """Return where the record ends that starts here, as far as that can be told."""
    if len(data) - at < _HEAD.size:
        return at + _HEAD.size
    mark, length, _ = _HEAD.unpack_from(data, at)
    return at + _HEAD.size + (length if mark == MARK and length <= MAX_PAYLOAD else 0)


def _payload_at(data: bytes, at: int) -> bytes | None:
    if len(data) - at < _HEAD.size:
        return None
    mark, length, checksum = _HEAD.unpack_from(data, at)
    if mark != MARK or length > MAX_PAYLOAD:
        return None
    start = at + _HEAD.size
    payload = data[start : start + length]
    return payload if len(payload) == length and crc32(payload, length) == checksum else None
