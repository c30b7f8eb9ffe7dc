"""The pages of `hubbub explore`, as an ASGI application."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from hubbub.defaults import LOOPBACK
from hubbub.errors import HubbubError, SummaryError
from hubbub_decoder.errors import EventError
from hubbub_decoder.explore.answers import BusyError, UnfinishedError
from hubbub_decoder.explore.decoding_process import MAX_SECONDS, FailedError
from hubbub_decoder.explore.explorer import Explorer, problem_text, strings_of
from hubbub_decoder.explore.front_page import render_explore
from hubbub_decoder.explore.summary_directory import MetricVersion
from hubbub_decoder.explore.view import FORMATS, View, ViewError
from hubbub_decoder.report.rendering import NO_SCRIPTS, SHARED_SCRIPT, render, shared_script

HOSTS = ("localhost", LOOPBACK)
"""Names by which a browser of this machine calls it; another name may be of a foreign page, whose address leads here."""
MAX_FORM_BYTES = 1_000_000
_COOKIE = "hubbub_explore"
_PATIENCE = 3.0  # seconds until a page says that it waits
_PAUSE = 30.0  # seconds between two looks at the directory
_OF_BACKGROUND = ""
_TYPES = {
    ".csv": "text/csv; charset=utf-8",
    ".json": "application/json",
    ".parquet": "application/vnd.apache.parquet",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    "content-security-policy": "frame-ancestors 'none'; form-action 'self'; base-uri 'none'; object-src 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "cache-control": "private, no-cache",
}


def explore_app(explorer: Explorer, now: Callable[[], datetime], hostnames: Sequence[str] = ()) -> Starlette:
    """Application that shows the metrics of an explorer; hostnames : by which it is called, besides HOSTS.

    /                            cards of all metrics
    /METRIC@DIGEST/?VIEW         page of a view (`View`)
    /METRIC@DIGEST/data.csv?VIEW its numbers as a file, also .json, .parquet, .png and .svg
    /METRIC@DIGEST/strings?VIEW  takes more strings, and leads to their view
    """
    pages = _Pages(explorer, now)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        background = asyncio.create_task(pages.decode_highlights())
        yield
        background.cancel()
        with suppress(asyncio.CancelledError):
            await background
        await explorer.answers.end()

    return Starlette(
        routes=[
            Route("/", pages.front),
            Route(f"/{SHARED_SCRIPT}", _script),
            Route("/{folder}/", pages.view),
            Route("/{folder}/data{suffix}", pages.download),
            Route("/{folder}/strings", pages.take_strings, methods=["POST"]),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[*HOSTS, *hostnames], www_redirect=False)],
        exception_handlers={
            ViewError: _problem(400),
            FailedError: _problem(503),
            SummaryError: _problem(503),
            EventError: _problem(503),
            OSError: _problem(503),
            BusyError: _again(429),
            UnfinishedError: _again(202),
            HTTPException: _http_problem,
        },
        lifespan=lifespan,
    )


class _Pages:
    """Handlers of the routes."""

    def __init__(self, explorer: Explorer, now: Callable[[], datetime]) -> None:
        self._explorer, self._now = explorer, now

    async def front(self, request: Request) -> Response:
        versions, unreadable = await asyncio.to_thread(self._explorer.read)
        cards = await asyncio.to_thread(self._explorer.cards, versions, self._now())
        return _page(render_explore(cards, unreadable, request.query_params), request)

    async def view(self, request: Request) -> Response:
        version, view, page = await self._find(request)
        job = await asyncio.to_thread(self._explorer.job, version, view, ".html", page)
        return _page(await self._explorer.answers.get(job, _asker(request), _PATIENCE), request)

    async def download(self, request: Request) -> Response:
        version, view, _ = await self._find(request)
        suffix = request.path_params["suffix"]
        if suffix not in FORMATS.values():
            raise HTTPException(404, f"data{suffix} is none of data{', data'.join(FORMATS.values())}.")
        job = await asyncio.to_thread(self._explorer.job, version, view, suffix)
        data = await self._explorer.answers.get(job, _asker(request), MAX_SECONDS)
        name = f"{version.metric.name}-{view.file_name}{suffix}"
        return Response(
            data,
            media_type=_TYPES[suffix],
            headers=_HEADERS | {"content-disposition": f'attachment; filename="{name}"'},
        )

    async def take_strings(self, request: Request) -> Response:
        _require_same_origin(request)
        _, view, _ = await self._find(request)
        form = await _form(request)
        text = strings_of(form.get("strings", [""])[0])
        digest = await asyncio.to_thread(self._explorer.cache.add_strings, text)
        return RedirectResponse(f"./?{view.query(strings=digest)}", 303, _HEADERS)

    async def _find(self, request: Request) -> tuple[MetricVersion, View, dict[str, Any]]:
        """Metric and view of an address, and what its form lets the reader choose, which is also on a page with a message."""
        versions, _ = await asyncio.to_thread(self._explorer.read)
        version = versions.get(request.path_params["folder"])
        if version is None:
            raise HTTPException(
                404,
                "No summary of a metric with this address is here. If the aggregator collects the metric, its results appear "
                "after the next `hubbub pull`.",
            )
        request.state.title = version.metric.name
        now, query = self._now(), request.query_params
        request.state.view = View.nearest(query, version, now).page(version, now, is_shown=False)
        view = View.of_query(query, version, now)
        page = view.page(version, now)
        page["entered"] = await asyncio.to_thread(self._explorer.entered, view.strings)
        request.state.view = page | {"downloads": [], "arriving": None}
        return version, view, page

    async def decode_highlights(self) -> None:
        """Decode what the cards show, as long as the application runs."""
        while True:
            with suppress(HubbubError, OSError):
                versions, _ = await asyncio.to_thread(self._explorer.read)
                for job in self._explorer.unknown_highlights(versions, self._now()):
                    with suppress(FailedError, UnfinishedError, BusyError):
                        await self._explorer.answers.get(job, _OF_BACKGROUND, 2 * MAX_SECONDS)
            await asyncio.sleep(_PAUSE)


def _script(_: Request) -> Response:
    return Response(shared_script(), media_type="text/javascript", headers=_HEADERS)


def _page(
    content: str | bytes, request: Request, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    response = HTMLResponse(content, status, _HEADERS | dict(headers or {}))
    if not request.cookies.get(_COOKIE):
        response.set_cookie(_COOKIE, secrets.token_urlsafe(16), httponly=True, samesite="strict")
    return response


def _asker(request: Request) -> str:
    """Browser that asks; programs without its cookie are one asker together."""
    return request.cookies.get(_COOKIE) or "program"


def _message(
    request: Request, status: int, text: str, level: str = "problem", headers: Mapping[str, str] | None = None
) -> Response:
    is_front = request.url.path == "/"
    html = render(
        "message.html.j2",
        NO_SCRIPTS,
        {},
        {
            "title": getattr(request.state, "title", "Metrics"),
            "text": text,
            "level": level,
            "view": getattr(request.state, "view", None),
            "path": () if is_front else [("All metrics", "../")],
        },
    )
    return _page(html, request, status, headers)


Handler = Callable[[Request, Exception], Response]


def _problem(status: int) -> Handler:
    return lambda request, problem: _message(request, status, problem_text(problem))


def _again(status: int) -> Handler:
    """Page that a browser loads again after three seconds."""
    headers = {"refresh": "3", "retry-after": "3"}
    return lambda request, problem: _message(
        request, status, f"{problem} This page loads again by itself.", "plain", headers
    )


def _http_problem(request: Request, problem: Any) -> Response:
    return _message(request, problem.status_code, problem.detail, headers=problem.headers)


def _require_same_origin(request: Request) -> None:
    """Refuse forms of pages of other sites."""
    origin = request.headers.get("origin")
    if origin is None or urlsplit(origin).netloc != request.headers.get("host"):
        raise HTTPException(403, "A page of another site sent this form. Enter the strings on a page of this one.")


async def _form(request: Request) -> dict[str, list[str]]:
    if (
        request.headers.get("content-type") != "application/x-www-form-urlencoded"
        or "content-encoding" in request.headers
    ):
        raise HTTPException(
            415, "This address takes a form, application/x-www-form-urlencoded, which is not compressed."
        )
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_FORM_BYTES:
            raise HTTPException(
                413,
                f"The strings have more than {MAX_FORM_BYTES:,} bytes as a form. Enter fewer, or run `hubbub decode`.",
            )
    try:
        return parse_qs(body.decode("ascii"), errors="strict", max_num_fields=1)
    except ValueError:
        raise HTTPException(400, "The form is not valid, or not UTF-8.") from None
