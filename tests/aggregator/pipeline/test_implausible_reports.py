"""Implausible reports: shown in the dashboard, /metrics and decodings, and rejected on request."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hubbub import Batch, Definitions, Metric, ProblemType, UnaryResponse, parse_definitions
from hubbub.summary import BitCounts
from hubbub.summary.plausibility import plausible_ones
from hubbub_aggregator.pipeline.retention import upkeep
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.period_figures import PeriodFigures
from hubbub_aggregator.store.sql_store import SqlStore
from tests.aggregator.api.test_dashboard import get
from tests.aggregator.api.test_problem_responses import assert_refused
from tests.aggregator.conftest import running

if TYPE_CHECKING:
    from tests.aggregator.conftest import Aggregator, MakeBatch, StartAggregator

YESTERDAY, TODAY = "2024-06-14", "2024-06-15"


def honest(make_batch: MakeBatch, metric: Metric, n: int, period: str, rng: np.random.Generator) -> Batch:
    """Reports of clients with nothing recorded."""
    bits = rng.random((n, metric.num_bits)) < metric.params.mechanism.p_star
    rows = np.packbits(bits, axis=1, bitorder="little").tobytes()
    cohorts = rng.integers(metric.num_cohorts, size=n, dtype=np.uint8).tobytes()
    return replace(make_batch(metric, n=n, period=period), cohorts=cohorts, rows=rows)


def all_ones(make_batch: MakeBatch, metric: Metric, n: int, period: str) -> Batch:
    k = metric.num_bits
    return replace(make_batch(metric, n=n, period=period), rows=n * ((1 << k) - 1).to_bytes((k + 7) // 8, "little"))


def folded(aggregator: Aggregator) -> None:
    upkeep(aggregator.store, aggregator.definitions, Settings(), aggregator.clock())


def test_fabricated_reports_are_found_in_their_period_only(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch, unseen_seed: int
) -> None:
    aggregator, rng = start(store, fold_interval=1000.0), np.random.default_rng(unseen_seed)
    homepage, carrier = aggregator.definitions["homepage"], aggregator.definitions["carrier"]
    for metric in (homepage, carrier):
        for period in (YESTERDAY, TODAY):
            assert aggregator.post(honest(make_batch, metric, 4_000, period, rng)).status == 202
    folded(aggregator)
    assert b'kind="' not in aggregator.get("/metrics").body
    assert b"implausible" not in get(aggregator).body.partition(b"<body>")[2]
    assert aggregator.post(all_ones(make_batch, homepage, 40, TODAY)).status == 202
    folded(aggregator)
    numbers = aggregator.get("/metrics").body.decode()
    assert 'hubbub_implausible_periods{kind="shape",metric="homepage"} 1.0' in numbers
    assert 'kind="' not in numbers.replace('{kind="shape",metric="homepage"}', "")
    assert '<span class="pill bad">1 implausible period</span>' in get(aggregator).body.decode()
    page = get(aggregator, "/metric/homepage").page
    assert f"Implausible reports in {TODAY}: the distribution of the number of ones" in page
    assert f"Implausible reports: {YESTERDAY}" not in page
    assert f"{TODAY}: 4,040 reports, still open, implausible" in page


def test_decoder_warns_of_fabricated_reports(
    start: StartAggregator, sqlite_store: SqlStore, make_batch: MakeBatch, unseen_seed: int
) -> None:
    decoder = pytest.importorskip("hubbub_decoder")
    aggregator, rng = start(sqlite_store), np.random.default_rng(unseen_seed)
    homepage = aggregator.definitions["homepage"]
    assert aggregator.post(honest(make_batch, homepage, 4_000, TODAY, rng)).status == 202
    assert not [
        w
        for w in decoder.decode(aggregator.summary("homepage"), ["a"]).warnings
        if "fabricated" in str(w) or "numbers of ones" in str(w)
    ]
    assert aggregator.post(all_ones(make_batch, homepage, 40, TODAY)).status == 202
    assert [
        w
        for w in decoder.decode(aggregator.summary("homepage"), ["a"]).warnings
        if "explains the numbers of ones" in w.text
    ]


def test_summary_without_ones_histogram_is_read_and_added_to(store: SqlStore, make_batch: MakeBatch) -> None:
    """The sum with such a summary has no histogram either, and the numbers of ones are not tested."""
    from hubbub import parse_definitions
    from hubbub.summary import summary_to_bytes
    from hubbub_aggregator.pipeline.folding import fold, read_summary, summarize
    from tests.aggregator.conftest import DEFINITIONS

    homepage = parse_definitions(DEFINITIONS)["homepage"]
    store.append([make_batch(homepage, n=5)])
    [holding] = store.read(homepage.digest)
    counted = summarize(homepage, holding)
    assert isinstance(counted, BitCounts)
    older = BitCounts(homepage, counted.reports, counted.ones, counted.periods)
    assert store.fold(holding, summary_to_bytes(older))
    store.append([make_batch(homepage, n=7)])
    fold(store, homepage)
    total = read_summary(store, homepage)
    assert isinstance(total, BitCounts)
    assert (total.num_reports, total.ones_histogram) == (12, None)
    [row] = store.period_rows([homepage.digest])
    assert row.figures == PeriodFigures(12, row.figures.smallest_cohort if row.figures else 0, ())


WIDE = """
[[metric]]
name = "wide"
kind = "string"
description = "So many bits that the noise never sets all or none."
owner = "owner@example.org"
num_bits = 128
num_hashes = 2
num_cohorts = 4
prob_p = 0.25
prob_q = 0.75
prob_f = 0.5
expires = 2030-01-01
"""


def test_reject_implausible_refuses_batches_and_marks_summaries(store: SqlStore, make_batch: MakeBatch) -> None:
    """One implausible report refuses its batch; the limits are accepted; summaries stay marked after the option is removed."""
    decoder = pytest.importorskip("hubbub_decoder")
    definitions = parse_definitions(WIDE)
    wide = definitions["wide"]
    fewest, most = plausible_ones(wide.blocks)

    def batch(*numbers_of_ones: int) -> Batch:
        rows = [((1 << ones) - 1).to_bytes(wide.row_bytes, "little") for ones in numbers_of_ones]
        return replace(make_batch(wide, n=len(rows)), rows=b"".join(rows))

    with running(definitions, store, Settings(local_reads_without_token=True)) as aggregator:
        assert aggregator.post(batch(0, 128)).status == 202
        assert not aggregator.summary("wide").implausible_rejected
    with running(definitions, store, Settings(local_reads_without_token=True, reject_implausible=True)) as aggregator:
        for ones in (fewest - 1, most + 1):
            answer = aggregator.post(batch(fewest, ones))
            assert_refused(answer, ProblemType.IMPLAUSIBLE_REPORT)
            assert f"report 1 has {ones} ones" in answer.json["detail"]
        assert aggregator.post(batch(fewest, most)).status == 202
        assert aggregator.summary("wide").implausible_rejected
    with running(definitions, store, Settings(local_reads_without_token=True)) as aggregator:
        summary = aggregator.summary("wide")
    assert (summary.num_reports, summary.implausible_rejected) == (4, True)
    assert isinstance(summary, BitCounts)
    assert (BitCounts.empty(wide) + summary).implausible_rejected
    message = f"rejected reports with fewer than {fewest} or more than {most} ones"
    assert [w.kind for w in decoder.decode(summary, ["x"]).warnings if message in w.text] == ["rejected_reports"]


ROWS = """
[[metric]]
name = "theme"
kind = "categorical"
categories = ["dark", "light", "system"]
description = "Theme"
owner = "a@example.org"
mechanism = "subset"
num_ones = 1
prob_q = 0.5
expires = 2030-01-01
"""


def test_rows_of_subset_selection_with_another_number_of_ones_are_always_refused(
    store: SqlStore, make_batch: MakeBatch
) -> None:
    definitions = parse_definitions(ROWS)
    theme = definitions["theme"]

    def batch(*rows: int) -> Batch:
        return replace(make_batch(theme, n=len(rows)), rows=bytes(rows))

    with running(definitions, store, Settings(local_reads_without_token=True)) as aggregator:
        for row in (0b0000, 0b0011, 0b1111):
            answer = aggregator.post(batch(0b0001, row))
            assert_refused(answer, ProblemType.IMPLAUSIBLE_REPORT)
            assert f"report 1 has {row.bit_count()} ones. Every genuine report of theme has 1" in answer.json["detail"]
        assert aggregator.post(batch(0b0001, 0b0010, 0b0100, 0b1000)).status == 202
        assert aggregator.summary("theme").num_reports == 4


def test_rows_of_a_part_are_counted_on_their_own(store: SqlStore, make_batch: MakeBatch) -> None:
    """The ones of the other part, which may be any number, hide none that is missing or too many."""
    theme = parse_definitions(ROWS)["theme"]
    both = Metric.joint(
        "both",
        (Metric.boolean("paid", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0)), replace(theme, expires=None)),
    )

    def batch(*rows: int) -> Batch:
        return replace(make_batch(both, n=len(rows)), rows=bytes(rows))

    with running(Definitions([both]), store, Settings(local_reads_without_token=True)) as aggregator:
        for row in (0b00001, 0b00110, 0b11111):
            answer = aggregator.post(batch(0b00010, row))
            assert_refused(answer, ProblemType.IMPLAUSIBLE_REPORT)
            text = f"report 1 has {(row >> 1).bit_count()} ones in part theme. Every genuine report of both has 1 there"
            assert text in answer.json["detail"]
        assert aggregator.post(batch(0b00011, 0b00010, 0b10000)).status == 202
        assert aggregator.summary("both").num_reports == 3
