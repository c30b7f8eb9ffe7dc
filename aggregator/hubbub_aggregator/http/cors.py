"""Pages of other origins that may report from a browser: none, unless the operator names them."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from hubbub_aggregator.http.conventions import PATH
from hubbub_aggregator.http.security_headers import SECURITY_HEADERS

_METHOD = {PATH: "POST", "/v1/metrics": "GET"}
_HEADERS = ("Authorization", "Content-Encoding", "Content-Type")
_TOLD = ("Retry-After",)
_KNOWN_FOR = 7200  # seconds: the most that browsers remember a preflight


class CrossOrigin:
    """Middleware: lets pages of these origins send batches and read what is asked, whatever is answered, and no cookies."""

    def __init__(self, app: ASGIApp, origins: tuple[str, ...]) -> None:
        self._app = app
        self._open = {
            path: _Cors(
                app,
                allow_origins=origins,
                allow_methods=[method],
                allow_headers=_HEADERS,
                expose_headers=_TOLD,
                max_age=_KNOWN_FOR,
            )
            for path, method in _METHOD.items()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._open.get(scope["path"], self._app) if scope["type"] == "http" else self._app
        await app(scope, receive, send)


class _Cors(CORSMiddleware):
    def preflight_response(self, request_headers: Headers) -> Response:
        """Say what is allowed and let the browser compare: a refusal here would be plain text, which no refusal is."""
        allowed = super().preflight_response(request_headers)
        del allowed.headers["content-type"], allowed.headers["content-length"]
        answer = Response(status_code=204, headers=dict(allowed.headers))
        answer.raw_headers += SECURITY_HEADERS
        return answer
