"""POST /v1/reports: from the HTTP request to the durable batch, in the order of the steps.

`ingest_batch` runs directly behind the HTTP server, because the web framework would take as long as all other steps together.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Sequence
from typing import NamedTuple, Self

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from hubbub.metrics.definitions import Definitions
from hubbub.wire.batch import Batch, BatchFields, FieldNames, batch_of_fields
from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.api.batch_validation import admit
from hubbub_aggregator.api.dependencies import Service, charge, charge_request
from hubbub_aggregator.api.request_body import (
    check_size,
    declared_size,
    inflate,
    is_gzip,
    read_body,
    read_complete_body,
)
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.http.middlewares import BODY_COMPLETE, REPORTS_PATH, SECURITY_HEADERS, internal_error_response
from hubbub_aggregator.http.problems import problem_response, refusal_response
from hubbub_aggregator.monitoring.jobs import log_failure
from hubbub_aggregator.pipeline.group_commit import GroupCommit
from hubbub_aggregator.store.interface import AppendResult
from hubbub_aggregator.store.tokens import Scope as TokenScope

logger = logging.getLogger(__name__)

Headers = dict[bytes, bytes]

REFUSAL_DELAY_SECONDS = 1.0
"""Delay of a 429 response: a client that waits for responses sends no faster than they come."""
_MAX_DELAYED = 64
"""Responses that are delayed at once; each occupies a connection of a reverse proxy. Further ones are sent immediately."""
_UNCHARGED = {("GET", "/livez"), ("HEAD", "/livez"), ("POST", "/sign-in")}
"""Requests that the middleware does not charge: a liveness probe, and a form; its route charges it and responds in HTML."""


class RawResponse(NamedTuple):
    """A response in the form that the ASGI server takes; building a Starlette `Response` takes as long as decoding a batch."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes

    @classmethod
    def from_response(cls, response: Response) -> Self:
        return cls(response.status_code, (*response.raw_headers, *SECURITY_HEADERS), bytes(response.body))


async def ingest_batch(scope: Scope, receive: Receive) -> RawResponse:
    """Store a batch, whole or not at all: 202 once it is durable, 200 if its id is already stored, else a problem response."""
    service: Service = scope["state"]["service"]
    writer: GroupCommit = scope["state"]["writer"]
    definitions, limits, headers = service.definitions, service.settings, dict(scope["headers"])
    batch: Batch | None = None
    try:
        address = _check_capacity(service, writer, scope["client"], headers)
        if limits.require_report_token:
            authorization = _header(headers, b"authorization")
            await run_in_threadpool(service.authorizer.require, TokenScope.REPORT, authorization)
        body = await _receive_body(scope, receive, headers, service, address)
        charged = _charge_more(service, address, 1 / limits.client_rate, len(body) / limits.client_byte_rate)
        batch = decode_batch(body)
        _charge_more(service, address, charged, len(batch) / limits.client_report_rate)
        result = await _store(batch, definitions, service, writer)
    except RefusedError as refused:
        service.outcomes.refused(_defined_name(batch, definitions), refused.problem_type)
        return RawResponse.from_response(refusal_response(refused))
    except StoreError as failed:
        log_failure(logger, "the store", failed)
        service.outcomes.refused("", ProblemType.UNAVAILABLE)
        return RawResponse.from_response(
            problem_response(ProblemType.UNAVAILABLE, "the database is not available: see the aggregator's log")
        )
    service.outcomes.accepted(_defined_name(batch, definitions), result.value)
    prepared = _PREPARED[result]
    return prepared._replace(body=prepared.body % str(batch.batch_id).encode())


def _check_capacity(service: Service, writer: GroupCommit, client: tuple[str, int] | None, headers: Headers) -> str:
    """Refuse a batch before its body is read: rate of its network, full queue, full disk. Return the client's address."""
    address = charge_request(service, client, _header(headers, b"x-forwarded-for"))
    writer.require_room()
    if service.disk.is_full:
        raise RefusedError(
            ProblemType.DISK_FULL, "the aggregator's disk is nearly full: send the same batch again later"
        )
    return address


async def _receive_body(scope: Scope, receive: Receive, headers: Headers, service: Service, address: str) -> bytes:
    """Check the headers, then receive the body and decompress it."""
    settings, max_bytes = service.settings, service.active_definitions.largest_batch
    gzip = is_gzip(_header(headers, b"content-type"), _header(headers, b"content-encoding"))
    limit = settings.max_body if gzip else min(settings.max_body, max_bytes)
    check_size(declared_size(_header(headers, b"content-length")), limit)
    with service.body_memory.reserve(address) as memory:
        if BODY_COMPLETE in scope:
            body = await read_complete_body(receive, limit, memory)
        else:
            body = await read_body(receive, settings, limit, memory)
    return inflate(body, max_bytes) if gzip else body


def _charge_more(service: Service, address: str, charged: float, cost: float) -> float:
    """Charge the part of a cost that exceeds the seconds already charged for this request; return the larger of the two.

    So a request costs the largest of its costs in requests, bytes and reports.
    """
    if cost > charged:
        charge(service, address, cost - charged)
    return max(charged, cost)


class _Fields(msgspec.Struct):
    batch_id: str
    metric: str
    digest: str
    period: str
    cohorts: list[int]
    bits: bytes  # decoded from base64
    group: str = ""


class _Name(str):
    """Name of a field at the top level; a type of its own, so that `dec_hook` is called for each."""

    __slots__ = ()


_decoder = msgspec.json.Decoder(_Fields)
_NUM_REQUIRED = 6


def decode_batch(body: bytes) -> Batch:
    """Decode a body in time proportional to its size; RefusedError with the reason if it is not a batch.

    Unknown fields are skipped without building Python objects, so that deeply nested lists cost no more than a scan of their bytes.
    The decoder holds the interpreter lock, so a thread would not help: the definitions bound the size instead
    (`ActiveDefinitions.largest_batch`).
    """
    return batch_of_fields(_read_fields(body))


def _read_fields(body: bytes) -> BatchFields:
    """Return the fields of a body.

    A body with all six required fields and no more colons than fields has no repeated and no other field, so that only the names in
    other bodies are checked one by one. It has a seventh if it has a group.
    """
    try:
        fields = _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
        raise RefusedError(ProblemType.MALFORMED, _describe(problem, len(body))) from None
    if body.count(b":") != _NUM_REQUIRED + bool(fields.group):
        _check_field_names(body)
    return fields.batch_id, fields.metric, fields.digest, fields.period, fields.cohorts, fields.bits, fields.group


def _describe(problem: Exception, size: int) -> str:
    """Return the difference between a body and a batch, without content of the body."""
    if isinstance(problem, msgspec.ValidationError):
        return f"the body is not a batch: {problem}"[:200]
    return f"the body is not JSON ({size} bytes)"


def _check_field_names(body: bytes) -> None:
    names = FieldNames()

    def check(_type: type, name: str) -> _Name:
        names.add(name)
        return _Name(name)

    try:
        msgspec.json.decode(body, type=dict[_Name, msgspec.Raw], dec_hook=check)
    except (msgspec.ValidationError, RecursionError) as problem:
        raise RefusedError(ProblemType.MALFORMED, str(problem)) from None


async def _store(batch: Batch, definitions: Definitions, service: Service, writer: GroupCommit) -> AppendResult:
    """Return the result of storing a batch, once it is durable; RefusedError if it must not be counted.

    A batch that is stored already is a duplicate even if it would be refused now (see `api/batch_validation.py`).
    """
    try:
        admit(batch, definitions, service.clock.reading(), service.settings)
    except RefusedError:
        if await run_in_threadpool(service.reports.contains, batch):
            return AppendResult.DUPLICATE
        raise
    result = await writer.write(batch)
    if result is AppendResult.CLOSED:
        raise RefusedError(ProblemType.PERIOD_CLOSED, f"the period {batch.period} is closed")
    return result


def _prepared_response(status: int, result: AppendResult) -> RawResponse:
    """Return the response to an accepted batch, with a placeholder for its id."""
    body = b'{"batch_id":"%%b","status":"%b"}' % result.value.encode()
    length = len(body % str(uuid.UUID(int=0)).encode())
    return RawResponse.from_response(Response(body, status, {"Content-Length": str(length)}, "application/json"))


_PREPARED = {
    AppendResult.STORED: _prepared_response(202, AppendResult.STORED),
    AppendResult.DUPLICATE: _prepared_response(200, AppendResult.DUPLICATE),
}


def _defined_name(batch: Batch | None, definitions: Definitions) -> str:
    """Return the name of a batch's metric if it is defined, else "": counters have no names from requests."""
    return batch.metric if batch is not None and batch.metric in definitions else ""


class IngestMiddleware:
    """Pass uploads of batches to `ingest_batch`, and all other requests to the application, charged to their network."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._num_delayed = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"] == REPORTS_PATH and scope["method"] == "POST":
            await self._ingest(scope, receive, send)
        elif (refusal := _charge_other(scope)) is not None:
            await self._respond(send, refusal)
        else:
            await self._app(scope, receive, send)

    async def _ingest(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await ingest_batch(scope, receive)
        except ClientDisconnect:
            return  # before the end of its body: the connection is closed
        except Exception as failure:  # noqa: BLE001  (as in http/middlewares.py)
            response = RawResponse.from_response(internal_error_response(failure))
        await self._respond(send, response)

    async def _respond(self, send: Send, response: RawResponse) -> None:
        """Send a response; a 429 after a delay."""
        if response.status == ProblemType.TOO_MANY.status and self._num_delayed < _MAX_DELAYED:
            self._num_delayed += 1
            try:
                await asyncio.sleep(REFUSAL_DELAY_SECONDS)
            finally:
                self._num_delayed -= 1
        await send({"type": "http.response.start", "status": response.status, "headers": [*response.headers]})
        await send({"type": "http.response.body", "body": response.body})


def _charge_other(scope: Scope) -> RawResponse | None:
    """Charge a request that is not an upload to its network; return the response if it exceeds the rate."""
    if (scope["method"], scope["path"]) in _UNCHARGED:
        return None
    service: Service = scope["state"]["service"]
    try:
        charge_request(service, scope["client"], _header(dict(scope["headers"]), b"x-forwarded-for"))
    except RefusedError as refused:
        service.outcomes.rejected_request(refused.problem_type)
        return RawResponse.from_response(refusal_response(refused))
    return None


def _header(headers: Headers, name: bytes) -> str | None:
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")
