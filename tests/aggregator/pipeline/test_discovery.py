"""Reports of a metric with `discover`, from the encoder through the aggregator to the strings that are found."""

from __future__ import annotations

from uuid import UUID

from hubbub import Batch, Encoder, Metric, ProblemType, Secret, parse_definitions
from hubbub.metrics.periods import Period
from hubbub.summary import BitCounts
from hubbub.testing import SeededBytes
from hubbub.wire.batch import Report
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_decoder import discover
from tests.aggregator.conftest import NOON, TODAY, running

DEFINITIONS = """
[[metric]]
name = "words"
kind = "string"
description = "Words"
owner = "owner@example.org"
expires = 2030-01-01
num_bits = 64
num_hashes = 1
num_cohorts = 32
prob_p = 0
prob_q = 1
permanent_p = 0.0001
permanent_q = 0.9
[metric.discover]
longest = 3
step = 2
alphabet = "abcd"
held_out = 0.25
"""


def batches_of(metric: Metric, reports: list[Report]) -> list[Batch]:
    period = Period.containing(metric.period, NOON.date())
    assert str(period) == TODAY
    return [Batch.from_reports(metric, period, reports[at : at + 500]) for at in range(0, len(reports), 500)]


def test_aggregator_collects_a_discovery_metric_that_the_decoder_searches(
    sqlite_store: SqlStore, unseen_seed: int
) -> None:
    """1,500 clients of each of two words, at an epsilon of 11: 46 standard errors in each group."""
    metric = parse_definitions(DEFINITIONS)["words"]
    random_bytes = SeededBytes(unseen_seed)
    words = [word for word in ("abc", "dad") for _ in range(1500)]
    reports = [Encoder(metric, Secret.generate(random_bytes), random_bytes).encode(word) for word in words]
    settings = Settings(max_reports=500, local_reads_without_token=True)
    with running(parse_definitions(DEFINITIONS), sqlite_store, settings) as aggregator:
        for batch in batches_of(metric, reports):
            assert aggregator.post(batch).status == 202
        wrong = Batch(UUID(int=1, version=4), metric.name, metric.digest, TODAY, bytes([32]), bytes(8))
        refused = aggregator.post(wrong)
        assert refused.status == ProblemType.COHORT_OUT_OF_RANGE.status
        assert "cohorts must be below 32, got 32" in refused.json["detail"]
        (listed,) = aggregator.get("/v1/metrics").json["metrics"]
        summary = aggregator.summary("words")
    assert listed["discover"]["longest"] == 3
    assert isinstance(summary, BitCounts)
    assert summary.metric == metric
    expected = BitCounts.from_reports(metric, reports)
    assert (summary.ones == expected.ones).all()
    assert (summary.reports == expected.reports).all()
    assert {estimate.candidate for estimate in discover(summary).detected} >= {"abc", "dad"}
