"""Screening by lasso: on request or with too many candidates, and in cohorts that the estimates do not use."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import poisson

import hubbub_decoder.estimators.least_squares as fit_module
from hubbub import Metric, Params
from hubbub.summary import BitCounts
from hubbub_decoder.estimators import lasso_screening
from hubbub_decoder.estimators.lasso_screening import lasso_columns, select_candidates
from hubbub_decoder.estimators.least_squares import fit_least_squares
from hubbub_decoder.model.design_matrix import design_matrix
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.simulation import simulate

ALPHA = 1e-6
PARAMS = Params(num_bits=16, num_hashes=2, num_cohorts=16, prob_p=0.25, prob_q=0.75, prob_f=0.25)
NAMES = [f"v{i}" for i in range(3000)]


@pytest.fixture
def counts(unseen_seed: int) -> BitCounts:
    """Half a million reports of v0 and v1."""
    population = {"v0": 400_000, "v1": 100_000}
    return simulate(Metric.string("x", PARAMS), population, np.random.default_rng(unseen_seed))


def test_keeps_all_candidates_unless_asked_for_a_lasso(counts: BitCounts, monkeypatch: pytest.MonkeyPatch) -> None:
    """All up to the largest number; beyond it, and with the method "lasso", only some."""
    design = design_matrix(NAMES, PARAMS)
    evidence = Evidence(counts)
    selection = select_candidates(evidence, design)
    assert selection.columns.tolist() == list(range(3000))
    assert selection.evidence is evidence
    assert len(select_candidates(evidence, design, method="lasso").columns) < 100
    monkeypatch.setattr(lasso_screening, "MAX_CANDIDATES", 2_999)
    assert len(select_candidates(evidence, design).columns) < 100


def test_variance_doubles_with_candidates_for_half_of_the_independent_counts(
    counts: BitCounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fixed effects: the ratio of 1 / (1 - M/R) at M = 120 and at M = 12, with R = 16 (16 - 1) + 1 = 241.

    Tolerance: 2 % (.13 +- .07 % in 100 draws). tau**2 is left out, because it is estimated from the reports.
    """
    monkeypatch.setattr(fit_module.NormalEquations, "excess", lambda *_: (0.0, 0.0))
    assert Evidence(counts).num_independent == 241
    few, many = (
        fit_least_squares(Evidence(counts), design_matrix(NAMES[:size], PARAMS)).variances for size in (12, 120)
    )
    ratio = many[:12].mean() / few[:12].mean()
    assert ratio == pytest.approx((1 - 13 / 241) / (1 - 121 / 241), rel=0.02)


def test_screening_cohorts_are_not_estimated_from(counts: BitCounts) -> None:
    """The selection does not depend on the reports of the other cohorts."""
    design = design_matrix(NAMES, PARAMS)
    selection = select_candidates(Evidence(counts), design, method="lasso")
    estimated_from = selection.evidence.used
    assert estimated_from.sum() == 8
    others = BitCounts(
        PARAMS,
        counts.reports,
        np.where(estimated_from[:, None], counts.reports[:, None] - counts.ones, counts.ones),
    )
    assert np.array_equal(select_candidates(Evidence(others), design, method="lasso").columns, selection.columns)
    assert selection.independent


def test_screening_keeps_frequent_candidates(counts: BitCounts) -> None:
    selection = select_candidates(Evidence(counts), design_matrix(NAMES, PARAMS), method="lasso")
    assert {0, 1} <= set(selection.columns.tolist())
    assert len(selection.columns) <= selection.evidence.num_independent // 2


def test_screening_passes_at_most_a_quarter_by_chance(
    unseen_seed: int,
) -> None:
    """No report has a value: each of 1000 candidates passes a marginal test with probability 10 / 1000; a lasso keeps fewer.

    Bound: the 1 - 1e-6 / 12 quantile of a Poisson variable of mean 10, in each of 12 draws. If the total noise of the bits is low, none
    may pass. This happened in 6 of 40 draws, a share of at most .3, so it happens in all 12 with probability below 1e-6.
    """
    rng, design = np.random.default_rng(unseen_seed), design_matrix(NAMES[:1000], PARAMS)
    metric = Metric.string("x", PARAMS)
    kept = [
        len(lasso_columns(Evidence(simulate(metric, {}, rng, no_value=500_000)), design, most=40)) for _ in range(12)
    ]
    assert max(kept) <= poisson.isf(ALPHA / 12, 10)
    assert sum(kept) > 0


def test_single_cohort_is_used_for_screening_and_estimation() -> None:
    params = Params(num_bits=64, num_hashes=2, num_cohorts=1, prob_p=0.25, prob_q=0.75, prob_f=0.25)
    evidence = Evidence(simulate(Metric.string("x", params), {"v0": 100_000}, np.random.default_rng(0)))
    selection = select_candidates(evidence, design_matrix(NAMES[:200], params), method="lasso")
    assert not selection.independent
    assert 0 in selection.columns
    assert selection.evidence is evidence
