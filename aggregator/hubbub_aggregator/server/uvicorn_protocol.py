"""HTTP as uvicorn reads it, with what comes around a body limited, and with its own refusals in the one form of all."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from hubbub.wire.problems import ProblemType
from hubbub_aggregator.http.conventions import BODY_IS_HERE
from hubbub_aggregator.http.problems import problem
from hubbub_aggregator.server.connection_limits import ConnectionLimits

_MOST_DISCARDED = 256 << 10
"""Bytes of a body that are read after its answer, so that the client gets to see it; then the connection is closed."""

_MOST_OUTSTANDING = 8
"""Requests that a connection may have sent without having its responses; with more it is closed."""

_MOST_AROUND_A_BODY = 64 << 10


_FAILURES = logging.getLogger("uvicorn.error.connection")
_FAILURES.setLevel(logging.ERROR)
"""uvicorn's log of one connection, without its warnings: a request that is not HTTP is no event of the service."""


class _TooManyOutstandingError(Exception):
    """Stops the parser in the middle of what it was given."""


class Protocol(HttpToolsProtocol):
    """One connection."""

    limits: ConnectionLimits
    _around = 0  # bytes that came since the last of a body, or of a request
    _network: str | None = None
    _answering: RequestResponseCycle | None = None
    """The request that is being answered; `cycle` is the last one that came, `pipeline` has those between."""
    _discarded = 0  # bytes of a body that came after its answer

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.access_log = False  # whatever handlers the host's loggers have
        self.logger = _FAILURES
        self._network = self.limits.admit(self.client[0] if self.client else "")
        if self._network is None:
            self._refuse(ProblemType.UNAVAILABLE, "too many connections are open: send the same again later")

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._disconnect()
        if self._network is not None:
            self.limits.release(self._network)
            self._network = None

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._around += len(data)
        super().data_received(data)
        if self._around > _MOST_AROUND_A_BODY and not self.transport.is_closing():
            self._refuse(
                ProblemType.HEADERS_TOO_LARGE,
                f"request line, headers and trailers are at most {_MOST_AROUND_A_BODY} bytes",
            )

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= _MOST_OUTSTANDING - 1:  # and one that is being answered
            raise _TooManyOutstandingError
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._answering = self._answering or self.cycle
        self._discarded = 0

    def on_response_complete(self) -> None:
        self._answering = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()
        if self.pipeline:  # uvicorn would read on, and queue more than it answers
            self.flow.pause_reading()

    def on_body(self, body: bytes) -> None:
        self._around = 0
        if self.cycle.response_complete:
            self._discarded += len(body)
            if self._discarded > _MOST_DISCARDED:
                self.transport.abort()
                self._disconnect()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._around = 0
        self.scope[BODY_IS_HERE] = True  # type: ignore[literal-required]
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  (uvicorn's own text)
        if len(self.pipeline) >= _MOST_OUTSTANDING - 1:
            self.transport.abort()  # its client does not read: there is nobody to tell
            self._disconnect()
            return
        self._refuse(
            ProblemType.NOT_HTTP, "this cannot be read as HTTP/1.1, and here is no TLS: send that to the proxy"
        )

    def _disconnect(self) -> None:
        """Tell each request that nobody reads its response; uvicorn tells only the last one that came."""
        for cycle in filter(None, (self._answering, *(queued for queued, _ in self.pipeline))):
            cycle.disconnected = True
            cycle.message_event.set()
        self.pipeline.clear()

    def _refuse(self, refusal: ProblemType, detail: str) -> None:
        answer = problem(refusal, detail, {"Connection": "close", "X-Content-Type-Options": "nosniff"})
        headers = [*self.server_state.default_headers, *answer.raw_headers]
        status = f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}\r\n".encode()
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        self.transport.write(status + lines + b"\r\n" + bytes(answer.body))
        self.transport.close()
        self._disconnect()
