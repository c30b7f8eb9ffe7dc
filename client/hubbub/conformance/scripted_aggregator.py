"""Aggregator on this machine whose answers and clock a scenario sets, and which remembers every request."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any, Self

from hubbub.defaults import LOOPBACK
from hubbub.wire.problems import ProblemType

SILENT_SECONDS = 4.0
"""Time from a request to the headers of a slow answer."""
LONGEST_REQUEST_SECONDS = 13.0
"""Time after which a client should have given up a slow answer: ten seconds, and three for a slow machine."""

_MOST_BYTES = 1 << 20
_BYTE_SECONDS = 0.25
_NO_LINGER = struct.pack("ii", 1, 0)
_TO_PAGES = (
    ("Access-Control-Allow-Origin", "*"),
    ("Access-Control-Allow-Headers", "Content-Type"),
    ("Access-Control-Expose-Headers", "Date, Retry-After"),
)


class Delivery(Enum):
    """How an answer comes. The aggregator has done what the answer says in any case."""

    WHOLE = "at once"
    LOST = "the connection is closed without an answer"
    RESET = "the connection is reset without an answer"
    SLOW = "nothing comes for four seconds, then the headers, and then a body that does not end, byte by byte"


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to one request, and how it comes."""

    status: int = 202
    headers: tuple[tuple[str, str], ...] = ()
    problem: ProblemType | None = None
    delivery: Delivery = Delivery.WHOLE


@dataclass(frozen=True, slots=True)
class Request:
    """What a client sent; time : of the scenario."""

    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    time: datetime

    @property
    def batch_id(self) -> str:
        """Id of the batch; "" of a body that is no batch."""
        try:
            return str(json.loads(self.body)["batch_id"])
        except (ValueError, KeyError, TypeError):
            return ""


@dataclass
class ScriptedAggregator:
    """Server on a free port of the loopback interface. It is a context manager.

    now         : time of its Date header
    requests    : all that arrived, in order
    has_waiting : whether a client still waited for a slow answer after LONGEST_REQUEST_SECONDS

    A batch without a script is stored: 202, and 200 if it was stored before.
    """

    now: datetime = datetime(2026, 11, 23, 12, tzinfo=UTC)
    requests: list[Request] = field(default_factory=list)
    has_waiting: bool = False
    _stored: set[str] = field(default_factory=set)
    _script: deque[Answer] = field(default_factory=deque)
    _scripted: str | None = None

    def answer_next_batch(self, *answers: Answer) -> None:
        """Give these answers to the attempts of the next batch that was not sent before."""
        self._script, self._scripted = deque(answers), None

    @property
    def scripted_batch(self) -> str | None:
        """Id of the batch that gets the answers of the script; None until it is sent."""
        return self._scripted

    def __enter__(self) -> Self:
        aggregator = self

        class Handler(BaseHTTPRequestHandler):
            """Handler of one connection."""

            def do_POST(self) -> None:
                aggregator._answer(self)

            do_GET = do_POST  # noqa: N815

            def do_OPTIONS(self) -> None:
                """Let pages send reports: a browser asks first."""
                self.send_response(204)
                self.end_headers()

            def end_headers(self) -> None:
                """End the headers with those that let pages read the answer."""
                for name, value in _TO_PAGES:
                    self.send_header(name, value)
                super().end_headers()

            def date_time_string(self, timestamp: float | None = None) -> str:  # noqa: ARG002
                return format_datetime(aggregator.now, usegmt=True)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Write nothing."""

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Address that clients send to."""
        return f"http://{LOOPBACK}:{self._server.server_address[1]}"

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        length = handler.headers.get("Content-Length", "0")
        body = handler.rfile.read(min(int(length), _MOST_BYTES)) if length.isdecimal() else b""
        request = Request(handler.path, tuple(handler.headers.items()), body, self.now)
        answer = self._next_answer(request.batch_id)
        self.requests.append(request)
        if answer.status in (200, 202):
            self._stored.add(request.batch_id)
        match answer.delivery:
            case Delivery.LOST:
                handler.close_connection = True
            case Delivery.RESET:
                _reset(handler)
            case Delivery.SLOW:
                self.has_waiting |= _is_waiting_after(handler, answer.status)
            case Delivery.WHOLE:
                _send(handler, answer, request.batch_id)

    def _next_answer(self, batch_id: str) -> Answer:
        if self._scripted is None and batch_id not in {request.batch_id for request in self.requests}:
            self._scripted = batch_id
        if self._script and batch_id == self._scripted:
            return self._script.popleft()
        return Answer(200 if batch_id in self._stored else 202)


def _send(handler: BaseHTTPRequestHandler, answer: Answer, batch_id: str) -> None:
    problem = answer.problem
    fields = (
        {"batch_id": batch_id} if problem is None else {"type": f"/problems/{problem.slug}", "status": problem.status}
    )
    content = json.dumps(fields).encode()
    handler.send_response(answer.status)
    for name, value in (
        *answer.headers,
        ("Content-Type", "application/json" if problem is None else "application/problem+json"),
        ("Content-Length", str(len(content))),
    ):
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(content)


def _reset(handler: BaseHTTPRequestHandler) -> None:
    """End a connection by a reset: closing a socket that does not linger sends one."""
    handler.close_connection = True
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    os.close(handler.connection.detach())


def _is_waiting_after(handler: BaseHTTPRequestHandler, status: int) -> bool:
    """Answer slowly until the client closes the connection; return whether it did not, in LONGEST_REQUEST_SECONDS."""
    handler.close_connection = True
    end = time.monotonic() + LONGEST_REQUEST_SECONDS
    try:
        if _is_closed_within(handler, SILENT_SECONDS):
            return False
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(_MOST_BYTES))
        handler.end_headers()
        while time.monotonic() < end:
            handler.wfile.write(b" ")
            if _is_closed_within(handler, _BYTE_SECONDS):
                return False
    except OSError:
        return False
    return True


def _is_closed_within(handler: BaseHTTPRequestHandler, seconds: float) -> bool:
    """Whether the client closes the connection in this time: it has nothing more to send."""
    readable, _, _ = select.select([handler.connection], [], [], seconds)
    return bool(readable) and not handler.connection.recv(1, socket.MSG_PEEK)
