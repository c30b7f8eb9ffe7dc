"""The application on a socket, until it is told to stop."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from hubbub.errors import HubbubError

_BACKLOG = 2048
_SECONDS_TO_FINISH = 30
_SWITCH_INTERVAL = 0.001
"""A writer back from the disk waits so long, in seconds, for the thread that reads requests; Python's own is 0.005."""


class ListenError(HubbubError):
    """The address cannot be listened on."""


def listen(host: str, port: int) -> socket.socket:
    """Open the socket; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio sets TCP_NODELAY only on sockets that say it: else an answer takes 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as problem:
        listener.close()
        raise ListenError(f"cannot listen on {host}:{port}: {problem}: give another --host or --port") from None
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the address that the socket really has."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(app: ASGIApp, listener: socket.socket, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT, then finish what was accepted; nothing about a request is logged."""
    sys.setswitchinterval(_SWITCH_INTERVAL)
    config = uvicorn.Config(
        app,
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_SECONDS_TO_FINISH,
    )
    _Server(config, announce).run(sockets=[listener])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, announce: Callable[[str], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or []:
            self._announce(url_of(listener))

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal as asked, and exit 0: uvicorn would raise the signal once more at the end."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.handle_exit)
        yield
