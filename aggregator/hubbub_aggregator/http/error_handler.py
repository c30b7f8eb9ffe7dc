"""Whatever went wrong unforeseen is a 500 that tells nothing, and a log entry without values."""

from __future__ import annotations

import logging
import traceback

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hubbub.wire.problems import ProblemType
from hubbub_aggregator.http.problems import problem

logger = logging.getLogger(__name__)


class LastResort:
    """Middleware: lets no failure past."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientDisconnect:
            pass  # the client went away in the middle of its body: nobody is there to answer
        except Exception as failure:  # noqa: BLE001  (nothing may go past: the server would log its message)
            answer = unforeseen(failure)
            if not started:
                await answer(scope, receive, send)


def unforeseen(failure: Exception) -> Response:
    """Log where it failed, and return what is answered."""
    where = traceback.extract_tb(failure.__traceback__)[-1]
    logger.error("%s in %s, line %s of %s", type(failure).__name__, where.name, where.lineno, where.filename)
    return problem(ProblemType.INTERNAL_ERROR, "the aggregator failed; its log says where")
