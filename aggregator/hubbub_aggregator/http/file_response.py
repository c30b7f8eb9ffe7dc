"""Response that streams an open file."""

from __future__ import annotations

from typing import IO

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from hubbub.summary.summary_file import CONTENT_TYPE

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
