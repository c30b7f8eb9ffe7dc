"""Cancellation of one HTTP request: its sockets are shut down at its total deadline, or when it is no longer wanted.

A socket's timeout starts again with each byte, so a second thread shuts the socket down. A DNS lookup cannot be cancelled, so it runs in a
thread that may outlive the request.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

POLL_SECONDS = 0.02
"""Interval of the question whether a request is still wanted."""
_NO_LINGER = struct.pack("hh" if hasattr(socket, "SO_EXCLUSIVEADDRUSE") else "ii", 1, 0)


class RequestCanceller:
    """Cancels the connections of one request, inside `with`.

    is_wanted      : called before the first byte and every `POLL_SECONDS`; the request ends once it returns False
    seconds        : total time of the request
    request_sent   : whether a byte of the request may have left (connections, proxy tunnels and TLS handshakes carry none)
    connect_thread : thread that still resolves the name or connects; it may outlive the request
    """

    def __init__(self, is_wanted: Callable[[], bool], seconds: float) -> None:
        self._is_wanted = is_wanted
        self._deadline = time.monotonic() + seconds
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._ended = False
        self._changed = threading.Event()
        self.request_sent = False
        self.connect_thread: threading.Thread | None = None
        self._thread = threading.Thread(target=self._watch, name="hubbub-canceller", daemon=True)

    def open(self, connect: Callable[[], socket.socket]) -> socket.socket:
        """Return the socket of `connect`, tracked; raise its exception, or TimeoutError if the request ends first."""
        found: list[socket.socket | Exception] = []

        def run() -> None:
            opened: socket.socket | Exception
            try:
                opened = connect()
            except Exception as failure:  # noqa: BLE001  (raised again in the waiting thread)
                opened = failure
            with self._lock:
                if self._ended and isinstance(opened, socket.socket):
                    opened.close()
                found.append(opened)
                self._changed.set()

        self.connect_thread = threading.Thread(target=run, name="hubbub-connect", daemon=True)
        self.connect_thread.start()
        self._changed.wait()
        with self._lock:
            self._changed.clear()
            if self._ended or not found:
                raise TimeoutError("the request ended before it was connected")
        (opened,) = found
        self.connect_thread = None  # it has its result, although it may not have returned yet
        if isinstance(opened, Exception):
            raise opened
        self.track(opened)
        return opened

    def track(self, opened: socket.socket) -> None:
        """Track a new connection by a duplicate of its descriptor, whatever wraps it later (TLS)."""
        with self._lock:
            self._sockets.append(opened.dup())
            if self._ended:
                self._shut_down()

    def may_continue(self) -> bool:
        """Return whether the request may continue."""
        try:
            return not self._ended and time.monotonic() < self._deadline and self._is_wanted()
        except Exception:  # noqa: BLE001  (without an answer the request ends)
            return False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        with self._lock:
            self._ended = True
            for connection in self._sockets:
                connection.close()
            self._sockets.clear()

    def _watch(self) -> None:
        while not self._done.wait(POLL_SECONDS):
            if not self.may_continue():
                with self._lock:
                    self._ended = True
                    self._shut_down()
                    self._changed.set()
                return

    def _shut_down(self) -> None:
        """Shut the sockets down, which ends waiting calls; bytes that the system has not sent yet are discarded."""
        for connection in self._sockets:
            with suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def cancellable_connection(connection: type[Any], canceller: RequestCanceller, seconds: float) -> type[Any]:
    """Return a class of urllib3 connections that the canceller tracks from their first packet.

    seconds : read timeout of an open connection
    """
    from urllib3.exceptions import NewConnectionError

    class CancellableConnection(connection):  # type: ignore[misc]
        def _new_conn(self) -> socket.socket:
            opened = canceller.open(super()._new_conn)
            opened.settimeout(seconds)
            return opened

        def connect(self) -> None:
            super().connect()
            if not canceller.may_continue():
                self.close()
                raise NewConnectionError(self, "the request was cancelled")
            canceller.request_sent = True

    return CancellableConnection
