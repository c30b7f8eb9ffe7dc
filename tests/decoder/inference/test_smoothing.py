"""Smoothed shares: the banded computation against dense matrices, at every point of the grid and as a whole."""

from __future__ import annotations

import numpy as np
import pytest

from hubbub_decoder.array_types import Floats
from hubbub_decoder.inference import smoothing
from hubbub_decoder.inference.shrinkage import project_to_total
from hubbub_decoder.inference.smoothing import smooth_shares


def kernel(size: int, length: float) -> Floats:
    distance = np.abs(np.subtract.outer(np.arange(size), np.arange(size))) / length
    return np.asarray((1 + distance) * np.exp(-distance))


def dense_smoothing(shares: Floats, variances: Floats, total: float, *, known: bool) -> Floats:
    """The model of the module by its definition: Gaussian posteriors and evidence from k x k matrices."""
    size = len(shares)
    mean = total / size
    observed, evidence, means = shares - mean, [], []
    for length in (0.25, *np.geomspace(1, size, 8)):
        for scale in np.geomspace(1 / 16, 64, 21) * mean:
            prior = scale**2 * kernel(size, float(length))
            if known:
                of_sum = prior.sum(axis=1)
                prior = prior - np.outer(of_sum, of_sum) / of_sum.sum()
            marginal = prior + np.diag(variances)
            solved = np.linalg.solve(marginal, observed)
            evidence.append(-(observed @ solved + np.linalg.slogdet(marginal)[1]) / 2)
            means.append(mean + prior @ solved)
    weights = np.exp(np.array(evidence) - max(evidence))
    return project_to_total(np.average(means, axis=0, weights=weights), total)


def random_task(size: int, chance: np.random.Generator) -> tuple[Floats, Floats]:
    """Unbiased shares and their variances, of a smooth distribution in one of two tasks."""
    smooth = np.exp(-(((np.arange(size) - size * chance.random()) / (size * chance.uniform(0.1, 0.5))) ** 2))
    shares = smooth / smooth.sum() if chance.random() < 0.5 else chance.dirichlet(np.ones(size))
    variances = (chance.uniform(0.05, 1) / size) ** 2 * chance.uniform(0.3, 3, size)
    return shares + np.sqrt(variances) * chance.normal(size=size), variances


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("size", [2, 3, 7, 40, 150])
def test_smoothed_shares_are_those_of_dense_matrices(size: int, unseen_seed: int, *, known: bool) -> None:
    chance = np.random.default_rng(unseen_seed)
    shares, variances = random_task(size, chance)
    total = 1.0 if known else 0.9
    found = smooth_shares(shares, variances, total, known=known)
    assert found == pytest.approx(dense_smoothing(shares, variances, total, known=known), abs=1e-6 / size)


@pytest.mark.parametrize("rate", [4.0, 1.0, 1e-3])
def test_precision_inverts_the_kernel(rate: float) -> None:
    """The share's block of the inverse of the banded precision, at the longest l of 1,000 buckets too."""
    size = 12
    bands, log_det = smoothing._unit_precision(size, rate)
    precision = np.zeros((2 * size, 2 * size))
    for band, row in enumerate(bands):
        for i in range(2 * size - band):
            precision[i + band, i] = precision[i, i + band] = row[i]
    sign, negative = np.linalg.slogdet(precision)
    assert sign == 1
    assert log_det == pytest.approx(-negative, rel=1e-6, abs=1e-6)
    covariance = np.linalg.inv(precision)[::2, ::2]
    assert covariance == pytest.approx(kernel(size, 1 / rate), abs=2e-5)
    assert smoothing._unit_variance_of_sum(size, rate) == pytest.approx(kernel(size, 1 / rate).sum())


def test_shares_without_noise_are_kept() -> None:
    shares = np.array([0.5, 0.0, 0.3, 0.2])
    assert smooth_shares(shares, np.zeros(4), 1.0, known=True) == pytest.approx(shares)
    noisy = np.array([0.0, 0.0, 1e-3, 1e-3])
    assert smooth_shares(shares, noisy, 1.0, known=True)[:2] == pytest.approx(shares[:2], abs=1e-6)


def test_shares_without_a_total_are_zero() -> None:
    assert smooth_shares(np.array([0.1, -0.2]), np.ones(2), 0.0) == pytest.approx(np.zeros(2))
