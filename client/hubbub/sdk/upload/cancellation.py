"""Ends a request that is late or not wanted any more, wherever it is: at a resolver, in a handshake, a body, a header that drips.

A timeout of a socket starts anew with each byte, so another thread holds the socket too, and cuts it. Nobody can cut a resolver, so
it is asked in a thread that can be left to itself.
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
_NO_LINGER = struct.pack("hh" if hasattr(socket, "SO_EXCLUSIVEADDRUSE") else "ii", 1, 0)


class RequestCanceller:
    """Watches over the connections of one request, within `with`.

    wanted : asked before the first byte and all the time after it        seconds : how long all of it may take
    begun  : whether a byte of the request may have left: connections, tunnels and handshakes carry none
    opener : the thread that resolves and connects; it may outlive the request
    """

    def __init__(self, wanted: Callable[[], bool], seconds: float) -> None:
        self._wanted = wanted
        self._deadline = time.monotonic() + seconds
        self._held: list[socket.socket] = []
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._over = False
        self._changed = threading.Event()
        self.request_sent = False
        self.connect_thread: threading.Thread | None = None
        self._thread = threading.Thread(target=self._watch, name="hubbub-cutter", daemon=True)

    def open(self, connect: Callable[[], socket.socket]) -> socket.socket:
        """Return what `connect` opens, and hold it; raise what it raises, or TimeoutError if the request is over before."""
        found: list[socket.socket | Exception] = []

        def run() -> None:
            opened: socket.socket | Exception
            try:
                opened = connect()
            except Exception as failure:  # noqa: BLE001  (raised by the thread that waits)
                opened = failure
            with self._lock:
                if self._over and isinstance(opened, socket.socket):
                    opened.close()
                found.append(opened)
                self._changed.set()

        self.connect_thread = threading.Thread(target=run, name="hubbub-opener", daemon=True)
        self.connect_thread.start()
        self._changed.wait()
        with self._lock:
            self._changed.clear()
            if self._over or not found:
                raise TimeoutError("the request was over before there was a connection")
        (opened,) = found
        if isinstance(opened, Exception):
            raise opened
        self.hold(opened)
        return opened

    def hold(self, opened: socket.socket) -> None:
        """Hold a connection that was just opened; its wrappers (TLS) come and go, the descriptor is ours."""
        with self._lock:
            self._held.append(opened.dup())
            if self._over:
                self._cut()

    def may_continue(self) -> bool:
        """Say whether the request may go on."""
        try:
            return not self._over and time.monotonic() < self._deadline and self._wanted()
        except Exception:  # noqa: BLE001  (who cannot say that it is wanted does not want it)
            return False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        with self._lock:
            self._over = True
            for held in self._held:
                held.close()
            self._held.clear()

    def _watch(self) -> None:
        while not self._done.wait(POLL_SECONDS):
            if not self.may_continue():
                with self._lock:
                    self._over = True
                    self._cut()
                    self._changed.set()
                return

    def _cut(self) -> None:
        """Wake whoever waits for the other side; what the system has not sent yet is thrown away, not sent."""
        for held in self._held:
            with suppress(OSError):
                held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            with suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)


def cancellable_connection(connection: type[Any], cutter: RequestCanceller, seconds: float) -> type[Any]:
    """Return a class of urllib3 connections that the cutter holds from their first packet on.

    seconds : how long one that is open may wait for a byte
    """
    from urllib3.exceptions import NewConnectionError

    class Cuttable(connection):  # type: ignore[misc]
        def _new_conn(self) -> socket.socket:
            opened = cutter.open(super()._new_conn)
            opened.settimeout(seconds)
            return opened

        def connect(self) -> None:
            super().connect()
            if not cutter.may_continue():
                self.close()
                raise NewConnectionError(self, "the request is not wanted any more")
            cutter.request_sent = True

    return Cuttable
