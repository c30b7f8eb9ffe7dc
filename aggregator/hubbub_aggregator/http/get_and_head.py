"""Register a route for GET and HEAD."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fastapi import APIRouter
from starlette.responses import Response

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


def get_and_head(router: APIRouter, path: str, **route_options: Any) -> Callable[[_Endpoint], _Endpoint]:
    """Return a decorator that registers a route under both methods; the server omits the body of a response to HEAD."""
    responses: Mapping[int | str, Mapping[str, Any]] = route_options.get("responses", {})
    without_bodies = {status: {"description": response["description"]} for status, response in responses.items()}

    def register(endpoint: _Endpoint) -> _Endpoint:
        router.get(path, **route_options)(endpoint)
        router.head(path, **route_options | {"responses": without_bodies, "response_class": Response})(endpoint)
        return endpoint

    return register
