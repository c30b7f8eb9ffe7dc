"""Distributions by scipy.special, compared with scipy.stats."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from hubbub_decoder.model.distributions import binom, chi2, norm, student_t

TAILS = np.concatenate([[0, 1], 10.0 ** -np.arange(1, 300, 7), 1 - 10.0 ** -np.arange(1, 16)])
POINTS = np.concatenate([np.linspace(-40, 40, 401), [-np.inf, np.inf, np.nan]])


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (norm.cdf(POINTS), stats.norm.cdf(POINTS)),
        (norm.sf(POINTS), stats.norm.sf(POINTS)),
        (norm.ppf(TAILS), stats.norm.ppf(TAILS)),
        (norm.isf(TAILS), stats.norm.isf(TAILS)),
        (student_t.sf(POINTS, 7), stats.t.sf(POINTS, 7)),
        (chi2.sf(np.abs(POINTS)[:, None], [1, 2, 5000]), stats.chi2.sf(np.abs(POINTS)[:, None], [1, 2, 5000])),
        (chi2.isf(TAILS[1:, None], [1, 2, 50]), stats.chi2.isf(TAILS[1:, None], [1, 2, 50])),
    ],
)
def test_continuous_distributions_equal_those_of_scipy_stats(
    ours: NDArray[np.float64], theirs: NDArray[np.float64]
) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=0)


@pytest.mark.parametrize("trials", [0, 1, 7, 1000, 10**9])
@pytest.mark.parametrize("probability", [0.0, 1e-7, 0.3, 0.999, 1.0])
def test_binomial_distribution_equals_that_of_scipy_stats(trials: int, probability: float) -> None:
    """Rounding the probability to a float changes a tail of n trials by a relative n * 2**-52 or so."""
    deviation = np.sqrt(trials * probability * (1 - probability))
    successes = np.unique(np.rint(trials * probability + np.linspace(-12, 12, 49) * deviation))
    successes = np.concatenate([successes, [-1, 0, trials - 1, trials, trials + 1]])
    for ours, theirs in ((binom.sf, stats.binom.sf), (binom.cdf, stats.binom.cdf)):
        expected = theirs(successes, trials, probability)
        np.testing.assert_allclose(
            ours(successes, trials, probability), expected, rtol=1e-11 + trials * 2**-52, atol=1e-300
        )
