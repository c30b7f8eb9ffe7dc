"""The routes: what the aggregator answers over HTTP."""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hubbub import privacy
from hubbub.batch import Batch
from hubbub.definitions import Definitions
from hubbub.errors import RefusedError
from hubbub.metric import Metric
from hubbub.periods import Period
from hubbub.refusals import Refusal
from hubbub.summary import summary_to_bytes
from hubbub.summary.parquet import CONTENT_TYPE as SUMMARY_TYPE
from hubbub.summary.pattern_counts import MAX_PATTERN_BITS, PatternCounts
from hubbub_aggregator import openapi
from hubbub_aggregator.folding import FoldingJob, read_summary
from hubbub_aggregator.intake import UnsupportedMediaError, inflated, is_gzip, require_admissible, require_size
from hubbub_aggregator.problems import page, problem
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store import Store, StoreError
from hubbub_aggregator.writer import GroupWriter

logger = logging.getLogger(__name__)

Clock = Callable[[], datetime]

routes = APIRouter()


def utc_now() -> datetime:
    """The system's clock."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Service:
    """What the routes work with."""

    definitions: Definitions
    store: Store
    settings: Settings
    clock: Clock


class SummaryResponse(Response):
    media_type = SUMMARY_TYPE


def create_app(
    definitions: Definitions, store: Store, settings: Settings | None = None, clock: Clock = utc_now
) -> FastAPI:
    """Put the service together; its writer and its folding live as long as the application does."""
    service = Service(definitions, store, settings or Settings(), clock)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        writer = GroupWriter(store, service.settings)
        folding = FoldingJob(store, definitions, service.settings)
        try:
            yield {"service": service, "writer": writer}
        finally:
            await writer.close()
            await run_in_threadpool(folding.close)

    app = FastAPI(
        title="hubbub aggregator",
        version="1",
        description="Collects reports that were randomized before they left, and answers with their counts.",
        lifespan=lifespan,
        docs_url=None,  # the page would load its scripts from a third party
        redoc_url=None,
        redirect_slashes=False,  # a redirect is no answer to a client
    )
    app.include_router(routes)
    app.add_middleware(LastResort)
    app.exception_handler(RefusedError)(_refused)
    app.exception_handler(HTTPException)(_framework_refused)
    app.exception_handler(RequestValidationError)(_invalid_query)
    app.exception_handler(StoreError)(_store_failed)
    return app


@routes.post("/v1/reports", status_code=202, **openapi.POST_REPORTS)
async def post_reports(request: Request) -> Response:
    """Store a batch, whole or not at all: 202 once it is durable, 200 if its id is already stored."""
    service: Service = request.state.service
    batch = Batch.from_json(await _body(request, service.settings))
    try:
        require_admissible(batch, service.definitions, service.clock(), service.settings)
    except RefusedError:
        if await run_in_threadpool(service.store.holds, batch):  # why: see intake.py
            return _stored(batch, new=False)
        raise
    return _stored(batch, new=await request.state.writer.write(batch))


@routes.get("/v1/metrics", **openapi.GET_METRICS)
def get_metrics(request: Request) -> Response:
    """Every version of every metric that is collected, and what it can reveal about one person."""
    service: Service = request.state.service
    return JSONResponse({"metrics": [_public(metric) for metric in service.definitions.versions()]})


@routes.get("/v1/metrics/{name}/summary", response_class=SummaryResponse, **openapi.GET_SUMMARY)
def get_summary(
    request: Request,
    name: str,
    period: Annotated[list[str] | None, Query(description="First day of a period; repeatable; default: all.")] = None,
    digest: Annotated[str | None, Query(description="Version of the metric; default: the current one.")] = None,
    counts: Annotated[Literal["bits", "patterns"], Query(description="Patterns: for at most 16 bits.")] = "bits",
) -> Response:
    """All reports of a metric version, counted, as of now: the summary file."""
    service: Service = request.state.service
    metric = _asked_metric(service.definitions, name, digest)
    if counts == "patterns" and metric.params.num_bits > MAX_PATTERN_BITS:
        raise RefusedError(
            Refusal.INVALID_QUERY,
            f"counts=patterns needs at most {MAX_PATTERN_BITS} bits, {name} has {metric.params.num_bits}: take bits",
        )
    summary = read_summary(service.store, metric, None if period is None else _asked_periods(metric, period))
    if counts == "bits" and isinstance(summary, PatternCounts):
        summary = summary.bit_counts()
    return SummaryResponse(summary_to_bytes(summary))


@routes.get("/livez", **openapi.GET_LIVEZ)
async def get_livez() -> Response:
    """Whether the process answers at all."""
    return JSONResponse({"status": "alive"})


@routes.get("/readyz", **openapi.GET_READYZ)
def get_readyz(request: Request) -> Response:
    """Whether a batch would be stored now: tries a durable write."""
    request.state.service.store.probe()
    if not request.state.writer.alive:
        raise StoreError("the writer has stopped: restart the service")
    return JSONResponse({"status": "ready"})


@routes.get("/problems/{slug}", response_class=HTMLResponse, **openapi.GET_PROBLEM)
async def get_problem(slug: str) -> Response:
    """What a reason for a refusal means."""
    for refusal in Refusal:
        if refusal.slug == slug:
            return HTMLResponse(page(refusal))
    raise RefusedError(Refusal.NOT_FOUND, "no refusal has this name")


async def _body(request: Request, settings: Settings) -> bytes:
    headers = request.headers
    gzip = is_gzip(headers.get("content-type"), headers.get("content-encoding"))
    require_size(int(headers.get("content-length", 0)), settings)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        require_size(len(body), settings)
    return inflated(bytes(body), settings) if gzip else bytes(body)


def _stored(batch: Batch, *, new: bool) -> Response:
    told = {"batch_id": str(batch.batch_id), "status": "stored" if new else "duplicate"}
    return JSONResponse(told, status_code=202 if new else 200)


def _public(metric: Metric) -> dict[str, Any]:
    return metric.to_dict() | {
        "privacy": {
            "epsilon": _finite(privacy.epsilon(metric.params)),
            "epsilon_forever": _finite(privacy.epsilon_forever(metric.params)),
        }
    }


def _finite(epsilon: float) -> float | None:
    """JSON has no infinity: null stands for `no bound`."""
    return epsilon if math.isfinite(epsilon) else None


def _asked_metric(definitions: Definitions, name: str, digest: str | None) -> Metric:
    current = definitions.get(name)
    if current is None:
        raise RefusedError(Refusal.UNKNOWN_METRIC, f"{name[:64]!r} is not collected here; /v1/metrics has what is")
    version = current if digest is None else definitions.version(name, digest)
    if version is None:
        raise RefusedError(
            Refusal.INVALID_QUERY, f"digest: {name} has no version {digest!r:.80}; the current one is {current.digest}"
        )
    return version


def _asked_periods(metric: Metric, texts: list[str]) -> list[str]:
    try:
        return [str(Period.parse(metric.period, text)) for text in texts]
    except RefusedError as refused:
        raise RefusedError(Refusal.INVALID_QUERY, refused.detail) from None


def _refused(_request: Request, refused: RefusedError) -> Response:
    headers = dict([refused.header]) if isinstance(refused, UnsupportedMediaError) else None
    return problem(refused.refusal, refused.detail, headers)


def _framework_refused(request: Request, refused: HTTPException) -> Response:
    match refused.status_code:
        case 404:
            return problem(Refusal.NOT_FOUND, "no route has this path; /openapi.json lists all of them")
        case 405:
            allowed = (refused.headers or {}).get("Allow", "")
            return problem(
                Refusal.METHOD_NOT_ALLOWED, f"this path takes {allowed}, not {request.method}", refused.headers
            )
        case _:
            return problem(Refusal.INTERNAL_ERROR, f"the framework refused with {refused.status_code}")


def _invalid_query(_request: Request, invalid: RequestValidationError) -> Response:
    told = "; ".join(f"{'.'.join(map(str, error['loc'][1:]))}: {error['msg']}" for error in invalid.errors())
    return problem(Refusal.INVALID_QUERY, told)


def _store_failed(_request: Request, failed: StoreError) -> Response:
    logger.error("the store failed: %s", failed)
    return problem(Refusal.UNAVAILABLE, "the store cannot do this just now; the aggregator's log says why")


class LastResort:
    """Whatever went wrong unforeseen is a 500 that tells nothing, and a log entry without values."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientDisconnect:
            pass  # the client went away in the middle of its body: nobody is there to answer
        except Exception as failure:  # noqa: BLE001  (nothing may go past: the server would log its message)
            where = traceback.extract_tb(failure.__traceback__)[-1]
            logger.error("%s in %s, line %s of %s", type(failure).__name__, where.name, where.lineno, where.filename)
            if not started:
                await problem(Refusal.INTERNAL_ERROR, "the aggregator failed; its log says where")(scope, receive, send)
