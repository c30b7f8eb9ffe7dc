"""Aggregator on this machine whose answers and clock a scenario sets, and which remembers every request."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any, Self

from hubbub.defaults import LOOPBACK
from hubbub.wire.answers import ACCEPTANCES
from hubbub.wire.batch import CONTENT_TYPE
from hubbub.wire.problems import PROBLEM_CONTENT_TYPE, ProblemType

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
class Content:
    """Body of an answer, and its media type. `BATCH_ID` in it stands for the batch's id, and each character for one byte."""

    media_type: str | None
    text: str


BATCH_ID = "BATCH_ID"


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to one request, and how it comes.

    content : by default that of an acceptance
    """

    status: int = 202
    headers: tuple[tuple[str, str], ...] = ()
    content: Content = field(default_factory=lambda: acceptance(202))
    delivery: Delivery = Delivery.WHOLE

    @classmethod
    def refusing(cls, problem: ProblemType, *headers: tuple[str, str]) -> Self:
        """Return the refusal of a batch."""
        return cls(problem.status, headers, refusal(problem))


def acceptance(status: int) -> Content:
    """Return what an aggregator says when it accepts a batch."""
    return Content(CONTENT_TYPE, json.dumps({"batch_id": BATCH_ID, "status": ACCEPTANCES[status]}))


def refusal(problem: ProblemType) -> Content:
    """Return what an aggregator says when it refuses a batch."""
    fields = {
        "type": problem.path,
        "title": problem.meaning,
        "status": problem.status,
        "detail": "as the scenario asks",
    }
    return Content(PROBLEM_CONTENT_TYPE, json.dumps(fields))


@dataclass(frozen=True, slots=True)
class Request:
    """What a client sent.

    time     : of the scenario
    is_whole : whether the body is as long as its header says; the client may give a request up before
    """

    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    time: datetime
    is_whole: bool = True

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

    now           : time of its Date header
    requests      : all that arrived, in order
    has_waiting   : whether a client still waited for a slow answer after LONGEST_REQUEST_SECONDS
    first_answers : those of `answer_first_attempts` that were given, by the batch's id
    outage        : answer to all requests; None without an outage

    A batch without a script is stored: 202, and 200 if it was stored before.
    """

    now: datetime = datetime(2026, 11, 23, 12, tzinfo=UTC)
    requests: list[Request] = field(default_factory=list)
    has_waiting: bool = False
    _stored: set[str] = field(default_factory=set)
    first_answers: dict[str, Answer] = field(default_factory=dict)
    outage: Answer | None = None
    _script: deque[Answer] = field(default_factory=deque)
    _scripted: str | None = None
    _firsts: deque[Answer] = field(default_factory=deque)

    def answer_next_batch(self, *answers: Answer) -> None:
        """Give these answers to the attempts of the next batch that was not sent before."""
        self._script, self._scripted = deque(answers), None

    def answer_first_attempts(self, *answers: Answer) -> None:
        """Give each of these answers to the first attempt of another batch."""
        self._firsts, self.first_answers = deque(answers), {}

    @property
    def scripted_batch(self) -> str | None:
        """Id of the batch that gets the answers of the script; None until it is sent."""
        return self._scripted

    def __enter__(self) -> Self:
        aggregator = self

        class Handler(BaseHTTPRequestHandler):
            """Handler of one connection."""

            def do_POST(self) -> None:
                with suppress(ConnectionError):  # the client leaves before the end of an answer that it does not accept
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
        is_whole = not length.isdecimal() or len(body) == min(int(length), _MOST_BYTES)
        request = Request(handler.path, tuple(handler.headers.items()), body, self.now, is_whole)
        answer = self._next_answer(request.batch_id) if is_whole else None
        self.requests.append(request)
        if answer is None:
            return
        if answer.content == acceptance(202) and answer.status == 202:
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
        if self.outage is not None:
            return self.outage
        is_new = batch_id not in {request.batch_id for request in self.requests}
        if is_new and self._firsts:
            self.first_answers[batch_id] = self._firsts.popleft()
            return self.first_answers[batch_id]
        if is_new and self._scripted is None:
            self._scripted = batch_id
        if self._script and batch_id == self._scripted:
            return self._script.popleft()
        return Answer(200, content=acceptance(200)) if batch_id in self._stored else Answer()


def _send(handler: BaseHTTPRequestHandler, answer: Answer, batch_id: str) -> None:
    content = answer.content.text.replace(BATCH_ID, batch_id).encode("latin-1")
    handler.send_response(answer.status)
    for name, value in answer.headers:
        handler.send_header(name, value)
    if answer.content.media_type is not None:
        handler.send_header("Content-Type", answer.content.media_type)
    handler.send_header("Content-Length", str(len(content)))
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
