"""Folding: reads return the same summaries before and after it."""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub import Batch, Definitions, Metric, Params, UnaryResponse
from hubbub.summary import BitCounts, Summary
from hubbub.summary.pattern_counts import PatternCounts
from hubbub_aggregator.monitoring.jobs import PeriodicJob
from hubbub_aggregator.pipeline.folding import fold, read_summary, summary_type
from hubbub_aggregator.pipeline.retention import upkeep
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.interface import AppendResult
from hubbub_aggregator.store.sql_store import SqlStore

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch

METRICS = (
    Metric.string("wide", Params(num_bits=19, num_hashes=2, num_cohorts=4, prob_p=0.25, prob_q=0.75, prob_f=0.5)),
    Metric.string("narrow", Params(num_bits=9, num_hashes=2, num_cohorts=2, prob_p=0.25, prob_q=0.75, prob_f=0.5)),
    Metric.boolean("one", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5)),
)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    metric = draw(st.sampled_from(METRICS))
    reports = draw(
        st.lists(
            st.tuples(st.integers(0, metric.num_cohorts - 1), st.integers(0, 2**metric.num_bits - 1)),
            min_size=1,
            max_size=6,
        )
    )
    return Batch(
        batch_id=draw(st.uuids(version=4)),
        metric=metric.name,
        digest=metric.digest,
        period=draw(st.sampled_from(["2024-06-14", "2024-06-15"])),
        cohorts=bytes(cohort for cohort, _ in reports),
        rows=b"".join(bits.to_bytes(metric.row_bytes, "little") for _, bits in reports),
    )


def counted(metric: Metric, stored: Sequence[Batch]) -> Summary:
    """Return the expected result of a read, computed from the batches."""
    own = [batch for batch in stored if batch.digest == metric.digest]
    cohorts, rows = b"".join(batch.cohorts for batch in own), b"".join(batch.rows for batch in own)
    return summary_type(metric).from_rows(metric, cohorts, rows, {batch.period for batch in own})


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.one_of(st.lists(batches(), min_size=1, max_size=4), st.integers(1, 12)), max_size=10))
def test_read_summary_equals_the_sum_of_all_reports_at_any_time(steps: list[list[Batch] | int]) -> None:
    """A step appends a group of batches, or folds in pieces of a number of reports; all reads agree after each step."""
    with tempfile.TemporaryDirectory() as folder:
        store = SqlStore.open(Path(folder) / "reports.db")
        stored: dict[uuid.UUID, Batch] = {}
        for step in steps:
            if isinstance(step, int):
                for metric in METRICS:
                    fold(store, metric, max_reports=step)
                    assert store.unfolded(metric.digest) == []
            else:
                store.append(step)
                for batch in step:
                    stored.setdefault(batch.batch_id, batch)
            for metric in METRICS:
                assert read_summary(store, metric) == counted(metric, list(stored.values()))
        store.close()


def test_summary_type_is_pattern_counts_up_to_16_bits() -> None:
    assert [summary_type(metric) for metric in METRICS] == [BitCounts, PatternCounts, PatternCounts]


def test_fold_keeps_batch_ids(store: SqlStore, definitions: Definitions, make_batch: MakeBatch) -> None:
    metric = definitions["homepage"]
    batch = make_batch(metric)
    store.append([batch])
    fold(store, metric)
    assert store.append([batch]) == [AppendResult.DUPLICATE]
    assert read_summary(store, metric).num_reports == 3


def test_fold_in_pieces_leaves_nothing(sqlite_store: SqlStore, definitions: Definitions, make_batch: MakeBatch) -> None:
    metric = definitions["homepage"]
    for _ in range(3):
        sqlite_store.append([make_batch(metric)])
    fold(sqlite_store, metric, max_reports=4)
    assert sqlite_store.unfolded(metric.digest) == []
    assert read_summary(sqlite_store, metric).num_reports == 9


def test_fold_job_continues_after_a_failure(
    store: SqlStore,
    definitions: Definitions,
    make_batch: MakeBatch,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    metric = definitions["carrier"]
    failures = iter([RuntimeError("a private value")])
    unfolded = store.unfolded

    def fails_once(digest: str) -> list[str]:
        for failure in failures:
            raise failure
        return unfolded(digest)

    monkeypatch.setattr(store, "unfolded", fails_once)
    store.append([make_batch(metric)])
    job = PeriodicJob(
        "fold_and_expire", lambda: upkeep(store, definitions, Settings(), datetime(2024, 6, 15, tzinfo=UTC)), 0.01
    )
    while unfolded(metric.digest):
        time.sleep(0.01)
    job.close()
    assert read_summary(store, metric).num_reports == 3
    assert "fold_and_expire failed: RuntimeError (carrier)" in caplog.text
    assert "private" not in caplog.text
