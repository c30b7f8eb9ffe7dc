"""Responses that precede the end of their request's body: discard the rest of it first, or close the connection.

A proxy that still sends a body while the connection is reset responds 502 instead of the aggregator's refusal.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hubbub_aggregator.http.conventions import BODY_COMPLETE

MAX_DISCARDED_BYTES = 2 << 20
"""Bytes of a body that are discarded before its response: the largest body that the proxies of deploy/ forward."""

DISCARD_SECONDS = 1.0
"""Longest delay of a response whose request's body is still arriving."""


class UnreadBodyMiddleware:
    """Delay a response until the body of its request has arrived; beyond the limits, announce that the connection closes."""

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
