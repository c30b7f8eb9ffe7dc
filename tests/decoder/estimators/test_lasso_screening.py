"""Screening: none while it can be avoided, and then by people who are not estimated from."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import poisson

import hubbub_decoder.estimators.least_squares as fit_module
from hubbub import Metric, Params
from hubbub.summary import BitCounts
from hubbub_decoder.data.simulate import simulate_bit_counts
from hubbub_decoder.estimators.lasso_screening import independent_numbers, lasso_columns, max_columns, select_candidates
from hubbub_decoder.estimators.least_squares import fit_least_squares
from hubbub_decoder.model.design_matrix import design_matrix

ALPHA = 1e-6
PARAMS = Params(num_bits=16, num_hashes=2, num_cohorts=16, prob_p=0.25, prob_q=0.75, prob_f=0.25)
NAMES = [f"v{i}" for i in range(3000)]


@pytest.fixture
def counts(unseen_seed: int) -> BitCounts:
    """Half a million reports of v0 and v1."""
    population = {"v0": 400_000, "v1": 100_000}
    return simulate_bit_counts(Metric.string("x", PARAMS), population, np.random.default_rng(unseen_seed))


def test_up_to_its_capacity_every_candidate_is_fitted_to_every_report(counts: BitCounts) -> None:
    design = design_matrix(NAMES[: max_columns(counts)], PARAMS)
    selection = select_candidates(counts, design)
    assert selection.columns.tolist() == list(range(max_columns(counts)))
    assert selection.counts is counts


def test_half_the_independent_numbers_in_bit_counts_double_the_variance(
    counts: BitCounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R = 16 (16 - 1) + 1 = 241: 1 / (1 - M/R) for M = 120 over that for M = 12, all shares left open; within 2 % for these names (.13 +- .07 % in 100 draws).

    Of the noise alone, tau**2 left out: that is estimated from the reports, now 0 and now not.
    """
    monkeypatch.setattr(fit_module, "_estimate_unlisted_variance", lambda *_: (0.0, 0.0))
    assert independent_numbers(counts) == 241
    assert max_columns(counts) == 482
    few, many = (fit_least_squares(counts, design_matrix(NAMES[:size], PARAMS)).variances for size in (12, 120))
    ratio = many[:12].mean() / few[:12].mean()
    assert ratio == pytest.approx((1 - 13 / 241) / (1 - 121 / 241), rel=0.02)


def test_beyond_it_no_report_both_chooses_and_is_estimated_from(counts: BitCounts) -> None:
    """Changing the reports estimated from changes nothing about the choice."""
    design = design_matrix(NAMES, PARAMS)
    selection = select_candidates(counts, design)
    estimated_from = selection.counts.reports > 0
    assert estimated_from.sum() == 8
    others = BitCounts(
        PARAMS,
        counts.reports,
        np.where(estimated_from[:, None], counts.reports[:, None] - counts.ones, counts.ones),
    )
    assert np.array_equal(select_candidates(others, design).columns, selection.columns)
    assert selection.independent


def test_what_is_frequent_is_kept_and_no_more_than_can_be_fitted(counts: BitCounts) -> None:
    selection = select_candidates(counts, design_matrix(NAMES, PARAMS))
    assert {0, 1} <= set(selection.columns.tolist())
    assert len(selection.columns) <= independent_numbers(selection.counts) // 2


def test_the_known_noise_lets_at_most_a_quarter_of_the_capacity_pass_by_chance_but_not_nothing_ever(
    unseen_seed: int,
) -> None:
    """Nobody reports a value: each of 1000 passes alone with chance 10 / 1000, and a lasso keeps fewer than alone would pass.

    At most the 1 - 1e-6 / 12 quantile of a Poisson variable of mean 10, in each of 12 draws. Where the noise of all bits together is low
    none may pass: in 6 of 40 draws, so in all of 12 with a chance below 1e-6 (at .3, the upper end of that share's interval).
    """
    rng, design = np.random.default_rng(unseen_seed), design_matrix(NAMES[:1000], PARAMS)
    nobody = Metric.string("x", PARAMS)
    kept = [
        len(lasso_columns(simulate_bit_counts(nobody, {}, rng, no_value=500_000), design, most=40)) for _ in range(12)
    ]
    assert max(kept) <= poisson.isf(ALPHA / 12, 10)
    assert sum(kept) > 0


def test_with_one_cohort_the_same_reports_choose_and_are_estimated_from() -> None:
    params = Params(num_bits=64, num_hashes=2, num_cohorts=1, prob_p=0.25, prob_q=0.75, prob_f=0.25)
    counts = simulate_bit_counts(Metric.string("x", params), {"v0": 100_000}, np.random.default_rng(0))
    selection = select_candidates(counts, design_matrix(NAMES[:200], params))
    assert not selection.independent
    assert 0 in selection.columns
    assert selection.counts is counts
