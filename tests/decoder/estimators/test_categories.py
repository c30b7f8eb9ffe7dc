"""Categorical and boolean metrics: closed-form estimates and exact intervals."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, hypergeom, norm

from hubbub import Metric, SummaryError, UnaryResponse
from hubbub.mechanisms.subset import SubsetSelection
from hubbub.metrics.kinds import CategoricalKind
from hubbub.summary import BitCounts
from hubbub_decoder import CandidateError, decode
from hubbub_decoder.estimators import categories
from hubbub_decoder.estimators.categories import (
    RowNoise,
    category_intervals,
    category_shares,
    count_law,
    row_covariance,
    simultaneous_level,
    total_variance,
)
from hubbub_decoder.inference.error_law import Sampling
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.model.repetition import ONCE
from hubbub_decoder.options import Target
from hubbub_decoder.simulation import simulate

ALPHA = 1e-6
COLOURS = ("red", "green", "blue", "none of these")


def colour(p: float = 0.25, q: float = 0.75, f: float = 0.25) -> Metric:
    return Metric.categorical("colour", COLOURS, UnaryResponse(prob_p=p, prob_q=q, prob_f=f))


def test_categories_without_noise_are_exact() -> None:
    decoding = decode(BitCounts(colour(0, 1, 0), [10], [[5, 3, 0, 1]]))
    assert [(e.candidate, e.share, e.std_error) for e in decoding.estimates] == [
        ("red", 0.5, 0),
        ("green", 0.3, 0),
        ("none of these", 0.1, 0),
        ("blue", 0, 0),
    ]
    assert all(e.low == e.simultaneous_low == e.share for e in decoding if 0 < e.share < 1)
    assert decoding.no_value.share == pytest.approx(0.1)


@pytest.mark.parametrize(("p", "q", "f"), [(0.25, 0.75, 0.5), (0.6, 0.3, 0.25)])
def test_category_shares_are_unbiased_with_the_stated_variance(p: float, q: float, f: float) -> None:
    """By enumeration. Two reports, one red and one green, of 2 bits each: 16 outcomes; single shares and their sum."""
    metric = Metric.categorical("two", ("red", "green"), UnaryResponse(prob_p=p, prob_q=q, prob_f=f))
    params = metric.params
    chances = [params.mechanism.q_star, params.mechanism.p_star, params.mechanism.p_star, params.mechanism.q_star]
    mean, square, total_square = np.zeros(2), np.zeros(2), 0.0
    for outcome in itertools.product((0, 1), repeat=4):
        probability = math.prod(c if bit else 1 - c for bit, c in zip(outcome, chances, strict=True))
        shares = category_shares(
            np.array([outcome[0] + outcome[2], outcome[1] + outcome[3]]),
            2,
            params.mechanism.p_star,
            params.mechanism.q_star,
        )
        mean += probability * shares
        square += probability * shares**2
        total_square += probability * shares.sum() ** 2
    assert mean == pytest.approx([0.5, 0.5], abs=1e-12)
    assert square - mean**2 == pytest.approx([total_variance(0.5, 1, 2, params)] * 2, abs=1e-12)
    assert total_square - 1 == pytest.approx(total_variance(1, 2, 2, params), abs=1e-12)


@pytest.mark.parametrize(("size", "keep"), [(2, 0.7), (3, 0.5), (5, 0.9)])
def test_variance_of_a_sum_has_the_covariance_of_dependent_bits(size: int, keep: float) -> None:
    """By enumeration of generalized randomized response: one report of k = 6 values, of which `size` are summed and one is true."""
    k, other = 6, (1 - keep) / 5
    noise = RowNoise(other * (1 - other), keep * (1 - keep), -other * other, -keep * other)
    for true in (0, k - 1):  # the true value is one of the summed ones, or not
        chances = [keep if value == true else other for value in range(k)]
        chance = sum(chances[:size])  # the sum is one with this probability, and else zero
        assert noise.of_total(float(true == 0), size) == pytest.approx(chance * (1 - chance), abs=1e-15)


def test_covariance_of_a_row_sums_to_the_variance_of_the_total() -> None:
    shares, params = np.array([0.5, 0.2, 0.1, 0.0]), colour().params
    covariance = row_covariance(shares, 1000, params, ONCE)
    assert covariance.sum() == pytest.approx(total_variance(shares.sum(), 4, 1000, params), rel=1e-12)
    assert np.diag(covariance)[1] == pytest.approx(total_variance(0.2, 1, 1000, params), rel=1e-12)


def test_categories_are_estimated_and_not_tested() -> None:
    decoding = decode(BitCounts(colour(), [1000], [[500, 400, 300, 310]]))
    assert not decoding.detected
    assert math.isnan(decoding.detection_limit)
    assert all(
        math.isnan(e.p_value) and math.isnan(e.q_value) and math.isnan(e.selection_adjusted_low) for e in decoding
    )
    assert all(e.simultaneous_low < e.low < e.share < e.high < e.simultaneous_high for e in decoding)


@pytest.mark.parametrize(("p", "q"), [(0.2, 0.7), (0.7, 0.2), (0.0, 0.9)])
def test_category_intervals_hold_all_shares_that_no_tail_rejects(p: float, q: float) -> None:
    """30 reports: the law of every possible count given every possible number of reporters, by convolution."""
    n, metric = 30, Metric.categorical("two", ("red", "green"), UnaryResponse(prob_p=p, prob_q=q, prob_f=0))
    for count in range(n + 1):
        low, high = category_intervals(Evidence(BitCounts(metric, [n], [[count, 0]])), ["red"], 0.9, "reporters")
        for x in range(n + 1):
            law = np.convolve(binom.pmf(np.arange(x + 1), x, q), binom.pmf(np.arange(n - x + 1), n - x, p))
            accepted = min(law[count:].sum(), law[: count + 1].sum()) > 0.05
            assert (low[0] - 1e-9 <= x / n <= high[0] + 1e-9) == accepted, (count, x)


def test_category_intervals_of_a_population_are_those_of_clopper_and_pearson() -> None:
    survey = Metric.boolean("from_jfk", UnaryResponse(prob_p=0, prob_q=1, prob_f=0))
    low, high = category_intervals(Evidence(BitCounts(survey, [1000], [[400]])), ["true"], 0.95, "population")
    assert binom.sf(399, 1000, low[0]) == pytest.approx(0.025)
    assert binom.cdf(400, 1000, high[0]) == pytest.approx(0.025)


@pytest.mark.parametrize("reporters", [12, 60, math.inf])
@pytest.mark.parametrize(("p", "q"), [(0.2, 0.9), (0.01, 0.5), (0.3, 0.99)])
def test_law_of_a_count_has_the_cumulants_of_the_drawn_clients_and_their_noise(
    p: float, q: float, reporters: float
) -> None:
    """By enumeration of the count of n = 12 of N reporters, for shares from 0 to 1: variance and third central moment, equation (10.1)."""
    n, some = 12, np.arange(13)
    sampling, noise = Sampling.of_clients(n, reporters), (p * (1 - p), q * (1 - q))
    for share in (0, 1 / 12, 0.5, 0.75, 1):
        if math.isinf(reporters):
            drawn = binom.pmf(some, n, share)
        else:
            drawn = hypergeom.pmf(some, reporters, round(share * reporters), n)
        of_count = sum(
            chance * np.convolve(binom.pmf(some[: h + 1], h, q), binom.pmf(some[: n - h + 1], n - h, p))
            for h, chance in enumerate(drawn)
        )
        estimates = (some / n - p) / (q - p)
        law = count_law(some, n, (p, q), noise, sampling)
        at = np.full(n + 1, share)
        assert of_count @ estimates == pytest.approx(share, abs=1e-12)
        assert law.std_errors(at) ** 2 == pytest.approx(of_count @ (estimates - share) ** 2, rel=1e-9)
        third = law.skewness(at) * law.std_errors(at) ** 3
        assert third == pytest.approx(of_count @ (estimates - share) ** 3, rel=1e-9, abs=1e-12)


def test_exact_and_gamma_law_intervals_of_categories_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts of variance about 190 and 370, just below the limit of the exact ones: ends within 2 % of the width."""
    counts = BitCounts(colour(0.1, 0.5, 0), [2000], [[900, 500, 205, 190]])
    exact = np.array(category_intervals(Evidence(counts), COLOURS, 0.95, "reporters"))
    monkeypatch.setattr(categories, "_MAX_EXACT_VARIANCE", 0)
    approximate = np.array(category_intervals(Evidence(counts), COLOURS, 0.95, "reporters"))
    width = exact[1] - exact[0]
    assert (exact != approximate).any()
    assert np.abs(exact - approximate).max() < 0.02 * width.min()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("p", "q", "n", "target"),
    [
        (0.25, 0.75, 300, "reporters"),
        (0.02, 0.5, 2000, "reporters"),
        (0.7, 0.2, 20_000, "reporters"),
        (0.25, 0.75, 500, "population"),
    ],
)
def test_category_intervals_cover_singly_and_jointly(
    unseen_seed: int, p: float, q: float, n: int, target: Target
) -> None:
    """Single and joint coverage of 4 categories is at least .95, the single one at most .98: 300 runs, alpha = 1e-6.

    Single intervals without the simultaneous level would cover jointly with probability .81, which fails with probability .999.
    """
    rng, metric = np.random.default_rng(unseen_seed), colour(p, q, 0)
    shares = np.array([0.6, 0.25, 0.0, 0.05, 0.1])  # the last has no value
    runs, single, joint = 300, 0, 0
    for _ in range(runs):
        people = rng.multinomial(n, shares)[:4]
        truth = shares[:4] if target == "population" else people / n
        ones = rng.binomial(people, q) + rng.binomial(n - people, p)
        counts = BitCounts(metric, [n], [ones])
        low, high = category_intervals(Evidence(counts), COLOURS, 0.95, target)
        single += int(np.sum((low <= truth) & (truth <= high)))
        low, high = category_intervals(
            Evidence(counts), COLOURS, simultaneous_level(0.95, 4, independent=target == "reporters"), target
        )
        joint += bool(np.all((low <= truth) & (truth <= high)))
    reach = norm.isf(ALPHA / 2) * math.sqrt(0.95 * 0.05 / runs)
    assert 0.95 - reach / 2 < single / (4 * runs) < 0.98 + reach / 2
    assert joint / runs > 0.95 - reach


def test_unrequested_categories_count_as_unlisted() -> None:
    counts = simulate(colour(), {"red": 60_000, "green": 40_000}, np.random.default_rng(1))
    decoding = decode(counts, ["green", "blue"])
    assert [e.candidate for e in decoding.estimates] == ["green", "blue"]
    assert abs(decoding.unlisted.share - 0.6) < 6 * decoding.unlisted.std_error
    assert decoding.listed_total.share + decoding.unlisted.share + decoding.no_value.share == pytest.approx(1)


def test_rejects_unknown_category_by_name() -> None:
    with pytest.raises(CandidateError, match="'pink' is not one of its categories"):
        decode(BitCounts(colour(), [10], [[1, 2, 3, 4]]), ["pink"])


def test_two_coin_survey_equals_hand_calculation() -> None:
    """1,000 answers, 400 of them yes: (0.4 - 1/4) / (1/2) = 0.3, error sqrt(3/16 / 1000) / (1/2) = 0.0274."""
    survey = Metric.boolean("from_jfk", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
    decoding = decode(BitCounts(survey, [1000], [[400]]))
    assert decoding["true"].share == pytest.approx(0.3)
    assert decoding["true"].std_error == pytest.approx(math.sqrt(3 / 16 / 1000) / 0.5)
    assert decoding["true"].interval == (decoding["true"].simultaneous_low, decoding["true"].simultaneous_high)
    assert decoding.no_value.share == pytest.approx(0.7)


def test_rejects_summary_without_reports() -> None:
    with pytest.raises(SummaryError, match="holds no report"):
        decode(BitCounts.empty(colour()))


MANY = tuple(f"c{number}" for number in range(100))
ROWS = Metric(
    "rows",
    CategoricalKind.one_hot(MANY, None, SubsetSelection(num_values=101, num_ones=40, prob_q=0.5, permanent_q=0.55)),
)


@pytest.mark.parametrize(
    "shares", [1 / np.arange(1, 101), np.ones(100), np.r_[5, 3, 2, np.zeros(97)]], ids=["zipf", "equal", "few"]
)
@pytest.mark.parametrize(
    "metric",
    [Metric.categorical("bits", MANY, UnaryResponse(prob_p=0.4, prob_q=0.6, prob_f=0.5)), ROWS],
    ids=["bits", "rows"],
)
def test_posterior_means_of_many_categories_are_known_and_near_the_shares(
    metric: Metric, shares: NDArray[np.float64], unseen_seed: int
) -> None:
    """100 categories, 20,000 reports, 5 runs: squared error of the posterior means below half of that of estimates cut at 0.

    Of independent bits the total has a standard error of .5, so it is not determined. Of uneven shares the error is also below that of shares
    of 0. Equal ones have no such bound: they are near 0, and their prior is learned from the same noise (up to 1.8 times in 22 seeds).
    """
    rng = np.random.default_rng(unseen_seed)
    errors = np.zeros(3)
    for _ in range(5):
        clients = rng.multinomial(20_000, shares / shares.sum())
        decoding = decode(simulate(metric, dict(zip(MANY, clients.tolist(), strict=True)), rng))
        assert math.isnan(decoding.listed_total.share) is (metric is not ROWS)
        truth = np.array([clients[MANY.index(estimate.candidate)] for estimate in decoding]) / 20_000
        means = np.array([estimate.posterior_mean for estimate in decoding])
        assert means.min() >= 0
        assert means.sum() <= 1 + 1e-9
        cut = np.maximum([estimate.share for estimate in decoding], 0)
        errors += [np.sum((guess - truth) ** 2) for guess in (means, 0, cut)]
    assert errors[0] < errors[2] / 2
    assert errors[0] < errors[1] or np.ptp(shares) == 0
