"""Receive the body of a request within limits of size, time and memory, and decompress it."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from hubbub.wire.batch import CONTENT_TYPE
from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.errors import RefusedWithHeaderError
from hubbub_aggregator.server.limits import network_prefix
from hubbub_aggregator.settings import Settings

_UNCOUNTED_BYTES = 4_096
"""Bytes of each body that do not count against the memory limit, so that small batches always have room.

The limit of open connections bounds their sum.
"""
_RATE_WINDOW_SECONDS = 5.0
_MAX_LENGTH_DIGITS = 19
_GZIP = 16 + zlib.MAX_WBITS


def is_gzip(content_type: str | None, content_encoding: str | None) -> bool:
    """Return whether a batch is compressed; an unsupported media type or encoding raises RefusedError."""
    media_type = (content_type or "").partition(";")[0].strip().lower()
    if media_type != CONTENT_TYPE:
        raise RefusedWithHeaderError(
            ProblemType.UNSUPPORTED_MEDIA_TYPE,
            f"Content-Type must be {CONTENT_TYPE}, got {media_type[:80]!r}",
            ("Accept", CONTENT_TYPE),
        )
    match (content_encoding or "identity").strip().lower():
        case "identity":
            return False
        case "gzip" | "x-gzip":
            return True
        case coding:
            raise RefusedWithHeaderError(
                ProblemType.UNSUPPORTED_MEDIA_TYPE,
                f"Content-Encoding must be gzip or none, got {coding[:80]!r}",
                ("Accept-Encoding", "gzip"),
            )


def declared_size(content_length: str | None) -> int:
    """Return the size in bytes that the Content-Length header declares, 0 without the header."""
    text = content_length or "0"
    if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_LENGTH_DIGITS):
        raise RefusedError(ProblemType.MALFORMED, f"Content-Length must be a number of bytes, got {text[:80]!r}")
    return int(text)


def check_size(size: int, limit: int) -> None:
    """Raise RefusedError if a body has, or will have, more than `limit` bytes."""
    if size > limit:
        raise RefusedError(
            ProblemType.TOO_LARGE, f"a body has at most {limit} bytes, got {size} or more: send smaller batches"
        )


async def read_body(receive: Receive, settings: Settings, limit: int, memory: BodyReservation) -> bytes:
    """Return a body; RefusedError if it exceeds `limit` bytes, has no room in memory, or arrives too slowly.

    The rate is measured over windows of 5 seconds.
    """
    loop, body = asyncio.get_running_loop(), bytearray()
    window_start, size_at_start = loop.time(), 0
    end = window_start + settings.max_body_seconds
    try:
        async with asyncio.timeout_at(min(end, window_start + _RATE_WINDOW_SECONDS)) as timeout:
            while await _receive_chunk(receive, limit, memory, body):
                if len(body) - size_at_start >= settings.min_body_rate * _RATE_WINDOW_SECONDS:
                    window_start, size_at_start = loop.time(), len(body)
                    timeout.reschedule(min(end, window_start + _RATE_WINDOW_SECONDS))
    except TimeoutError:
        raise RefusedError(
            ProblemType.TOO_SLOW,
            f"a body must arrive within {settings.max_body_seconds:g} seconds, at {settings.min_body_rate:g} bytes per "
            f"second or more; {len(body)} bytes had arrived: send smaller batches, or over a faster network",
        ) from None
    return bytes(body)


async def read_complete_body(receive: Receive, limit: int, memory: BodyReservation) -> bytes:
    """Return a body that has arrived completely, without the timer of `read_body`; same errors of size and memory."""
    body = bytearray()
    while await _receive_chunk(receive, limit, memory, body):
        pass
    return bytes(body)


async def _receive_chunk(receive: Receive, limit: int, memory: BodyReservation, body: bytearray) -> bool:
    """Append the next chunk to a body; return whether more follows."""
    message: Any = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    body += message.get("body", b"")
    check_size(len(body), limit)
    memory.grow_to(len(body))
    return bool(message.get("more_body", False))


def inflate(body: bytes, limit: int) -> bytes:
    """Decompress one gzip member; RefusedError beyond `limit` bytes, which are never allocated."""
    stream = zlib.decompressobj(_GZIP)
    try:
        data = stream.decompress(body, limit + 1)
    except zlib.error:
        raise RefusedError(ProblemType.MALFORMED, f"the body is not gzip ({len(body)} bytes)") from None
    if len(data) > limit:
        raise RefusedError(
            ProblemType.TOO_LARGE,
            f"a body of {len(body)} bytes inflates to more than the limit of {limit}: send smaller batches",
        )
    if not stream.eof or stream.unused_data:
        raise RefusedError(ProblemType.MALFORMED, f"the body is not exactly one gzip member ({len(body)} bytes)")
    return data


@dataclass(slots=True)
class BodyReservation:
    """Memory that one arriving body uses, without its first 4 KiB."""

    _memory: BodyMemory
    _address: str
    _reserved: int = 0

    def grow_to(self, size: int) -> None:
        """Reserve memory for a body that now has `size` bytes; RefusedError if there is no room."""
        more = max(0, size - _UNCOUNTED_BYTES) - self._reserved
        if more:
            self._memory.add(network_prefix(self._address), more)
            self._reserved += more

    def release(self) -> None:
        """Release all of it."""
        if self._reserved:
            self._memory.add(network_prefix(self._address), -self._reserved)
            self._reserved = 0


class BodyMemory:
    """Limit of the memory for arriving bodies: `total` bytes, of which one network uses at most `per_network`.

    Used by one thread, in one event loop.
    """

    def __init__(self, total: int, per_network: int) -> None:
        self._total, self._per_network = total, per_network
        self._by_network: Counter[str] = Counter()
        self.used = 0

    @contextmanager
    def reserve(self, address: str | None) -> Iterator[BodyReservation]:
        """Count the memory of one body until the block ends."""
        body = BodyReservation(self, address or "")
        try:
            yield body
        finally:
            body.release()

    def add(self, network: str, size: int) -> None:
        """Change the memory that a network uses by `size` bytes; RefusedError beyond what a network, or all of them, may use."""
        if size > 0 and self._by_network[network] + size > self._per_network:
            raise RefusedError(
                ProblemType.UNAVAILABLE,
                f"arriving bodies of one network may use {self._per_network} bytes of memory: send the same batch again later",
            )
        if size > 0 and self.used + size > self._total:
            raise RefusedError(
                ProblemType.UNAVAILABLE,
                f"arriving bodies already use the limit of {self._total} bytes of memory: send the same batch again later",
            )
        self.used += size
        self._by_network[network] += size
        if not self._by_network[network]:
            del self._by_network[network]
