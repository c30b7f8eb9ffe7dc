"""`/readyz`: uses the writer's last commit while it is fresh, else one probe that concurrent requests share."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hubbub.wire.problems import RefusedError
from hubbub_aggregator.api.health import FRESH_SECONDS, ReadinessCheck
from hubbub_aggregator.errors import FilesInDoubtError, StoreError
from hubbub_aggregator.store.sql_store import SqlStore

if TYPE_CHECKING:
    from hubbub_aggregator.pipeline.group_commit import GroupCommit
    from tests.aggregator.conftest import MakeBatch, StartAggregator


class FakeStore:
    """A store that counts its probes; it may be moved, and probes may fail."""

    probes, moved, fails = 0, False, False

    def require_intact(self) -> None:
        if self.moved:
            raise FilesInDoubtError("moved")

    def probe(self) -> None:
        self.probes += 1
        if self.fails:
            raise StoreError("the disk fails")


class ReadinessMachine(RuleBasedStateMachine):
    """Commits, failures, elapsed time and faults in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.store, self.disk = FakeStore(), SimpleNamespace(is_full=False)
        self.writer = SimpleNamespace(is_alive=True, stored_at=None)
        self.readiness = ReadinessCheck(cast(Any, self.store), cast(Any, self.disk), lambda: self.now)

    @rule(seconds=st.sampled_from([0.0, 1.0, FRESH_SECONDS, FRESH_SECONDS + 1e-6, 1e9]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(stored=st.booleans())
    def commit(self, stored: bool) -> None:
        self.writer.stored_at = self.now if stored else None

    @rule(name=st.sampled_from(["moved", "fails"]), value=st.booleans())
    def set_store(self, name: str, value: bool) -> None:
        setattr(self.store, name, value)

    @rule(full=st.booleans(), alive=st.booleans())
    def set_disk_and_writer(self, full: bool, alive: bool) -> None:
        self.disk.is_full, self.writer.is_alive = full, alive

    @invariant()
    def answers(self) -> None:
        before = self.store.probes
        stored_at = self.writer.stored_at
        fresh = stored_at is not None and self.now - stored_at <= FRESH_SECONDS
        healthy = not self.store.moved and not self.disk.is_full and self.writer.is_alive
        try:
            probe = self.readiness.require(cast(Any, self.writer))
            ready = probe is None or probe.exception() is None
        except (RefusedError, StoreError):
            ready = False
        assert ready == (healthy and (fresh or not self.store.fails))
        assert self.store.probes - before == (healthy and not fresh)

    def teardown(self) -> None:
        self.readiness.close()


ReadinessMachine.TestCase.settings = hypothesis_settings(max_examples=100)
TestReadiness = ReadinessMachine.TestCase


def test_readyz_returns_200_during_ingestion_and_slow_probes(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: on a slow disk the probe could not get SQLite's lock, so the response was 503 although batches were stored."""

    def locked() -> None:
        raise StoreError("the database is locked")

    aggregator = start(store)
    monkeypatch.setattr(store, "probe", locked)
    assert aggregator.get("/readyz").status == 503
    assert aggregator.post(make_batch(aggregator.definitions["homepage"])).status == 202
    assert aggregator.get("/readyz").status == 200
    monkeypatch.setattr(store, "append", lambda _batches: locked())
    assert aggregator.post(make_batch(aggregator.definitions["homepage"])).status == 503
    assert aggregator.get("/readyz").status == 503, "the last commit failed"


def test_concurrent_readyz_requests_share_one_probe(
    start: StartAggregator, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    aggregator, askers = start(store), 16
    go_on, all_started = threading.Event(), threading.Event()
    probes: list[int] = []
    requests_started: list[int] = []

    def probe() -> None:
        probes.append(1)
        assert go_on.wait(60)

    def counted(readiness: ReadinessCheck, writer: GroupCommit) -> Future[None] | None:
        found = require(readiness, writer)
        requests_started.append(1)
        if len(requests_started) == askers:
            all_started.set()
        return found

    require = ReadinessCheck.require
    monkeypatch.setattr(store, "probe", probe)
    monkeypatch.setattr(ReadinessCheck, "require", counted)
    with ThreadPoolExecutor(askers) as pool:
        answers = [pool.submit(aggregator.get, "/readyz") for _ in range(askers)]
        assert all_started.wait(60)
        assert aggregator.get("/livez").status == 200, "they take no thread from others"
        go_on.set()
        assert {answer.result().status for answer in answers} == {200}
    assert len(probes) == 1
