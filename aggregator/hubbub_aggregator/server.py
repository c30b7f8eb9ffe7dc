"""The application on its sockets, until it is told to stop."""

from __future__ import annotations

import gc
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from hubbub.errors import HubbubError
from hubbub_aggregator.protocol import ConnectionLimits, Protocol
from hubbub_aggregator.proxies import Proxies
from hubbub_aggregator.settings import Settings

_BACKLOG = 2048
_SECONDS_TO_FINISH = 8
"""What was accepted is stored within a second; a body that is still coming is not waited for: containers are killed after ten."""
_SWITCH_INTERVAL = 0.001
"""A writer back from the disk waits so long, in seconds, for the thread that reads requests; Python's own is 0.005."""


class ListenError(HubbubError):
    """The address cannot be listened on."""


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
    app: ASGIApp, listeners: Sequence[socket.socket], ready: Callable[[], None], settings: Settings | None = None
) -> None:
    """Serve until SIGTERM or SIGINT (call `ready` when requests are answered), then finish what was accepted; nothing about a request is logged."""
    sys.setswitchinterval(_SWITCH_INTERVAL)
    _Server(configured(app, settings or Settings()), ready).run(sockets=[*listeners])


def configured(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """Return uvicorn's configuration: our protocol with its limits, and no request logged."""

    class LimitedProtocol(Protocol):
        limits = ConnectionLimits(
            settings.max_connections, settings.max_network_connections, Proxies(settings.trusted_proxy)
        )

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


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.freeze()  # what is there by now stays: not to be looked through again and again
        self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal as asked, and exit 0: uvicorn would raise the signal once more at the end."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.handle_exit)
        yield
