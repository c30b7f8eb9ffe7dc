"""What is read over HTTP: an address that takes GET takes HEAD, and answers it with the same headers and no body."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fastapi import APIRouter
from starlette.responses import Response

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


def reads(router: APIRouter, path: str, **told: Any) -> Callable[[_Endpoint], _Endpoint]:
    """Register a route under both methods; that HEAD's answer has no body is the server's to see to."""
    responses: Mapping[int | str, Mapping[str, Any]] = told.get("responses", {})
    headers_alone = {status: {"description": answer["description"]} for status, answer in responses.items()}

    def register(endpoint: _Endpoint) -> _Endpoint:
        router.get(path, **told)(endpoint)
        router.head(path, **told | {"responses": headers_alone, "response_class": Response})(endpoint)
        return endpoint

    return register
