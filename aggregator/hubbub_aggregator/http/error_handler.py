"""Middleware for unexpected errors: a 500 response without details, and a log line without values."""

from __future__ import annotations

import logging
import traceback

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hubbub.wire.problems import ProblemType
from hubbub_aggregator.http.problems import problem_response

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
    """Log the type and place of an exception; return the 500 response."""
    where = traceback.extract_tb(failure.__traceback__)[-1]
    logger.error("%s in %s, line %s of %s", type(failure).__name__, where.name, where.lineno, where.filename)
    return problem_response(ProblemType.INTERNAL_ERROR, "an internal error occurred: see the aggregator's log")
