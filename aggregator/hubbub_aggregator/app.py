"""Create the ASGI application: collaborators, background jobs, middlewares, routes and error handlers."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp

from hubbub.metrics.definitions import Definitions
from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.api.authentication import TokenAuthorizer
from hubbub_aggregator.api.dashboard.routes import accepts_html, not_found_page
from hubbub_aggregator.api.dashboard.routes import routes as dashboard_routes
from hubbub_aggregator.api.dependencies import Address, Service
from hubbub_aggregator.api.health import ReadinessCheck
from hubbub_aggregator.api.ingest import IngestMiddleware
from hubbub_aggregator.api.request_body import BodyMemory
from hubbub_aggregator.api.routes import routes
from hubbub_aggregator.errors import FilesInDoubtError, StoppedError, StoreError
from hubbub_aggregator.http.middlewares import (
    CrossOriginMiddleware,
    ErrorMiddleware,
    SecurityHeadersMiddleware,
    UnreadBodyMiddleware,
)
from hubbub_aggregator.http.problems import problem_response, refusal_response
from hubbub_aggregator.http.routing import get_and_head
from hubbub_aggregator.monitoring.disk_space import DiskSpace
from hubbub_aggregator.monitoring.jobs import JobHealth, PeriodicJob, log_failure
from hubbub_aggregator.pipeline.active_definitions import ActiveDefinitions
from hubbub_aggregator.pipeline.credible_clock import CredibleClock, ServiceClock
from hubbub_aggregator.pipeline.folding import FoldProgress, compute_figures
from hubbub_aggregator.pipeline.group_commit import GroupCommit
from hubbub_aggregator.pipeline.outcome_counters import OutcomeCounters
from hubbub_aggregator.pipeline.retention import upkeep, warn_of_reports_without_rule
from hubbub_aggregator.server.client_address import Proxies
from hubbub_aggregator.server.limits import RateLimit
from hubbub_aggregator.settings import NETWORKS_SHARE, Settings
from hubbub_aggregator.store.interface import Store

logger = logging.getLogger(__name__)

_FLUSH_SECONDS = 1.0  # SIGKILL loses the refusals counted since the last flush
_DISK_CHECK_SECONDS = 1.0
_RETENTION_CHECK_SECONDS = 3600.0
CLOCK_CHECK_SECONDS = 60.0  # far below the tolerance of 10 minutes, so that replicas see one jump as one
_IN_DOUBT = (
    "a file of the database was removed, replaced or truncated while it is served, so nothing is stored: "
    "see the aggregator's log for the next step"
)


def create_app(
    definitions: Definitions,
    store: Store,
    settings: Settings | None = None,
    clock: ServiceClock | None = None,
    free_bytes: Callable[[], int] | None = None,
    reload: Callable[[], Definitions] | None = None,
    local_address: Address | None = None,
) -> ASGIApp:
    """Return the ASGI application of the aggregator.

    Its writer thread and background jobs run while the application does.

    Parameters
    ----------
    definitions
        Metrics that are collected.
    store
        Store of the reports.
    settings
        Limits and intervals. None: the default `Settings`.
    clock
        Clock that decides about closing and deletion. None: the clock of the system, or of the PostgreSQL server,
        compared with elapsed time.
    free_bytes
        Function that returns the free bytes of the store's disk. None: the store is not on a disk of this machine.
    reload
        Function that returns the definitions after SIGHUP. None: SIGHUP is not handled.
    local_address
        Address of the listener that serves reads without a token. None: there is none.

    Returns
    -------
    ASGIApp
        Application for any ASGI server.
    """
    service = _make_service(definitions, store, settings or Settings(), clock, free_bytes, reload, local_address)
    app = FastAPI(
        title="hubbub aggregator",
        version="1",
        description="Collects reports that clients randomized, and returns their counts.",
        lifespan=partial(_run_jobs, service, store, reloads=reload is not None),
        docs_url=None,  # the page loads its scripts from a third party
        redoc_url=None,
        openapi_url=None,  # served by the route below, also for HEAD
        telemetry={"tracing": False, "metrics": False, "logs": False},  # it sends clients' addresses
        redirect_slashes=False,  # clients do not follow redirects
    )
    app.include_router(routes)
    app.include_router(dashboard_routes)
    document = cache(lambda: json.dumps(app.openapi()).encode())

    @get_and_head(app.router, "/openapi.json", include_in_schema=False)
    def get_openapi() -> Response:  # in a thread: the first request forms the document
        return Response(document(), media_type="application/json")

    app.exception_handler(RefusedError)(_refusal)
    app.exception_handler(HTTPException)(_framework_error)
    app.exception_handler(RequestValidationError)(_invalid_query)
    app.exception_handler(StoreError)(_store_error)
    app.add_middleware(ErrorMiddleware)  # inside, too: the framework's own handler responds in plain text
    outer: ASGIApp = IngestMiddleware(SecurityHeadersMiddleware(ErrorMiddleware(app)))
    if service.settings.cors_origin:
        outer = CrossOriginMiddleware(outer, service.settings.cors_origin)
    return UnreadBodyMiddleware(outer)


def _make_service(
    definitions: Definitions,
    store: Store,
    settings: Settings,
    clock: ServiceClock | None,
    free_bytes: Callable[[], int] | None,
    reload: Callable[[], Definitions] | None,
    local_address: Address | None,
) -> Service:
    """Return the collaborators of the routes; see `create_app` for the parameters."""
    disk, service_clock = DiskSpace(free_bytes, settings.min_free_disk), clock or CredibleClock(store)
    return Service(
        active_definitions=ActiveDefinitions(
            definitions, reload or (lambda: definitions), store.open_periods, settings.max_reports
        ),
        reports=store,
        periods=store,
        tokens=store,
        settings=settings,
        clock=service_clock,
        outcomes=OutcomeCounters(),
        proxies=Proxies(settings.trusted_proxy),
        rate_limit=RateLimit(settings.client_burst_seconds),
        body_memory=BodyMemory(settings.max_body_memory, settings.max_body_memory // NETWORKS_SHARE),
        disk=disk,
        authorizer=TokenAuthorizer(
            store.token, today=lambda: service_clock().date(), record_use=store.record_token_use
        ),
        progress=FoldProgress(store.segment_ids, lambda: service_clock().timestamp()),
        job_health=JobHealth(),
        local_address=local_address,
        readiness=ReadinessCheck(store, disk),
    )


@asynccontextmanager
async def _run_jobs(service: Service, store: Store, _app: FastAPI, *, reloads: bool) -> AsyncIterator[dict[str, Any]]:
    """Run the writer and the background jobs, and reload definitions on SIGHUP if the application can."""

    def fold_and_expire() -> None:
        upkeep(store, service.active_definitions.current, service.settings, service.clock.observe())

    def check_retention() -> None:
        warn_of_reports_without_rule(store, service.active_definitions.current, service.settings)

    def start(name: str, run: Callable[[], object], seconds: float) -> PeriodicJob:
        return PeriodicJob(name, run, seconds, service.job_health)

    # The thread for the shutdown exists from the start, because none can be started when memory is exhausted.
    loop, closer = asyncio.get_running_loop(), ThreadPoolExecutor(1, "hubbub-shutdown")
    closer.submit(int).result()
    writer = GroupCommit(store, service.settings, service.job_health)
    fold_seconds = service.settings.fold_interval
    jobs = (
        start("fold_and_expire", lambda: service.progress.round(fold_and_expire), fold_seconds),
        start("compute_figures", lambda: compute_figures(store, service.active_definitions.current), fold_seconds),
        start("flush_refusals", lambda: service.outcomes.flush(store), _FLUSH_SECONDS),
        start("check_disk", service.disk.measure, _DISK_CHECK_SECONDS),
        start("check_clock", service.clock.observe, CLOCK_CHECK_SECONDS),
        start("check_retention", check_retention, _RETENTION_CHECK_SECONDS),
    )
    if reloads:
        reload_now = partial(service.active_definitions.reload, always_log=True)
        loop.add_signal_handler(signal.SIGHUP, lambda: loop.run_in_executor(None, reload_now))
    try:
        yield {"service": service, "writer": writer}
    finally:
        for step in (writer.close, service.readiness.close, *(job.close for job in jobs)):
            await loop.run_in_executor(closer, step)
        with service.job_health.guard("flush_refusals"):
            await loop.run_in_executor(closer, service.outcomes.flush, store)
        closer.shutdown()


def _refusal(request: Request, refused: RefusedError) -> Response:
    _count(request, refused.problem_type)
    return refusal_response(refused)


def _count(request: Request, problem: ProblemType) -> None:
    request.state.service.outcomes.rejected_request(problem)


def _framework_error(request: Request, refused: HTTPException) -> Response:
    match refused.status_code:
        case 404:
            _count(request, ProblemType.NOT_FOUND)
            if accepts_html(request):
                return not_found_page()
            return problem_response(ProblemType.NOT_FOUND, "no route has this path; /openapi.json lists all routes")
        case 405:
            _count(request, ProblemType.METHOD_NOT_ALLOWED)
            allowed = ", ".join(_allowed_methods(request, (refused.headers or {}).get("Allow", "")))
            return problem_response(
                ProblemType.METHOD_NOT_ALLOWED, f"this path accepts {allowed}, not {request.method}", {"Allow": allowed}
            )
        case _:
            return problem_response(
                ProblemType.INTERNAL_ERROR, f"the web framework responded with status {refused.status_code}"
            )


def _allowed_methods(request: Request, of_first_route: str) -> list[str]:
    """Return the methods of all routes with this path; the framework returns those of the first route only."""
    methods = set(filter(None, of_first_route.split(", ")))
    for route in (*routes.routes, *dashboard_routes.routes):
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    return sorted(methods)


def _invalid_query(request: Request, invalid: RequestValidationError) -> Response:
    _count(request, ProblemType.INVALID_QUERY)
    detail = "; ".join(
        f"{'.'.join(map(str, error['loc'][1:]))}: {error['msg']}, got {error['input']!r:.80}"
        for error in invalid.errors()
    )
    return problem_response(ProblemType.INVALID_QUERY, detail)


def _store_error(request: Request, failed: StoreError) -> Response:
    _count(request, ProblemType.UNAVAILABLE)
    if isinstance(failed, StoppedError):
        return problem_response(ProblemType.UNAVAILABLE, f"{failed}: send the same request again after its restart")
    log_failure(logger, "the store", failed)
    in_doubt = isinstance(failed, FilesInDoubtError)
    return problem_response(
        ProblemType.UNAVAILABLE, _IN_DOUBT if in_doubt else "the database is not available: see the aggregator's log"
    )
