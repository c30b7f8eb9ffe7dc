"""The best guess: a distribution, close in total variation, and modest where there is nothing to see."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import binom, norm

from hubbub_decoder.array_types import Floats
from hubbub_decoder.inference.null_distribution import NullDistribution
from hubbub_decoder.inference.prior import Prior
from hubbub_decoder.inference.shrinkage import posterior_shares, project_to_total


@settings(max_examples=40)
@given(arrays(float, st.integers(1, 40), elements=st.floats(-0.5, 1)), st.floats(1e-4, 0.3))
def test_posterior_medians_are_nonnegative_and_sum_to_at_most_one(shares: Floats, error: float) -> None:
    guess = posterior_shares(shares, np.full(len(shares), error))
    assert guess.medians.min() >= 0
    assert guess.medians.sum() <= 1 + 1e-9
    assert np.all((guess.low >= 0) & (guess.low <= guess.high))
    assert np.all(guess.medians <= guess.high)


@settings(max_examples=40)
@given(arrays(float, st.integers(1, 40), elements=st.floats(-0.5, 1)), st.floats(1e-4, 0.3), st.floats(-0.5, 1.5))
def test_posterior_means_are_nonnegative_and_sum_to_the_total(shares: Floats, error: float, total: float) -> None:
    guess = posterior_shares(shares, np.full(len(shares), error), total=total)
    assert guess.means.min() >= 0
    assert guess.means.sum() == pytest.approx(min(max(total, 0), 1), abs=1e-9)


@settings(max_examples=40)
@given(arrays(float, st.integers(1, 40), elements=st.floats(0.2, 1)), st.floats(1e-4, 0.1))
def test_posterior_medians_are_inside_their_intervals_when_they_are_scaled(shares: Floats, error: float) -> None:
    guess = posterior_shares(shares, np.full(len(shares), error))
    assert np.all((guess.low <= guess.medians + 1e-12) & (guess.medians <= guess.high + 1e-12))


@settings(max_examples=40)
@given(arrays(float, 6, elements=st.floats(-0.2, 0.6)), st.floats(0, 1))
def test_projection_to_a_total_is_the_nearest_distribution(means: Floats, total: float) -> None:
    """Karush-Kuhn-Tucker: mean - y is one multiplier where y > 0, and at most that where y = 0."""
    y = project_to_total(means, total)
    assert y.min() >= 0
    assert y.sum() == pytest.approx(total, abs=1e-9)
    moved = means - y
    if (y > 0).any():
        multiplier = moved[np.argmax(y)]
        assert moved[y > 0] == pytest.approx(multiplier, abs=1e-9)
        assert moved[y == 0].max(initial=multiplier) <= multiplier + 1e-9


def test_posterior_means_have_nearly_the_error_of_the_oracle(unseen_seed: int) -> None:
    """Zipf over 100 of 300 candidates, errors .004: squared error against the posterior mean under the true distribution, 100 runs.

    The oracle's prior is the distribution of the shares, each spread by a tenth of itself. It knows 300 numbers that we estimate.
    """
    rng = np.random.default_rng(unseen_seed)
    truth = np.concatenate([1 / np.arange(1, 101), np.zeros(200)])
    truth /= truth.sum()
    oracle = Prior(truth, truth / 10, np.full(300, 1 / 300))
    ours, best, unbiased = np.zeros(3)
    for _ in range(100):
        x = rng.normal(truth, 0.004)
        ours += np.sum((posterior_shares(x, np.full(300, 0.004), total=1).means - truth) ** 2)
        best += np.sum((oracle.posterior(x, np.full(300, 0.004**2))[0] - truth) ** 2)
        unbiased += np.sum((x - truth) ** 2)
    assert ours < 1.3 * best < unbiased / 2


def test_posterior_median_without_noise_is_the_estimate() -> None:
    assert posterior_shares(np.array([0.5, 0.3, 0.0]), np.zeros(3)).medians.tolist() == [0.5, 0.3, 0.0]


def test_posterior_median_of_undetermined_share_is_zero() -> None:
    assert posterior_shares(np.array([0.5, np.nan]), np.array([0.01, np.nan])).medians[1] == 0
    assert posterior_shares(np.empty(0), np.empty(0)).medians.size == 0


def test_posterior_medians_of_pure_noise_are_zero(unseen_seed: int) -> None:
    """200 sets of 300 estimates of absent candidates: at most about 1 % of the sets have a positive median; alpha = 1e-6."""
    rng = np.random.default_rng(unseen_seed)
    anything = sum(
        bool(posterior_shares(rng.normal(0, 0.01, 300), np.full(300, 0.01)).medians.any()) for _ in range(200)
    )
    assert anything <= binom.isf(1e-6, 200, 0.01)


def test_posterior_medians_are_closer_to_truth_than_clipping(unseen_seed: int) -> None:
    """Zipf over 100 of 300 candidates, errors .004: half the L1 distance, mean of 50 runs.

    That of 60 such means .207 +- .003 was below .223 by .0158 +- .0032: one in 3 million is not.
    """
    rng = np.random.default_rng(unseen_seed)
    truth = np.concatenate([1 / np.arange(1, 101), np.zeros(200)])
    truth /= truth.sum()
    distances = []
    for _ in range(50):
        shares = rng.normal(truth, 0.004)
        ours = posterior_shares(shares, np.full(300, 0.004)).medians
        cut, found = np.maximum(shares, 0), np.where(shares > 4 * 0.004, shares, 0)
        distances.append([np.abs(guess - truth).sum() / 2 for guess in (ours, cut, found)])
    ours, cut, found = np.mean(distances, axis=0)
    assert ours < found < cut


def test_credible_intervals_cover_on_average_and_are_narrower(unseen_seed: int) -> None:
    """Zipf over 100 of 300 candidates, errors .004: 100 runs, 95 % of all candidates but for the estimated prior; alpha = 1e-6."""
    rng = np.random.default_rng(unseen_seed)
    truth = np.concatenate([1 / np.arange(1, 101), np.zeros(200)])
    truth /= truth.sum()
    covered, widths = [], []
    for _ in range(100):
        guess = posterior_shares(rng.normal(truth, 0.004), np.full(300, 0.004))
        covered.append(np.mean((guess.low <= truth) & (truth <= guess.high)))
        widths.append(np.mean(guess.high - guess.low))
    assert np.mean(covered) > 0.93 - norm.isf(1e-6) * np.std(covered) / 10
    assert np.mean(widths) < 0.5 * 2 * norm.isf(0.025) * 0.004


def test_posterior_median_of_frequent_candidate_is_its_estimate(unseen_seed: int) -> None:
    """One estimate of 100 standard errors among absent candidates: equal within half a standard error, with an interval of equal width."""
    rng = np.random.default_rng(unseen_seed)
    x = rng.normal(np.append(0.4, np.zeros(200)), 0.004)
    guess = posterior_shares(x, np.full(201, 0.004))
    assert guess.medians[0] == pytest.approx(x[0], abs=0.002)
    assert guess.high[0] - guess.low[0] == pytest.approx(2 * norm.isf(0.025) * 0.004, rel=0.05)


def test_posterior_of_normal_errors_is_that_of_a_normal_null_distribution(unseen_seed: int) -> None:
    """Two computations of one posterior: closed form by component, and points on a grid. Strong shares included."""
    rng = np.random.default_rng(unseen_seed)
    truth = np.r_[np.zeros(60), rng.exponential(0.01, 40), 0.1, 0.2]
    errors = rng.uniform(0.004, 0.006, len(truth))
    shares = truth + rng.normal(0, errors)
    normal = posterior_shares(shares, errors, total=0.7)
    gridded = posterior_shares(shares, errors, total=0.7, null=NullDistribution.from_scores([]))
    for name in ("medians", "means", "low", "high"):
        differences = np.abs(getattr(gridded, name) - getattr(normal, name)) / errors
        assert differences.mean() < 0.1, name
        assert differences.max() < 1, name  # an end of an interval is a point, and these are sparse in the tails


def test_rare_large_errors_are_no_shares(unseen_seed: int) -> None:
    """A string adds .15 to each absent candidate with its bits in one of two cohorts, 1 of 20; one candidate has .5. Means of 20 runs.

    Sums of the absent candidates' medians are about a tenth of those with normal errors.
    """
    rng = np.random.default_rng(unseen_seed)
    met, error = np.r_[0.15 * 19 / 20, np.full(19, -0.15 / 20)], 0.02
    total_error = np.hypot(error, 0.15 * np.sqrt(2 * 0.05 * 0.95))
    scores = [(met[:, None] + error / np.sqrt(2) * norm.ppf((np.arange(20) + 0.5) / 20)).ravel() / total_error] * 2
    null, errors, runs = NullDistribution.from_scores(scores), np.full(200, total_error), []
    for _ in range(20):
        shares = rng.choice(met, (2, 200)).sum(axis=0) + rng.normal(0, error, 200)
        shares[0] += 0.5
        with_null, normal = (posterior_shares(shares, errors, total=0.5, null=law).medians for law in (null, None))
        runs.append((with_null[0], with_null[1:].sum(), normal[1:].sum()))
    present, absent, absent_if_normal = np.mean(runs, axis=0)
    assert present == pytest.approx(0.5, abs=0.1)
    assert absent < absent_if_normal / 3


@pytest.mark.parametrize(
    "truth", [np.full(40, 0.5), 0.9 / np.arange(1, 41), np.r_[0.8, 0.6, 0.4, np.zeros(37)]], ids=["half", "zipf", "few"]
)
def test_posterior_shares_of_items_are_not_moved_to_a_total(truth: Floats, unseen_seed: int) -> None:
    """Shares of 40 items of sets, with a total above 1 and errors of .1: squared error of 20 runs below those of 0 and of estimates cut to [0, 1].

    With the prior and the total of values that exclude each other it is above that of cut estimates.
    """
    rng, errors = np.random.default_rng(unseen_seed), np.full(40, 0.1)
    sums = np.zeros(4)
    for _ in range(20):
        x = rng.normal(truth, errors)
        items = posterior_shares(x, errors, exclusive=False)
        assert ((items.low <= items.medians) & (items.medians <= items.high)).all()
        assert 0 <= items.means.min() <= items.means.max() <= 1
        guesses = items.means, np.zeros(40), np.clip(x, 0, 1), posterior_shares(x, errors).means
        sums += [np.sum((guess - truth) ** 2) for guess in guesses]
    assert sums[0] < min(sums[1:])
    assert sums[3] > sums[2] or truth.sum() < 2
