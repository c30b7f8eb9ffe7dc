"""The service over HTTP on this machine: reads of the analyst, and uploads of clients in other processes."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from types import TracebackType
from typing import Any, Self

from hubbub.defaults import LOOPBACK
from hubbub.sdk.upload.retry_policy import UploadResponse
from tests.support.asgi import AppResponse
from tests.system.year.service import Service

Upload = Callable[[bytes], AppResponse | UploadResponse]
"""What becomes of a body: the service's answer, or why there is none."""


class Front:
    """A server on a free port. It is a context manager."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._uploads: dict[str, Upload] = {}
        self._numbers = itertools.count()
        self._server = _Server((LOOPBACK, 0), type("Handler", (_Handler,), {"front": self}))
        self.url = f"http://{LOOPBACK}:{self._server.server_port}"

    def address_for(self, upload: Upload) -> str:
        """Return the address of a service that is reached through this function alone."""
        name = str(next(self._numbers))
        self._uploads[name] = upload
        return f"{self.url}/{name}"

    def read(self, path: str) -> AppResponse:
        """Pass a GET on to the application that runs at the moment."""
        return self._service.call("GET", path)

    def upload(self, path: str, body: bytes) -> AppResponse | UploadResponse:
        """Pass a body on to the function that the first part of a path stands for."""
        return self._uploads[path.split("/")[1]](body)

    def __enter__(self) -> Self:
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        if self._server.problem is not None:
            raise self._server.problem


class _Server(HTTPServer):
    problem: BaseException | None = None

    def handle_error(self, *_: Any) -> None:
        """Keep an error of a handler for the end."""
        self.problem = sys.exception()


class _Handler(BaseHTTPRequestHandler):
    front: Front

    def do_GET(self) -> None:
        self._respond(self.front.read(self.path))

    def do_POST(self) -> None:
        """Answer an upload; close the connection if there is no answer."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = self.front.upload(self.path, body)
        if isinstance(answer, AppResponse):
            self._respond(answer)

    def _respond(self, answer: AppResponse) -> None:
        with suppress(ConnectionError):
            self.send_response_only(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

    def log_message(self, *_: Any) -> None:
        pass
