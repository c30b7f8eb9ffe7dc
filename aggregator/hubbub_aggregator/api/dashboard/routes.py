"""Routes of the dashboard: `/`, `/metric/{name}`, `/session`, `/sign-in` and `/sign-out`.

A refused request gets a page if the client accepts HTML, for example the form with the reason, else `application/problem+json`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import fastapi
from fastapi import APIRouter, Request
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, RedirectResponse, Response

from hubbub.metrics.rules import is_metric_name
from hubbub.pages.html_page import STYLE, typeset
from hubbub.text import format_count, visible_value
from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.api import authentication, openapi
from hubbub_aggregator.api.dashboard.metric_page import build_metric_page
from hubbub_aggregator.api.dashboard.overview import SPARKLINE_PERIODS, Sort, build_overview
from hubbub_aggregator.api.dependencies import Service, charge_request, may_read_without_token
from hubbub_aggregator.api.request_body import read_body
from hubbub_aggregator.errors import ASK_FOR_TOKEN, RefusedWithHeaderError
from hubbub_aggregator.http.problems import refusal_headers
from hubbub_aggregator.http.routing import get_and_head
from hubbub_aggregator.server.client_address import is_direct_local_request
from hubbub_aggregator.store.tokens import Scope

routes = APIRouter()

_METRIC = "/metric/"
_SEE_OTHER = 303
_VISIBLE = re.compile(r"[!-~]+")
_MAX_FORM_BYTES = 4_096
_MAX_QUERY_LENGTH = 200  # characters
_TEMPLATES = Environment(
    loader=PackageLoader("hubbub_aggregator.api.dashboard", "."),
    autoescape=True,
    finalize=visible_value,
    undefined=StrictUndefined,
    trim_blocks=True,
)
_TEMPLATES.globals["count"] = format_count
_TEMPLATES.globals["style"] = Markup(STYLE)  # noqa: S704  (a file of this package)


Query = Annotated[str, fastapi.Query(description="Words to search in names, owners and descriptions.")]
SortBy = Annotated[Sort, fastapi.Query(description="Order of the metrics; with a minus sign, descending.")]
ProblemsOnly = Annotated[str, fastapi.Query(alias="problems", description="Not empty: only metrics with problems.")]


@get_and_head(routes, "/", response_class=HTMLResponse, **openapi.GET_PAGE)
def get_page(request: Request, q: Query = "", problems: ProblemsOnly = "", sort: SortBy = Sort.PROBLEMS) -> Response:
    """Page with the state of the service and the table of metrics, those with problems first if no other order is asked for."""
    service: Service = request.state.service
    signed_in = _is_signed_in(request)
    if (redirect := _require_reader(request, "", signed_in)) is not None:
        return redirect
    query = q[:_MAX_QUERY_LENGTH]
    data = build_overview(service, request.state.writer, query, problems_only=bool(problems), sort=sort)

    def sorted_by(other: str) -> str:
        """Return the address of this page in another order."""
        given = {"q": query, "problems": "1" if problems else "", "sort": other}
        return "/?" + urlencode({name: value for name, value in given.items() if value})

    return _page(
        "overview",
        {
            "overview": data,
            "query": query,
            "problems_only": bool(problems),
            "sort": sort,
            "sorted_by": sorted_by,
            "num_periods": SPARKLINE_PERIODS,
            "signed_in": signed_in,
        },
    )


@get_and_head(routes, "/metric/{name}", response_class=HTMLResponse, **openapi.GET_METRIC_PAGE)
def get_metric_page(request: Request, name: str) -> Response:
    """Page of one metric: reports per period, privacy figures, downloads and refused batches."""
    service: Service = request.state.service
    signed_in = _is_signed_in(request)
    if (redirect := _require_reader(request, f"{_METRIC}{quote(name, safe='')}", signed_in)) is not None:
        return redirect
    data = build_metric_page(service, name)
    if data is None:
        refused = RefusedError(ProblemType.UNKNOWN_METRIC, f"no metric {name[:64]!r} is defined here; / lists all")
        if not accepts_html(request):
            raise refused
        service.outcomes.rejected_request(refused.problem_type)
        return not_found_page(name[:64])
    return _page("metric", {"metric": data, "signed_in": signed_in})


@get_and_head(routes, "/session", status_code=204, response_class=Response, **openapi.GET_SESSION)
def get_session(request: Request) -> Response:
    """Whether the request may read: 204 or 401. A reverse proxy asks before it forwards to the results."""
    if not _is_signed_in(request) and not may_read_without_token(request.state.service, request):
        request.state.service.authorizer.require(Scope.READ, request.headers.get("authorization"))
    return Response(status_code=204)


def _is_signed_in(request: Request) -> bool:
    service: Service = request.state.service
    return authentication.is_signed_in(service.tokens, service.clock, _cookie(request))


def _require_reader(request: Request, address: str, signed_in: bool) -> Response | None:
    """Return a redirect to the sign-in form for a browser without a session; RefusedError for a program without a token.

    address : to open after signing in; empty: `/`
    """
    service: Service = request.state.service
    if signed_in or may_read_without_token(service, request):
        return None
    authorization = request.headers.get("authorization")
    if authorization is None and accepts_html(request):
        return RedirectResponse(f"/sign-in?to={address}" if address else "/sign-in", _SEE_OTHER)
    service.authorizer.require(Scope.READ, authorization)
    return None


def not_found_page(metric: str | None = None) -> Response:
    """Return the page of status 404: no metric has this name; None: no page has the requested address."""
    return _page("not_found", {"name": metric}, ProblemType.NOT_FOUND.status)


def _page(
    template: str, values: Mapping[str, object], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    html = _TEMPLATES.get_template(f"{template}.html.j2").render(values)
    return HTMLResponse(typeset(html), status, headers)


@get_and_head(routes, "/sign-in", response_class=HTMLResponse, **openapi.GET_SIGN_IN)
def get_sign_in(request: Request) -> Response:
    """Sign-in form for a token with scope `read`; `?to=ADDRESS` leads to a metric or its results afterwards.

    The address is the rest of the query as it is, because a proxy inserts the address of a request, which has a query of its own.
    """
    service: Service = request.state.service
    address = _address_after(service, request.url.query.partition("to=")[2])
    if may_read_without_token(service, request):
        return RedirectResponse(address, _SEE_OTHER)
    return _sign_in_form(None, address)


@routes.post("/sign-in", **openapi.POST_SIGN_IN)
async def post_sign_in(request: Request) -> Response:
    """Start a session for a token, and set its cookie."""
    service: Service = request.state.service
    address = "/"
    try:
        charge_request(service, request.scope["client"], request.headers.get("x-forwarded-for"))
        _require_same_site(request)
        form = await _read_form(request, service)
        token, address = _field(form, "token"), _address_after(service, _field(form, "to"))
        if not token:
            raise RefusedWithHeaderError(ProblemType.UNAUTHORIZED, "Enter a token (form field `token`).", ASK_FOR_TOKEN)
        secret = await run_in_threadpool(authentication.sign_in, service.tokens, service.clock, token)
        await run_in_threadpool(authentication.sign_out, service.tokens, _cookie(request))
    except RefusedError as refused:
        if not accepts_html(request):
            raise
        service.outcomes.rejected_request(refused.problem_type)
        return _sign_in_form(refused.detail, address, refused.problem_type.status, refusal_headers(refused))
    response = RedirectResponse(address, _SEE_OTHER)
    _set_cookie(request, response, secret, int(authentication.SESSION_LENGTH.total_seconds()))
    return response


@routes.post("/sign-out", **openapi.POST_SIGN_OUT)
def post_sign_out(request: Request) -> Response:
    """End the session."""
    _require_same_site(request)
    authentication.sign_out(request.state.service.tokens, _cookie(request))
    response = RedirectResponse("/sign-in", _SEE_OTHER)
    _set_cookie(request, response, "", 0)
    return response


async def _read_form(request: Request, service: Service) -> bytes:
    with service.body_memory.reserve(None) as memory:
        return await read_body(request.receive, service.settings, _MAX_FORM_BYTES, memory)


def _address_after(service: Service, address: str) -> str:
    """Return the address to open after signing in: of a metric or of its results on this host, else `/`."""
    results = service.settings.results_url
    is_result = results.startswith("/") and address.startswith(results) and _VISIBLE.fullmatch(address) is not None
    is_metric = address.startswith(_METRIC) and is_metric_name(address.removeprefix(_METRIC))
    return address if is_metric or is_result else "/"


def _sign_in_form(
    error: str | None, address: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    hours = int(authentication.SESSION_LENGTH.total_seconds()) // 3600
    return _page("sign_in", {"error": error, "hours": hours, "address": address}, status, headers)


def accepts_html(request: Request) -> bool:
    """Return whether the client accepts HTML, as browsers do."""
    return "text/html" in request.headers.get("accept", "")


def _field(form: bytes, name: str) -> str:
    """Return a field of a form, or the empty string."""
    return parse_qs(form.decode("utf-8", "replace")).get(name, [""])[0].strip()


def _require_same_site(request: Request) -> None:
    """Refuse forms that a page of another site submitted; SameSite=Strict alone trusts other hosts of the same site.

    Browsers name the origin of a request in Sec-Fetch-Site, old browsers in Origin. A client that sends neither is not a
    browser, and has no cookies that another site could use.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        is_same_site = site in ("same-origin", "none")
    else:
        is_same_site = origin is None or _authority(origin) == request.headers.get("host")
    if not is_same_site:
        raise RefusedError(
            ProblemType.CROSS_SITE,
            "a page of another site submitted this form. Open this aggregator's page and sign in there",
        )


def _authority(origin: str) -> str | None:
    """Return the host and port of an origin, None if it is not a URL."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _cookie(request: Request) -> str | None:
    return request.cookies.get(authentication.cookie_name(request.headers))


def _set_cookie(request: Request, response: Response, value: str, seconds: int) -> None:
    secure = not is_direct_local_request(request.headers)
    response.set_cookie(
        authentication.cookie_name(request.headers), value, seconds, httponly=True, samesite="strict", secure=secure
    )
