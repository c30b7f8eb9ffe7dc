"""Failures of background jobs: logged with cause and recovery, counted, rate limited."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import event, insert

from hubbub_aggregator.database.engine import open_sqlite, transaction
from hubbub_aggregator.database.schema import refusal
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.monitoring.jobs import JOBS, JobHealth
from hubbub_aggregator.monitoring.log_output import RateLimitFilter
from hubbub_aggregator.store.sql_store import SqlStore
from tests.support.databases import new_postgres

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch, StartAggregator


def fail(job_health: JobHealth, problem: Exception) -> None:
    with job_health.guard("fold_and_expire"):
        raise problem


def succeed(job_health: JobHealth) -> None:
    with job_health.guard("fold_and_expire"):
        pass


def test_job_failure_is_logged_once_with_its_cause_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    job_health = JobHealth()
    succeed(job_health)
    assert caplog.records == []
    for problem in (
        StoreError("the disk is full: make room"),
        StoreError("the disk is full: make room"),
        OSError("private"),
        OSError(28, "No space left on device", "private"),
    ):
        fail(job_health, problem)
    succeed(job_health)
    succeed(job_health)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "fold_and_expire failed: the disk is full: make room"),
        ("ERROR", "fold_and_expire failed: the disk is full: make room"),
        ("ERROR", "fold_and_expire failed: OSError"),
        ("ERROR", "fold_and_expire failed: OSError (No space left on device)"),
        ("WARNING", "fold_and_expire works again"),
    ]
    assert (job_health.failures()["fold_and_expire"], job_health.failing()["fold_and_expire"]) == (4, 0)


def test_repeated_job_failure_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now, job_health = 0.0, JobHealth()
    logger = logging.getLogger("hubbub_aggregator.monitoring.jobs")
    once = RateLimitFilter(lambda: now)
    logger.addFilter(once)
    try:
        for _ in range(360):
            fail(job_health, StoreError("nobody answers"))
            now += 10
        succeed(job_health)
    finally:
        logger.removeFilter(once)
    assert len(caplog.records) == 61
    assert caplog.records[-1].getMessage() == "fold_and_expire works again"


def test_each_job_of_the_service_has_its_health(start: StartAggregator, sqlite_store: SqlStore) -> None:
    """A job without an entry would end its thread at its first run."""
    before = {thread.ident for thread in threading.enumerate()}
    start(sqlite_store)
    names = {thread.name for thread in threading.enumerate() if thread.ident not in before}
    started = {name.removeprefix("hubbub ") for name in names if name.startswith("hubbub ")}
    assert started & set(JOBS) == set(JOBS) - {"commit"}
    assert started <= set(JOBS)


def test_failing_upkeep_is_shown_in_metrics_and_dashboard(
    start: StartAggregator,
    sqlite_store: SqlStore,
    make_batch: MakeBatch,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def damaged(_digest: str) -> list[str]:
        raise StoreError("the database reported an error: database disk image is malformed")

    aggregator = start(sqlite_store, fold_interval=0.02)

    def number(name: str) -> int:
        lines = aggregator.get("/metrics").body.decode().splitlines()
        return int(
            float(next(line for line in lines if line.startswith(f'{name}{{job="fold_and_expire"}} ')).split()[-1])
        )

    def wait_until(failing: int) -> None:
        while number("hubbub_job_failing") != failing:
            time.sleep(0.01)

    assert number("hubbub_job_failures_total") == 0
    with monkeypatch.context() as broken:
        broken.setattr(sqlite_store, "unfolded", damaged)
        assert aggregator.post(make_batch(aggregator.definitions["homepage"])).status == 202
        wait_until(1)
        assert number("hubbub_job_failures_total") >= 1
        assert aggregator.post(make_batch(aggregator.definitions["homepage"])).status == 202
        assert aggregator.get("/readyz").status == 200
        assert (
            "This background job failed in the last run: <code>fold_and_expire</code>"
            in aggregator.get("/").body.decode()
        )
    wait_until(0)
    records = [record for record in caplog.records if record.name == "hubbub_aggregator.monitoring.jobs"]
    # without the names of metrics in brackets: the first round was under way
    messages = {record.getMessage().partition(" (")[0] for record in records}
    assert messages == {
        "fold_and_expire failed: the database reported an error: database disk image is malformed",
        "fold_and_expire works again",
    }
    assert "failing, the log" not in aggregator.get("/").body.decode()


def test_database_error_is_one_line_with_next_step_and_without_values(tmp_path: Path) -> None:
    SqlStore.open(tmp_path / "reports.db").close()
    engine = open_sqlite(tmp_path / "reports.db")
    values = [{"metric": f"canary{n}", "reason": "canary", "count": n} for n in range(9_999)]
    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count = 1"))
    with pytest.raises(StoreError) as full, transaction(engine, writes=True) as connection:
        connection.execute(insert(refusal), values)
    assert str(full.value) == "the database reported an error: database or disk is full: make room on its disk"
    engine.dispose()
    with pytest.raises(StoreError) as gone:
        SqlStore.open("postgresql://u:canary@127.0.0.1:1/y")
    assert "\n" not in str(gone.value)
    assert "\t" not in str(gone.value)
    for part in ('at "127.0.0.1", port 1 failed: Connection refused', "check that PostgreSQL runs"):
        assert part in str(gone.value)


def test_postgres_error_has_no_values_of_the_statement(postgres_url: str) -> None:
    """PostgreSQL's second line has the row: `DETAIL:  Key (metric, reason)=(...) already exists.`"""
    store = SqlStore.open(new_postgres(postgres_url))
    with (
        pytest.raises(StoreError, match="duplicate key value") as twice,
        transaction(store._engine, writes=True) as connection,
    ):
        connection.execute(insert(refusal), [{"metric": "canary", "reason": "canary", "count": 1}] * 2)
    store.close()
    assert "canary" not in str(twice.value)
