"""Middleware that adds security headers: no content sniffing, caching, scripts, framing or referrers."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hubbub_aggregator.http.stylesheet import CONTENT_SECURITY_POLICY

SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"referrer-policy", b"no-referrer"),
)


class SecurityHeadersMiddleware:
    """Add the headers to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *SECURITY_HEADERS]
            await send(message)

        await self._app(scope, receive, send_with_headers)
