"""The best guess: a distribution, close in total variation, and modest where there is nothing to see."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.stats import binom

from hubbub_decoder.best_guess import _prior, best_guess

Floats = NDArray[np.float64]


@settings(max_examples=40)
@given(arrays(float, st.integers(1, 40), elements=st.floats(-0.5, 1)), st.floats(1e-4, 0.3))
def test_it_is_never_negative_and_adds_up_to_one_at_most(shares: Floats, error: float) -> None:
    guess = best_guess(shares, np.full(len(shares), error))
    assert guess.min() >= 0
    assert guess.sum() <= 1 + 1e-9


def test_without_noise_it_is_the_estimate() -> None:
    assert best_guess(np.array([0.5, 0.3, 0.0]), np.zeros(3)).tolist() == [0.5, 0.3, 0.0]


def test_what_was_not_fitted_is_guessed_to_be_nothing() -> None:
    assert best_guess(np.array([0.5, np.nan]), np.array([0.01, np.nan]))[1] == 0
    assert best_guess(np.empty(0), np.empty(0)).size == 0


def test_pure_noise_is_guessed_to_be_nothing(unseen_seed: int) -> None:
    """200 sets of 300 estimates of nothing: hardly more than the 1 % of the test guess anything; alpha = 1e-6."""
    rng = np.random.default_rng(unseen_seed)
    anything = sum(bool(best_guess(rng.normal(0, 0.01, 300), np.full(300, 0.01)).any()) for _ in range(200))
    assert anything <= binom.isf(1e-6, 200, 0.01)


def test_it_is_nearer_the_truth_than_cutting_off_at_zero_or_keeping_what_was_found(unseen_seed: int) -> None:
    """Zipf over 100 of 300 candidates, errors .004: half the L1 distance, mean of 50 runs."""
    rng = np.random.default_rng(unseen_seed)
    truth = np.concatenate([1 / np.arange(1, 101), np.zeros(200)])
    truth /= truth.sum()
    distances = []
    for _ in range(50):
        shares = rng.normal(truth, 0.004)
        ours = best_guess(shares, np.full(300, 0.004))
        cut, found = np.maximum(shares, 0), np.where(shares > 4 * 0.004, shares, 0)
        distances.append([np.abs(guess - truth).sum() / 2 for guess in (ours, cut, found)])
    ours, cut, found = np.mean(distances, axis=0)
    assert ours < found < cut


def test_the_prior_is_a_maximum_of_the_likelihood_under_its_bound(unseen_seed: int) -> None:
    """Kiefer and Wolfowitz' condition: where the bound does not bind, no point of the grid would raise the likelihood."""
    rng = np.random.default_rng(unseen_seed)
    grid = np.linspace(0, 0.05, 26)
    x = rng.choice([0.0, 0.02], size=400, p=[0.8, 0.2]) + rng.normal(0, 0.005, 400)
    likelihood = np.exp(-(((x[:, None] - grid) / 0.005) ** 2) / 2)
    free = _prior(likelihood, grid, bound=1.0)
    assert free.sum() == pytest.approx(1)
    gradient = (likelihood / (likelihood @ free)[:, None]).mean(axis=0)
    assert gradient.max() < 1.01
    bound = float(free @ grid) / 2
    bounded = _prior(likelihood, grid, bound=bound)
    assert bounded @ grid <= bound * (1 + 1e-6)
