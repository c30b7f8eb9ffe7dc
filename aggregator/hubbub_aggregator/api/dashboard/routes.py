"""`/` and `/metric/{name}`, and the form through which a browser gets to them.

A refusal here is HTML for who accepts HTML, since it is the form again with its reason, and `application/problem+json` for all others, as everywhere.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qs, quote, urlsplit

import fastapi
from fastapi import APIRouter, Request
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, RedirectResponse, Response

from hubbub.metrics.metric import is_metric_name
from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.api import openapi, sessions
from hubbub_aggregator.api.dashboard.metric_page import metric_page
from hubbub_aggregator.api.dashboard.overview import overview
from hubbub_aggregator.api.ingest import may_read_without_token, read_body
from hubbub_aggregator.api.service import Service, require_rate
from hubbub_aggregator.errors import ASK, RefusedWithHeaderError
from hubbub_aggregator.http.get_and_head import reads
from hubbub_aggregator.http.problems import headers_of
from hubbub_aggregator.http.stylesheet import STYLE
from hubbub_aggregator.server.client_address import asked_directly
from hubbub_aggregator.store.tokens import Scope

routes = APIRouter()

_SEE_OTHER = 303
_LARGEST_FORM = 4_096  # bytes
_LONGEST_QUERY = 200  # characters
_TEMPLATES = Environment(
    loader=PackageLoader("hubbub_aggregator.api.dashboard", "."),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
)
_TEMPLATES.globals["style"] = Markup(STYLE)  # noqa: S704  (our own file)


Query = Annotated[str, fastapi.Query(description="Words to look for in names, owners and descriptions.")]
ProblemsOnly = Annotated[str, fastapi.Query(alias="problems", description="Not empty: only metrics with problems.")]


@reads(routes, "/", response_class=HTMLResponse, **openapi.GET_PAGE)
def get_page(request: Request, q: Query = "", problems: ProblemsOnly = "") -> Response:
    """The page: the state of the service, and the table of metrics, those with problems first."""
    service: Service = request.state.service
    signed_in = _is_signed_in(request)
    if (to_form := _form_first(request, "/sign-in", signed_in)) is not None:
        return to_form
    query = q[:_LONGEST_QUERY]
    shown = overview(service, request.state.writer, query, problems_only=bool(problems))
    return _page("overview", overview=shown, query=query, problems_only=bool(problems), signed_in=signed_in)


@reads(routes, "/metric/{name}", response_class=HTMLResponse, **openapi.GET_METRIC_PAGE)
def get_metric_page(request: Request, name: str) -> Response:
    """The page of one metric: its reports a period, what they reveal, downloads, what was refused."""
    service: Service = request.state.service
    signed_in = _is_signed_in(request)
    if (to_form := _form_first(request, f"/sign-in?metric={quote(name, safe='')}", signed_in)) is not None:
        return to_form
    shown = metric_page(service, name)
    if shown is None:
        refused = RefusedError(ProblemType.UNKNOWN_METRIC, f"{name[:64]!r} is not collected here; / lists all metrics")
        if not _takes_html(request):
            raise refused
        service.tally.turned_away(refused.problem_type)
        return _page("not_found", refused.problem_type.status, name=name[:64])
    return _page("metric", metric=shown, signed_in=signed_in)


def _is_signed_in(request: Request) -> bool:
    service: Service = request.state.service
    return sessions.is_signed_in(service.store, service.clock, _cookie(request))


def _form_first(request: Request, form: str, signed_in: bool) -> Response | None:
    """Return a redirect to the form for a browser without a session; refuse a program without a token."""
    service: Service = request.state.service
    if signed_in or may_read_without_token(service, request):
        return None
    authorization = request.headers.get("authorization")
    if authorization is None and _takes_html(request):
        return RedirectResponse(form, _SEE_OTHER)
    service.door.require(Scope.READ, authorization)
    return None


def _page(template: str, status: int = 200, **shown: object) -> Response:
    return HTMLResponse(_TEMPLATES.get_template(f"{template}.html.j2").render(shown), status)


@reads(routes, "/sign-in", response_class=HTMLResponse, **openapi.GET_SIGN_IN)
def get_sign_in(request: Request) -> Response:
    """The form that takes a token with scope `read`; `?metric=NAME` leads to that metric's page afterwards."""
    metric = request.query_params.get("metric", "")
    if may_read_without_token(request.state.service, request):
        return RedirectResponse(_page_of(metric), _SEE_OTHER)
    return HTMLResponse(_form(None, metric))


@routes.post("/sign-in", **openapi.POST_SIGN_IN)
async def post_sign_in(request: Request) -> Response:
    """Take a token, and set the cookie that stands for it."""
    service: Service = request.state.service
    metric = ""
    try:
        require_rate(service, request.scope["client"], request.headers.get("x-forwarded-for"))
        _require_same_site(request)
        body = await _form_body(request, service)
        token, metric = _field(body, "token"), _field(body, "metric")
        if not token:
            raise RefusedWithHeaderError(ProblemType.UNAUTHORIZED, "Give a token: a form with the field `token`.", ASK)
        secret = await run_in_threadpool(sessions.sign_in, service.store, service.clock, token)
        await run_in_threadpool(sessions.sign_out, service.store, _cookie(request))
    except RefusedError as refused:
        if not _takes_html(request):
            raise
        service.tally.turned_away(refused.problem_type)
        return HTMLResponse(_form(refused.detail, metric), refused.problem_type.status, headers=headers_of(refused))
    answer = RedirectResponse(_page_of(metric), _SEE_OTHER)
    _set_cookie(request, answer, secret, int(sessions.LENGTH.total_seconds()))
    return answer


@routes.post("/sign-out", **openapi.POST_SIGN_OUT)
def post_sign_out(request: Request) -> Response:
    """End the session."""
    _require_same_site(request)
    sessions.sign_out(request.state.service.store, _cookie(request))
    answer = RedirectResponse("/sign-in", _SEE_OTHER)
    _set_cookie(request, answer, "", 0)
    return answer


async def _form_body(request: Request, service: Service) -> bytes:
    with service.bodies.receive(None) as received:
        return await read_body(request.receive, service.settings, _LARGEST_FORM, received)


def _page_of(metric: str) -> str:
    """Return the address to show after signing in: of a metric if this can be the name of one, else `/`."""
    return f"/metric/{metric}" if is_metric_name(metric) else "/"


def _form(failed: str | None, metric: str) -> str:
    hours = int(sessions.LENGTH.total_seconds()) // 3600
    asked = metric if is_metric_name(metric) else ""
    return _TEMPLATES.get_template("sign_in.html.j2").render(failed=failed, hours=hours, metric=asked)


def _takes_html(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


def _field(body: bytes, name: str) -> str:
    """Return a field of a form, empty if there is none."""
    return parse_qs(body.decode("utf-8", "replace")).get(name, [""])[0].strip()


def _require_same_site(request: Request) -> None:
    """Refuse what another site's page had a browser send; SameSite=Strict alone trusts the site's other hosts.

    Browsers say where a request is from in Sec-Fetch-Site, those that do not in Origin; who says neither is no browser, and has no
    cookies that somebody else could use.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        same = site in ("same-origin", "none")
    else:
        same = origin is None or _authority(origin) == request.headers.get("host")
    if not same:
        raise RefusedError(
            ProblemType.CROSS_SITE, "this form was sent from another site: open this one and sign in there"
        )


def _authority(origin: str) -> str | None:
    """Return the host and port of an origin; None: it is no URL."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _cookie(request: Request) -> str | None:
    return request.cookies.get(sessions.cookie_name(request.headers))


def _set_cookie(request: Request, answer: Response, value: str, seconds: int) -> None:
    secure = not asked_directly(request.headers)
    answer.set_cookie(
        sessions.cookie_name(request.headers), value, seconds, httponly=True, samesite="strict", secure=secure
    )
