"""Fixtures of the decoder's tests: one BLAS thread, and a fake aggregator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="session", autouse=True)
def one_blas_thread() -> Iterator[None]:
    """Run BLAS with one thread: many small decodes are several times faster."""
    with threadpool_limits(1):
        yield


@dataclass
class FakeAggregator:
    """Next response of the fake aggregator, also to a request of the list of periods unless `periods` is given, and the requested paths."""

    url: str = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    periods: bytes | None = None
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def aggregator() -> Iterator[FakeAggregator]:
    """HTTP server on a free local port that sends the configured response."""
    fake = FakeAggregator()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fake.requests.append(self.path)
            listed = fake.periods if self.path == "/v1/periods" else None
            body = fake.body if listed is None else listed
            self.send_response(fake.status)
            for name, value in {"Content-Length": str(len(body)), **fake.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_port}"
    yield fake
    server.shutdown()
    thread.join()
    server.server_close()
