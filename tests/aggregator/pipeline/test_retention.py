"""Retained reports: stored once in addition to the counts, sorted, exported, and deleted when due."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from sqlalchemy import event

from hubbub import Batch, Definitions, Metric
from hubbub.cli import main
from hubbub.errors import ParameterError
from hubbub.summary import Reports, read_reports, reports_from_bytes, summary_to_bytes
from hubbub_aggregator.database.engine import checkpoint, open_sqlite, transaction, truncate_wal
from hubbub_aggregator.pipeline import report_export as reports_module
from hubbub_aggregator.pipeline.folding import fold, read_summary, summarize
from hubbub_aggregator.pipeline.report_export import write_reports
from hubbub_aggregator.pipeline.retention import upkeep
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store import sql_store
from hubbub_aggregator.store.interface import AppendResult
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_aggregator.store.tokens import Scope, Token, hash_secret
from hubbub_decoder.data.pull import pull_reports
from hubbub_decoder.errors import PullError
from tests.support.crashing_store import dies

if TYPE_CHECKING:
    from tests.aggregator.conftest import Aggregator, MakeBatch, StartAggregator

TODAY, YESTERDAY = "2024-06-15", "2024-06-14"
RETAIN = Settings(keep_reports={"homepage": 2, "carrier": 2})


@pytest.fixture
def metric(definitions: Definitions) -> Metric:
    return definitions["homepage"]


def fold_retaining(store: SqlStore, metric: Metric, max_reports: int = 1 << 20) -> None:
    fold(store, metric, max_reports, keeps_reports=lambda _period: True)


def held(store: SqlStore, metric: Metric, *periods: str) -> Reports:
    sink = io.BytesIO()
    write_reports(store, metric, periods or (YESTERDAY, TODAY), sink)
    return reports_from_bytes(sink.getvalue())


def sent(*batches: Batch) -> list[tuple[int, bytes]]:
    """Return the reports of batches, sorted."""
    width = len(batches[0].rows) // len(batches[0])
    return sorted(
        (cohort, batch.rows[width * i : width * (i + 1)]) for batch in batches for i, cohort in enumerate(batch.cohorts)
    )


def pairs(reports: Reports) -> list[tuple[int, bytes]]:
    return [(int(cohort), row.tobytes()) for cohort, row in zip(reports.cohorts, reports.rows, strict=True)]


@pytest.mark.parametrize("name", ["homepage", "carrier"])
def test_retained_reports_equal_the_counts(
    store: SqlStore, definitions: Definitions, make_batch: MakeBatch, name: str
) -> None:
    metric = definitions[name]
    batches = [make_batch(metric, n, period=day) for n in (1, 7, 60) for day in (TODAY, YESTERDAY)]
    for number, batch in enumerate(batches):
        store.append([batch, make_batch(definitions["from_jfk"], period="2024-06-10")])
        if number % 2:
            fold_retaining(store, metric, max_reports=3)
        reports = held(store, metric)
        assert sorted(pairs(reports)) == sent(*batches[: number + 1])
        counts = read_summary(store, metric)
        assert (reports.pattern_counts() if name == "carrier" else reports.bit_counts()) == counts
    fold_retaining(store, metric)
    assert sorted(pairs(held(store, metric, TODAY))) == sent(*batches[::2])
    assert held(store, metric, TODAY).periods == (TODAY,)
    assert held(store, metric, "2024-01-01").num_reports == 0


def test_fold_without_keep_reports_stores_counts_only(store: SqlStore, metric: Metric, make_batch: MakeBatch) -> None:
    store.append([make_batch(metric)])
    fold(store, metric)
    assert store.periods_with_reports(metric.digest) == []
    assert held(store, metric).num_reports == 0
    assert read_summary(store, metric).num_reports == 3


def test_second_fold_of_the_same_segments_retains_nothing(
    store: SqlStore, metric: Metric, make_batch: MakeBatch
) -> None:
    batch = make_batch(metric)
    store.append([batch])
    (holding,) = store.read(metric.digest)
    summary = summary_to_bytes(summarize(metric, holding))
    assert [store.fold(holding, summary, retain=True) for _ in range(2)] == [True, False]
    assert pairs(held(store, metric)) == sent(batch)


def test_fold_that_fails_after_any_statement_retains_nothing(
    store: SqlStore, metric: Metric, make_batch: MakeBatch
) -> None:
    batch = make_batch(metric)
    store.append([batch])
    (holding,) = store.read(metric.digest)
    summary = summary_to_bytes(summarize(metric, holding))
    deaths = 0
    while dies(store._engine, deaths, lambda: store.fold(holding, summary, retain=True)):
        assert pairs(held(store, metric)) == sent(batch)
        assert store.unfolded(metric.digest) == [TODAY]
        deaths += 1
    assert deaths >= 4
    assert store.unfolded(metric.digest) == []
    assert pairs(held(store, metric)) == sent(batch)


def test_report_file_does_not_depend_on_the_order_of_arrival(
    tmp_path: Path, metric: Metric, make_batch: MakeBatch
) -> None:
    """The bytes do not depend on the order in which reports arrive, are committed and are folded."""
    batches = [make_batch(metric, n) for n in (5, 1, 30, 2)]
    files = []
    for number, order in enumerate([(0, 1, 2, 3), (3, 1, 0, 2)]):
        store = SqlStore.open(tmp_path / f"{number}.db")
        for index in order:
            store.append([batches[index]])
            if index == number:
                fold_retaining(store, metric)
        sink = io.BytesIO()
        write_reports(store, metric, [TODAY], sink)
        files.append(sink.getvalue())
        assert pairs(reports_from_bytes(sink.getvalue())) == sent(*batches)
        store.close()
    assert files[0] == files[1]


def test_retained_reports_are_stored_sorted(sqlite_store: SqlStore, metric: Metric, make_batch: MakeBatch) -> None:
    batches = [make_batch(metric, n) for n in (5, 1, 30)]
    for batch in batches:
        sqlite_store.append([batch])
    fold_retaining(sqlite_store, metric)
    with sqlite_store.reports(metric.digest, [TODAY]) as reports:
        ((cohorts, rows),) = reports.blocks()
    assert [(cohorts[i], rows[3 * i : 3 * i + 3]) for i in range(36)] == sent(*batches)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports_module, "_MAX_PART_BYTES", 4_000)
    monkeypatch.setattr(sql_store, "_REPORTS_PER_BLOCK", 100)


@pytest.mark.usefixtures("small_parts")
def test_large_report_file_has_random_sorted_parts(store: SqlStore, metric: Metric, make_batch: MakeBatch) -> None:
    """3,000 reports of 4 bytes are three parts; those of the first segment are a third of each, of chance 1/3 (alpha 1e-6)."""
    first, others = make_batch(metric, 1_000), [make_batch(metric, 1_000) for _ in range(2)]
    store.append([first])
    fold_retaining(store, metric)
    for batch in others:
        store.append([batch])
    fold_retaining(store, metric)
    sink = io.BytesIO()
    write_reports(store, metric, [TODAY], sink)
    file = pq.ParquetFile(sink)
    assert file.num_row_groups == 3
    parts = [
        list(zip(part["cohort"].to_pylist(), part["bits"].to_pylist(), strict=True))
        for part in map(file.read_row_group, range(3))
    ]
    assert all(part == sorted(part) for part in parts)
    assert sorted(pair for part in parts for pair in part) == sent(first, *others)
    sent_pairs = set(sent(first))
    for part in parts:
        assert abs(sum(pair in sent_pairs for pair in part) - 1_000 / 3) < 4.9 * np.sqrt(1_000 * 2 / 9) + 5


@pytest.mark.slow
def test_report_export_needs_bounded_memory(
    store: SqlStore, metric: Metric, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8 MB of reports in parts of 1 MB."""
    monkeypatch.setattr(reports_module, "_MAX_PART_BYTES", 1 << 20)
    n = 250_000
    for number in range(8):
        rows = np.arange(n * metric.row_bytes, dtype=np.uint32) % (7 + number)  # fits the padding
        store.append([make_batch(metric, 0, cohorts=bytes(n), rows=rows.astype(np.uint8).tobytes())])
        fold_retaining(store, metric)
    tracemalloc.start()
    with Path("/dev/null").open("wb") as sink:
        write_reports(store, metric, [TODAY], sink)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 << 20


def test_keep_reports_deletes_reports_and_keeps_counts(
    store: SqlStore, definitions: Definitions, metric: Metric, make_batch: MakeBatch
) -> None:
    batches = [make_batch(metric, period=day) for day in (YESTERDAY, TODAY)]
    store.append([*batches, make_batch(definitions["from_jfk"], period="2024-06-10")])
    last = datetime(2024, 6, 17, tzinfo=UTC)  # two days after the 14th ended
    upkeep(store, definitions, RETAIN, last - timedelta(microseconds=1))
    assert store.unfolded(metric.digest) == []
    assert sorted(pairs(held(store, metric))) == sent(*batches)
    assert store.periods_with_reports(definitions["from_jfk"].digest) == []
    upkeep(store, definitions, RETAIN, last)
    assert store.periods_with_reports(metric.digest) == [TODAY]
    assert pairs(held(store, metric)) == sent(batches[1])
    assert read_summary(store, metric).num_reports == 6
    store.append([make_batch(metric, period=YESTERDAY)])
    upkeep(store, definitions, RETAIN, last)
    assert store.periods_with_reports(metric.digest) == [TODAY], "late reports are counted, not retained"
    assert read_summary(store, metric).num_reports == 9


@pytest.mark.usefixtures("small_parts")
def test_interrupted_deletion_of_reports_continues(store: SqlStore, metric: Metric, make_batch: MakeBatch) -> None:
    store.append([make_batch(metric, 1_000), make_batch(metric, 5, period=YESTERDAY)])
    fold_retaining(store, metric)
    assert dies(store._engine, 7, lambda: store.drop_reports(metric.digest, TODAY))
    left = held(store, metric, TODAY).num_reports
    assert left in range(100, 1_000, 100)
    commits: list[object] = []
    event.listen(store._engine, "commit", commits.append)
    store.drop_reports(metric.digest, TODAY)
    assert len(commits) == left / 100, "a transaction for each block"
    assert store.periods_with_reports(metric.digest) == [YESTERDAY]
    assert read_summary(store, metric).num_reports == 1_005


def test_dropped_reports_are_overwritten_in_the_file(
    sqlite_store: SqlStore, tmp_path: Path, metric: Metric, make_batch: MakeBatch
) -> None:
    canary = bytes([0xCA, 0xFE, 0x0B]) * 2_000
    sqlite_store.append([make_batch(metric, 0, cohorts=bytes(2_000), rows=canary)])
    fold_retaining(sqlite_store, metric)
    sqlite_store.drop_reports(metric.digest, TODAY)
    sqlite_store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["reports.db"]
    assert canary[:9] not in (tmp_path / "reports.db").read_bytes()


def test_deletion_checkpoints_its_own_changes(
    sqlite_store: SqlStore, tmp_path: Path, metric: Metric, make_batch: MakeBatch
) -> None:
    file, canary = tmp_path / "reports.db", bytes([0xCA, 0xFE, 0x0B]) * 2_000
    sqlite_store.append([make_batch(metric, 0, cohorts=bytes(2_000), rows=canary)])
    fold_retaining(sqlite_store, metric)
    checkpoint(sqlite_store._engine)
    assert canary[:9] in file.read_bytes()
    sqlite_store.drop_reports(metric.digest, TODAY)
    assert canary[:9] not in file.read_bytes()


def test_purged_data_is_in_no_file_while_others_are_connected(
    sqlite_store: SqlStore, tmp_path: Path, metric: Metric, make_batch: MakeBatch
) -> None:
    """Without a checkpoint it would stay in the write-ahead log until the aggregator ends."""
    canary = bytes([0xCA, 0xFE, 0x0B]) * 2_000
    other = SqlStore.open(str(tmp_path / "reports.db"))
    assert other.open_periods() == []
    sqlite_store.append([make_batch(metric, 0, cohorts=bytes(2_000), rows=canary)])
    fold_retaining(sqlite_store, metric)
    sqlite_store.close_period(metric, TODAY)
    sqlite_store.purge(metric.digest, TODAY)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["reports.db", "reports.db-shm", "reports.db-wal"]
    assert not any(canary[:9] in file.read_bytes() for file in files)
    other.close()


def test_purge_does_not_wait_for_readers(tmp_path: Path, metric: Metric, make_batch: MakeBatch) -> None:
    pauses: list[float] = []
    engine = open_sqlite(tmp_path / "reports.db")
    SqlStore.open(str(tmp_path / "reports.db")).close()
    store = SqlStore(engine, pause=pauses.append)
    store.append([make_batch(metric)])
    store.close_period(metric, TODAY)
    before = len(pauses)
    with transaction(engine, writes=False) as reading:
        reading.exec_driver_sql("SELECT count(*) FROM collection").scalar()
        store.purge(metric.digest, TODAY)  # not visible to that reader yet
        assert not truncate_wal(engine)
        assert store.append([make_batch(metric, period="2024-06-16")]) == [AppendResult.STORED]
    assert len(pauses) - before > 10
    assert truncate_wal(engine)
    with closing(engine.raw_connection()) as connection:
        assert connection.cursor().execute("PRAGMA busy_timeout").fetchall() == [(10_000,)]
    store.close()


def test_purge_deletes_retained_reports(store: SqlStore, metric: Metric, make_batch: MakeBatch) -> None:
    store.append([make_batch(metric)])
    fold_retaining(store, metric)
    store.purge(metric.digest, TODAY)
    assert held(store, metric).num_reports == 3, "it is open"
    store.close_period(metric, TODAY)
    store.purge(metric.digest, TODAY)
    assert held(store, metric).num_reports == 0
    assert store.periods_with_reports(metric.digest) == []


def test_smallest_segment_is_stored_while_its_reports_are_retained(
    store: SqlStore, metric: Metric, make_batch: MakeBatch
) -> None:
    assert store.smallest_segment(metric.digest, TODAY) is None
    sizes = []
    for n, folds in ((9, False), (5, True), (7, True), (6, True), (4, False)):
        store.append([make_batch(metric, n)])
        if folds:
            fold_retaining(store, metric)
        sizes.append(store.smallest_segment(metric.digest, TODAY))
    assert sizes == [9, 5, 5, 5, 4]
    fold(store, metric)
    assert store.smallest_segment(metric.digest, TODAY) == 5
    assert store.smallest_segment(metric.digest, YESTERDAY) is None
    store.drop_reports(metric.digest, TODAY)
    assert store.smallest_segment(metric.digest, TODAY) is None


@pytest.fixture
def retaining(start: StartAggregator, store: SqlStore) -> Aggregator:
    return start(store, keep_reports={"homepage": 2, "from_jfk": 1}, fold_interval=0.02)


def test_reports_are_exported_over_http_and_pulled(
    retaining: Aggregator, metric: Metric, make_batch: MakeBatch, tmp_path: Path
) -> None:
    batches = [make_batch(metric, 20, period=day) for day in (YESTERDAY, TODAY)]
    for batch in batches:
        assert retaining.post(batch).status == 202
    answer = retaining.get("/v1/metrics/homepage/reports")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/vnd.apache.parquet"
    assert int(answer.headers["content-length"]) == len(answer.body)
    reports = reports_from_bytes(answer.body)
    assert (reports.metric, reports.periods) == (metric, (YESTERDAY, TODAY))
    assert pairs(reports) == sent(*batches)

    file = pull_reports(retaining.url, "homepage", tmp_path / "r.parquet", periods=[TODAY], digest=metric.digest)
    assert file.num_reports == 20
    assert pairs(read_reports(tmp_path / "r.parquet")) == sent(batches[1])
    arguments = [
        "pull",
        retaining.url,
        "homepage",
        "--content",
        "reports",
        "--json",
        "--out",
        str(tmp_path / "c.parquet"),
    ]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert '"num_reports": 40' in done.stdout
    refused = CliRunner().invoke(main, ["pull", retaining.url, "homepgae", "--out", str(tmp_path / "c.parquet")])
    assert refused.exit_code == 1
    assert "answered 404: no metric 'homepgae' is defined here. Did you mean 'homepage'?" in refused.output
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".parquet") == ["c.parquet", "r.parquet"]


def test_expired_reports_are_not_exported(
    start: StartAggregator, store: SqlStore, metric: Metric, make_batch: MakeBatch
) -> None:
    aggregator = start(store, keep_reports={"homepage": 2}, fold_interval=1000)
    store.append([make_batch(metric, period=YESTERDAY), make_batch(metric)])
    fold_retaining(store, metric)
    aggregator.clock.now = datetime(2024, 6, 17, tzinfo=UTC)
    for query, periods in (("", (TODAY,)), (f"?period={YESTERDAY}", ()), (f"?period={TODAY}", (TODAY,))):
        assert reports_from_bytes(aggregator.get(f"/v1/metrics/homepage/reports{query}").body).periods == periods


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        (
            "carrier/reports",
            404,
            "reports of carrier are neither retained nor exported; `hubbub serve --keep-reports carrier=N` does both",
        ),
        ("nothing/reports", 404, "no metric 'nothing' is defined here. /v1/metrics lists all"),
        (
            "homepgae/reports",
            404,
            "no metric 'homepgae' is defined here. Did you mean 'homepage'? /v1/metrics lists all",
        ),
        ("homepage/reports?digest=0", 422, "digest: homepage has no version '0'"),
        ("homepage/reports?period=2024-6-1", 422, "period must be a date"),
        ("from_jfk/reports?period=2024-06-15", 422, "period must be the first day of a week"),
    ],
)
def test_export_without_reports_names_the_reason(
    retaining: Aggregator, path: str, status: int, message: str, tmp_path: Path
) -> None:
    answer = retaining.get(f"/v1/metrics/{path}")
    assert answer.status == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert message in answer.json["detail"]
    if status == 404:
        with pytest.raises(PullError, match="answered 404"):
            pull_reports(retaining.url, path.split("/")[0], tmp_path / "none.parquet")
        assert not list(tmp_path.glob("none*"))


def test_export_needs_the_read_scope(start: StartAggregator, store: SqlStore) -> None:
    aggregator = start(store, keep_reports={"homepage": 2}, local_reads_without_token=False)
    for name, scope in (("r", Scope.READ), ("m", Scope.METRICS)):
        store.add_token(Token(name, frozenset([scope])), hash_secret(f"hubbub_{name}"))
    statuses = [
        aggregator.get("/v1/metrics/homepage/reports", **headers).status
        for headers in ({}, {"authorization": "Bearer hubbub_m"}, {"authorization": "Bearer hubbub_r"})
    ]
    assert statuses == [401, 403, 200]


def test_concurrent_report_export_is_refused_with_503(retaining: Aggregator, monkeypatch: pytest.MonkeyPatch) -> None:
    with reports_module._only_export():
        answer = retaining.get("/v1/metrics/homepage/reports")
    assert (answer.status, answer.json["type"]) == (503, "/problems/unavailable")
    assert "retry-after" in answer.headers
    assert retaining.get("/v1/metrics/homepage/reports").status == 200


def test_export_on_a_full_disk_is_507(retaining: Aggregator, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **_named: Any) -> Iterator[None]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(reports_module, "write_reports", full)
    assert retaining.get("/v1/metrics/homepage/reports").status == 507


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keep_reports": {"homepage": -1}}, "keep_reports must be 0 to 10000 periods, got -1 for homepage"),
        ({"keep_counts": {"homepage": 10_001}}, "keep_counts must be 0 to 10000 periods, got 10001 for homepage"),
        ({"keep_counts": {"homepage": 30}, "keep_reports": {"homepage": 31}}, "reports do not outlive their counts"),
    ],
)
def test_invalid_keep_options_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Settings(**settings)
