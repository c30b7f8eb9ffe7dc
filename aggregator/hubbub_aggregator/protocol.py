"""HTTP as uvicorn reads it, with what comes around a body limited, and with its own refusals in the one form of all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from hubbub.refusals import Refusal
from hubbub_aggregator.problems import problem

BODY_IS_HERE = "hubbub.body_is_here"
"""In a request's scope once all of its body has come: to receive it is to wait for nothing."""

ANSWER_AT_ONCE = "hubbub.answer_at_once"
"""In a request's scope a function that writes an answer in one go, or says that this one must be sent as any other.

As ASGI has it an answer is two messages, and so two system calls and two packets.
"""

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

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self.scope[ANSWER_AT_ONCE] = partial(_answer_at_once, self.cycle)  # type: ignore[literal-required]

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
        head = head_of(refusal.status, [*self.server_state.default_headers, *answer.raw_headers])
        self.transport.write(head + b"\r\n" + bytes(answer.body))
        self.transport.close()


def head_of(status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return an answer's first lines, all but those that `answer_at_once` adds."""
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode() + lines


def _answer_at_once(cycle: RequestResponseCycle, head: bytes, body: bytes) -> bool:
    """Do what `cycle.send` does with a whole answer, for a client that is there, reads, and stays."""
    if cycle.disconnected or cycle.flow.write_paused or not cycle.keep_alive:
        return False
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    always = b"".join([b"%b: %b\r\n" % header for header in cycle.default_headers])
    cycle.transport.write(b"%b%b\r\n%b" % (head, always, body))
    cycle.message_event.set()
    cycle.on_response()
    return True
