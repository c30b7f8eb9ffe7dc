"""HTTP as uvicorn reads it, with what comes around a body limited, and with its own refusals in the one form of all."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hubbub.refusals import Refusal
from hubbub_aggregator.problems import problem

BODY_IS_HERE = "hubbub.body_is_here"
"""In a request's scope once all of its body has come: to receive it is to wait for nothing."""

_MOST_AROUND_A_BODY = 64 << 10


class Protocol(HttpToolsProtocol):
    """One connection."""

    _around = 0  # bytes that came since the last of a body, or of a request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.access_log = False  # whatever handlers the host's loggers have

    def data_received(self, data: bytes) -> None:
        self._around += len(data)
        super().data_received(data)
        if self._around > _MOST_AROUND_A_BODY and not self.transport.is_closing():
            self._refuse(
                Refusal.HEADERS_TOO_LARGE, f"request line, headers and trailers are at most {_MOST_AROUND_A_BODY} bytes"
            )

    def on_body(self, body: bytes) -> None:
        self._around = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._around = 0
        self.scope[BODY_IS_HERE] = True  # type: ignore[literal-required]
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  (uvicorn's own text)
        self._refuse(Refusal.NOT_HTTP, "this cannot be read as HTTP/1.1, and here is no TLS: send that to the proxy")

    def _refuse(self, refusal: Refusal, detail: str) -> None:
        answer = problem(refusal, detail, {"Connection": "close", "X-Content-Type-Options": "nosniff"})
        headers = [*self.server_state.default_headers, *answer.raw_headers]
        status = f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}\r\n".encode()
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        self.transport.write(status + lines + b"\r\n" + bytes(answer.body))
        self.transport.close()
