"""The routes: what the aggregator answers over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Literal

from fastapi import APIRouter, Body, Query, Request, Security
from fastapi.security import HTTPBearer
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from hubbub.metrics.definitions import Definitions
from hubbub.metrics.metric import Metric
from hubbub.privacy import privacy_figures
from hubbub.privacy.policy import Policy
from hubbub.summary import summary_to_bytes
from hubbub.summary.pattern_counts import MAX_PATTERN_BITS, PatternCounts
from hubbub.summary.summary_file import CONTENT_TYPE as SUMMARY_TYPE
from hubbub.wire.batch import CONTENT_TYPE as BATCH_TYPE
from hubbub.wire.dates import parse_period
from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.api import openapi, sessions
from hubbub_aggregator.api.ingest import may_read_without_token
from hubbub_aggregator.api.prometheus import CONTENT_TYPE as METRICS_TYPE
from hubbub_aggregator.api.prometheus import prometheus_text
from hubbub_aggregator.api.service import Service
from hubbub_aggregator.http.conventions import PATH
from hubbub_aggregator.http.file_response import FileResponse
from hubbub_aggregator.http.get_and_head import reads
from hubbub_aggregator.http.problems import page
from hubbub_aggregator.pipeline.folding import read_summary
from hubbub_aggregator.pipeline.report_export import reports_file
from hubbub_aggregator.pipeline.retention import retains
from hubbub_aggregator.store.tokens import Scope

_BEARER = HTTPBearer(auto_error=False, description="A token of `hubbub token create`.")

Periods = Annotated[list[str] | None, Query(description="First day of a period; repeatable; default: all.")]
Digest = Annotated[str | None, Query(description="Version of the metric; default: the current one.")]

routes = APIRouter()


class SummaryResponse(Response):
    media_type = SUMMARY_TYPE


@routes.post(PATH, status_code=202, **openapi.POST_REPORTS)
async def post_reports(batch: Annotated[openapi.BatchBody, Body(media_type=BATCH_TYPE)]) -> Response:  # noqa: ARG001
    """Store a batch, whole or not at all: 202 once it is durable, 200 if its id is already stored."""
    raise AssertionError("`Shortcut` answers before the routes are asked: this one is here for the document")


@reads(routes, "/v1/metrics", **openapi.GET_METRICS)
def get_metrics(request: Request) -> Response:
    """Every version of every metric that is collected, and what it can reveal about one person."""
    service: Service = request.state.service
    return Response(_metrics_document(tuple(service.definitions.versions())), media_type="application/json")


@lru_cache(maxsize=2)
def _metrics_document(versions: tuple[Metric, ...]) -> bytes:
    """Return the JSON of all versions, made once: anyone may ask for it, as often as the rate limit permits."""
    figures = ({"privacy": privacy_figures(metric, Policy()).to_dict()} for metric in versions)
    metrics = [metric.to_dict() | privacy for metric, privacy in zip(versions, figures, strict=True)]
    return json.dumps({"metrics": metrics}).encode()


def _reader(request: Request, _: Annotated[object, Security(_BEARER)]) -> None:
    _require(request, Scope.READ)


def _monitor(request: Request, _: Annotated[object, Security(_BEARER)]) -> None:
    _require(request, Scope.METRICS)


def _require(request: Request, scope: Scope) -> None:
    service: Service = request.state.service
    if may_read_without_token(service, request):
        return
    authorization = request.headers.get("authorization")
    if authorization is None and scope is Scope.READ and sessions.may_read(service.store, service.clock, request):
        return
    service.door.require(scope, authorization)


def _as_download(response: Response, name: str, *parts: str) -> Response:
    """Name a file for browsers, and keep it out of other origins' pages."""
    response.headers["content-disposition"] = f'attachment; filename="{"-".join([name, *parts])}.parquet"'
    response.headers["cross-origin-resource-policy"] = "same-origin"
    return response


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
    period: Periods = None,
    digest: Digest = None,
    counts: Annotated[Literal["bits", "patterns"], Query(description="Patterns: for at most 16 bits.")] = "bits",
) -> Response:
    """All reports of a metric version, counted, as of now: the summary file."""
    service: Service = request.state.service
    metric = _asked_metric(service.definitions, name, digest)
    if counts == "patterns" and metric.params.num_bits > MAX_PATTERN_BITS:
        raise RefusedError(
            ProblemType.INVALID_QUERY,
            f"counts=patterns needs at most {MAX_PATTERN_BITS} bits, {name} has {metric.params.num_bits}: take bits",
        )
    summary = read_summary(service.store, metric, None if period is None else _asked_periods(metric, period))
    if counts == "bits" and isinstance(summary, PatternCounts):
        summary = summary.bit_counts()
    file = SummaryResponse(
        summary_to_bytes(replace(summary, implausible_rejected=_implausible_rejected(service, name)))
    )
    return _as_download(file, name, *_only(summary.periods))


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
    period: Periods = None,
    digest: Digest = None,
) -> Response:
    """The retained reports of a metric version, in an order that says nothing: the report file."""
    service: Service = request.state.service
    metric = _asked_metric(service.definitions, name, digest)
    if name not in service.settings.keep_reports:
        raise RefusedError(
            ProblemType.NOT_FOUND,
            f"the reports of {name} are not retained here: `hubbub serve --keep-reports {name}=N` does",
        )
    asked = service.store.periods_with_reports(metric.digest) if period is None else _asked_periods(metric, period)
    now = service.clock()
    held = [text for text in asked if retains(metric, service.settings, text, now)]
    file = FileResponse(
        reports_file(service.store, metric, held, implausible_rejected=_implausible_rejected(service, name))
    )
    return _as_download(file, name, "reports", *_only(held))


@reads(
    routes, "/metrics", response_class=PlainTextResponse, dependencies=[Security(_monitor)], **openapi.GET_STATISTICS
)
def get_statistics(request: Request) -> Response:
    """Prometheus metrics of the service."""
    return Response(prometheus_text(request.state.service, request.state.writer), media_type=METRICS_TYPE)


@reads(routes, "/livez", **openapi.GET_LIVEZ)
async def get_livez(request: Request) -> Response:
    """Whether the process answers at all, and whether the request named its client."""
    proxies, forwarded_for = request.state.service.proxies, request.headers.get("x-forwarded-for")
    named = request.client is None or proxies.names_client(request.client.host, forwarded_for)
    return JSONResponse({"status": "alive", "client_named": named})


@reads(routes, "/readyz", **openapi.GET_READYZ)
async def get_readyz(request: Request) -> Response:
    """Whether a batch would be stored now: one was within 10 seconds, or a durable write succeeds."""
    service: Service = request.state.service
    probe = service.readiness.require(request.state.writer)
    if probe is not None:
        await asyncio.shield(asyncio.wrap_future(probe))  # shared: one who hangs up does not cancel it for the others
    return JSONResponse({"status": "ready", "clock": service.clock.reading().status})


@reads(routes, "/problems/{slug}", response_class=HTMLResponse, **openapi.GET_PROBLEM)
async def get_problem(slug: str) -> Response:
    """What a reason for a refusal means."""
    for refusal in ProblemType:
        if refusal.slug == slug:
            return HTMLResponse(page(refusal))
    raise RefusedError(ProblemType.NOT_FOUND, "no refusal has this name")


def _only(periods: Sequence[str]) -> Sequence[str]:
    return periods if len(periods) == 1 else ()


def _implausible_rejected(service: Service, name: str) -> bool:
    """Say whether odd reports of a metric are refused, or ever were."""
    return (
        service.settings.reject_implausible or (name, ProblemType.IMPLAUSIBLE_REPORT.slug) in service.store.refusals()
    )


def _asked_metric(definitions: Definitions, name: str, digest: str | None) -> Metric:
    current = definitions.get(name)
    if current is None:
        raise RefusedError(ProblemType.UNKNOWN_METRIC, f"{name[:64]!r} is not collected here; /v1/metrics has what is")
    version = current if digest is None else definitions.version(name, digest)
    if version is None:
        raise RefusedError(
            ProblemType.INVALID_QUERY,
            f"digest: {name} has no version {digest!r:.80}; the current one is {current.digest}",
        )
    return version


def _asked_periods(metric: Metric, texts: list[str]) -> list[str]:
    try:
        return [str(parse_period(metric.period, text)) for text in texts]
    except RefusedError as refused:
        raise RefusedError(ProblemType.INVALID_QUERY, refused.detail) from None
