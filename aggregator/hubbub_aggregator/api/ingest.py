"""POST /v1/reports, straight from the socket to the writer: the one route where a framework's ceremony costs."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from hubbub.metrics.definitions import Definitions
from hubbub.wire.batch import Batch
from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.api.admission import admit
from hubbub_aggregator.api.batch_decoding import decode_batch
from hubbub_aggregator.api.batch_validation import announced, inflated, is_gzip, require_size
from hubbub_aggregator.api.body_memory import ReceivedBody
from hubbub_aggregator.api.service import Service, charge, require_rate
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.http.conventions import BODY_IS_HERE, PATH
from hubbub_aggregator.http.error_handler import unforeseen
from hubbub_aggregator.http.problems import problem, refused_with
from hubbub_aggregator.http.security_headers import SECURITY_HEADERS
from hubbub_aggregator.monitoring.job_health import log_failure
from hubbub_aggregator.pipeline.group_commit import GroupCommit
from hubbub_aggregator.server.client_address import asked_directly
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.interface import AppendResult
from hubbub_aggregator.store.tokens import Scope as TokenScope

logger = logging.getLogger(__name__)

_RATE_WINDOW = 5.0  # seconds over which a body's arrival rate is measured


def may_read_without_token(service: Service, request: Request) -> bool:
    """Return whether a request may read without a token: it arrived at the local listener, under a name of this machine.

    The socket says which listener it was, no header does: a proxy that sends none must not look like this machine. The headers are
    looked at all the same, against pages of other sites whose name was changed to our address.
    """
    arrived_at = tuple(request.scope.get("server") or ())
    return arrived_at == service.local_address and asked_directly(request.headers)


class Answer(NamedTuple):
    """What is answered, as it goes to the server; a `Response` takes as long to make as a batch to be read."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes

    @classmethod
    def of(cls, response: Response) -> Self:
        return cls(response.status_code, (*response.raw_headers, *SECURITY_HEADERS), bytes(response.body))


def _taken(status: int, appended: AppendResult) -> Answer:
    """Return the answer to a batch, but for its id."""
    told = b'{"batch_id":"%%b","status":"%b"}' % appended.value.encode()
    length = len(told % str(uuid.UUID(int=0)).encode())
    return Answer.of(Response(told, status, {"Content-Length": str(length)}, "application/json"))


_TAKEN = {
    AppendResult.STORED: _taken(202, AppendResult.STORED),
    AppendResult.DUPLICATE: _taken(200, AppendResult.DUPLICATE),
}


async def take(scope: Scope, receive: Receive) -> Answer:
    """Store a batch, whole or not at all: 202 once it is durable, 200 if its id is already stored."""
    service: Service = scope["state"]["service"]
    definitions = service.definitions
    writer: GroupCommit = scope["state"]["writer"]
    batch: Batch | None = None
    try:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        address = _require_room(service, writer, scope["client"], headers)
        if service.settings.require_report_token:
            await run_in_threadpool(service.door.require, TokenScope.REPORT, _text(headers, b"authorization"))
        batch = await _batch(scope, headers, receive, service, address)
        try:
            admit(batch, definitions, service.clock.reading(), service.settings)
        except RefusedError:
            if not await run_in_threadpool(service.store.contains, batch):  # why: see intake.py
                raise
            appended = AppendResult.DUPLICATE
        else:
            appended = await writer.write(batch)
        if appended is AppendResult.CLOSED:
            raise RefusedError(ProblemType.PERIOD_CLOSED, f"the period {batch.period} has been closed here")
    except StoreError as failed:
        log_failure(logger, "the store", failed)
        service.outcomes.refused("", ProblemType.UNAVAILABLE)
        return Answer.of(
            problem(ProblemType.UNAVAILABLE, "the store cannot do this just now; the aggregator's log says why")
        )
    except RefusedError as refused:
        service.outcomes.refused(_defined_name(batch, definitions), refused.problem_type)
        return Answer.of(refused_with(refused))
    service.outcomes.accepted(_defined_name(batch, definitions), appended.value)
    taken = _TAKEN[appended]
    return Answer(taken.status, taken.headers, taken.body % str(batch.batch_id).encode())


def _defined_name(batch: Batch | None, definitions: Definitions) -> str:
    """Return the name of a batch's metric if it is defined here, else "": only defined names are counted."""
    return batch.metric if batch is not None and batch.metric in definitions else ""


def _require_room(
    service: Service, writer: GroupCommit, client: tuple[str, int] | None, headers: dict[bytes, bytes]
) -> str:
    """Refuse before the body is read: too much from one network, too much waiting, a full disk; return the sender's address."""
    address = require_rate(service, client, _text(headers, b"x-forwarded-for"))
    writer.require_room()
    if service.disk.is_full:
        raise RefusedError(
            ProblemType.DISK_FULL, "the aggregator's disk is nearly full: send the same batch again later"
        )
    return address


REFUSAL_DELAY_SECONDS = 1.0
"""How long the refusal of a network that sends too much is held back."""
_MOST_DELAYED = 64
"""Refusals held back at once: behind a proxy each holds one of its connections. Beyond it they are sent at once."""

_CLOSING = {408, 429, 503, 507}
"""Answers after which a body that is still arriving is not read to its end: its client sends it again, whole."""

_UNLIMITED = {("GET", "/livez"), ("HEAD", "/livez"), ("POST", "/sign-in")}
"""Requests that the middleware does not charge: a probe of the process, and a form whose route answers in HTML."""


class Shortcut:
    """Middleware: a POST of a batch goes to `take` and meets nothing else on its way; any other request is charged first."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._delayed = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST":
            refused = _refused_by_rate(scope) if scope["type"] == "http" else None
            if refused is None:
                await self._app(scope, receive, send)
            else:
                await self._delay(refused)
                await _send(send, refused)
            return
        try:
            answer = await take(scope, receive)
        except ClientDisconnect:
            return  # in the middle of its body: nobody is there to answer
        except Exception as failure:  # noqa: BLE001  (as everywhere: see last_resort.py)
            answer = Answer.of(unforeseen(failure))
        if answer.status in _CLOSING and BODY_IS_HERE not in scope:
            answer = answer._replace(headers=[*answer.headers, (b"connection", b"close")])  # do not read the rest
        await self._delay(answer)
        await _send(send, answer)

    async def _delay(self, answer: Answer) -> None:
        """Hold back the refusal of a network that sends too much: who waits for answers sends no faster than they come."""
        if answer.status != ProblemType.TOO_MANY.status or self._delayed >= _MOST_DELAYED:
            return
        self._delayed += 1
        try:
            await asyncio.sleep(REFUSAL_DELAY_SECONDS)
        finally:
            self._delayed -= 1


async def _send(send: Send, answer: Answer) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": [*answer.headers]})
    await send({"type": "http.response.body", "body": answer.body})


def _refused_by_rate(scope: Scope) -> Answer | None:
    """Charge a request to its network; return the answer if it is refused."""
    if (scope["method"], scope["path"]) in _UNLIMITED:
        return None
    service: Service = scope["state"]["service"]
    try:
        require_rate(service, scope["client"], _text(dict(scope["headers"]), b"x-forwarded-for"))
    except RefusedError as refused:
        service.outcomes.rejected_request(refused.problem_type)
        return Answer.of(refused_with(refused))
    return None


async def _batch(scope: Scope, headers: dict[bytes, bytes], receive: Receive, service: Service, address: str) -> Batch:
    """Receive, inflate and decode a body; its bytes and reports are charged to the sender's network.

    A request has been charged as one already. What it costs is the most of its share in requests, bytes and reports.
    """
    settings, largest = service.settings, service.active_definitions.largest_batch
    gzip = is_gzip(_text(headers, b"content-type"), _text(headers, b"content-encoding"))
    limit = settings.max_body if gzip else min(settings.max_body, largest)
    require_size(announced(_text(headers, b"content-length")), limit)
    with service.bodies.receive(address) as received:
        if BODY_IS_HERE in scope:
            body = await _receive_all(receive, limit, received)
        else:
            body = await read_body(receive, settings, limit, received)
    if gzip:
        body = inflated(body, largest)
    charged = 1 / settings.client_rate
    cost = max(charged, len(body) / settings.client_byte_rate)
    if cost > charged:
        charge(service, address, cost - charged)
    batch = decode_batch(body)
    if (reports := len(batch) / settings.client_report_rate) > cost:
        charge(service, address, reports - cost)
    return batch


async def read_body(receive: Receive, settings: Settings, limit: int, received: ReceivedBody) -> bytes:
    """Return a request's body; refuse what is larger than `limit` bytes, has no room in memory, or arrives too slowly."""
    loop, body = asyncio.get_running_loop(), bytearray()
    began, brought = loop.time(), 0  # of the window over which the arrival rate is measured
    end = began + settings.max_body_seconds
    try:
        async with asyncio.timeout_at(min(end, began + _RATE_WINDOW)) as timeout:
            while await _receive(receive, limit, received, body):
                if len(body) - brought >= settings.min_body_rate * _RATE_WINDOW:
                    began, brought = loop.time(), len(body)
                    timeout.reschedule(min(end, began + _RATE_WINDOW))
    except TimeoutError:
        raise RefusedError(
            ProblemType.TOO_SLOW,
            f"a body arrives within {settings.max_body_seconds:g} seconds, at {settings.min_body_rate:g} bytes a second "
            f"or more; {len(body)} bytes had arrived",
        ) from None
    return bytes(body)


async def _receive_all(receive: Receive, limit: int, received: ReceivedBody) -> bytes:
    """Return a body all of which has arrived, without the timer that `read_body` needs."""
    body = bytearray()
    while await _receive(receive, limit, received, body):
        pass
    return bytes(body)


async def _receive(receive: Receive, limit: int, received: ReceivedBody, body: bytearray) -> bool:
    """Append the next piece of a body; return whether more will come."""
    message: Any = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    body += message.get("body", b"")
    require_size(len(body), limit)
    received.hold(len(body))
    return bool(message.get("more_body", False))


def _text(headers: dict[bytes, bytes], name: bytes) -> str | None:
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")
