"""Register a route for GET and HEAD, and stream an open file as its response."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import IO, Any, TypedDict, TypeVar, Unpack

from fastapi import APIRouter
from fastapi.params import Depends
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from hubbub.summary.summary_file import CONTENT_TYPE

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


Responses = dict[int | str, dict[str, Any]]
"""The description, and the model or content, of each status of a route, as FastAPI takes them."""


class RouteOptions(TypedDict, total=False):
    """What FastAPI's `APIRouter.get` takes besides the path."""

    status_code: int
    responses: Responses
    response_class: type[Response]
    dependencies: Sequence[Depends]
    include_in_schema: bool


def get_and_head(router: APIRouter, path: str, **options: Unpack[RouteOptions]) -> Callable[[_Endpoint], _Endpoint]:
    """Return a decorator that registers a route under both methods; the server omits the body of a response to HEAD."""
    without_bodies: Responses = {
        status: {"description": response["description"]} for status, response in options.get("responses", {}).items()
    }
    of_head: RouteOptions = {**options, "responses": without_bodies, "response_class": Response}

    def register(endpoint: _Endpoint) -> _Endpoint:
        router.get(path, **options)(endpoint)
        router.head(path, **of_head)(endpoint)
        return endpoint

    return register


_CHUNK_BYTES = 1 << 18


class FileResponse(Response):
    """The content of an open file; the file is closed after the response or when the client disconnects."""

    media_type = CONTENT_TYPE

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file = file
        self.headers["content-length"] = str(file.seek(0, 2))
        file.seek(0)

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        with self._file as file:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            while scope["method"] != "HEAD" and (chunk := await run_in_threadpool(file.read, _CHUNK_BYTES)):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
