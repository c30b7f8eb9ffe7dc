"""What the decoder's tests share: one BLAS thread, and a stand-in for an aggregator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="session", autouse=True)
def one_blas_thread() -> Iterator[None]:
    """Many small decodes are several times faster than with threads that wait for each other."""
    with threadpool_limits(1):
        yield


@dataclass
class Answers:
    """What the aggregator answers next, and what it was asked."""

    url: str = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def aggregator() -> Iterator[Answers]:
    """A real HTTP server on a free local port that answers as it is told."""
    answers = Answers()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers.asked.append(self.path)
            self.send_response(answers.status)
            for name, value in {"Content-Length": str(len(answers.body)), **answers.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answers.body)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    answers.url = f"http://127.0.0.1:{server.server_port}"
    yield answers
    server.shutdown()
    thread.join()
    server.server_close()
