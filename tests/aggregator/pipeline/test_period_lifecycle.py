"""Lifecycle of a period: open, closed, purged; a closed period accepts no batch."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hubbub import Definitions, Metric
from hubbub.summary import summary_from_bytes, summary_to_bytes
from hubbub_aggregator.database.engine import SQLITE_LOCK_POLL_SECONDS, open_postgres, open_sqlite
from hubbub_aggregator.database.location import is_postgres
from hubbub_aggregator.pipeline.folding import fold, read_summary
from hubbub_aggregator.pipeline.retention import counts_expire_at, upkeep
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.interface import AppendResult
from hubbub_aggregator.store.sql_store import SqlStore

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch, StartAggregator

CLOSES = datetime(2024, 7, 16, tzinfo=UTC)  # of 2024-06-15


@pytest.fixture
def metric(definitions: Definitions) -> Metric:
    return definitions["homepage"]


def num_ids(store: SqlStore) -> int:
    with store._engine.connect() as connection:
        return int(connection.exec_driver_sql("SELECT count(*) FROM batch").scalar_one())


def test_batch_ids_are_stored_until_their_period_closes(
    store: SqlStore, definitions: Definitions, metric: Metric, make_batch: MakeBatch
) -> None:
    store.append([make_batch(metric) for _ in range(5)] + [make_batch(metric, period="2024-06-16")])
    upkeep(store, definitions, Settings(), CLOSES - timedelta(microseconds=1))
    assert num_ids(store) == 6
    upkeep(store, definitions, Settings(), CLOSES)
    assert num_ids(store) == 1
    assert read_summary(store, metric).num_reports == 18


def test_closed_period_refuses_batches_of_every_process(store: SqlStore, metric: Metric, make_batch: MakeBatch) -> None:
    """A batch that was admitted just before its period closed may reach the store after its id has gone."""
    batch, other = make_batch(metric), make_batch(metric, period="2024-06-16")
    store.append([batch])
    store.close_period(metric, batch.period)
    assert store.append([batch, other]) == [AppendResult.CLOSED, AppendResult.STORED]
    assert not store.contains(batch)
    assert read_summary(store, metric).num_reports == 6


def test_summary_says_that_all_its_periods_are_closed(
    store: SqlStore, definitions: Definitions, metric: Metric, make_batch: MakeBatch
) -> None:
    """Counts that were taken while a period was open were published as complete, because a clock said that it had closed since."""
    days = ("2024-06-15", "2024-06-16")
    store.append([make_batch(metric, period=day) for day in days])
    assert not read_summary(store, metric).closed
    upkeep(store, definitions, Settings(), CLOSES)
    assert [read_summary(store, metric, [day]).closed for day in days] == [True, False]
    assert not read_summary(store, metric).closed
    assert not read_summary(store, metric, ["2024-06-17"]).closed
    upkeep(store, definitions, Settings(), CLOSES + timedelta(days=1))
    assert read_summary(store, metric).closed
    assert summary_from_bytes(summary_to_bytes(read_summary(store, metric))).closed


def test_upload_to_a_period_closed_by_the_store_is_answered_410(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch
) -> None:
    aggregator = start(store)
    batch = make_batch(aggregator.definitions["homepage"])
    assert aggregator.post(batch).status == 202
    store.close_period(aggregator.definitions["homepage"], batch.period)
    answer = aggregator.post(batch)
    assert (answer.status, answer.json["type"]) == (410, "/problems/period-closed")


def test_close_deletes_ids_in_small_transactions(store: SqlStore, metric: Metric, make_batch: MakeBatch) -> None:
    store.append([make_batch(metric, 1) for _ in range(2_500)])
    store.close_period(metric, "2024-06-15")
    assert num_ids(store) == 0
    assert read_summary(store, metric).num_reports == 2_500


def test_deletion_releases_the_lock_for_other_writers(database: str, metric: Metric, make_batch: MakeBatch) -> None:
    """SQLite's lock has no queue: without a pause an appending process waits until `database is locked` is raised."""
    resumed, pauses = 0.0, list[tuple[float, float]]()

    def pause(seconds: float) -> None:
        nonlocal resumed
        pauses.append((seconds, time.perf_counter() - resumed))
        resumed = time.perf_counter()

    engine = open_postgres(database) if is_postgres(database) else open_sqlite(Path(database))
    store = SqlStore(engine, pause=pause)
    store.append([make_batch(metric, 1) for _ in range(2_500)])
    fold(store, metric, keeps_reports=lambda _period: True)
    store.close_period(metric, "2024-06-15")
    assert len(pauses) == 3
    store.drop_reports(metric.digest, "2024-06-15")
    assert len(pauses) == 3 + 1, "it is one piece"
    assert all(
        SQLITE_LOCK_POLL_SECONDS < paused <= SQLITE_LOCK_POLL_SECONDS + since_the_last
        for paused, since_the_last in pauses
    )
    store.close()


def test_purge_deletes_counts_of_configured_metrics_only(
    store: SqlStore, definitions: Definitions, metric: Metric, make_batch: MakeBatch
) -> None:
    carrier = definitions["carrier"]
    store.append(
        [
            make_batch(batch_metric, period=day)
            for batch_metric in (metric, carrier)
            for day in ("2024-06-15", "2024-06-16")
        ]
    )
    settings = Settings(keep_counts={"homepage": 40})
    last = datetime(2024, 7, 26, tzinfo=UTC)  # 40 days after the 15th ended
    upkeep(store, definitions, settings, last - timedelta(microseconds=1))
    assert read_summary(store, metric).num_reports == 6
    upkeep(store, definitions, settings, last)
    assert read_summary(store, metric).periods == ("2024-06-16",)
    assert read_summary(store, carrier).num_reports == 6
    assert store.append([make_batch(metric)]) == [AppendResult.CLOSED], "purged, and still closed"


@pytest.mark.parametrize(
    ("name", "period", "keep", "until"),
    [
        ("homepage", "2024-06-15", 0, CLOSES),  # never before it is closed
        ("homepage", "2024-06-15", 30, CLOSES),
        ("homepage", "2024-06-15", 31, CLOSES + timedelta(days=1)),
        ("from_jfk", "2024-06-10", 10, datetime(2024, 8, 26, tzinfo=UTC)),
    ],
)
def test_keep_counts_is_counted_in_periods_after_the_end(
    definitions: Definitions, name: str, period: str, keep: int, until: datetime
) -> None:
    assert counts_expire_at(definitions[name], period, keep) == until


def test_data_of_removed_definitions_is_kept(
    store: SqlStore, definitions: Definitions, metric: Metric, make_batch: MakeBatch
) -> None:
    store.append([make_batch(metric, digest="0" * 64)])
    upkeep(store, definitions, Settings(), datetime(2030, 1, 1, tzinfo=UTC))
    assert store.open_periods() == [("0" * 64, "2024-06-15")]


def test_append_during_a_close_is_stored_or_refused(database: str, metric: Metric, make_batch: MakeBatch) -> None:
    """Several replicas append at the same time; each batch is sent until it is stored or refused, some again after the close."""
    stores = [SqlStore.open(database) for _ in range(4)]
    batches = [make_batch(metric, 1) for _ in range(120)]
    stores[0].append(batches[:5])

    def work(number: int) -> list[AppendResult]:
        if number == 0:
            stores[0].close_period(metric, batches[0].period)
            return []
        return [stores[number].append([batch])[0] for batch in batches]

    with ThreadPoolExecutor(len(stores)) as pool:
        results = list(pool.map(work, [1, 2, 3, 0]))[:3]
    stored = {n for n in range(120) if n < 5 or any(one[n] is AppendResult.STORED for one in results)}
    assert read_summary(stores[0], metric).num_reports == len(stored)
    assert num_ids(stores[0]) == 0
    assert stores[1].append(batches) == [AppendResult.CLOSED] * 120
    for store in stores:
        store.close()
