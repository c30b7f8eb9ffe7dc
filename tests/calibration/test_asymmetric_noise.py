"""Variance of L-OSUE as decoded, against its exact law: eps_1 and eps_inf of (4, 8) and (2, 4); 1, 7 and 30 reports; shares 0, .01 and .1."""

from __future__ import annotations

import numpy as np
import pytest

from hubbub import Params
from hubbub.privacy import epsilon, epsilon_permanent
from tests.support.asymmetric_noise import (
    EPSILONS,
    NUMBERS_OF_REPORTS,
    SHARES,
    category_variances,
    law,
    noise,
    string_variances,
)

TOLERANCE = 0.05
REACH = 4.9
"""Standard errors of alpha = 1e-6."""


@pytest.mark.parametrize("epsilons", EPSILONS)
def test_law_is_the_variance_of_the_debiased_bit(epsilons: tuple[float, float]) -> None:
    """eps_1 and eps_inf are those of the parameters, and the law is (D / T + G) / (q* - p*)**2, to the rounding of 2**-24."""
    params = Params(num_bits=64, num_hashes=1, num_cohorts=8, **noise(epsilons))
    assert (epsilon(params), epsilon_permanent(params)) == pytest.approx(epsilons, abs=1e-3)
    instantaneous, permanent = params.mechanism.noise_variances(np.array(SHARES))
    for reports in NUMBERS_OF_REPORTS:
        exact = (instantaneous / reports + permanent) / (params.mechanism.q_star - params.mechanism.p_star) ** 2
        assert exact == pytest.approx([law(epsilons, reports, share) for share in SHARES], rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("reports", NUMBERS_OF_REPORTS)
@pytest.mark.parametrize("epsilons", EPSILONS)
def test_categories_have_the_variance_of_the_law(epsilons: tuple[float, float], reports: int, unseen_seed: int) -> None:
    """25,200 squared errors per share have a standard error of .9 %; 4.9 of them, alpha = 1e-6, are within the tolerance."""
    for variance in category_variances(epsilons, reports, 2_800, np.random.default_rng(unseen_seed)):
        assert variance.std_error < TOLERANCE / REACH, variance
        assert abs(variance.measured - 1) < TOLERANCE, variance
        assert abs(variance.declared - 1) < TOLERANCE, variance


@pytest.mark.slow
@pytest.mark.parametrize("reports", NUMBERS_OF_REPORTS)
@pytest.mark.parametrize("epsilons", EPSILONS)
def test_strings_without_collisions_have_the_variance_of_the_law(
    epsilons: tuple[float, float], reports: int, unseen_seed: int
) -> None:
    """8 cohorts of 128 bits, 27 candidates that share no bit."""
    for variance in string_variances(epsilons, reports, 20, np.random.default_rng(unseen_seed)):
        assert abs(variance.measured - 1) < TOLERANCE + REACH * variance.std_error, variance
        assert abs(variance.declared - 1) < TOLERANCE + 0.02, variance
