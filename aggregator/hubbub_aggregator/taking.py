"""POST /v1/reports, straight from the socket to the writer: the one route where a framework's ceremony costs."""

from __future__ import annotations

import asyncio
import logging
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Self

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from hubbub.batch import Batch
from hubbub.definitions import Definitions
from hubbub.errors import RefusedError
from hubbub.refusals import Refusal
from hubbub_aggregator.collecting import Collecting
from hubbub_aggregator.disk import DiskWatch
from hubbub_aggregator.fold_progress import FoldProgress
from hubbub_aggregator.intake import (
    RefusedWithHeaderError,
    announced,
    inflated,
    is_gzip,
    require_admissible,
    require_size,
)
from hubbub_aggregator.last_resort import unforeseen
from hubbub_aggregator.loopback import asked_directly
from hubbub_aggregator.problems import problem, refused_with
from hubbub_aggregator.protocol import BODY_IS_HERE
from hubbub_aggregator.proxies import Proxies
from hubbub_aggregator.rate_limit import RateLimit
from hubbub_aggregator.security_headers import SECURITY_HEADERS
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store import Appended, Store, StoreError
from hubbub_aggregator.tally import Tally
from hubbub_aggregator.tokens import Doorkeeper
from hubbub_aggregator.tokens import Scope as TokenScope
from hubbub_aggregator.troubles import Troubles
from hubbub_aggregator.writer import GroupWriter

logger = logging.getLogger(__name__)

PATH = "/v1/reports"

Clock = Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class Service:
    """What the routes work with."""

    collecting: Collecting
    store: Store
    settings: Settings
    clock: Clock
    tally: Tally
    proxies: Proxies
    rate: RateLimit
    disk: DiskWatch
    door: Doorkeeper
    progress: FoldProgress
    troubles: Troubles

    @property
    def definitions(self) -> Definitions:
        """The definitions that hold now: take them once, and finish under what you took."""
        return self.collecting.now


def reads_are_open(service: Service, headers: Mapping[str, str]) -> bool:
    """Say whether who sent these headers may read without a token: this machine's own, where the operator lets them."""
    return service.settings.open_reads and asked_directly(headers)


class Answer(NamedTuple):
    """What is answered, as it goes to the server; a `Response` takes as long to make as a batch to be read."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes

    @classmethod
    def of(cls, response: Response) -> Self:
        return cls(response.status_code, (*response.raw_headers, *SECURITY_HEADERS), bytes(response.body))


def _taken(status: int, appended: Appended) -> Answer:
    """Return the answer to a batch, but for its id."""
    told = b'{"batch_id":"%%b","status":"%b"}' % appended.value.encode()
    length = len(told % str(uuid.UUID(int=0)).encode())
    return Answer.of(Response(told, status, {"Content-Length": str(length)}, "application/json"))


_TAKEN = {Appended.STORED: _taken(202, Appended.STORED), Appended.DUPLICATE: _taken(200, Appended.DUPLICATE)}


async def take(scope: Scope, receive: Receive) -> Answer:
    """Store a batch, whole or not at all: 202 once it is durable, 200 if its id is already stored."""
    service: Service = scope["state"]["service"]
    definitions = service.definitions
    writer: GroupWriter = scope["state"]["writer"]
    batch: Batch | None = None
    try:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        _require_room(service, writer, scope["client"], headers)
        if service.settings.closed_reports:
            await run_in_threadpool(service.door.require, TokenScope.REPORT, _text(headers, b"authorization"))
        batch = Batch.from_json(await _body(scope, headers, receive, service.settings))
        try:
            require_admissible(batch, definitions, service.clock(), service.settings)
        except RefusedError:
            if not await run_in_threadpool(service.store.holds, batch):  # why: see intake.py
                raise
            appended = Appended.DUPLICATE
        else:
            appended = await writer.write(batch)
        if appended is Appended.CLOSED:
            raise RefusedError(Refusal.PERIOD_CLOSED, f"the period {batch.period} has been closed here")
    except StoreError as failed:
        logger.error("the store failed: %s", failed)
        service.tally.refused("", Refusal.UNAVAILABLE)
        return Answer.of(
            problem(Refusal.UNAVAILABLE, "the store cannot do this just now; the aggregator's log says why")
        )
    except RefusedError as refused:
        service.tally.refused(_defined_name(batch, definitions), refused.refusal)
        return Answer.of(refused_with(refused))
    service.tally.took(_defined_name(batch, definitions), appended.value)
    taken = _TAKEN[appended]
    return Answer(taken.status, taken.headers, taken.body % str(batch.batch_id).encode())


def _defined_name(batch: Batch | None, definitions: Definitions) -> str:
    """Return the name of a batch's metric if it is defined here, else "": only defined names are counted."""
    return batch.metric if batch is not None and batch.metric in definitions else ""


def _require_room(
    service: Service, writer: GroupWriter, client: tuple[str, int] | None, headers: dict[bytes, bytes]
) -> None:
    """Refuse before anything is read, and so cheaply: too much of one network, too much waiting, hardly any disk left."""
    require_rate(service, client, _text(headers, b"x-forwarded-for"))
    writer.require_room()
    if service.disk.full:
        raise RefusedError(Refusal.DISK_FULL, "the aggregator's disk is nearly full: send the same batch again later")


def require_rate(service: Service, client: tuple[str, int] | None, forwarded_for: str | None) -> None:
    """Refuse a request of a network that sent too many."""
    host = None if client is None else service.proxies.peer(client[0], forwarded_for)
    wait = 0.0 if host is None else service.rate.wait(host)
    if wait:
        raise RefusedWithHeaderError(
            Refusal.TOO_MANY,
            f"one network may send {service.settings.client_rate:g} batches a second: send the same batch again later",
            ("Retry-After", str(math.ceil(wait))),
        )


class Shortcut:
    """Middleware: a POST of a batch goes to `take` and meets nothing else on its way."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        try:
            answer = await take(scope, receive)
        except ClientDisconnect:
            return  # in the middle of its body: nobody is there to answer
        except Exception as failure:  # noqa: BLE001  (as everywhere: see last_resort.py)
            answer = Answer.of(unforeseen(failure))
        await send({"type": "http.response.start", "status": answer.status, "headers": [*answer.headers]})
        await send({"type": "http.response.body", "body": answer.body})


async def _body(scope: Scope, headers: dict[bytes, bytes], receive: Receive, settings: Settings) -> bytes:
    gzip = is_gzip(_text(headers, b"content-type"), _text(headers, b"content-encoding"))
    require_size(announced(_text(headers, b"content-length")), settings)
    if BODY_IS_HERE in scope:
        come = bytearray()
        await _receive(receive, settings, come)
        body = bytes(come)
    else:
        body = await read_body(receive, settings)
    return inflated(body, settings) if gzip else body


async def read_body(receive: Receive, settings: Settings) -> bytes:
    """Return a request's body, or refuse what is too large or too slow."""
    body = bytearray()
    try:
        async with asyncio.timeout(settings.max_body_seconds):
            await _receive(receive, settings, body)
    except TimeoutError:
        raise RefusedError(
            Refusal.TOO_SLOW,
            f"a body comes within {settings.max_body_seconds:g} seconds, got {len(body)} bytes by then",
        ) from None
    return bytes(body)


async def _receive(receive: Receive, settings: Settings, body: bytearray) -> None:
    """Append a request's body, or what comes of it until it is too large."""
    more = True
    while more:
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        require_size(len(body), settings)
        more = message.get("more_body", False)


def _text(headers: dict[bytes, bytes], name: bytes) -> str | None:
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")
