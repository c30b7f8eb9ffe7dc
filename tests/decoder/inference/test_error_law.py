"""Distribution of an estimate's error: skewed tails, intervals that invert the test, agreement of interval and p-value."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import gamma, norm, poisson

from hubbub_decoder import decode
from hubbub_decoder.inference.error_law import ErrorCumulants, ErrorLaw, Sampling, skewed_quantile, skewed_tail
from hubbub_decoder.inference.null_distribution import NullDistribution
from tests.support.random_tasks import draw_task, simulate_task


def law_of(shares: float, std_error: float, null: NullDistribution | None = None) -> ErrorLaw:
    return ErrorLaw(np.array([shares]), np.array([std_error**2]), ErrorCumulants.zero(1), null)


def none_retested(size: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.zeros(size, bool)


@pytest.mark.parametrize("skewness", [-3.0, -0.5, -0.01, 0.01, 0.5, 3.0])
def test_skewed_tail_is_that_of_a_shifted_gamma_distribution(skewness: float) -> None:
    z, shape = np.linspace(-3, 6, 50), 4 / skewness**2
    sign = np.sign(skewness)
    standardized = gamma(shape, loc=-np.sqrt(shape), scale=1 / np.sqrt(shape))
    expected = standardized.sf(z) if sign > 0 else standardized.cdf(-z)
    expected = np.maximum(expected, np.minimum(norm.sf(z), 0.01))
    assert skewed_tail(z, np.full(50, skewness)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("probability", [0.4, 0.025, 1e-6])
def test_skewed_quantile_inverts_the_tail(probability: float) -> None:
    skewness = np.array([-2.0, -0.3, 0.0, 0.3, 2.0])
    assert skewed_tail(skewed_quantile(probability, skewness), skewness) == pytest.approx(
        np.full(5, probability), rel=1e-6
    )


@pytest.mark.parametrize("expected", [3.4, 10.0, 30.0])
def test_skewed_tail_holds_that_of_few_counts_to_one_in_a_million(expected: float) -> None:
    """P(count >= c) of Poisson counts down to 1e-6: never lighter than .9 of it, nor three times as heavy above 1e-5."""
    counts = np.arange(poisson.isf(0.01, expected), poisson.isf(1e-6, expected) + 1)
    exact = poisson.sf(counts - 1, expected)
    z = (counts - 0.5 - expected) / np.sqrt(expected)  # continuity
    ratio = skewed_tail(z, np.full(len(z), expected**-0.5)) / exact
    assert ratio.min() > 0.9
    assert ratio[exact > 1e-5].max() < 3
    assert norm.sf(z[-1]) < 0.2 * exact[-1]


def test_interval_of_a_normal_law_is_symmetric_and_unclipped() -> None:
    law = law_of(0.001, 0.01)
    low, high = law.interval(0.9, law.p_values(), none_retested(1))
    assert low[0] < 0
    assert (low[0] + high[0]) / 2 == pytest.approx(0.001)
    assert norm.cdf(high[0], 0.001, 0.01) - norm.cdf(low[0], 0.001, 0.01) == pytest.approx(0.9)


def test_exact_estimates_reject_a_share_of_zero_unless_they_are_zero() -> None:
    law = ErrorLaw(np.array([0.0, 0.2]), np.zeros(2), ErrorCumulants.zero(2), None)
    assert law.p_values().tolist() == [1, 0]


@pytest.mark.parametrize("skewness", [-2.0, -0.5, 0.5, 2.0])
def test_ends_of_an_interval_are_those_shares_whose_quantile_is_the_estimate(skewness: float) -> None:
    """low + s Q(tail; g) = x^ = high - s Q(tail; -g): a right-skewed error makes an estimate too large rather than too small."""
    s = 0.01
    cumulants = ErrorCumulants(np.full(1, s**2), np.zeros(1), np.full(1, skewness * s**3), np.zeros(1))
    law = ErrorLaw(np.array([0.3]), np.array([s**2]), cumulants, None)
    low, high = law.interval(0.9, law.p_values(), none_retested(1))
    upper, lower = (float(skewed_quantile(0.05, np.array([sign * skewness]))[0]) for sign in (1, -1))
    assert (low[0], high[0]) == pytest.approx((0.3 - s * upper, 0.3 + s * lower), rel=1e-4)


def test_interval_of_few_counts_is_that_of_the_poisson_mean() -> None:
    """A count of 12 beside an expected background of 3: variance and third cumulant grow with the mean, as those of a Poisson count."""
    cumulants = ErrorCumulants(np.array([3.0]), np.array([1.0]), np.array([3.0]), np.array([1.0]))
    scale = 1e-3  # shares are within [0, 1]
    cumulants = ErrorCumulants(
        cumulants.variances * scale**2,
        cumulants.variance_slopes * scale,
        cumulants.third * scale**3,
        cumulants.third_slopes * scale**2,
    )
    law = ErrorLaw(np.array([9 * scale]), np.array([12 * scale**2]), cumulants, None)
    low, high = law.interval(0.95, law.p_values(), none_retested(1))
    exact_low, exact_high = gamma.isf(0.975, 12.5) - 3, gamma.isf(0.025, 12.5) - 3  # mid-P, within a few percent
    assert low[0] / scale == pytest.approx(exact_low, abs=0.3)
    assert high[0] / scale == pytest.approx(exact_high, abs=0.7)
    assert high[0] - 9 * scale > 1.1 * (9 * scale - low[0])


def test_law_at_zero_is_that_of_random_strings() -> None:
    """One score in a hundred is 16 times the others: a tail of 2.5 % is lighter than a normal one, and p-value and both ends follow it."""
    scores = np.append(0.5 * norm.isf(np.linspace(0.005, 0.995, 198)), [-8, 8])
    null = NullDistribution.from_scores([scores] * 4)
    law = law_of(0.02, 0.01, null)
    low, high = law.interval(0.95, law.p_values(), none_retested(1))
    assert law.p_values()[0] == pytest.approx(null.tail(np.array(2.0)))
    assert (0.02 - low[0]) / 0.01 == pytest.approx(null.quantile(0.025), rel=1e-9)
    assert (high[0] - 0.02) / 0.01 == pytest.approx(null.quantile(0.025, -1), rel=1e-9)
    assert 1 < null.quantile(0.025) < 1.6


def test_far_tail_is_never_lighter_than_noise() -> None:
    """Two equal scores a cohort: random strings reach 3.5 standard errors at most, and noise any number."""
    null = NullDistribution.from_scores([np.array([-1.0, 1.0])] * 12)
    z = np.array([2.0, 3.0, 4.0, 6.0])
    law = ErrorLaw(z, np.ones(4), ErrorCumulants.zero(4), null)
    assert law.p_values() == pytest.approx(np.maximum(null.tail(z), np.minimum(norm.sf(z), 0.01)), rel=1e-9)
    assert law.p_values()[2:] == pytest.approx(norm.sf(z[2:]), rel=2e-3)


def test_p_values_are_one_sided_and_zero_without_noise() -> None:
    shares, std_errors = np.array([-0.3, 0.0, 0.3, 0.0, 0.1, 0.3]), np.array([0.1, 0.1, 0.1, 0, 0, np.nan])
    p = ErrorLaw(shares, std_errors**2, ErrorCumulants.zero(6), None).p_values()
    assert p[:5] == pytest.approx([norm.cdf(3), 0.5, norm.sf(3), 1, 0])
    assert np.isnan(p[5])


def test_lower_limit_is_positive_exactly_where_the_p_value_is_below_the_tail(unseen_seed: int) -> None:
    """5,000 random laws with and without skewness, unlisted strings, retests and noise: no exception."""
    rng = np.random.default_rng(unseen_seed)
    size = 5000
    v, at = np.exp(rng.uniform(-14, -5, size)), rng.standard_normal(size) * 4
    v[:20] = 0
    cumulants = ErrorCumulants(
        v / 2, v * rng.uniform(-0.5, 3, size), v**1.5 * rng.normal(0, 1, size), v**1.5 * rng.normal(0, 1, size)
    )
    scores = [rng.standard_t(3, 100) for _ in range(5)]
    for null in (None, NullDistribution.from_scores([s / np.sqrt(5 * np.mean(s**2)) for s in scores])):
        for level in (0.5, 0.95, 0.9999):
            sampling = Sampling.of_clients(rng.choice([1e5, math.inf]))
            law = ErrorLaw(at * np.sqrt(v), v, cumulants, null, sampling, rng.choice([0, 1]) * np.sqrt(v))
            retested = (rng.random(size) < 0.1) & (at > 0)
            p = np.where(retested, np.maximum(law.noise_p_values(), rng.random(size) ** 8), law.p_values())
            low, high = law.interval(level, p, retested)
            assert ((low > 0) == (p < (1 - level) / 2)).all()
            assert ((low <= law.shares) & (law.shares <= high)).all()


@pytest.mark.parametrize("index", [6, 9, 15, 18, 31, 34])
def test_interval_of_each_detected_candidate_is_above_zero(unseen_seed: int, index: int) -> None:
    """Random tasks: a candidate is detected only where its interval is above 0, and so are all its selection-adjusted neighbours."""
    rng = np.random.default_rng(unseen_seed)
    task = next(
        t
        for i in range(300)
        for t in [draw_task(index + 48 * i, int(rng.integers(1 << 62)))]
        if t.num_candidates <= 100 and t.num_reports <= 200_000
    )
    summary, candidates, _, _ = simulate_task(task)
    decoding = decode(summary, candidates)
    estimated = [e for e in decoding if not np.isnan(e.low)]
    assert all((e.low > 0) == (e.p_value < 0.025) for e in estimated)
    assert all(e.low > 0 and e.q_value <= 0.05 for e in decoding.detected)
    assert all(e.low >= e.selection_adjusted_low and e.high <= e.selection_adjusted_high for e in decoding.detected)
