"""Group commit: batches that arrive during a commit share the next one; responses wait for the commit."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest

from hubbub import Batch, Definitions, Metric, RefusedError
from hubbub.wire.problems import ProblemType
from hubbub_aggregator.database.engine import open_sqlite
from hubbub_aggregator.pipeline.folding import read_summary
from hubbub_aggregator.pipeline.group_commit import COMMIT_INTERVAL_SECONDS, GroupCommit
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.append import SqlAppender
from hubbub_aggregator.store.interface import AppendResult
from hubbub_aggregator.store.sql_store import SqlStore

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch

BATCH_BYTES = 1_024 + 3 + 9
"""Size of a queued batch of three reports."""


class GatedStore(SqlStore):
    """A store that commits nothing until its gate opens, and notes the size of each group."""

    def __init__(self, path: Path) -> None:
        self.gate = Event()
        self.groups: list[int] = []
        self.flawed = False
        super().__init__(open_sqlite(path), lambda engine: SqlAppender(engine, self._shuffles))

    def _shuffles(self, num_bytes: int) -> bytes:
        if self.flawed:
            raise OSError("no randomness, in the middle of a transaction")
        return os.urandom(num_bytes)

    def append(self, batches: Sequence[Batch]) -> list[AppendResult]:
        self.groups.append(len(batches))
        self.gate.wait()
        return super().append(batches)


@pytest.fixture
def gated(tmp_path: Path) -> GatedStore:
    return GatedStore(tmp_path / "reports.db")


@pytest.fixture
def metric(definitions: Definitions) -> Metric:
    return definitions["homepage"]


async def sent(writer: GroupCommit, batches: Sequence[Batch], gated: GatedStore) -> list[AppendResult | BaseException]:
    """Let the writer take the first batch, submit all others, then open the gate."""
    first = asyncio.create_task(writer.write(batches[0]))
    while not gated.groups:
        await asyncio.sleep(0.001)
    others = [asyncio.create_task(writer.write(batch)) for batch in batches[1:]]
    await asyncio.sleep(0)
    assert not first.done(), "no answer before the commit"
    gated.gate.set()
    return await asyncio.gather(first, *others, return_exceptions=True)


def test_batches_arriving_during_a_commit_share_the_next_commit(
    gated: GatedStore, metric: Metric, make_batch: MakeBatch
) -> None:
    async def scenario() -> None:
        writer = GroupCommit(gated, Settings())
        batches = [make_batch(metric, 2) for _ in range(20)]
        assert (
            await sent(writer, [*batches, batches[0], batches[7]], gated)
            == [AppendResult.STORED] * 20 + [AppendResult.DUPLICATE] * 2
        )
        await asyncio.to_thread(writer.close)

    asyncio.run(scenario())
    assert gated.groups == [1, 21]
    (holding,) = gated.read(metric.digest)
    assert (len(holding.segments), len(holding.cohorts)) == (2, 40)
    gated.close()


def test_only_a_batch_within_the_interval_of_the_commit_before_waits(
    gated: GatedStore, metric: Metric, make_batch: MakeBatch
) -> None:
    now, pauses = 100.0, list[float]()

    async def scenario() -> None:
        nonlocal now
        writer = GroupCommit(gated, Settings(), clock=lambda: now, pause=pauses.append)
        for elapsed in (0, COMMIT_INTERVAL_SECONDS / 4, COMMIT_INTERVAL_SECONDS):
            now += elapsed
            assert await writer.write(make_batch(metric)) is AppendResult.STORED
        await asyncio.to_thread(writer.close)

    gated.gate.set()
    asyncio.run(scenario())
    assert pauses == [pytest.approx(COMMIT_INTERVAL_SECONDS * 3 / 4)]
    gated.close()


def test_commit_takes_batches_until_it_has_max_commit_bytes(
    gated: GatedStore, metric: Metric, make_batch: MakeBatch
) -> None:
    async def scenario() -> None:
        writer = GroupCommit(gated, Settings(max_commit_bytes=4 * BATCH_BYTES))
        assert await sent(writer, [make_batch(metric) for _ in range(10)], gated) == [AppendResult.STORED] * 10
        await asyncio.to_thread(writer.close)

    asyncio.run(scenario())
    assert gated.groups == [1, 4, 4, 1]
    gated.close()


def test_full_queue_refuses_batches_until_there_is_room(
    gated: GatedStore, metric: Metric, make_batch: MakeBatch
) -> None:
    async def scenario() -> None:
        writer = GroupCommit(gated, Settings(max_queue_bytes=3 * BATCH_BYTES))
        results = await sent(writer, [make_batch(metric) for _ in range(5)], gated)
        assert results[:3] == [AppendResult.STORED] * 3
        for refused in results[3:]:
            assert isinstance(refused, RefusedError)
            assert refused.problem_type is ProblemType.UNAVAILABLE
        assert await writer.write(make_batch(metric))
        await asyncio.to_thread(writer.close)

    asyncio.run(scenario())
    assert read_summary(gated, metric).num_reports == 12
    gated.close()


def test_failed_commit_refuses_all_its_batches(
    gated: GatedStore, metric: Metric, make_batch: MakeBatch, caplog: pytest.LogCaptureFixture
) -> None:
    batches = [make_batch(metric) for _ in range(5)]

    async def scenario() -> None:
        writer = GroupCommit(gated, Settings())
        gated.flawed = True
        for refused in await sent(writer, batches, gated):
            assert isinstance(refused, RefusedError)
            assert refused.problem_type is ProblemType.UNAVAILABLE
        assert not any(gated.contains(batch) for batch in batches)
        gated.flawed = False
        assert [await writer.write(batch) for batch in batches] == [AppendResult.STORED] * 5, (
            "the same batches, sent again"
        )
        await asyncio.to_thread(writer.close)

    asyncio.run(scenario())
    assert read_summary(gated, metric).num_reports == 15
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["commit failed: OSError", "commit works again"]
    gated.close()


def test_failed_commit_refuses_the_whole_queue(gated: GatedStore, metric: Metric, make_batch: MakeBatch) -> None:
    """Otherwise the last of many commits would be refused only after all others have failed one after the other."""

    async def scenario() -> None:
        writer = GroupCommit(gated, Settings(max_commit_bytes=1))
        gated.flawed = True
        results = await sent(writer, [make_batch(metric) for _ in range(20)], gated)
        assert all(isinstance(refused, RefusedError) for refused in results)
        assert writer.queued_bytes == 0
        await asyncio.to_thread(writer.close)

    asyncio.run(scenario())
    assert gated.groups == [1]
    gated.close()


def test_close_stores_queued_batches(gated: GatedStore, metric: Metric, make_batch: MakeBatch) -> None:
    async def scenario() -> None:
        writer = GroupCommit(gated, Settings(max_commit_bytes=2 * BATCH_BYTES))
        tasks = [asyncio.create_task(writer.write(make_batch(metric))) for _ in range(7)]
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.01, gated.gate.set)
        await asyncio.to_thread(writer.close)
        assert await asyncio.gather(*tasks) == [AppendResult.STORED] * 7
        assert not writer.is_alive

    asyncio.run(scenario())
    assert read_summary(gated, metric).num_reports == 21
    gated.close()


def test_cancelled_request_does_not_affect_its_commit(gated: GatedStore, metric: Metric, make_batch: MakeBatch) -> None:
    async def scenario() -> None:
        writer = GroupCommit(gated, Settings())
        gone, stays = (asyncio.create_task(writer.write(make_batch(metric))) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        gated.gate.set()
        assert await stays
        await asyncio.to_thread(writer.close)

    asyncio.run(scenario())
    assert read_summary(gated, metric).num_reports == 6
    gated.close()
