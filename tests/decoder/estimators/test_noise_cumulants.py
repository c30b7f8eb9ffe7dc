"""Cumulants of the noise of estimates: against moments of simulated counts, and tails of absent candidates with few expected ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from hubbub import Metric, Params
from hubbub.summary import BitCounts, PatternCounts
from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.fit_result import FitResult, Nuisance
from hubbub_decoder.estimators.noise_cumulants import bit_noise_cumulants, pattern_noise_cumulants
from hubbub_decoder.estimators.reports.likelihood_ratios import Mixture
from hubbub_decoder.estimators.reports.simulated_information import draw_reports, score_cumulants
from hubbub_decoder.inference.error_law import ErrorCumulants, ErrorLaw
from hubbub_decoder.inference.multiple_testing import CandidateTests
from hubbub_decoder.model.design_matrix import DesignMatrix, design_matrix
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.model.pattern_likelihood import FilterTable, filter_indices
from hubbub_decoder.random_state import seeded

ALPHA = 1e-6
REPORTS, COHORTS = 10_000, 4
FEW_ONES = Params(num_bits=16, num_hashes=1, num_cohorts=COHORTS, prob_p=3.4e-4, prob_q=0.5, prob_f=0)
"""Epsilon 8 at q = 1/2: 3.4 ones a bit are expected from 10,000 reports, .85 in a cohort."""


def fit_of(shares: Floats) -> FitResult:
    """Fit with given shares, small errors, and everything else listed or without a value."""
    size, nan = len(shares), np.full(len(shares), np.nan)
    totals, tests = np.array([shares.sum(), 0.0, shares.sum()]), CandidateTests.unknown(len(shares))
    noise = ErrorCumulants.zero(size)
    return FitResult(
        shares,
        np.full(size, 1e-12),
        nan,
        totals,
        totals,
        totals,
        0.0,
        tests,
        noise,
        Nuisance(np.empty(0), np.nan, np.nan),
    )


def estimates_of(ones: NDArray[np.int64], reports: float, design: DesignMatrix, column: int) -> Floats:
    """Estimates (runs,) of one candidate alone from ones (runs, m k), with equal weights, less what an average string has."""
    params = design.params
    bits = design.matrix[:, [column]].toarray().ravel()
    a = bits - params.num_hashes / params.num_bits
    y = (ones / reports - params.mechanism.p_star) / (params.mechanism.q_star - params.mechanism.p_star)
    return np.asarray(y @ a / (a @ bits))


def third_cumulant(values: Floats) -> float:
    return float(np.mean((values - values.mean()) ** 3))


@pytest.mark.slow
def test_bit_noise_cumulants_equal_those_of_simulated_counts(unseen_seed: int) -> None:
    """An absent candidate and one of 1 %: variance within 2 % (error .3 %), third cumulant within 6 errors, in 400,000 runs."""
    rng = np.random.default_rng(unseen_seed)
    names = [str(i) for i in range(2)]
    design = design_matrix([f"{unseen_seed} {name}" for name in names], FEW_ONES)
    metric, reports = Metric.string("m", FEW_ONES), np.full(COHORTS, REPORTS // COHORTS)
    for share in (0.0, 0.01):
        true = np.rint(design.matrix[:, [0]].toarray().ravel() * share * REPORTS / COHORTS).astype(int)
        ones = rng.binomial(true, FEW_ONES.mechanism.q_star, (400_000, len(true))) + rng.binomial(
            REPORTS // COHORTS - true, FEW_ONES.mechanism.p_star, (400_000, len(true))
        )
        x = estimates_of(ones, REPORTS / COHORTS, design, 0)
        # expected ones are equal in all bits, so all weights are: those of a small share are asked for
        cumulants = bit_noise_cumulants(
            Evidence(BitCounts(metric, reports, np.zeros((COHORTS, 16), np.int64))), design, fit_of(np.zeros(2))
        )
        assert x.mean() == pytest.approx(share, abs=6 * x.std() / 600)
        assert np.var(x) == pytest.approx(cumulants.variances[0] + share * cumulants.variance_slopes[0], rel=0.02)
        reach = 6 * np.sqrt(15 / len(x)) * x.std() ** 3
        third = cumulants.third[0] + share * cumulants.third_slopes[0]
        assert third_cumulant(x) == pytest.approx(third, abs=reach + 0.05 * abs(third))


@pytest.mark.slow
def test_tails_of_absent_candidates_with_few_ones_are_not_exceeded(unseen_seed: int) -> None:
    """P-values of 2,000,000 absent estimates: below t in at most the share t and 20 %, t = 1e-2 .. 1e-5; normal ones are below 1e-5 20 times too often."""
    rng = np.random.default_rng(unseen_seed)
    design = design_matrix([f"{unseen_seed}"], FEW_ONES)
    metric, reports = Metric.string("m", FEW_ONES), np.full(COHORTS, REPORTS // COHORTS)
    cumulants = bit_noise_cumulants(
        Evidence(BitCounts(metric, reports, np.zeros((COHORTS, 16), np.int64))), design, fit_of(np.zeros(1))
    )
    p, normal = [], []
    for _ in range(5):
        ones = rng.poisson(REPORTS // COHORTS * FEW_ONES.mechanism.p_star, (400_000, 16 * COHORTS))
        x = estimates_of(ones, REPORTS / COHORTS, design, 0)
        of_each = ErrorCumulants(
            *(
                np.full(len(x), float(c[0]))
                for c in (cumulants.variances, cumulants.variance_slopes, cumulants.third, cumulants.third_slopes)
            )
        )
        p.append(ErrorLaw(x, np.full(len(x), float(cumulants.variances[0])), of_each, None).p_values())
        normal.append(norm.sf(x / np.sqrt(cumulants.variances[0])))
    below, too_often = np.concatenate(p), np.concatenate(normal)
    for t in (1e-2, 1e-3, 1e-4, 1e-5):
        expected = t * below.size
        assert np.sum(below < t) < 1.2 * expected + norm.isf(ALPHA) * np.sqrt(expected), t
    assert np.sum(too_often < 1e-5) > 20 * 1e-5 * below.size


@pytest.mark.slow
def test_pattern_noise_cumulants_equal_those_of_simulated_counts(unseen_seed: int) -> None:
    """An absent candidate among reports without a value: variance within 3 %, third cumulant within 6 errors, in 100,000 runs."""
    rng = np.random.default_rng(unseen_seed)
    params = Params(num_bits=8, num_hashes=1, num_cohorts=3, prob_p=0.01, prob_q=0.6, prob_f=0)
    design = design_matrix([f"{unseen_seed}"], params)
    table = FilterTable.from_params(params)
    filter_of = filter_indices(design, table)
    r = np.column_stack([table.mixture(unit) for unit in np.eye(len(table.filters))])
    n, fixed = 200, r @ table.fixed_patterns
    pi = fixed @ np.array([0.001, 0.999])
    level = np.linalg.solve(fixed.T @ (fixed / pi[:, None]), fixed.T @ (r @ table.probabilities / pi))
    weights = [(r[:, f[0]] - fixed @ level) / pi for f in filter_of]
    length = n * sum(float(r[:, f[0]] @ a) for f, a in zip(filter_of, weights, strict=True))
    x = sum(rng.poisson(n * pi, (100_000, len(pi))) @ a for a in weights) / length
    counts = PatternCounts(Metric.string("m", params), np.tile(np.eye(1, 256, dtype=np.int64) * n, (3, 1)))
    cumulants = pattern_noise_cumulants(Evidence(counts), design, fit_of(np.zeros(1)))
    assert np.var(x) == pytest.approx(cumulants.variances[0], rel=0.03)
    assert third_cumulant(x) == pytest.approx(cumulants.third[0], abs=6 * np.sqrt(15 / len(x)) * x.std() ** 3)
    assert third_cumulant(x) > 12 * np.sqrt(15 / len(x)) * x.std() ** 3


def test_score_cumulants_of_one_bit_reports_equal_those_of_their_bits(unseen_seed: int) -> None:
    """Strings of one bit in many cohorts: the reports say as much about one as its bits; medians within 20 %."""
    rng = seeded(unseen_seed)
    params = Params(num_bits=16, num_hashes=1, num_cohorts=8, prob_p=0.1, prob_q=0.6, prob_f=0)
    design = design_matrix([f"{unseen_seed} {i}" for i in range(20)], params)
    mixture, z = Mixture.from_design(design), np.append(np.full(20, 1e-4), [0.001, 0.997])
    simulated = list(draw_reports(mixture, np.full(8, 1 / 8), z, 40_000, rng))
    of_reports = score_cumulants(mixture, z, simulated, 8000)
    counts = BitCounts(Metric.string("m", params), np.full(8, 1000), np.zeros((8, 16), np.int64))
    of_bits = bit_noise_cumulants(Evidence(counts), design, fit_of(np.zeros(20)))
    assert np.median(of_reports.variances) == pytest.approx(np.median(of_bits.variances), rel=0.2)
    assert np.median(of_reports.variance_slopes) == pytest.approx(np.median(of_bits.variance_slopes), rel=0.2)
    assert np.median(of_reports.third) == pytest.approx(np.median(of_bits.third), rel=0.2)


def test_fit_without_its_last_columns_keeps_retests_and_cumulants_of_the_others() -> None:
    """Regression: a fit with a retested candidate and an unlisted string of its own could not be expanded."""
    fit = fit_of(np.array([0.1, 0.2, 0.3]))
    tests = fit.tests._replace(p_values=np.array([0.1, 0.2, 0.3]), retested=np.array([False, True, True]))
    fit = replace(fit, tests=tests, cumulants=ErrorCumulants(*np.arange(12.0).reshape(4, 3)))
    expanded = fit.with_unlisted(1).expand(np.array([0, 2]), 4, 1.0)
    assert expanded.tests.p_values.tolist() == [0.1, 1, 0.2, 1]
    assert expanded.tests.retested.tolist() == [False, False, True, False]
    assert expanded.cumulants.third.tolist() == [6, 0, 7, 0]
