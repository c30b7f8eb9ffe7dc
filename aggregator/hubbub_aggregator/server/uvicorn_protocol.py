"""uvicorn's HTTP protocol with limits on headers, pipelined requests and connections, and errors as problem responses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from hubbub.wire.problems import ProblemType
from hubbub_aggregator.http.middlewares import BODY_COMPLETE
from hubbub_aggregator.http.problems import problem_response
from hubbub_aggregator.server.limits import ConnectionLimits

LINGER_SECONDS = 2.0
MAX_LINGER_BYTES = 2 << 20


class LingeringTransport(asyncio.Transport):
    """A transport that lingers before it closes, so that a client that still sends receives the response (RFC 9112, section 9.6).

    The operating system resets a connection that is closed with unread data, and the client then loses a response that it has not
    read. So the sending direction is closed first. What arrives is discarded until the client closes, or until a limit.

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


_MAX_OUTSTANDING_REQUESTS = 8
"""Requests of a connection that have no complete response; with more the connection is closed."""

_MAX_HEADER_BYTES = 64 << 10
"""Bytes of the request line, headers and trailers."""

_MAX_HEADERS = 200
"""Headers and trailers of a request: each takes some 150 bytes of memory, even if it has three bytes."""

_connection_logger = logging.getLogger("uvicorn.error.connection")
_connection_logger.setLevel(logging.ERROR)
"""uvicorn's log of connections, without warnings: an invalid request is not an event of the service."""


class _StopParsingError(Exception):
    """Stops the parser in the middle of its input."""


class _PipelineFlow(FlowControl):
    """Flow control of a connection that reads nothing more while requests wait for the response of an earlier one."""

    def __init__(self, transport: asyncio.Transport, pipeline: Collection[object]) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        if not self._pipeline:
            super().resume_reading()


class Protocol(HttpToolsProtocol):
    """One connection, with limits on its headers and its outstanding requests.

    A response that precedes the end of its request's body closes the connection (see `server/uvicorn_protocol.py`).
    """

    limits: ConnectionLimits
    transport: LingeringTransport
    _header_bytes = 0  # received since the end of the last body or request
    _network: str | None = None
    _current: RequestResponseCycle | None = None
    """The request that gets its response now; `cycle` is the last one received, `pipeline` holds those between."""
    _is_refused = False  # by a response of the protocol itself

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(LingeringTransport(transport, self._is_sending))
        self.access_log = False  # regardless of the handlers of the process
        self.logger = _connection_logger
        self.flow = _PipelineFlow(self.transport, self.pipeline)
        self._network = self.limits.admit(self.client[0] if self.client else "")
        if self._network is None:
            self._refuse(ProblemType.UNAVAILABLE, "too many connections are open: send the same request again later")

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport.closed()
        super().connection_lost(exc)
        self._disconnect()
        if self._network is not None:
            self.limits.release(self._network)
            self._network = None

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            self.transport.discard(len(data))
            return
        self._header_bytes += len(data)
        super().data_received(data)
        if self._header_bytes > _MAX_HEADER_BYTES and not self.transport.is_closing():
            self._refuse(
                ProblemType.HEADERS_TOO_LARGE,
                f"request line, headers and trailers may have {_MAX_HEADER_BYTES} bytes together",
            )

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= _MAX_OUTSTANDING_REQUESTS - 1:  # and the current one
            raise _StopParsingError
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= _MAX_HEADERS:
            self._refuse(ProblemType.HEADERS_TOO_LARGE, f"a request may have {_MAX_HEADERS} headers and trailers")
            raise _StopParsingError
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        num_hosts = sum(name == b"host" for name, _ in self.headers)
        if num_hosts > 1 or (num_hosts == 0 and self.parser.get_http_version() == "1.1"):  # RFC 9112, section 3.2
            self._refuse(
                ProblemType.NOT_HTTP, f"a request of HTTP/1.1 needs one Host header, and this one has {num_hosts}"
            )
            raise _StopParsingError
        super().on_headers_complete()
        self._current = self._current or self.cycle

    def on_response_complete(self) -> None:
        self._current = self.pipeline[-1][0] if self.pipeline else None
        if self._current is None and BODY_COMPLETE not in self.cycle.scope:
            self.transport.close()
        super().on_response_complete()

    def on_body(self, body: bytes) -> None:
        self._header_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._header_bytes = 0
        self.scope[BODY_COMPLETE] = True  # type: ignore[literal-required]
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  (uvicorn's own text)
        if self.transport.is_closing():  # the request was refused by its headers
            return
        if len(self.pipeline) >= _MAX_OUTSTANDING_REQUESTS - 1:
            self.transport.abort()  # its client does not read responses
            self._disconnect()
            return
        self._refuse(
            ProblemType.NOT_HTTP,
            "the request is not HTTP/1.1; this port does not accept TLS, which belongs to the reverse proxy",
        )

    def _is_sending(self) -> bool:
        """Return whether the last request has not arrived completely."""
        return self._is_refused or (self.scope is not None and BODY_COMPLETE not in self.scope)

    def _disconnect(self) -> None:
        """Mark all requests of the connection as disconnected; uvicorn marks only the last one."""
        for cycle in filter(None, (self._current, *(queued for queued, _ in self.pipeline))):
            cycle.disconnected = True
            cycle.message_event.set()
        self.pipeline.clear()

    def _refuse(self, problem: ProblemType, detail: str) -> None:
        response = problem_response(problem, detail, {"Connection": "close", "X-Content-Type-Options": "nosniff"})
        headers = [*self.server_state.default_headers, *response.raw_headers]
        status = f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}\r\n".encode()
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        self.transport.write(status + lines + b"\r\n" + bytes(response.body))
        self._is_refused = self._network is not None  # others are not counted, so they do not linger
        self.transport.close()
        self._disconnect()
