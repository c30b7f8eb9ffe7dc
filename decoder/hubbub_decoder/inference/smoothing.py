"""Smoothed shares of ordered buckets: the posterior mean under priors in which neighbouring buckets have similar shares.

Model:     x^ ~ N(x, V), x ~ N(L / k, s**2 K_l), K_l(i, j) = (1 + |i - j| / l) exp(-|i - j| / l)      Matern covariance of order 3/2
Estimator: posterior means, averaged over a grid of s and l with the evidence p(x^ | s, l) as weights; then the nearest shares that are
           nonnegative and add up to L

Noise of different buckets is independent, but the shares of a smooth distribution are not. If they are not smooth, l near 0 has the larger
evidence, and the estimate is that of exchangeable buckets. The estimate is biased, and no interval depends on it.
Source: Rasmussen & Williams 2006, sections 2.2, 4.2.1 and 5.2.
"""

from __future__ import annotations

import numpy as np

from hubbub_decoder.array_types import Floats
from hubbub_decoder.inference.shrinkage import project_to_total

_SHORTEST = 0.25  # of l, in buckets: neighbours have a correlation of .09
_LENGTHS = 8
_SCALES = np.geomspace(1 / 16, 64, 21)  # of s, in average shares
_MAX_CONDITION = 1e10  # of the covariance; smaller eigenvalues are those of a known total


def smooth_shares(shares: Floats, covariance: Floats, total: float) -> Floats:
    """Smoothed shares (k,) that add up to `total`.

    shares, covariance : (k,) and (k, k), unbiased estimates
    """
    size = len(shares)
    lengths = (_SHORTEST, *np.geomspace(1, size, _LENGTHS))
    mean = np.full(size, total / size)
    variances, directions = np.linalg.eigh(covariance)
    known = variances > variances[-1] / _MAX_CONDITION
    if not known.any():
        return project_to_total(shares, total)
    root = directions[:, known] * np.sqrt(variances[known])
    inverse_root = directions[:, known].T / np.sqrt(variances[known])[:, None]
    centered = inverse_root @ (shares - mean)
    distance = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    log_evidence, means = [], []
    for length in lengths:
        kernel = (1 + distance / length) * np.exp(-distance / length)
        values, vectors = np.linalg.eigh(inverse_root @ kernel @ inverse_root.T)
        values, rotated = np.maximum(values, 0), vectors.T @ centered
        for scale in _SCALES * total / size:
            marginal = 1 + scale**2 * values
            log_evidence.append(-(np.log(marginal) + rotated**2 / marginal).sum() / 2)
            means.append(mean + root @ (vectors @ (rotated * (1 - 1 / marginal))))
    weights = np.exp(np.array(log_evidence) - max(log_evidence))
    return project_to_total(np.average(means, axis=0, weights=weights), total)
