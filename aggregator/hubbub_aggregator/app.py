"""The routes: what the aggregator answers over HTTP."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, Query, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp

from hubbub import privacy
from hubbub.cli.output import finite
from hubbub.definitions import Definitions
from hubbub.errors import RefusedError
from hubbub.metric import Metric
from hubbub.periods import Period
from hubbub.refusals import Refusal
from hubbub.summary import summary_to_bytes
from hubbub.summary.parquet import CONTENT_TYPE as SUMMARY_TYPE
from hubbub.summary.pattern_counts import MAX_PATTERN_BITS, PatternCounts
from hubbub_aggregator import exposition, openapi
from hubbub_aggregator.collecting import Collecting
from hubbub_aggregator.cross_origin import CrossOrigin
from hubbub_aggregator.disk import DiskWatch
from hubbub_aggregator.folding import read_summary
from hubbub_aggregator.last_resort import LastResort
from hubbub_aggregator.lifecycle import retains, upkeep
from hubbub_aggregator.page.routes import routes as page_routes
from hubbub_aggregator.periodic import Periodic
from hubbub_aggregator.problems import page, problem, refused_with
from hubbub_aggregator.proxies import Proxies
from hubbub_aggregator.rate_limit import RateLimit
from hubbub_aggregator.readiness import require_ready
from hubbub_aggregator.reading import reads
from hubbub_aggregator.reports import FileResponse, reports_file
from hubbub_aggregator.security_headers import SecurityHeaders
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.shared_numbers import SharedNumbers
from hubbub_aggregator.statistics import statistics
from hubbub_aggregator.store import Store, StoreError
from hubbub_aggregator.taking import PATH, Clock, Service, Shortcut, reads_are_open
from hubbub_aggregator.tally import Tally
from hubbub_aggregator.tokens import Doorkeeper, Scope
from hubbub_aggregator.troubles import Troubles
from hubbub_aggregator.watch import Watch
from hubbub_aggregator.writer import GroupWriter

logger = logging.getLogger(__name__)

_FLUSH_EVERY = 1.0  # seconds: what SIGKILL may take from the counters of refusals
_LOOK_EVERY = 1.0

_BEARER = HTTPBearer(auto_error=False, description="A token of `hubbub token create`.")

routes = APIRouter()


def utc_now() -> datetime:
    """The system's clock."""
    return datetime.now(UTC)


class SummaryResponse(Response):
    media_type = SUMMARY_TYPE


def new_numbers(workers: int = 1) -> SharedNumbers:
    """Return the numbers that so many workers count together; they are forked after this."""
    return SharedNumbers((*Tally.NAMES, *GroupWriter.NAMES, *Troubles.NAMES), workers)


def create_app(
    definitions: Definitions,
    store: Store,
    settings: Settings | None = None,
    clock: Clock = utc_now,
    free: Callable[[], int] | None = None,
    reload: Callable[[], Definitions] | None = None,
    numbers: SharedNumbers | None = None,
) -> ASGIApp:
    """Put the service together; its writer and its upkeep live as long as the application does.

    free : how many bytes are free on the disk that the store is on; None: it is on no disk of ours
    reload : reads the definitions anew when SIGHUP comes; None: SIGHUP is not handled
    numbers : those of `new_numbers`, as this worker; None: there is one
    """
    settings = settings or Settings()
    numbers = numbers or new_numbers()
    tally, disk = Tally(numbers), DiskWatch(free, settings.min_free)
    proxies, rate = Proxies(settings.trusted_proxy), RateLimit(settings.client_rate, settings.client_burst)
    collecting = Collecting(definitions, reload or (lambda: definitions), store.open_periods)
    door, watch, troubles = Doorkeeper(store.token), Watch(store), Troubles(numbers)
    service = Service(collecting, store, settings, clock, tally, proxies, rate, disk, door, watch, troubles)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        writer = GroupWriter(store, settings, numbers, troubles)
        jobs = (
            Periodic("upkeep", lambda: upkeep(store, collecting.now, settings, clock()), settings.fold_every, troubles),
            Periodic("counting refusals", lambda: tally.flush(store), _FLUSH_EVERY, troubles),
            Periodic("watching the disk", disk.look, _LOOK_EVERY, troubles),
        )
        if reload is not None:
            loop = asyncio.get_running_loop()
            asked = partial(collecting.reload, asked=True)
            loop.add_signal_handler(signal.SIGHUP, lambda: loop.run_in_executor(None, asked))
            await run_in_threadpool(collecting.reload)  # a worker that is started again may come long after the command
        try:
            yield {"service": service, "writer": writer}
        finally:
            await writer.close()
            for job in jobs:
                await run_in_threadpool(job.close)
            with troubles.survived("counting refusals"):
                await run_in_threadpool(tally.flush, store)

    app = FastAPI(
        title="hubbub aggregator",
        version="1",
        description="Collects reports that were randomized before they left, and answers with their counts.",
        lifespan=lifespan,
        docs_url=None,  # the page would load its scripts from a third party
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # it would send clients' addresses
        redirect_slashes=False,  # a redirect is no answer to a client
    )
    app.include_router(routes)
    app.include_router(page_routes)
    app.exception_handler(RefusedError)(_refused)
    app.exception_handler(HTTPException)(_framework_refused)
    app.exception_handler(RequestValidationError)(_invalid_query)
    app.exception_handler(StoreError)(_store_failed)
    app.add_middleware(LastResort)  # here too: what reaches the framework's own last resort it answers as plain text
    service_app = Shortcut(SecurityHeaders(LastResort(app)))
    return CrossOrigin(service_app, settings.cors_origin) if settings.cors_origin else service_app


@routes.post(PATH, status_code=202, **openapi.POST_REPORTS)
async def post_reports() -> Response:
    """Store a batch, whole or not at all: 202 once it is durable, 200 if its id is already stored."""
    raise AssertionError("`Shortcut` answers before the routes are asked: this one is here for the document")


@reads(routes, "/v1/metrics", **openapi.GET_METRICS)
def get_metrics(request: Request) -> Response:
    """Every version of every metric that is collected, and what it can reveal about one person."""
    service: Service = request.state.service
    return JSONResponse({"metrics": [_public(metric) for metric in service.definitions.versions()]})


def _reader(request: Request, _: Annotated[object, Security(_BEARER)]) -> None:
    _require(request, Scope.READ)


def _monitor(request: Request, _: Annotated[object, Security(_BEARER)]) -> None:
    _require(request, Scope.METRICS)


def _require(request: Request, scope: Scope) -> None:
    service: Service = request.state.service
    if not reads_are_open(service, request.headers):
        service.door.require(scope, request.headers.get("authorization"))


@reads(
    routes,
    "/v1/metrics/{name}/summary",
    response_class=SummaryResponse,
    dependencies=[Security(_reader)],
    **openapi.GET_SUMMARY,
)
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
    return SummaryResponse(summary_to_bytes(replace(summary, odd_refused=_odd_refused(service, name))))


@reads(
    routes,
    "/v1/metrics/{name}/reports",
    response_class=SummaryResponse,
    dependencies=[Security(_reader)],
    **openapi.GET_REPORTS,
)
def get_reports(
    request: Request,
    name: str,
    period: Annotated[list[str] | None, Query(description="First day of a period; repeatable; default: all.")] = None,
    digest: Annotated[str | None, Query(description="Version of the metric; default: the current one.")] = None,
) -> Response:
    """The retained reports of a metric version, in an order that says nothing: the report file."""
    service: Service = request.state.service
    metric = _asked_metric(service.definitions, name, digest)
    if name not in service.settings.retain:
        raise RefusedError(
            Refusal.NOT_FOUND, f"the reports of {name} are not retained here: `hubbub serve --retain {name}=N` does"
        )
    asked = service.store.periods_with_reports(metric.digest) if period is None else _asked_periods(metric, period)
    now = service.clock()
    held = [text for text in asked if retains(metric, service.settings, text, now)]
    return FileResponse(reports_file(service.store, metric, held, odd_refused=_odd_refused(service, name)))


@reads(
    routes, "/metrics", response_class=PlainTextResponse, dependencies=[Security(_monitor)], **openapi.GET_STATISTICS
)
def get_statistics(request: Request) -> Response:
    """The service's own numbers, for Prometheus."""
    service: Service = request.state.service
    lines = statistics(service, request.state.writer)
    return Response("\n".join(lines) + "\n", media_type=exposition.CONTENT_TYPE)


@reads(routes, "/livez", **openapi.GET_LIVEZ)
async def get_livez() -> Response:
    """Whether the process answers at all."""
    return JSONResponse({"status": "alive"})


@reads(routes, "/readyz", **openapi.GET_READYZ)
def get_readyz(request: Request) -> Response:
    """Whether a batch would be stored now: tries a durable write."""
    require_ready(request.state.service, request.state.writer)
    return JSONResponse({"status": "ready"})


@reads(routes, "/problems/{slug}", response_class=HTMLResponse, **openapi.GET_PROBLEM)
async def get_problem(slug: str) -> Response:
    """What a reason for a refusal means."""
    for refusal in Refusal:
        if refusal.slug == slug:
            return HTMLResponse(page(refusal))
    raise RefusedError(Refusal.NOT_FOUND, "no refusal has this name")


def _public(metric: Metric) -> dict[str, Any]:
    params = metric.params
    bounds = {"epsilon": privacy.epsilon(params), "epsilon_forever": privacy.epsilon_forever(params)}
    return metric.to_dict() | {"privacy": finite(bounds)}


def _odd_refused(service: Service, name: str) -> bool:
    """Say whether odd reports of a metric are refused, or ever were."""
    return service.settings.refuse_odd or (name, Refusal.ODD_REPORT.slug) in service.store.refusals()


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


def _refused(request: Request, refused: RefusedError) -> Response:
    _count(request, refused.refusal)
    return refused_with(refused)


def _count(request: Request, refusal: Refusal) -> None:
    request.state.service.tally.turned_away(refusal)


def _framework_refused(request: Request, refused: HTTPException) -> Response:
    match refused.status_code:
        case 404:
            _count(request, Refusal.NOT_FOUND)
            return problem(Refusal.NOT_FOUND, "no route has this path; /openapi.json lists all of them")
        case 405:
            _count(request, Refusal.METHOD_NOT_ALLOWED)
            allowed = ", ".join(_methods(request, (refused.headers or {}).get("Allow", "")))
            return problem(
                Refusal.METHOD_NOT_ALLOWED, f"this path takes {allowed}, not {request.method}", {"Allow": allowed}
            )
        case _:
            return problem(Refusal.INTERNAL_ERROR, f"the framework refused with {refused.status_code}")


def _methods(request: Request, of_first: str) -> list[str]:
    """Return what a path takes, by all routes that have it; the framework names the first one's only."""
    methods = set(filter(None, of_first.split(", ")))
    for route in (*routes.routes, *page_routes.routes):
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    return sorted(methods)


def _invalid_query(request: Request, invalid: RequestValidationError) -> Response:
    _count(request, Refusal.INVALID_QUERY)
    told = "; ".join(f"{'.'.join(map(str, error['loc'][1:]))}: {error['msg']}" for error in invalid.errors())
    return problem(Refusal.INVALID_QUERY, told)


def _store_failed(request: Request, failed: StoreError) -> Response:
    _count(request, Refusal.UNAVAILABLE)
    logger.error("the store failed: %s", failed)
    return problem(Refusal.UNAVAILABLE, "the store cannot do this just now; the aggregator's log says why")
