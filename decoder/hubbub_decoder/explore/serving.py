"""Serve the pages of `hubbub explore` on the loopback interface until a signal comes."""

from __future__ import annotations

import asyncio
import signal
import socket
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from types import FrameType

import uvicorn

from hubbub.defaults import LOOPBACK
from hubbub.metrics.periods import utc_now
from hubbub_decoder.data.events import read_events
from hubbub_decoder.errors import OutputError
from hubbub_decoder.explore.answers import Answers
from hubbub_decoder.explore.app import explore_app
from hubbub_decoder.explore.cache import Cache
from hubbub_decoder.explore.decoding_process import DecodingProcess
from hubbub_decoder.explore.explorer import Explorer
from hubbub_decoder.explore.summary_directory import SummaryDirectory
from hubbub_decoder.options import Options


def serve(
    directory: Path,
    candidates: Path | None,
    options: Options,
    *,
    cache: Path | None = None,
    port: int = 0,
    hostnames: Sequence[str] = (),
    events: Sequence[Path] = (),
    processes: int = 1,
    tell: Callable[[str], object],
) -> None:
    """Serve until SIGINT or SIGTERM.

    cache     : directory for answers; None: a temporary one
    port      : 0: any free one
    hostnames : of a proxy, besides those of this machine
    events    : files whose events the charts over periods mark
    processes : that decode
    tell      : is told the address

    Raises SummaryError if there is no such directory, EventError for a damaged file of events, and OutputError if the port is taken or the cache cannot be written.
    """
    summaries = SummaryDirectory(directory.resolve(), None if candidates is None else candidates.resolve(), options)
    versions, unreadable = summaries.read()
    read_events(events)
    with tempfile.TemporaryDirectory() if cache is None else nullcontext(cache) as place:
        try:
            kept = Cache(Path(place, "explore").resolve())
        except OSError as problem:
            raise OutputError(f"{problem.filename} cannot be written: {problem.strerror}.") from None
        answers = Answers(kept, [DecodingProcess(Path(place).resolve()) for _ in range(processes)])
        with _listen(port) as listener:
            empty = "" if versions or unreadable else ", which has no .parquet file yet"
            tell(f"http://{LOOPBACK}:{listener.getsockname()[1]}/ shows {directory}{empty} (Ctrl+C ends it)")
            signal.signal(signal.SIGTERM, _exit)  # uvicorn ends its work, and then lets the signal pass
            with suppress(KeyboardInterrupt):
                asyncio.run(
                    _serve(Explorer(summaries, kept, answers, list(map(Path.absolute, events))), listener, hostnames)
                )


async def _serve(explorer: Explorer, listener: socket.socket, hostnames: Sequence[str]) -> None:
    config = uvicorn.Config(
        explore_app(explorer, utc_now, hostnames),
        log_level="warning",
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=1,
    )
    await uvicorn.Server(config).serve([listener])


def _exit(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server((LOOPBACK, port))
    except OSError as problem:
        raise OutputError(
            f"Port {port} of {LOOPBACK} cannot be used: {problem.strerror}. Choose another with --port."
        ) from None
