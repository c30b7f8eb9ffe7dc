"""Evidence: the same numbers from each form of the reports, and of each part of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hubbub import Metric, Params
from hubbub.errors import SummaryError
from hubbub.metrics.discovery import Discovery
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub_decoder.discovery.discover import discovery_of
from hubbub_decoder.model.evidence import Collected, Evidence
from hubbub_decoder.model.repetition import ONCE
from hubbub_decoder.simulation import simulate_reports

FORMS = (BitCounts, PatternCounts, Reports)
PERIODS = ("2026-03-02", "2026-03-09", "2026-03-16")


def collected(form: type[Collected], seed: int, **fields: Any) -> Collected:
    """Reports of a random metric of 8 bits, in one form; some cohorts may have none."""
    rng = np.random.default_rng(seed)
    p, q = rng.permutation([0.2, 0.7])
    params = Params(num_bits=8, num_hashes=2, num_cohorts=int(rng.integers(2, 9)), prob_p=p, prob_q=q, prob_f=0.1)
    metric = Metric.string("page", params, period="week", **fields)
    chunks = simulate_reports(metric, {"a": 12, "b": 7}, rng, no_value=int(rng.integers(5)))
    cohorts, rows = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
    reports = Reports(metric, cohorts, rows, PERIODS)
    if form is Reports:
        return reports
    return reports.bit_counts() if form is BitCounts else reports.pattern_counts()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(5))
def test_each_form_has_the_same_numbers(form: type[Collected], seed: int) -> None:
    bits, other = Evidence(collected(BitCounts, seed)), Evidence(collected(form, seed))
    assert other.counts == bits.counts
    assert np.array_equal(other.bit_shares, bits.bit_shares, equal_nan=True)
    assert (other.any_value_share, other.num_clients) == (bits.any_value_share, bits.num_reports / 3)
    assert other.used.tolist() == (bits.counts.reports > 0).tolist()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(5))
def test_subsets_add_up_to_the_whole(form: type[Collected], seed: int) -> None:
    """Each cohort is in exactly one of two subsets, which know the number of all reports, also as a subset of a subset."""
    whole = Evidence(collected(form, seed))
    chosen = np.random.default_rng([seed, 1]).random(len(whole.used)) < 0.5
    parts = whole.subset(chosen), whole.subset(~chosen)
    assert sum(part.num_reports for part in parts) == whole.num_reports
    assert np.array_equal(sum(part.counts.ones for part in parts), whole.counts.ones)
    assert [part.used.tolist() for part in parts] == [(whole.used & chosen).tolist(), (whole.used & ~chosen).tolist()]
    for part in (*parts, parts[0].subset(~chosen)):
        assert isinstance(part.source, form)
        assert (part.num_all_reports, part.num_all_clients) == (whole.num_reports, whole.num_clients)
        assert (part.repetition, part.periods) == (whole.repetition, PERIODS)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("hold", [None, 2])
def test_noise_repeats_only_for_the_same_clients(form: type[Collected], hold: int | None) -> None:
    same, others = (Evidence(collected(form, 0, hold=hold), same_clients) for same_clients in (True, False))
    assert same.repetition.per_client == 3
    assert others.repetition == ONCE
    assert others.counts.periods == ()
    assert same.periods == others.periods == PERIODS


@pytest.mark.parametrize("form", FORMS)
def test_held_out_group_reports_whole_values(form: type[Collected]) -> None:
    params = Params(num_bits=8, num_hashes=2, num_cohorts=64, prob_p=0.2, prob_q=0.7, prob_f=0)
    metric = Metric.string("words", params, discover=Discovery(longest=4, step=2, held_out=0.4))
    rows = np.zeros((640, 1), np.uint8)
    reports = Reports(metric, np.arange(640, dtype=np.uint16) % 64, rows)
    sources: dict[type[Collected], Collected] = {
        Reports: reports,
        BitCounts: reports.bit_counts(),
        PatternCounts: reports.pattern_counts(),
    }
    group = discovery_of(metric).cohorts(len(discovery_of(metric).lengths), 64)
    held_out = Evidence(sources[form]).held_out()
    assert np.flatnonzero(held_out.used).tolist() == list(group)
    assert (held_out.num_reports, held_out.num_all_reports) == (10 * len(group), 640)


def test_another_form_is_refused() -> None:
    evidence = Evidence(collected(BitCounts, 0))
    assert evidence.require(BitCounts) is evidence.source
    with pytest.raises(SummaryError, match="page: needs Reports, got BitCounts"):
        evidence.require(Reports)
    with pytest.raises(SummaryError, match="summary must be BitCounts, PatternCounts or Reports, got str"):
        Evidence("counts.parquet")  # type: ignore[arg-type]
