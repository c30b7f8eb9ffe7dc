"""Routes of the HTTP API: definitions, summaries, reports, Prometheus metrics, health, problem pages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Annotated, Literal

from fastapi import APIRouter, Body, Depends, Query, Request, Security
from fastapi.security import HTTPBearer
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from hubbub.errors import DefinitionError
from hubbub.metrics.definitions import Definitions
from hubbub.metrics.metric import Metric
from hubbub.privacy import privacy_figures
from hubbub.privacy.policy import Policy
from hubbub.summary import summary_to_bytes
from hubbub.summary.pattern_counts import MAX_PATTERN_BITS, PatternCounts
from hubbub.summary.summary_file import CONTENT_TYPE as SUMMARY_TYPE
from hubbub.text import did_you_mean
from hubbub.wire.batch import CONTENT_TYPE as BATCH_TYPE
from hubbub.wire.dates import parse_period
from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.api import authentication, openapi
from hubbub_aggregator.api.dependencies import Service, may_read_without_token
from hubbub_aggregator.api.prometheus import CONTENT_TYPE as METRICS_TYPE
from hubbub_aggregator.api.prometheus import prometheus_text
from hubbub_aggregator.http.middlewares import REPORTS_PATH
from hubbub_aggregator.http.problems import problem_page
from hubbub_aggregator.http.routing import FileResponse, get_and_head
from hubbub_aggregator.pipeline.folding import read_summary
from hubbub_aggregator.pipeline.period_list import list_periods
from hubbub_aggregator.pipeline.report_export import reports_file
from hubbub_aggregator.pipeline.retention import keeps_reports
from hubbub_aggregator.store.tokens import Scope

_BEARER = HTTPBearer(auto_error=False, description="A token of `hubbub token create`.")

Periods = Annotated[list[str] | None, Query(description="First day of a period; repeatable. Default: all.")]
Digest = Annotated[str | None, Query(description="Digest of a version of the metric. Default: the current version.")]
Group = Annotated[str | None, Query(description="A value of the metric's group. Default: all values together.")]

routes = APIRouter()


class SummaryResponse(Response):
    media_type = SUMMARY_TYPE


@routes.post(REPORTS_PATH, status_code=202, **openapi.POST_REPORTS)
async def post_reports(batch: Annotated[openapi.BatchBody, Body(media_type=BATCH_TYPE)]) -> Response:  # noqa: ARG001
    """Store a batch, whole or not at all: 202 once it is durable, 200 if its id is already stored."""
    raise AssertionError("IngestMiddleware handles this path; the route exists for the OpenAPI document")


def _refuse_unknown_parameters(request: Request) -> None:
    """Raise RefusedError if the request has a query parameter that its route does not have."""
    known = sorted(parameter.alias for parameter in request.scope["route"].dependant.query_params)
    unknown = next((name for name in request.query_params if name not in known), None)
    if unknown is not None:
        rule = f"parameters are {', '.join(known)}" if known else "this address has no parameters"
        raise RefusedError(ProblemType.INVALID_QUERY, f"unknown parameter {unknown[:64]!r}; {rule}")


@get_and_head(routes, "/v1/metrics", dependencies=[Depends(_refuse_unknown_parameters)], **openapi.GET_METRICS)
def get_metrics(request: Request) -> Response:
    """Every version of every metric, and the privacy figures of its reports."""
    service: Service = request.state.service
    return Response(_metrics_document(tuple(service.definitions.versions())), media_type="application/json")


@lru_cache(maxsize=2)
def _metrics_document(versions: tuple[Metric, ...]) -> bytes:
    """Return the JSON of all versions; cached, because it needs no token."""
    figures = ({"privacy": privacy_figures(metric, Policy()).to_dict()} for metric in versions)
    metrics = [metric.to_dict() | privacy for metric, privacy in zip(versions, figures, strict=True)]
    return json.dumps({"metrics": metrics}).encode()


def _require_read_scope(request: Request, _: Annotated[object, Security(_BEARER)]) -> None:
    _require_scope(request, Scope.READ)


def _require_metrics_scope(request: Request, _: Annotated[object, Security(_BEARER)]) -> None:
    _require_scope(request, Scope.METRICS)


def _require_scope(request: Request, scope: Scope) -> None:
    service: Service = request.state.service
    if may_read_without_token(service, request):
        return
    authorization = request.headers.get("authorization")
    if (
        authorization is None
        and scope is Scope.READ
        and authentication.may_read(service.tokens, service.clock, request)
    ):
        return
    service.authorizer.require(scope, authorization)


@get_and_head(
    routes,
    "/v1/periods",
    dependencies=[Security(_require_read_scope), Depends(_refuse_unknown_parameters)],
    **openapi.GET_PERIODS,
)
def get_periods(request: Request) -> Response:
    """Periods of every version of every metric with their numbers of reports, which the summaries of these periods have."""
    service: Service = request.state.service
    found = list_periods(service.periods, tuple(service.definitions.versions()))
    return JSONResponse({"periods": [asdict(period) for period in found]})


def _as_download(response: Response, name: str, *parts: str) -> Response:
    """Add headers that name the file for browsers and block its use in pages of other origins."""
    response.headers["content-disposition"] = f'attachment; filename="{"-".join([name, *parts])}.parquet"'
    response.headers["cross-origin-resource-policy"] = "same-origin"
    return response


@get_and_head(
    routes,
    "/v1/metrics/{name}/summary",
    response_class=SummaryResponse,
    dependencies=[Security(_require_read_scope), Depends(_refuse_unknown_parameters)],
    **openapi.GET_SUMMARY,
)
def get_summary(
    request: Request,
    name: str,
    period: Periods = None,
    digest: Digest = None,
    group: Group = None,
    kind: Annotated[
        Literal["bits", "patterns"], Query(description="Patterns: only for metrics with at most 16 bits.")
    ] = "bits",
) -> Response:
    """Current counts of all reports of a metric version: the summary file."""
    service: Service = request.state.service
    metric = _requested_metric(service.definitions, name, digest, group)
    if kind == "patterns" and metric.num_bits > MAX_PATTERN_BITS:
        raise RefusedError(
            ProblemType.INVALID_QUERY,
            f"kind=patterns needs at most {MAX_PATTERN_BITS} bits, {name} has {metric.num_bits}. Use kind=bits",
        )
    summary = read_summary(service.periods, metric, None if period is None else _requested_periods(metric, period))
    if kind == "bits" and isinstance(summary, PatternCounts):
        summary = summary.bit_counts()
    file = SummaryResponse(
        summary_to_bytes(replace(summary, implausible_rejected=_implausible_rejected(service, name)))
    )
    return _as_download(file, name, *([group] if group else []), *_single_period(summary.periods))


@get_and_head(
    routes,
    "/v1/metrics/{name}/reports",
    response_class=SummaryResponse,
    dependencies=[Security(_require_read_scope), Depends(_refuse_unknown_parameters)],
    **openapi.GET_REPORTS,
)
def get_reports(
    request: Request,
    name: str,
    period: Periods = None,
    digest: Digest = None,
    group: Group = None,
) -> Response:
    """The retained reports of a metric version in random order: the report file."""
    service: Service = request.state.service
    metric = _requested_metric(service.definitions, name, digest, group)
    if metric.group is not None and metric.group.value is None:
        raise RefusedError(
            ProblemType.INVALID_QUERY,
            f"group: reports of {name} are exported for one value of its group, {', '.join(metric.group.values)}",
        )
    if not service.settings.keep_reports.get(name):
        raise RefusedError(
            ProblemType.NOT_FOUND,
            f"reports of {name} are neither retained nor exported; `hubbub serve --keep-reports {name}=N` does both",
        )
    requested = (
        service.periods.periods_with_reports(metric.digest) if period is None else _requested_periods(metric, period)
    )
    now = service.clock()
    available = [text for text in requested if keeps_reports(metric, service.settings, text, now)]
    file = FileResponse(
        reports_file(service.periods, metric, available, implausible_rejected=_implausible_rejected(service, name))
    )
    return _as_download(file, name, "reports", *([group] if group else []), *_single_period(available))


@get_and_head(
    routes,
    "/metrics",
    response_class=PlainTextResponse,
    dependencies=[Security(_require_metrics_scope)],
    **openapi.GET_PROMETHEUS,
)
def get_prometheus_metrics(request: Request) -> Response:
    """Prometheus metrics of the service."""
    return Response(prometheus_text(request.state.service, request.state.writer), media_type=METRICS_TYPE)


@get_and_head(routes, "/livez", **openapi.GET_LIVEZ)
async def get_livez(request: Request) -> Response:
    """Liveness of the process, and whether the request named its client."""
    proxies, forwarded_for = request.state.service.proxies, request.headers.get("x-forwarded-for")
    named = request.client is None or proxies.names_client(request.client.host, forwarded_for)
    return JSONResponse({"status": "alive", "client_named": named})


@get_and_head(routes, "/readyz", **openapi.GET_READYZ)
async def get_readyz(request: Request) -> Response:
    """Readiness: a batch was stored within 10 seconds, or a durable write succeeds."""
    service: Service = request.state.service
    probe = service.readiness.require(request.state.writer)
    if probe is not None:
        # A client that disconnects does not cancel the probe for others.
        await asyncio.shield(asyncio.wrap_future(probe))
    return JSONResponse({"status": "ready", "clock": service.clock.reading().status})


@get_and_head(routes, "/problems/{slug}", response_class=HTMLResponse, **openapi.GET_PROBLEM)
async def get_problem(slug: str) -> Response:
    """Explanation of a problem type."""
    for problem in ProblemType:
        if problem.slug == slug:
            return HTMLResponse(problem_page(problem))
    raise RefusedError(ProblemType.NOT_FOUND, "no problem type has this name")


def _single_period(periods: Sequence[str]) -> Sequence[str]:
    return periods if len(periods) == 1 else ()


def _implausible_rejected(service: Service, name: str) -> bool:
    """Return whether implausible reports of a metric are rejected, or were earlier."""
    return (
        service.settings.reject_implausible or (name, ProblemType.IMPLAUSIBLE_REPORT.slug) in service.periods.refusals()
    )


def _requested_metric(definitions: Definitions, name: str, digest: str | None, group: str | None) -> Metric:
    current = definitions.get(name)
    if current is None:
        raise RefusedError(
            ProblemType.UNKNOWN_METRIC,
            f"no metric {name[:64]!r} is defined here.{did_you_mean(name[:64], definitions)} /v1/metrics lists all",
        )
    version = current if digest is None else definitions.version(name, digest)
    if version is None:
        raise RefusedError(
            ProblemType.INVALID_QUERY,
            f"digest: {name} has no version {digest!r:.80}; the current version is {current.digest}",
        )
    try:
        return version if group is None else version.in_group(group)
    except DefinitionError as problem:
        raise RefusedError(ProblemType.INVALID_QUERY, f"group: {problem}"[:500]) from None


def _requested_periods(metric: Metric, texts: list[str]) -> list[str]:
    try:
        return [str(parse_period(metric.period, text)) for text in texts]
    except RefusedError as refused:
        raise RefusedError(ProblemType.INVALID_QUERY, refused.detail) from None
