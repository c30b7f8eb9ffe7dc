"""An aggregator that accepts every batch and keeps it: for clients with a clock of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from hubbub.wire.batch import CONTENT_TYPE, Batch


class RecordingServer(ThreadingHTTPServer):
    """Batches that arrived, by id, and how often each arrived."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[bytes] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def batches(self) -> list[Batch]:
        """The distinct batches."""
        batches = map(Batch.from_json, tuple(self.bodies))
        return list({batch.batch_id: batch for batch in batches}.values())


class _Handler(BaseHTTPRequestHandler):
    server: RecordingServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append(body)
        answer = json.dumps({"batch_id": str(Batch.from_json(body).batch_id), "status": "stored"}).encode()
        self.send_response_only(202)  # without a date: the clients have clocks of their own
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def recording_server() -> Iterator[RecordingServer]:
    """Run the server in a thread."""
    with RecordingServer() as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
