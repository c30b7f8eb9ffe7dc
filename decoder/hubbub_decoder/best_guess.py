"""Estimates -> one distribution to look at as a whole: shrunk, never negative, at most one in sum. Not unbiased, no intervals.

An unbiased estimate of a share far below its standard error is mostly noise, and a thousand of them are a thousand times that. What all
estimates together say about how large shares are is a prior; each guess is the median of what the prior and its own estimate say.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import chi2

Floats = NDArray[np.float64]

_POINTS, _STEPS = 60, 150
_SMALLEST = 0.3  # of the smallest standard error: what is smaller looks like nothing
_DOUBT = 0.01
_SETTLED = 1e-7


def best_guess(shares: Floats, std_errors: Floats) -> Floats:
    """Guess all shares at once: the posterior medians under a prior estimated from the estimates themselves.

        maximize over G  sum_v ln integral N(x_v | t, s_v**2) dG(t)        t >= 0,  M E_G t <= 1
        guess_v = median of t given x_v

    The prior G is a free distribution on 0 and a geometric grid; its mean is bounded because shares add up to at most one. The median
    is what minimizes the expected total variation. If the estimates would be no surprise were every share 0 (likelihood ratio test,
    1 %), the guess is 0.

    shares, std_errors : (M,); where not finite the guess is 0      returns (M,) >= 0, at most 1 in sum
    Source: Kiefer & Wolfowitz 1956; Efron 2010, ch. 1.
    """
    guess = np.zeros(len(shares))
    known = np.isfinite(shares) & np.isfinite(std_errors) & (std_errors > 0)
    guess[~known & (std_errors == 0)] = np.maximum(shares[~known & (std_errors == 0)], 0)
    if known.any():
        guess[known] = _medians(shares[known], std_errors[known])
    return guess / max(1.0, float(guess.sum()))


def _medians(x: Floats, s: Floats) -> Floats:
    top = max(float(x.max()) * 1.05, 2 * float(s.min()))
    grid = np.concatenate([[0], np.geomspace(_SMALLEST * s.min(), top, _POINTS)])
    squares = ((x[:, None] - grid) / s[:, None]) ** 2
    best = squares.min(axis=1, keepdims=True)
    likelihood = np.exp((best - squares) / 2)
    prior = _prior(likelihood, grid, bound=1 / len(x))
    evidence = 2 * np.log(likelihood @ prior).sum() + (squares[:, 0] - best[:, 0]).sum()
    if evidence < chi2.isf(_DOUBT, 2):
        return np.zeros(len(x))
    below = np.cumsum(likelihood * prior, axis=1)
    return np.asarray(grid[np.argmax(below >= below[:, -1:] / 2, axis=1)])


def _prior(likelihood: Floats, grid: Floats, bound: float) -> Floats:
    """Maximize the likelihood of the mixture over weights whose mean is at most `bound`, by EM with a multiplier."""
    weights = np.full(len(grid), 1 / len(grid))
    deviation = grid / bound - 1
    was = -np.inf
    for _ in range(_STEPS):
        density = likelihood @ weights
        members = weights * (likelihood / density[:, None]).mean(axis=0)
        weights = members / members.sum()
        if weights @ deviation > 0:

            def slack(multiplier: float, members: Floats = members) -> float:
                return float(np.sum(members * deviation / (1 + multiplier * deviation)))

            nearly = 1 - 1e-12
            multiplier = brentq(slack, 0, nearly, maxiter=500) if slack(nearly) < 0 else nearly
            weights = members / (1 + multiplier * deviation)
            weights /= weights.sum()
        now = float(np.log(density).mean())
        if now - was < _SETTLED:
            break
        was = now
    return weights
