"""Close a connection whose client still sends, so that the client receives the response (RFC 9112, section 9.6).

The operating system resets a connection that is closed with unread data, and the client then loses a response that it has not read.
So the sending direction is closed first. What arrives is discarded until the client closes, or until a limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

LINGER_SECONDS = 2.0
MAX_LINGER_BYTES = 2 << 20


class LingeringTransport(asyncio.Transport):
    """A transport that lingers before it closes.

    transport  : the connection
    is_sending : returns whether the client may be in the middle of a request
    """

    def __init__(self, transport: asyncio.Transport, is_sending: Callable[[], bool]) -> None:
        super().__init__()
        self._transport, self._is_sending = transport, is_sending
        self._discarded = 0
        self._timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Close once all is written; if the client is sending, close the sending direction and linger."""
        if self.is_closing():
            return
        if not self._is_sending():
            self._transport.close()
            return
        self._timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._transport.close)
        self._transport.write_eof()
        self._transport.resume_reading()  # a paused one would not see the client close

    def discard(self, num_bytes: int) -> None:
        """Count bytes that arrived after `close`, and end lingering beyond the limit."""
        self._discarded += num_bytes
        if self._discarded > MAX_LINGER_BYTES:
            self._transport.close()

    def closed(self) -> None:
        """Release the timer of a connection that is closed."""
        if self._timer is not None:
            self._timer.cancel()

    def is_closing(self) -> bool:
        """Return whether the connection is closed, closing or lingering: nothing more is read or written."""
        return self._timer is not None or self._transport.is_closing()

    def abort(self) -> None:
        self._transport.abort()

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self._transport.write(data)

    def pause_reading(self) -> None:
        if self._timer is None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)
