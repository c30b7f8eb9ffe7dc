"""Overload: refused batches get Retry-After, acknowledged batches are stored."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest

from hubbub import Batch, Definitions
from hubbub.wire.problems import ProblemType
from hubbub_aggregator.api.ingest import IngestMiddleware, RawResponse
from hubbub_aggregator.app import create_app
from hubbub_aggregator.database.engine import open_sqlite
from hubbub_aggregator.store.interface import AppendResult
from hubbub_aggregator.store.sql_store import SqlStore

if TYPE_CHECKING:
    from tests.aggregator.conftest import Aggregator, MakeBatch, StartAggregator

ROOM, WEIGHT, SENT = 10, 1_024 + 3 + 9, 50
"""Number of batches that may wait; bytes that a batch of three reports occupies; number of batches sent."""


class SlowStore(SqlStore):
    """A store that commits nothing until its gate opens."""

    def __init__(self, path: Path) -> None:
        self.gate = Event()
        super().__init__(open_sqlite(path))

    def append(self, batches: Sequence[Batch]) -> list[AppendResult]:
        self.gate.wait()
        return super().append(batches)


def waiting(aggregator: Aggregator) -> int:
    lines = aggregator.get("/metrics").body.decode().splitlines()
    return next(int(float(line.split()[1])) for line in lines if line.startswith("hubbub_queue_bytes "))


def test_full_queue_refuses_batches_and_stores_acknowledged_ones(
    start: StartAggregator, make_batch: MakeBatch, tmp_path: Path, closed_last: ExitStack
) -> None:
    store = SlowStore(tmp_path / "reports.db")
    closed_last.callback(store.close)
    aggregator = start(store, max_queue_bytes=ROOM * WEIGHT)
    metric = aggregator.definitions["homepage"]
    batches = [make_batch(metric) for _ in range(SENT)]
    with ThreadPoolExecutor(SENT) as pool:
        answers = [pool.submit(aggregator.post, batch) for batch in batches]
        while sum(answer.done() for answer in answers) < SENT - ROOM:
            time.sleep(0.005)
        assert waiting(aggregator) == ROOM * WEIGHT
        refused = [answer.result() for answer in answers if answer.done()]
        assert all(answer.status == 503 and int(answer.headers["retry-after"]) > 0 for answer in refused)
        assert all(answer.json["type"] == "/problems/unavailable" for answer in refused)
        assert aggregator.stored() == 0
        store.gate.set()
        statuses = Counter(answer.result().status for answer in answers)
    assert statuses == {202: ROOM, 503: SENT - ROOM}
    assert aggregator.stored() == 3 * ROOM
    assert waiting(aggregator) == 0
    again = Counter(aggregator.post(batch).status for batch in batches)
    assert again == {200: ROOM, 202: SENT - ROOM}
    assert aggregator.stored() == 3 * SENT


def test_full_queue_refuses_batches_before_reading_the_body(
    start: StartAggregator, make_batch: MakeBatch, tmp_path: Path, closed_last: ExitStack
) -> None:
    store = SlowStore(tmp_path / "reports.db")
    closed_last.callback(store.close)
    aggregator = start(store, max_queue_bytes=WEIGHT)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(aggregator.post, make_batch(aggregator.definitions["homepage"]))
        while not waiting(aggregator):
            time.sleep(0.005)
        unread = aggregator.post(b"not even JSON").status
        store.gate.set()
        assert unread == 503
        assert first.result().status == 202
    assert aggregator.post(b"not even JSON").status == 400


def test_delays_at_most_64_refusals(
    definitions: Definitions, sqlite_store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 100 simultaneous refusals 64 are delayed; the others are sent immediately."""
    monkeypatch.setattr("hubbub_aggregator.api.ingest.REFUSAL_DELAY_SECONDS", 60.0)

    async def waiting() -> int:
        async def send(_message: object) -> None:
            pass

        refused = RawResponse(ProblemType.TOO_MANY.status, (), b"")
        middleware = IngestMiddleware(create_app(definitions, sqlite_store))
        tasks = [asyncio.create_task(middleware._respond(send, refused)) for _ in range(100)]
        await asyncio.sleep(0)
        await middleware._respond(send, refused._replace(status=503))
        left = sum(not task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        monkeypatch.setattr("hubbub_aggregator.api.ingest.REFUSAL_DELAY_SECONDS", 0.0)
        await middleware._respond(send, refused)  # the cancelled ones no longer count
        return left

    assert asyncio.run(waiting()) == 64
