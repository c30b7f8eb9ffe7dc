"""Bind sockets and serve the application on them with uvicorn, until SIGTERM or SIGINT."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread

import uvicorn
from starlette.types import ASGIApp

from hubbub.errors import HubbubError
from hubbub_aggregator.server.limits import ConnectionLimits
from hubbub_aggregator.server.uvicorn_protocol import Protocol

_BACKLOG = 2048
_RECEIVE_BUFFER_BYTES = 32 << 10
"""Of each connection; Linux reserves twice as much. It bounds what one read can return: uvloop would read 256 KiB at once."""
_GRACEFUL_SHUTDOWN_SECONDS = 8
"""Time for open requests to finish. Accepted batches are stored within one second; containers are killed after ten."""
_FORCED_EXIT_SECONDS = 9.5
"""Then the process ends, even if threads are still running."""
_SWITCH_INTERVAL_SECONDS = 0.001
"""Longest wait of the writer thread for the interpreter lock after a commit; Python's default is 0.005."""

logger = logging.getLogger(__name__)


def listen(host: str, port: int, options: str = "--host or --port") -> socket.socket:
    """Return a socket that listens on an address (port 0: any free port); a HubbubError names the options."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets with an explicit protocol; without it a response takes 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)  # connections inherit it
        bound.bind((host, port))
        bound.listen(_BACKLOG)
    except (OSError, OverflowError) as problem:
        bound.close()
        reason = getattr(problem, "strerror", None) or problem
        raise HubbubError(f"cannot listen on {host}:{port}: {reason}. Choose another {options}") from None
    return bound


def bound_address(listener: socket.socket) -> tuple[str, int]:
    """Return the socket's address; requests that arrive there have it in `scope["server"]`."""
    host, port = listener.getsockname()[:2]
    return host, port


def bound_url(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = bound_address(listener)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(
    app: ASGIApp,
    listeners: Sequence[socket.socket],
    limits: ConnectionLimits,
    ready: Callable[[], None],
    stopping: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM or SIGINT, then finish accepted requests; requests are not logged.

    ready    : called when the server accepts requests
    stopping : called after the signal, before accepted requests are finished; stops long operations
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
    _Server(uvicorn_config(app, limits), ready, stopping).run(sockets=[*listeners])


def uvicorn_config(app: ASGIApp, connection_limits: ConnectionLimits) -> uvicorn.Config:
    """Return uvicorn's configuration: hubbub's protocol with its limits, and no access log."""

    class LimitedProtocol(Protocol):
        limits = connection_limits

    return uvicorn.Config(
        app,
        http=LimitedProtocol,
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACEFUL_SHUTDOWN_SECONDS,
    )


class _ShutdownLimit:
    """Ends the process when a shutdown takes too long, even if a thread waits for a database that does not respond.

    Its thread exists from the start, because none can be started when memory is exhausted.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._begun = seconds, Event()
        Thread(target=self._run, name="hubbub-shutdown-limit", daemon=True).start()

    def begin(self) -> None:
        """Begin to count the seconds."""
        self._begun.set()

    def _run(self) -> None:
        self._begun.wait()
        time.sleep(self._seconds)
        _end(f"the shutdown took longer than {self._seconds:g} seconds", "Check that the database responds")


def _end(reason: str, advice: str) -> None:
    """End the process at once with exit code 1. As after SIGKILL, every acknowledged batch is stored."""
    try:
        logger.error(
            "%s, so the process ends with exit code 1. Acknowledged batches are stored; clients send the others again. %s",
            reason,
            advice,
        )
    finally:
        os._exit(1)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], stopping: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready
        self._stopping = stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._limit = _ShutdownLimit(_FORCED_EXIT_SECONDS)
        await super().startup(sockets)
        gc.freeze()  # objects that live until the end are not collected again and again
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._limit.begin()
        self._stopping()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal and exit with 0; uvicorn would raise the signal again at the end."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.handle_exit)
        yield
