"""Random sequences of appends, folds, closes, purges and restarts, compared with a simple model."""

from __future__ import annotations

import io
import tempfile
import uuid
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from hubbub import Batch, Definitions, Metric, UnaryResponse
from hubbub.summary import BitCounts, reports_from_bytes, summary_from_bytes, summary_to_bytes
from hubbub_aggregator.pipeline.folding import compute_figures, fold, read_summary, summarize
from hubbub_aggregator.pipeline.report_export import write_reports
from hubbub_aggregator.pipeline.retention import counts_expire_at, upkeep
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.interface import AppendResult, StoredPeriod
from hubbub_aggregator.store.period_figures import PeriodFigures, figures_of
from hubbub_aggregator.store.sql_store import SqlStore

NUM_BITS, FIRST = 24, date(2024, 6, 1)
METRICS = [
    Metric.categorical(name, tuple(map(str, range(NUM_BITS))), UnaryResponse(prob_p=0, prob_q=1, prob_f=0))
    for name in ("all", "brief")
]
LIMITS = Settings(keep_counts={"brief": 31}, keep_reports={"all": 1_000})


class StoreMachine(RuleBasedStateMachine):
    """A store on disk and its model, a dictionary from batch id to batch of all batches that must be counted."""

    batches, holdings = Bundle("batches"), Bundle("holdings")

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(prefix="hubbub-machine-")
        self.path = Path(self.directory.name) / "reports.db"
        self.store = SqlStore.open(self.path)
        self.now = datetime(2024, 6, 30, tzinfo=UTC)
        self.counted: dict[uuid.UUID, Batch] = {}
        self.closed: set[tuple[str, str]] = set()

    @rule(
        target=batches,
        metric=st.sampled_from(METRICS),
        day=st.integers(0, 4),
        bits=st.lists(st.integers(0, NUM_BITS - 1), min_size=1, max_size=3),
        batch_id=st.uuids(version=4),
    )
    def form(self, metric: Metric, day: int, bits: list[int], batch_id: uuid.UUID) -> Batch:
        rows = b"".join((1 << bit).to_bytes(metric.row_bytes, "little") for bit in bits)
        period = str(FIRST + timedelta(days=day))
        return Batch(batch_id, metric.name, metric.digest, period, bytes(len(bits)), rows)

    @rule(sent=st.lists(batches, min_size=1, max_size=5))
    def append(self, sent: list[Batch]) -> None:
        """Some of them for the second or third time, and more than once in one group."""
        for batch, appended in zip(sent, self.store.append(sent), strict=True):
            if (batch.digest, batch.period) in self.closed:
                assert appended is AppendResult.CLOSED
            elif batch.batch_id in self.counted:
                assert appended is AppendResult.DUPLICATE
            else:
                assert appended is AppendResult.STORED
                self.counted[batch.batch_id] = batch

    @rule(batch=batches)
    def ask(self, batch: Batch) -> None:
        is_open = (batch.digest, batch.period) not in self.closed
        assert self.store.contains(batch) is (is_open and batch.batch_id in self.counted)

    @rule(metric=st.sampled_from(METRICS), most=st.integers(1, 5))
    def fold_now(self, metric: Metric, most: int) -> None:
        fold(self.store, metric, most, keeps_reports=lambda _period: metric.name in LIMITS.keep_reports)
        assert self.store.unfolded(metric.digest) == []

    @rule(target=holdings, metric=st.sampled_from(METRICS), most=st.integers(1, 5))
    def begin_a_fold(self, metric: Metric, most: int) -> list[StoredPeriod]:
        return list(self.store.read(metric.digest, max_reports=most))

    @rule(begun=consumes(holdings))
    def end_a_fold_that_began_earlier(self, begun: list[StoredPeriod]) -> None:
        """If another process has folded, closed or purged in the meantime, the fold changes nothing."""
        for holding in begun:
            metric = next(metric for metric in METRICS if metric.digest == holding.digest)
            self.store.fold(holding, summary_to_bytes(summarize(metric, holding)), metric.name in LIMITS.keep_reports)

    @rule(most=st.integers(1, 3))
    def compute_missing_figures(self, most: int) -> None:
        """Of the folds above, which came without figures."""
        compute_figures(self.store, Definitions(METRICS), most)

    @rule(days=st.integers(1, 2))
    def wait(self, days: int) -> None:
        self.now += timedelta(days=days)

    @rule()
    def keep_up(self) -> None:
        upkeep(self.store, Definitions(METRICS), LIMITS, self.now)
        stored = {(batch.digest, batch.period) for batch in self.counted.values()} | set(self.closed)
        for day in range(5):
            text = str(FIRST + timedelta(days=day))
            for metric in METRICS:
                if (metric.digest, text) in stored and self.now >= datetime(2024, 7, 2, tzinfo=UTC) + timedelta(day):
                    self.closed.add((metric.digest, text))
                if metric.name == "brief" and self.now >= counts_expire_at(metric, text, LIMITS.keep_counts["brief"]):
                    self._forget(metric.name, text)

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = SqlStore.open(self.path)

    @invariant()
    def what_is_read_is_what_was_stored_once(self) -> None:
        for metric in METRICS:
            batches = [batch for batch in self.counted.values() if batch.metric == metric.name]
            expected = BitCounts.from_rows(
                metric,
                b"".join(batch.cohorts for batch in batches),
                b"".join(batch.rows for batch in batches),
                sorted({batch.period for batch in batches}),
            )
            closed = {(metric.digest, period) for period in expected.periods} <= self.closed and bool(batches)
            assert read_summary(self.store, metric) == replace(expected, closed=closed)
            if metric.name in LIMITS.keep_reports:
                sink = io.BytesIO()
                write_reports(self.store, metric, expected.periods, sink)
                assert reports_from_bytes(sink.getvalue()).bit_counts() == expected

    @invariant()
    def figures_are_those_of_the_summaries_or_stale(self) -> None:
        unfolded = self.store.unfolded_reports()
        for metric in METRICS:
            stored = {holding.period: holding for holding in self.store.read(metric.digest)}
            for row in self.store.period_rows([metric.digest]):
                holding = stored.get(row.period)
                waiting = 0 if holding is None else len(holding.cohorts)
                assert unfolded.get((metric.digest, row.period), (0, 0))[1] == waiting
                if row.figures is not None and not row.is_stale:
                    summary = None if holding is None else holding.summary
                    assert row.figures == (
                        PeriodFigures()
                        if summary is None
                        else figures_of(metric.blocks, summary_from_bytes(summary).count_profile())
                    )

    def teardown(self) -> None:
        self.store.close()
        self.directory.cleanup()

    def _forget(self, name: str, period: str) -> None:
        self.counted = {i: b for i, b in self.counted.items() if (b.metric, b.period) != (name, period)}


TestStore = pytest.mark.slow(StoreMachine.TestCase)
TestStore.settings = settings(max_examples=40, stateful_step_count=30)
