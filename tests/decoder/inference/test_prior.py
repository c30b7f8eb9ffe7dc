"""The prior of all shares: a constrained maximum of the likelihood, and its posterior of one estimate."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from hubbub_decoder.inference.prior import Prior, fit_prior, mean_multiplier, mixture_weights, stratified_weights


def test_mixture_weights_maximize_the_constrained_likelihood(unseen_seed: int) -> None:
    """150 steps of EM over K points are within ln K / 150 a candidate of the maximum (Csiszar and Tusnady 1984), which 20,000 reach."""
    rng = np.random.default_rng(unseen_seed)
    grid = np.linspace(0, 0.05, 26)
    x = rng.choice([0.0, 0.02], size=400, p=[0.8, 0.2]) + rng.normal(0, 0.005, 400)
    likelihood = np.exp(-(((x[:, None] - grid) / 0.005) ** 2) / 2)
    free = mixture_weights(likelihood, grid, bound=1.0)
    assert free.sum() == pytest.approx(1)
    best = np.full(26, 1 / 26)
    for _ in range(20_000):
        best *= (likelihood / (likelihood @ best)[:, None]).mean(axis=0)
    short = np.log(likelihood @ best).mean() - np.log(likelihood @ free).mean()
    assert -1e-9 < short < np.log(26) / 150
    assert np.log(likelihood @ best).mean() - np.log(likelihood.mean(axis=1)).mean() > 2 * np.log(26) / 150
    bound = float(free @ grid) / 2
    bounded = mixture_weights(likelihood, grid, bound=bound)
    assert bounded @ grid <= bound * (1 + 1e-6)


def test_weights_of_a_stratum_are_between_its_own_and_the_common_ones() -> None:
    """Every estimate is certain of its component: (own number + 10 common weight) / (own number + 10)."""
    likelihood = np.repeat(np.eye(3), [30, 10, 10], axis=0)
    strata, common = np.repeat([0, 1], [30, 20]), np.array([0.5, 0.3, 0.2])
    expected = (np.array([[30, 0, 0], [0, 10, 10]]) + 10 * common) / np.array([[40], [30]])
    assert stratified_weights(likelihood, common, strata) == pytest.approx(expected)


def test_multiplier_of_the_mean_equals_a_bracketed_root(unseen_seed: int) -> None:
    """Members over nine powers of ten, and deviations up to 1e5, as of candidates with shares far above the bound."""
    rng = np.random.default_rng(unseen_seed)
    for _ in range(200):
        components = int(rng.integers(2, 60))
        members = 10 ** rng.uniform(-9, 0, components)
        members /= members.sum()
        deviation = np.append(-1, 10 ** rng.uniform(-3, 5, components - 1) - 1)
        if members @ deviation <= 0:
            continue
        expected = brentq(lambda mu, m=members, d=deviation: np.sum(m * d / (1 + mu * d)), 0, 1 - 1e-15, xtol=1e-14)
        assert mean_multiplier(members, deviation) == pytest.approx(expected, abs=1e-10)


def test_multiplier_without_a_root_is_nearly_one() -> None:
    assert 1 - 1e-10 < mean_multiplier(np.array([0.0, 0.5, 0.5]), np.array([-1.0, -0.1, 4.0])) < 1


def test_posterior_mean_and_variance_match_integration() -> None:
    """By adding up prior times likelihood over a fine grid; the component at 0 has no width."""
    prior = Prior(np.array([0, 0.1, 0.3]), np.array([0, 0.04, 0.12]), np.array([0.5, 0.3, 0.2]))
    t = np.linspace(-1, 2, 300_001)
    smooth = sum(
        w * norm.pdf(t, c, s) for w, c, s in zip(prior.weights[1:], prior.centres[1:], prior.widths[1:], strict=True)
    )
    x, v = np.array([-0.1, 0.05, 0.2, 0.9]), np.array([0.01, 0.01, 0.04, 0.01])
    mean, variance = prior.posterior(x, v)
    for j in range(4):
        density = smooth * norm.pdf(x[j], t, np.sqrt(v[j])) * (t[1] - t[0])
        nothing = 0.5 * norm.pdf(x[j], 0, np.sqrt(v[j]))
        total = density.sum() + nothing
        first = (t * density).sum() / total
        assert mean[j] == pytest.approx(first, rel=1e-4)
        assert variance[j] == pytest.approx((t**2 * density).sum() / total - first**2, rel=1e-4)


@pytest.mark.parametrize("signed", [False, True], ids=["bounded mean", "signed"])
def test_fitted_posterior_variance_is_the_derivative_of_the_mean(signed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By central differences of a fit that has converged; the largest estimate, which decides the grid of centres, stays.

    It is more than the variance under the prior, which takes the prior for known.
    """
    monkeypatch.setattr("hubbub_decoder.inference.prior._MAX_STEPS", 1_000)
    monkeypatch.setattr("hubbub_decoder.inference.prior._CONVERGENCE_TOLERANCE", -np.inf)
    monkeypatch.setattr("hubbub_decoder.inference.prior.PSEUDO_CANDIDATES", 5.0)  # so that EM converges
    x = 1 / np.arange(1, 13) / 3.1 + np.random.default_rng(1).uniform(-0.05, 0.05, 12)
    variances = np.full(12, 0.05**2)
    prior = fit_prior(x, variances, signed=signed)
    found, known = prior.fitted_posterior(x, variances)[1], prior.posterior(x, variances)[1]
    assert np.all(found >= known * (1 - 1e-9))
    for v in range(12):
        if v == np.abs(x).argmax() or found[v] >= 0.99 * max(known[v], variances[v]):
            continue
        low, high = (
            fit_prior(moved, variances, signed=signed).posterior(moved, variances)[0][v]
            for moved in (x + step * (np.arange(12) == v) for step in (-1e-5, 1e-5))
        )
        assert found[v] == pytest.approx(variances[v] * (high - low) / 2e-5, rel=2e-3)
        assert found[v] > known[v]


def test_fitted_prior_keeps_large_shares_and_shrinks_noise(unseen_seed: int) -> None:
    """Posterior means of 500 shares of 0 sum to the sum of their noise, if positive, and to at most two standard errors of it.

    Of 4,000 draws with other seeds 1 in 100 was above .89, 1 in 1000 above 1.15, none above 1.29: two is rarer than 1e-6. Without
    the prior it is 18.
    """
    rng = np.random.default_rng(unseen_seed)
    noise = rng.normal(0, 0.004, 502)
    x = np.concatenate([[0.3, 0.2], np.zeros(500)]) + noise
    mean, variance = fit_prior(x, np.full(502, 0.004**2)).posterior(x, np.full(502, 0.004**2))
    assert mean[:2] == pytest.approx(x[:2], abs=0.002)
    assert variance[:2] == pytest.approx(0.004**2, rel=0.05)
    assert np.abs(mean[2:]).sum() < max(0, noise[2:].sum()) + 2 * 0.004 * np.sqrt(500)
    assert np.mean(variance[2:]) < 0.004**2 / 4
