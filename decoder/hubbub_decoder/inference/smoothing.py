"""Smoothed shares of ordered buckets: the posterior mean under priors in which neighbouring buckets have similar shares.

Model:     x^_i ~ N(x_i, v_i), x ~ N(L / k, s**2 K_l), K_l(i, j) = (1 + |i - j| / l) exp(-|i - j| / l)    Matern covariance of order 3/2.
Estimator: posterior means, averaged over a grid of s and l with the evidence p(x^ | s, l) as weights; then the nearest shares that are
           nonnegative and add up to L. If the total is known, the prior is that given sum x = L

Noise of different buckets is independent, but the shares of a smooth distribution are not. If they are not smooth, l near 0 has the larger
evidence, and the estimate is that of exchangeable buckets. The estimate is biased, and no interval depends on it.

K_l is the covariance of the first component of an autoregression z_i = F z_(i-1) + w_i. Its two components are the share and its derivative.
The precision of z is banded, so each point of the grid takes O(k):

    F = exp(-r) (1 + r, r; -r, 1 - r)        Cov w = I - F F'        r = 1 / l

Sources: Rasmussen & Williams 2006, sections 2.2, 4.2.1 and 5.2; Hartikainen & Sarkka 2010, "Kalman filtering and smoothing solutions to
temporal Gaussian process regression models".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve_banded, cholesky_banded
from scipy.special import gammainc

from hubbub_decoder.array_types import Floats
from hubbub_decoder.inference.shrinkage import project_to_total

_SHORTEST = 0.25  # of l, in buckets: neighbours have a correlation of .09
_LENGTHS = 8
_SCALES = np.geomspace(1 / 16, 64, 21)  # of s, in average shares
_MAX_CONDITION = 1e10  # ratio of two variances
_BANDS = 4  # of the precision of z: two components of a bucket and of the next


@dataclass(frozen=True, slots=True)
class Prior:
    """Prior of z with mean 0.

    precision : (4, 2 k), lower form of banded matrices        log_det : of the covariance
    variance_of_sum : 1' K 1, if sum x = 0 is known; else None
    """

    precision: Floats
    log_det: float
    variance_of_sum: float | None


def smooth_shares(shares: Floats, variances: Floats, total: float, *, known: bool = False) -> Floats:
    """Smoothed shares (k,) that add up to `total`.

    shares, variances : (k,) each, unbiased estimates with independent noise
    known             : whether the shares are known to add up to `total`
    """
    size = len(shares)
    largest = float(variances.max())
    if not total > 0 or not largest > 0:
        return project_to_total(shares, total)
    variances = np.maximum(variances, largest / _MAX_CONDITION)
    mean, log_evidence, means = total / size, [], []
    for length in (_SHORTEST, *np.geomspace(1, size, _LENGTHS)):
        precision, log_det = _unit_precision(size, 1 / float(length))
        of_sum = _unit_variance_of_sum(size, 1 / float(length)) if known else None
        for scale in _SCALES * mean:
            prior = Prior(precision / scale**2, log_det + 4 * size * math.log(scale), of_sum and scale**2 * of_sum)
            evidence, found = _posterior(prior, shares - mean, variances)
            log_evidence.append(evidence)
            means.append(mean + found)
    weights = np.exp(np.array(log_evidence) - max(log_evidence))
    return project_to_total(np.average(means, axis=0, weights=weights), total)


def _unit_precision(size: int, rate: float) -> tuple[Floats, float]:
    """Precision of (z_1 .. z_k) at s = 1, in the lower form of banded matrices (4, 2 k), and ln det of the covariance.

    gammainc(3, y) = 1 - exp(-y) (1 + y + y**2 / 2) has no cancellation for long l, where the noise w nearly vanishes.
    """
    y, decay = 2 * rate, math.exp(-rate)
    step = decay * np.array([[1 + rate, rate], [-rate, 1 - rate]])
    first, cross = float(gammainc(3, y)), y * rate * decay**2
    second = first + 2 * y * decay**2
    det = first * second - cross**2
    inverse = np.array([[second, -cross], [-cross, first]]) / det
    back = step.T @ inverse @ step
    diagonal = np.broadcast_to(inverse + back, (size, 2, 2)).copy()
    diagonal[0] = np.eye(2) + back
    diagonal[-1] = inverse if size > 1 else np.eye(2)
    below = -inverse @ step
    bands = np.zeros((_BANDS, 2 * size))
    bands[0] = np.column_stack([diagonal[:, 0, 0], diagonal[:, 1, 1]]).ravel()
    bands[1, ::2] = diagonal[:, 1, 0]
    bands[1, 1:-1:2] = below[0, 1]
    bands[2, :-2:2], bands[2, 1:-2:2] = below[0, 0], below[1, 1]
    bands[3, :-3:2] = below[1, 0]
    return bands, (size - 1) * math.log(det)


def _unit_variance_of_sum(size: int, rate: float) -> float:
    """1' K 1 at s = 1."""
    distance = rate * np.arange(size)
    row = (1 + distance) * np.exp(-distance)
    return float(size + 2 * (np.arange(size - 1, 0, -1) @ row[1:]))


def _posterior(prior: Prior, observed: Floats, variances: Floats) -> tuple[float, Floats]:
    """Log evidence, up to a constant, and posterior mean (k,) of x with prior mean 0.

        b = H' V^-1 x^        m = A^-1 b        A = P + H' V^-1 H        ln p = -(x^' V^-1 x^ - b' m + ln det A - ln det P) / 2

    P is the precision of z, and H takes the shares from it. With g = Cov(x | x^) 1, the prior given sum x = 0 leads to m - g 1' m / 1' g
    and ln p - ((1' m)**2 / 1' g + ln(1' g) - ln(1' K 1)) / 2.
    """
    precision = prior.precision.copy()
    precision[0, ::2] += 1 / variances
    factor = cholesky_banded(precision, lower=True, overwrite_ab=True, check_finite=False)
    right = np.zeros((precision.shape[1], 2))
    right[::2, 0] = observed / variances
    right[::2, 1] = 1.0
    solved = cho_solve_banded((factor, True), right, check_finite=False)[::2]
    m, g = solved[:, 0], solved[:, 1]
    quadratic = float((observed**2 / variances).sum() - (observed / variances) @ m)
    evidence = -(quadratic + 2 * float(np.log(factor[0]).sum()) + prior.log_det) / 2
    if prior.variance_of_sum is None:
        return evidence, m
    left, of_sum = float(g.sum()), float(m.sum())
    return evidence - (of_sum**2 / left + math.log(left / prior.variance_of_sum)) / 2, m - g * (of_sum / left)
