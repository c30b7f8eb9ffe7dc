"""Cross-origin requests (CORS): off, unless the operator names the origins of pages that may send reports."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from hubbub_aggregator.http.conventions import REPORTS_PATH
from hubbub_aggregator.http.security_headers import SECURITY_HEADERS

_METHODS = {REPORTS_PATH: "POST", "/v1/metrics": "GET"}
_REQUEST_HEADERS = ("Authorization", "Content-Encoding", "Content-Type")
_EXPOSED_HEADERS = ("Retry-After",)
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
