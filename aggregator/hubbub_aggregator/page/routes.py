"""`/`, and the form through which a browser gets to it.

A refusal here is HTML for who accepts HTML, since it is the form again with its reason, and `application/problem+json` for all others, as everywhere.
"""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from fastapi import APIRouter, Request
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, RedirectResponse, Response

from hubbub.errors import RefusedError
from hubbub.refusals import Refusal
from hubbub_aggregator import openapi, sessions
from hubbub_aggregator.intake import RefusedWithHeaderError
from hubbub_aggregator.loopback import asked_directly
from hubbub_aggregator.page.overview import overview
from hubbub_aggregator.page.style import STYLE
from hubbub_aggregator.problems import headers_of
from hubbub_aggregator.reading import reads
from hubbub_aggregator.taking import Service, may_read_without_token, read_body, require_rate
from hubbub_aggregator.tokens import ASK, Scope

routes = APIRouter()

_SEE_OTHER = 303
_LARGEST_FORM = 4_096  # bytes
_TEMPLATES = Environment(
    loader=PackageLoader("hubbub_aggregator.page", "."),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
)
_TEMPLATES.globals["style"] = Markup(STYLE)  # noqa: S704  (our own file)


@reads(routes, "/", response_class=HTMLResponse, **openapi.GET_PAGE)
def get_page(request: Request) -> Response:
    """The page: every metric, its reports a period, what it can reveal, what was refused, how the service is."""
    service: Service = request.state.service
    signed_in = sessions.is_signed_in(service.store, service.clock, _cookie(request))
    if not signed_in and not may_read_without_token(service, request):
        authorization = request.headers.get("authorization")
        if authorization is None and _takes_html(request):
            return RedirectResponse("/sign-in", _SEE_OTHER)
        service.door.require(Scope.READ, authorization)
    shown = overview(service, request.state.writer)
    return HTMLResponse(_TEMPLATES.get_template("overview.html.j2").render(overview=shown, signed_in=signed_in))


@reads(routes, "/sign-in", response_class=HTMLResponse, **openapi.GET_SIGN_IN)
def get_sign_in(request: Request) -> Response:
    """The form that takes a token with scope `read`."""
    if may_read_without_token(request.state.service, request):
        return RedirectResponse("/", _SEE_OTHER)
    return HTMLResponse(_form(None))


@routes.post("/sign-in", **openapi.POST_SIGN_IN)
async def post_sign_in(request: Request) -> Response:
    """Take a token, and set the cookie that stands for it."""
    service: Service = request.state.service
    try:
        require_rate(service, request.scope["client"], request.headers.get("x-forwarded-for"))
        _require_same_site(request)
        token = _field(await _form_body(request, service), "token")
        if not token:
            raise RefusedWithHeaderError(Refusal.UNAUTHORIZED, "Give a token: a form with the field `token`.", ASK)
        secret = await run_in_threadpool(sessions.sign_in, service.store, service.clock, token)
        await run_in_threadpool(sessions.sign_out, service.store, _cookie(request))
    except RefusedError as refused:
        if not _takes_html(request):
            raise
        service.tally.turned_away(refused.refusal)
        return HTMLResponse(_form(refused.detail), refused.refusal.status, headers=headers_of(refused))
    answer = RedirectResponse("/", _SEE_OTHER)
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


def _form(failed: str | None) -> str:
    hours = int(sessions.LENGTH.total_seconds()) // 3600
    return _TEMPLATES.get_template("sign_in.html.j2").render(failed=failed, hours=hours)


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
        raise RefusedError(Refusal.CROSS_SITE, "this form was sent from another site: open this one and sign in there")


def _authority(origin: str) -> str | None:
    """Return the host and port of an origin; None: it is no URL."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _cookie_name(request: Request) -> str:
    """`__Host-`: browsers take it from this very host and over TLS only."""
    return "hubbub" if asked_directly(request.headers) else "__Host-hubbub"


def _cookie(request: Request) -> str | None:
    return request.cookies.get(_cookie_name(request))


def _set_cookie(request: Request, answer: Response, value: str, seconds: int) -> None:
    secure = not asked_directly(request.headers)
    answer.set_cookie(_cookie_name(request), value, seconds, httponly=True, samesite="strict", secure=secure)
