"""On-disk record framing of an append-only file: magic, length, CRC-32.

    record = magic (4 bytes) + length (4, little-endian) + CRC-32 of payload, started at the length (4) + payload

The last byte of the magic is the format version. Damaged bytes cost exactly the records that contain them: reading continues at the next
magic.
"""

from __future__ import annotations

import struct
from binascii import crc32
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

FORMAT_VERSION = 2
MAGIC = b"\xb5hb" + bytes([FORMAT_VERSION])
MAX_PAYLOAD = 1 << 22
_HEADER = struct.Struct("<4sII")


class Scan(NamedTuple):
    """Undamaged payloads of a file in order, and the number of damaged records."""

    payloads: list[bytes]
    damaged: int


def encode_record(payload: bytes) -> bytes:
    """Return a payload as a record.

    >>> scan(encode_record(b"one") + encode_record(b"two")[:-1] + encode_record(b"three"))
    Scan(payloads=[b'one', b'three'], damaged=1)
    """
    return _HEADER.pack(MAGIC, len(payload), crc32(payload, len(payload))) + payload


def scan(data: bytes) -> Scan:
    """Return the undamaged records of a file's bytes."""
    found = list(iter_payloads((data,)))
    whole = [payload for payload in found if payload is not None]
    return Scan(whole, len(found) - len(whole))


def iter_payloads(chunks: Iterable[bytes]) -> Iterator[bytes | None]:
    """Yield the payloads of records in chunks of bytes, which may be cut anywhere; None for a damaged record.

    >>> data = encode_record(b"one") + encode_record(b"two")
    >>> list(iter_payloads([data[:5], data[5:20], data[20:-1]]))
    [b'one', None]
    """
    data, searching = b"", False
    for chunk in chain(chunks, (None,)):
        data, at = data + (chunk or b""), 0
        while at < len(data) and (chunk is None or _end_at(data, at) <= len(data)):
            if searching:
                found = data.find(MAGIC, at)
                if found < 0:
                    at = max(at, len(data) - len(MAGIC) + 1)  # the next chunk may complete a magic
                    break
                at, searching = found, False
                continue
            payload = _payload_at(data, at)
            yield payload
            searching = payload is None
            at += 1 if payload is None else _HEADER.size + len(payload)
        data = data[at:]


class OtherFormatError(OSError):
    """State files of another format version, see `describe_version`."""


def describe_version(version: int) -> tuple[str, str]:
    """Return what is wrong with state files of another format version, and the next step.

    >>> ": ".join(describe_version(9))
    'has state format version 9, this hubbub reads version 2: install the newer hubbub'
    """
    differs = f"has state format version {version}, this hubbub reads version {FORMAT_VERSION}"
    if version > FORMAT_VERSION:
        return differs, "install the newer hubbub"
    return (
        f"{differs}. Its ledger and reports cannot be read",
        "delete the directory to start anew; this starts a new ledger and spends epsilon again",
    )


def other_version(start: bytes) -> int | None:
    """Return the format version of a file that begins with these bytes, if it has only records of another version.

    >>> other_version(b"\\xb5hb\\x01" + bytes(8)), other_version(encode_record(b"one")), other_version(b"Dear diary, today")
    (1, None, None)
    """
    at = start.find(MAGIC[:-1])
    if MAGIC in start or not 0 <= at < len(start) - 3:
        return None
    return start[at + 3] or None


def is_foreign(start: bytes) -> bool:
    """Return whether a file that begins with these bytes is not a journal: no magic, and more than a torn record leaves.

    >>> is_foreign(b"Dear diary, today"), is_foreign(encode_record(b"one")), is_foreign(b""), is_foreign(bytes(100) + MAGIC[:3])
    (True, False, False, False)
    """
    return MAGIC not in start and len(start.replace(b"\0", b"")) > _HEADER.size


def _end_at(data: bytes, at: int) -> int:
    """Return the end of the record that starts here, as far as its header is readable."""
    if len(data) - at < _HEADER.size:
        return at + _HEADER.size
    magic, length, _ = _HEADER.unpack_from(data, at)
    return at + _HEADER.size + (length if magic == MAGIC and length <= MAX_PAYLOAD else 0)


def _payload_at(data: bytes, at: int) -> bytes | None:
    if len(data) - at < _HEADER.size:
        return None
    magic, length, checksum = _HEADER.unpack_from(data, at)
    if magic != MAGIC or length > MAX_PAYLOAD:
        return None
    start = at + _HEADER.size
    payload = data[start : start + length]
    return payload if len(payload) == length and crc32(payload, length) == checksum else None
