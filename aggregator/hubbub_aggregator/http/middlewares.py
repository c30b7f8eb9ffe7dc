"""Middlewares, from the headers of every response to the rest of an unread body; and the names that they share with the routes.

`SecurityHeadersMiddleware`, `CrossOriginMiddleware` (off, unless the operator names the origins of pages that may send reports),
`ErrorMiddleware` (a 500 response without details, and a log line without values), `UnreadBodyMiddleware`.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from contextlib import suppress
from typing import Any

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hubbub.pages.html_page import CONTENT_SECURITY_POLICY
from hubbub.wire.problems import ProblemType
from hubbub_aggregator.errors import loggable_cause
from hubbub_aggregator.http.problems import problem_response

REPORTS_PATH = "/v1/reports"

BODY_COMPLETE = "hubbub.body_complete"
"""Key of the ASGI scope: set once the whole body of a request has arrived, so that receiving it does not wait."""


SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    # A page itself cannot forbid frames.
    (b"content-security-policy", f"{CONTENT_SECURITY_POLICY}; frame-ancestors 'none'".encode()),
    (b"referrer-policy", b"no-referrer"),
)


class SecurityHeadersMiddleware:
    """Add the headers to every response: no content sniffing, caching, scripts, framing or referrers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *SECURITY_HEADERS]
            await send(message)

        await self._app(scope, receive, send_with_headers)


_METHODS = {REPORTS_PATH: "POST", "/v1/metrics": "GET"}
_REQUEST_HEADERS = ("Authorization", "Content-Encoding", "Content-Type")
_EXPOSED_HEADERS = ("Date", "Retry-After")
_PREFLIGHT_MAX_AGE_SECONDS = 7200  # the most that browsers use


class CrossOriginMiddleware:
    """Let pages of these origins send batches and read the definitions and every response, without cookies."""

    def __init__(self, app: ASGIApp, origins: tuple[str, ...]) -> None:
        self._app = app
        self._by_path = {
            path: _Cors(
                app,
                allow_origins=origins,
                allow_methods=[method],
                allow_headers=_REQUEST_HEADERS,
                expose_headers=_EXPOSED_HEADERS,
                max_age=_PREFLIGHT_MAX_AGE_SECONDS,
            )
            for path, method in _METHODS.items()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._by_path.get(scope["path"], self._app) if scope["type"] == "http" else self._app
        await app(scope, receive, send)


class _Cors(CORSMiddleware):
    def preflight_response(self, request_headers: Headers) -> Response:
        """Return 204 with the allowed values, for the browser to compare; Starlette would send a refusal as plain text."""
        allowed = super().preflight_response(request_headers)
        del allowed.headers["content-type"], allowed.headers["content-length"]
        response = Response(status_code=204, headers=dict(allowed.headers))
        response.raw_headers += SECURITY_HEADERS
        return response


logger = logging.getLogger(__name__)


class ErrorMiddleware:
    """Turn every exception of the application into a response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def send_and_note(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except ClientDisconnect:
            pass  # before the end of its body: the connection is closed
        except Exception as failure:  # noqa: BLE001  (the server would log the exception's message, which may hold values)
            response = internal_error_response(failure)
            if not started:
                await response(scope, receive, send)


def internal_error_response(failure: Exception) -> Response:
    """Log the cause and place of an exception; return the 500 response."""
    where = traceback.extract_tb(failure.__traceback__)[-1]
    logger.error("%s in %s, line %s of %s", loggable_cause(failure), where.name, where.lineno, where.filename)
    return problem_response(ProblemType.INTERNAL_ERROR, "an internal error occurred: see the aggregator's log")


MAX_DISCARDED_BYTES = 2 << 20
"""Bytes of a body that are discarded before its response: the largest body that the proxies of deploy/ forward."""

DISCARD_SECONDS = 1.0
"""Longest delay of a response whose request's body is still arriving."""


class UnreadBodyMiddleware:
    """Delay a response until the body of its request has arrived; beyond the limits, announce that the connection closes.

    A proxy that still sends a body while the connection is reset responds 502 instead of the aggregator's refusal.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or BODY_COMPLETE in scope:
            await self._app(scope, receive, send)
            return

        async def send_after_body(message: Message) -> None:
            if message["type"] == "http.response.start" and BODY_COMPLETE not in scope:
                if not _waits_for_continue(scope):
                    await _discard(receive)
                if BODY_COMPLETE not in scope:
                    message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        await self._app(scope, receive, send_after_body)


def _waits_for_continue(scope: Scope) -> bool:
    """Return whether the client may send its body only after a response."""
    return any(name == b"expect" for name, _ in scope["headers"])


async def _discard(receive: Receive) -> None:
    """Receive a body until it ends, its client leaves, or a limit is exceeded; nothing is kept."""
    num_bytes = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(DISCARD_SECONDS):
            while num_bytes <= MAX_DISCARDED_BYTES:
                message: Any = await receive()
                if not message.get("more_body", False):
                    return
                num_bytes += len(message["body"])
