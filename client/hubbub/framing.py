"""Records in a file that only grows: each framed by a mark, its length and a checksum.

    record = mark (4 bytes) + length (4, little-endian) + CRC-32 of payload, started at the length (4) + payload

Whatever happens to some bytes, exactly the records they belong to are lost: the scan looks for the next mark.
"""

from __future__ import annotations

import struct
from binascii import crc32
from dataclasses import dataclass

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
    payloads: list[bytes] = []
    damaged = at = 0
    while at < len(data):
        payload = _payload_at(data, at)
        if payload is None:
            damaged += 1
            at = data.find(MARK, at + 1)
            if at < 0:
                break
        else:
            payloads.append(payload)
            at += _HEAD.size + len(payload)
    return Scan(payloads, damaged)


def _payload_at(data: bytes, at: int) -> bytes | None:
    if len(data) - at < _HEAD.size:
        return None
    mark, length, checksum = _HEAD.unpack_from(data, at)
    if mark != MARK or length > MAX_PAYLOAD:
        return None
    start = at + _HEAD.size
    payload = data[start : start + length]
    return payload if len(payload) == length and crc32(payload, length) == checksum else None
