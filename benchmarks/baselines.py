"""Applications that the aggregator's ingestion is compared with, on the aggregator's own HTTP server.

    python -m benchmarks.baselines fastapi | raw | inserts [DATABASE]

fastapi : a FastAPI POST without a body model, which stores nothing
raw     : an ASGI application that receives the body, and stores nothing
inserts : the same, and a thread that stores all batches of a commit with the aggregator's statements, schema and pragmas. It checks
          nothing: this is the least that a batch can cost that is durable before its response, and counted once
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import NamedTuple

import msgspec
from fastapi import FastAPI, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from hubbub_aggregator.database.engine import DURABLE_PRAGMAS
from hubbub_aggregator.server.listener import bound_url, listen, run
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.sql_store import SqlStore

_COLLECTION = "INSERT INTO collection (id, metric, digest, period, revision, closed) VALUES (1, 'm', 'd', 'p', 0, 0)"
_INSERT = "INSERT INTO batch (collection_id, batch_id) VALUES (1, ?)"
_INSERT_REPORTS = "INSERT INTO segment (collection_id, cohorts, reports) VALUES (1, ?, ?)"
_MOST = 1_000  # batches of a commit


class _Body(msgspec.Struct):
    batch_id: str
    cohorts: list[int]
    bits: bytes


_decoder = msgspec.json.Decoder(_Body)


class _Queued(NamedTuple):
    batch_id: bytes
    cohorts: bytes
    rows: bytes
    stored: asyncio.Future[None]


async def _body(receive: Receive) -> bytes:
    message = await receive()
    body: bytes = message["body"]
    while message["more_body"]:
        message = await receive()
        body += message["body"]
    return body


async def _respond(send: Send) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"19")]
    await send({"type": "http.response.start", "status": 202, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"status":"stored"}'})


async def raw(scope: Scope, receive: Receive, send: Send) -> None:
    """Receive the body, and respond."""
    assert scope["type"] == "http"
    await _body(receive)
    await _respond(send)


class Inserts:
    """Stores each batch in a commit with all batches that arrived during the commit before."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._queue: SimpleQueue[_Queued] = SimpleQueue()
        SqlStore.open(database).close()
        Thread(target=self._run, daemon=True).start()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        fields = _decoder.decode(await _body(receive))
        batch_id = bytes.fromhex(fields.batch_id.replace("-", ""))
        stored = asyncio.get_running_loop().create_future()
        self._queue.put(_Queued(batch_id, bytes(fields.cohorts), fields.bits, stored))
        await stored
        await _respond(send)

    def _run(self) -> None:
        with closing(sqlite3.connect(self._database, isolation_level=None)) as connection:
            for statement in (*DURABLE_PRAGMAS, _COLLECTION):
                connection.execute(statement)
            while True:
                group = [self._queue.get()]
                with suppress(Empty):
                    while len(group) < _MOST:
                        group.append(self._queue.get_nowait())
                self._store(connection, group)
                group[0].stored.get_loop().call_soon_threadsafe(_resolve, group)

    def _store(self, connection: sqlite3.Connection, group: list[_Queued]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        ids = [queued.batch_id for queued in group]
        marks = ", ".join("?" * len(ids))
        query = f"SELECT batch_id FROM batch WHERE collection_id = 1 AND batch_id IN ({marks})"  # noqa: S608  (marks)
        known = {batch_id for (batch_id,) in connection.execute(query, ids)}
        new = {queued.batch_id: queued for queued in group if queued.batch_id not in known}
        connection.executemany(_INSERT, [(batch_id,) for batch_id in new])
        cohorts, rows = (b"".join(parts) for parts in zip(*(queued[1:3] for queued in new.values()), strict=True))
        connection.execute(_INSERT_REPORTS, (cohorts, rows))
        connection.execute("COMMIT")


def _resolve(group: list[_Queued]) -> None:
    for queued in group:
        if not queued.stored.done():  # the request was cancelled
            queued.stored.set_result(None)


def fastapi() -> FastAPI:
    """Return a FastAPI application with a POST that does nothing."""
    app = FastAPI()

    @app.post("/v1/reports", status_code=202)
    async def post(request: Request) -> dict[str, str]:
        await request.body()
        return {"status": "stored"}

    return app


def main() -> None:
    name, *database = sys.argv[1:]
    makers: dict[str, Callable[[], ASGIApp]] = {
        "fastapi": fastapi,
        "raw": lambda: raw,
        "inserts": lambda: Inserts(Path(*database)),
    }
    app = makers[name]()
    with listen("127.0.0.1", 0) as listener:
        run(
            app,
            [listener],
            Settings().connection_limits(),
            lambda: print("listening on", bound_url(listener), file=sys.stderr, flush=True),
        )


if __name__ == "__main__":
    main()
