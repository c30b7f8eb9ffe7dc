"""The service put together: its routes, what runs beside them, and what becomes of whatever they raise."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp

from hubbub.metrics.definitions import Definitions
from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.api.bearer_auth import Doorkeeper
from hubbub_aggregator.api.body_memory import BodyMemory
from hubbub_aggregator.api.dashboard.routes import routes as page_routes
from hubbub_aggregator.api.health import Readiness
from hubbub_aggregator.api.ingest import Shortcut
from hubbub_aggregator.api.routes import routes
from hubbub_aggregator.api.service import Address, Service
from hubbub_aggregator.errors import DatabaseMovedError, StoppedError, StoreError
from hubbub_aggregator.http.cors import CrossOrigin
from hubbub_aggregator.http.error_handler import LastResort
from hubbub_aggregator.http.get_and_head import reads
from hubbub_aggregator.http.problems import problem, refused_with
from hubbub_aggregator.http.security_headers import SecurityHeaders
from hubbub_aggregator.monitoring.disk_space import DiskSpace
from hubbub_aggregator.monitoring.job_health import JobHealth, log_failure
from hubbub_aggregator.monitoring.periodic_job import PeriodicJob
from hubbub_aggregator.pipeline.active_definitions import ActiveDefinitions
from hubbub_aggregator.pipeline.credible_clock import CredibleClock, ServiceClock
from hubbub_aggregator.pipeline.fold_progress import FoldProgress
from hubbub_aggregator.pipeline.folding import compute_figures
from hubbub_aggregator.pipeline.group_commit import GroupCommit
from hubbub_aggregator.pipeline.outcome_counters import OutcomeCounters
from hubbub_aggregator.pipeline.retention import upkeep
from hubbub_aggregator.server.client_address import Proxies
from hubbub_aggregator.server.rate_limit import RateLimit
from hubbub_aggregator.settings import NETWORKS_SHARE, Settings
from hubbub_aggregator.store.interface import Store

logger = logging.getLogger(__name__)

_FLUSH_EVERY = 1.0  # seconds: what SIGKILL may take from the counters of refusals
_LOOK_EVERY = 1.0
_MOVED = (
    "the database file was removed, renamed, replaced or unmounted while it is served, and nothing is stored: "
    "the aggregator's log names it and the next step"
)


def create_app(
    definitions: Definitions,
    store: Store,
    settings: Settings | None = None,
    clock: ServiceClock | None = None,
    free: Callable[[], int] | None = None,
    reload: Callable[[], Definitions] | None = None,
    local_address: Address | None = None,
) -> ASGIApp:
    """Put the service together; its writer and its upkeep live as long as the application does.

    clock : default: the system's, on PostgreSQL the server's, compared with elapsed time
    free : how many bytes are free on the disk that the store is on; None: it is on no disk of ours
    reload : reads the definitions anew when SIGHUP comes; None: SIGHUP is not handled
    local_address : of the listener that answers reads without a token; None: there is none
    """
    settings = settings or Settings()
    outcomes, disk = OutcomeCounters(), DiskSpace(free, settings.min_free_disk)
    proxies, rate = Proxies(settings.trusted_proxy), RateLimit(settings.client_burst_seconds)
    bodies = BodyMemory(settings.max_body_memory, settings.max_body_memory // NETWORKS_SHARE)
    active_definitions = ActiveDefinitions(
        definitions, reload or (lambda: definitions), store.open_periods, settings.max_reports
    )
    readiness, service_clock = Readiness(store, disk), clock or CredibleClock(store)
    door = Doorkeeper(store.token, today=lambda: service_clock().date(), used=store.record_token_use)
    progress, job_health = FoldProgress(store.segment_ids, lambda: service_clock().timestamp()), JobHealth()
    service = Service(
        active_definitions,
        store,
        settings,
        service_clock,
        outcomes,
        proxies,
        rate,
        bodies,
        disk,
        door,
        progress,
        job_health,
        local_address,
        readiness,
    )

    def fold_and_expire() -> None:
        upkeep(store, active_definitions.current, settings, service_clock.observe())

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        writer = GroupCommit(store, settings, job_health)
        jobs = (
            PeriodicJob("fold_and_expire", lambda: progress.round(fold_and_expire), settings.fold_interval, job_health),
            PeriodicJob(
                "compute_figures",
                lambda: compute_figures(store, active_definitions.current),
                settings.fold_interval,
                job_health,
            ),
            PeriodicJob("flush_refusals", lambda: outcomes.flush(store), _FLUSH_EVERY, job_health),
            PeriodicJob("check_disk", disk.measure, _LOOK_EVERY, job_health),
        )
        if reload is not None:
            loop = asyncio.get_running_loop()
            asked = partial(active_definitions.reload, always_log=True)
            loop.add_signal_handler(signal.SIGHUP, lambda: loop.run_in_executor(None, asked))
        try:
            yield {"service": service, "writer": writer}
        finally:
            await writer.close()
            await run_in_threadpool(readiness.close)
            for job in jobs:
                await run_in_threadpool(job.close)
            with job_health.guard("flush_refusals"):
                await run_in_threadpool(outcomes.flush, store)

    app = FastAPI(
        title="hubbub aggregator",
        version="1",
        description="Collects reports that were randomized before they left, and answers with their counts.",
        lifespan=lifespan,
        docs_url=None,  # the page would load its scripts from a third party
        redoc_url=None,
        openapi_url=None,  # served by our own route, from bytes that are made once
        telemetry={"tracing": False, "metrics": False, "logs": False},  # it would send clients' addresses
        redirect_slashes=False,  # a redirect is no answer to a client
    )
    app.include_router(routes)
    app.include_router(page_routes)
    document = json.dumps(app.openapi()).encode()

    @reads(app.router, "/openapi.json", include_in_schema=False)
    async def get_openapi() -> Response:
        return Response(document, media_type="application/json")

    app.exception_handler(RefusedError)(_refused)
    app.exception_handler(HTTPException)(_framework_refused)
    app.exception_handler(RequestValidationError)(_invalid_query)
    app.exception_handler(StoreError)(_store_failed)
    app.add_middleware(LastResort)  # here too: what reaches the framework's own last resort it answers as plain text
    service_app = Shortcut(SecurityHeaders(LastResort(app)))
    return CrossOrigin(service_app, settings.cors_origin) if settings.cors_origin else service_app


def _refused(request: Request, refused: RefusedError) -> Response:
    _count(request, refused.problem_type)
    return refused_with(refused)


def _count(request: Request, refusal: ProblemType) -> None:
    request.state.service.outcomes.rejected_request(refusal)


def _framework_refused(request: Request, refused: HTTPException) -> Response:
    match refused.status_code:
        case 404:
            _count(request, ProblemType.NOT_FOUND)
            return problem(ProblemType.NOT_FOUND, "no route has this path; /openapi.json lists all of them")
        case 405:
            _count(request, ProblemType.METHOD_NOT_ALLOWED)
            allowed = ", ".join(_methods(request, (refused.headers or {}).get("Allow", "")))
            return problem(
                ProblemType.METHOD_NOT_ALLOWED, f"this path takes {allowed}, not {request.method}", {"Allow": allowed}
            )
        case _:
            return problem(ProblemType.INTERNAL_ERROR, f"the framework refused with {refused.status_code}")


def _methods(request: Request, of_first: str) -> list[str]:
    """Return what a path takes, by all routes that have it; the framework names the first one's only."""
    methods = set(filter(None, of_first.split(", ")))
    for route in (*routes.routes, *page_routes.routes):
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    return sorted(methods)


def _invalid_query(request: Request, invalid: RequestValidationError) -> Response:
    _count(request, ProblemType.INVALID_QUERY)
    told = "; ".join(f"{'.'.join(map(str, error['loc'][1:]))}: {error['msg']}" for error in invalid.errors())
    return problem(ProblemType.INVALID_QUERY, told)


def _store_failed(request: Request, failed: StoreError) -> Response:
    _count(request, ProblemType.UNAVAILABLE)
    if isinstance(failed, StoppedError):
        return problem(ProblemType.UNAVAILABLE, f"{failed}: ask again when it has started")
    log_failure(logger, "the store", failed)
    moved = isinstance(failed, DatabaseMovedError)
    return problem(
        ProblemType.UNAVAILABLE, _MOVED if moved else "the store cannot do this just now; the aggregator's log says why"
    )
