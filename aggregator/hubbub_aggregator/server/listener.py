"""The application on its sockets, until it is told to stop."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Timer

import uvicorn
from starlette.types import ASGIApp

from hubbub_aggregator.errors import ListenError
from hubbub_aggregator.server.connection_limits import ConnectionLimits
from hubbub_aggregator.server.uvicorn_protocol import Protocol

_BACKLOG = 2048
_SECONDS_TO_FINISH = 8
"""What was accepted is stored within a second; a body that is still coming is not waited for: containers are killed after ten."""
_SECONDS_TO_EXIT = 9.5
"""Then the process ends, whatever still runs."""
_SWITCH_INTERVAL = 0.001
"""A writer back from the disk waits so long, in seconds, for the thread that reads requests; Python's own is 0.005."""


logger = logging.getLogger(__name__)


def listen(host: str, port: int, options: str = "--host or --port") -> socket.socket:
    """Bind an address (port 0: any free one) and listen on it; `options` are named in the error."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio sets TCP_NODELAY only on sockets that say it: else an answer takes 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(_BACKLOG)
    except (OSError, OverflowError) as problem:
        bound.close()
        reason = getattr(problem, "strerror", None) or problem
        raise ListenError(f"cannot listen on {host}:{port}: {reason}: give another {options}") from None
    return bound


def address_of(listener: socket.socket) -> tuple[str, int]:
    """Return the socket's own address, as `scope["server"]` has it for each request that arrives there."""
    host, port = listener.getsockname()[:2]
    return host, port


def url_of(listener: socket.socket) -> str:
    """Return the address that the socket really has."""
    host, port = address_of(listener)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(
    app: ASGIApp,
    listeners: Sequence[socket.socket],
    limits: ConnectionLimits,
    ready: Callable[[], None],
    stopping: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM or SIGINT, then finish what was accepted; nothing about a request is logged.

    ready    : called when requests are answered
    stopping : called after the signal, before what was accepted is finished: ends what takes long
    """
    sys.setswitchinterval(_SWITCH_INTERVAL)
    _Server(uvicorn_config(app, limits), ready, stopping).run(sockets=[*listeners])


def uvicorn_config(app: ASGIApp, connection_limits: ConnectionLimits) -> uvicorn.Config:
    """Return uvicorn's configuration: our protocol with its limits, and no request logged."""

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
        timeout_graceful_shutdown=_SECONDS_TO_FINISH,
    )


def _exit_after(seconds: float) -> None:
    """End the process after so many seconds, whatever hangs: a database that does not answer, a thread that waits for it.

    Nothing that was acknowledged is lost, as by SIGKILL.
    """

    def end() -> None:
        logger.error(
            "the shutdown takes longer than %g seconds: the process ends now, with exit code 1. Acknowledged batches are "
            "stored; clients send the others again. See whether the database answers",
            seconds,
        )
        os._exit(1)

    timer = Timer(seconds, end)
    timer.daemon = True
    timer.start()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], stopping: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready
        self._stopping = stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.freeze()  # what is there by now stays: not to be looked through again and again
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        _exit_after(_SECONDS_TO_EXIT)
        self._stopping()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal as asked, and exit 0: uvicorn would raise the signal once more at the end."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.handle_exit)
        yield
