"""Aggregator on this machine whose answers and clock a scenario sets, and which remembers every request."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any, Self

from hubbub.wire.problems import ProblemType

_MOST_BYTES = 1 << 20
_TO_PAGES = (
    ("Access-Control-Allow-Origin", "*"),
    ("Access-Control-Allow-Headers", "Content-Type"),
    ("Access-Control-Expose-Headers", "Date, Retry-After"),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to one request. is_lost : whether the batch is stored and the connection then ends without an answer."""

    status: int = 202
    headers: tuple[tuple[str, str], ...] = ()
    problem: ProblemType | None = None
    is_lost: bool = False


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

    now      : time of its Date header
    script   : answers to the next requests; without one a batch is stored: 202, and 200 if it was stored before
    requests : all that arrived, in order
    """

    now: datetime = datetime(2026, 11, 23, 12, tzinfo=UTC)
    script: deque[Answer] = field(default_factory=deque)
    requests: list[Request] = field(default_factory=list)
    _stored: set[str] = field(default_factory=set)

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

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
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
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        length = handler.headers.get("Content-Length", "0")
        body = handler.rfile.read(min(int(length), _MOST_BYTES)) if length.isdecimal() else b""
        request = Request(handler.path, tuple(handler.headers.items()), body, self.now)
        self.requests.append(request)
        answer = self.script.popleft() if self.script else Answer(200 if request.batch_id in self._stored else 202)
        if answer.status in (200, 202):
            self._stored.add(request.batch_id)
        if answer.is_lost:
            handler.close_connection = True
            return
        problem = answer.problem
        fields = (
            {"batch_id": request.batch_id}
            if problem is None
            else {"type": f"/problems/{problem.slug}", "status": problem.status}
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
