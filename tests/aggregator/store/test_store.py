"""Guarantees of `Store`, tested on both engines."""

from __future__ import annotations

import sqlite3
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hubbub import Definitions, Metric
from hubbub.summary import BitCounts, summary_to_bytes
from hubbub_aggregator.database.engine import open_sqlite
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.pipeline.folding import read_summary, summarize
from hubbub_aggregator.store.interface import AppendResult, StoredPeriod
from hubbub_aggregator.store.sql_store import SqlStore
from tests.support.crashing_store import dies, interrupts

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch


@pytest.fixture
def metric(definitions: Definitions) -> Metric:
    return definitions["homepage"]


def held(store: SqlStore, metric: Metric) -> list[StoredPeriod]:
    return list(store.read(metric.digest))


def test_empty_store_contains_nothing(store: SqlStore, metric: Metric, make_batch: MakeBatch) -> None:
    assert held(store, metric) == []
    assert store.unfolded(metric.digest) == []
    assert not store.contains(make_batch(metric))


def test_append_stores_one_segment_per_metric_version_and_period(
    store: SqlStore, definitions: Definitions, make_batch: MakeBatch
) -> None:
    homepage, carrier = definitions["homepage"], definitions["carrier"]
    batches = [
        make_batch(homepage),
        make_batch(carrier),
        make_batch(homepage, period="2024-06-14"),
        make_batch(homepage, n=5),
    ]
    assert store.append(batches) == [AppendResult.STORED] * 4
    yesterday, today = held(store, homepage)
    assert (yesterday.period, len(yesterday.segments), len(yesterday.cohorts)) == ("2024-06-14", 1, 3)
    assert (today.period, len(today.segments), len(today.cohorts)) == ("2024-06-15", 1, 8)
    (third,) = held(store, carrier)
    assert (len(third.segments), len(third.rows)) == (1, 3)


def test_repeated_batch_is_stored_once(store: SqlStore, metric: Metric, make_batch: MakeBatch) -> None:
    first, second = make_batch(metric), make_batch(metric)
    assert store.append([first, first]) == [AppendResult.STORED, AppendResult.DUPLICATE]
    assert store.append([first, second, second]) == [
        AppendResult.DUPLICATE,
        AppendResult.STORED,
        AppendResult.DUPLICATE,
    ]
    assert store.append([first]) == [AppendResult.DUPLICATE]
    assert store.contains(first)
    assert read_summary(store, metric).num_reports == 6
    assert len(held(store, metric)[0].segments) == 2, "nothing new, no segment"


def test_batch_id_is_unique_within_its_metric_version_and_period(
    store: SqlStore, definitions: Definitions, make_batch: MakeBatch
) -> None:
    batch_id = uuid.uuid4()
    first = make_batch(definitions["homepage"], batch_id=batch_id)
    assert store.append([first]) == [AppendResult.STORED]
    assert not store.contains(make_batch(definitions["carrier"], batch_id=batch_id))
    assert not store.contains(replace(first, period="2024-06-14"))


def test_concurrent_appends_of_one_batch_store_it_once(database: str, metric: Metric, make_batch: MakeBatch) -> None:
    batches = [make_batch(metric) for _ in range(8)]
    stores = [SqlStore.open(database) for _ in range(4)]
    with ThreadPoolExecutor(len(stores)) as pool:
        results = list(pool.map(lambda store: [store.append([batch])[0] for batch in batches], stores))
    assert [column.count(AppendResult.STORED) for column in zip(*results, strict=True)] == [1] * 8
    assert read_summary(stores[0], metric).num_reports == 24
    for store in stores:
        store.close()


def test_read_returns_the_appended_reports(store: SqlStore, definitions: Definitions, make_batch: MakeBatch) -> None:
    for metric in definitions.versions():
        batches = [make_batch(metric, n) for n in (1, 7, 300)]
        store.append(batches[:2])
        store.append(batches[2:])
        cohorts, rows = (b"".join(getattr(batch, part) for batch in batches) for part in ("cohorts", "rows"))
        summary = read_summary(store, metric)
        counted = summary if isinstance(summary, BitCounts) else summary.bit_counts()
        assert counted == BitCounts.from_rows(metric, cohorts, rows, ["2024-06-15"])


def test_read_takes_periods_and_stops_early(store: SqlStore, metric: Metric, make_batch: MakeBatch) -> None:
    for period in ("2024-06-13", "2024-06-14", "2024-06-14", "2024-06-15"):
        store.append([make_batch(metric, period=period)])
    periods_read = list(store.read(metric.digest, ["2024-06-14", "2024-06-13"], max_reports=3))
    assert [(read.period, len(read.segments)) for read in periods_read] == [("2024-06-13", 1), ("2024-06-14", 1)]
    assert list(store.read(metric.digest, [])) == []


def test_read_is_a_snapshot_of_one_moment(store: SqlStore, metric: Metric, make_batch: MakeBatch) -> None:
    store.append([make_batch(metric, period="2024-06-14"), make_batch(metric, period="2024-06-15")])
    reading = store.read(metric.digest)
    first = next(reading)
    store.append([make_batch(metric, period="2024-06-15")])
    (_, today) = held(store, metric)
    assert store.fold(today, summary_to_bytes(summarize(metric, today)))
    (second,) = reading
    assert (len(first.cohorts), len(second.cohorts), second.summary) == (3, 3, None)


def test_second_fold_of_the_same_segments_changes_nothing(
    store: SqlStore, metric: Metric, make_batch: MakeBatch
) -> None:
    store.append([make_batch(metric)])
    (holding,) = held(store, metric)
    summary = summary_to_bytes(summarize(metric, holding))
    assert store.fold(holding, summary)
    assert not store.fold(holding, summary)
    (folded,) = held(store, metric)
    assert (folded.segments, folded.revision) == ((), 1)
    assert not store.fold(replace(holding, revision=1), summary), "its segments are gone"
    assert held(store, metric) == [folded]


def test_append_that_fails_at_any_step_stores_nothing(store: SqlStore, metric: Metric, make_batch: MakeBatch) -> None:
    """Steps are instructions of SQLite, which may fail after its commit, too, or statements of PostgreSQL."""
    fails = interrupts if store._engine.dialect.name == "sqlite" else dies
    batches = [make_batch(metric), make_batch(metric)]
    failures = 0
    while fails(store._engine, failures, lambda: store.append(batches)) and not held(store, metric):
        failures += 1
    assert failures >= 3
    assert [len(stored.cohorts) for stored in held(store, metric)] == [6]
    assert store.append(batches) == [AppendResult.DUPLICATE] * 2


def test_fold_that_fails_after_any_statement_changes_nothing(
    store: SqlStore, metric: Metric, make_batch: MakeBatch
) -> None:
    store.append([make_batch(metric)])
    (holding,) = held(store, metric)
    summary = summary_to_bytes(summarize(metric, holding))
    deaths = 0
    while dies(store._engine, deaths, lambda: store.fold(holding, summary)):
        assert held(store, metric) == [holding]
        deaths += 1
    assert deaths >= 2
    assert store.unfolded(metric.digest) == []


def test_commit_is_durable_when_it_returns(tmp_path: Path) -> None:
    """synchronous = FULL (2) in WAL mode: SQLite documents that commits survive a power loss."""
    engine = open_sqlite(tmp_path / "reports.db")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
        assert connection.exec_driver_sql("PRAGMA secure_delete").scalar() == 1
    engine.dispose()  # it closes only connections that are not in use


def test_database_has_no_column_for_report_time_address_or_agent(sqlite_store: SqlStore, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "reports.db")) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {
            f"{name}.{column[1]}"
            for name in names
            if not name.startswith("sqlite_")
            for column in database.execute(f"PRAGMA table_info({name})")
        }
    database.close()
    assert columns == {
        "alembic_version.version_num",
        "hubbub_schema.oldest_compatible",
        "hubbub_schema.write_probes",
        "hubbub_schema.last_backup",  # an operator's time
        *(f"collection.{name}" for name in ("id", "metric", "digest", "period", "revision", "closed")),
        *("collection.summary", "collection.smallest_segment"),
        *(f"clock.{name}" for name in ("id", "generation", "credible", "candidate", "agreed", "boot_id", "elapsed")),
        *(f"collection.{name}" for name in ("figures_revision", "num_reports", "smallest_cohort", "implausible")),
        *("batch.collection_id", "batch.batch_id", "due_mark.collection_id"),
        *("refusal.metric", "refusal.reason", "refusal.count"),
        *("token.name", "token.secret_hash", "token.scopes"),
        *("token.created", "token.last_used", "token.expires"),  # UTC days
        *("session.secret_hash", "session.token", "session.expires"),  # of readers, never of clients
        *(
            f"{name}.{column}"
            for name in ("segment", "retained")
            for column in ("id", "collection_id", "cohorts", "reports")
        ),
    }


def test_open_refuses_a_file_that_is_not_a_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but somebody's notes, and long enough to have a header" * 9)
    before = path.read_bytes()
    with pytest.raises(
        StoreError, match=r"notes\.txt: the database reported an error: file is not a database: give the --database of"
    ):
        SqlStore.open(path)
    assert path.read_bytes() == before


def test_store_keeps_data_after_its_process_ends(database: str, metric: Metric, make_batch: MakeBatch) -> None:
    batch = make_batch(metric)
    for expected in (AppendResult.STORED, AppendResult.DUPLICATE):
        store = SqlStore.open(database)
        assert store.append([batch]) == [expected]
        store.close()


def test_open_waits_for_a_process_that_creates_the_file(tmp_path: Path) -> None:
    """SQLite does not wait when the journal mode changes: without a retry a worker ended with `database is locked`."""
    other = sqlite3.connect(tmp_path / "new.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    done = threading.Timer(0.2, lambda: other.execute("COMMIT"))
    done.start()
    with closing(SqlStore.open(tmp_path / "new.db")) as store:
        assert store.tokens() == []
    done.join()
    other.close()
