"""Shares of the components of one part: maximum likelihood over non-negative shares, and one unconstrained step from it.

Model:     `components.py`
Point:     z = argmax over z >= 0, sum z = 1 of mean log z'r; sequential quadratic programs, each a non-negative least squares problem
Estimator: x = z + E (E'A E)^-1 E' (mean l - 1), unbiased to first order and possibly negative; the columns of E (C, C - 1) are an
           orthonormal basis of the vectors with sum 0

Source: Kim, Carbonetto, Stephens, Anitescu 2020 ("A fast algorithm for maximum likelihood estimation of mixture proportions using
sequential quadratic programming") for z.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.optimize import nnls

from hubbub_decoder.array_types import Floats
from hubbub_decoder.association.components import Sample
from hubbub_decoder.inference.shrinkage import posterior_shares

_EM_STEPS, _MAX_STEPS = 15, 12
_TOLERANCE = 1e-6  # of the largest possible gain in mean log-likelihood
_MIN_SHARE = 1e-5  # of a component, divided by C, so that every report stays possible
_SUBSAMPLE = 30_000


@dataclass(frozen=True, eq=False)
class MarginFit:
    """Shares of the components of a part.

    Attributes
    ----------
    point
        Shape (C,), z, non-negative with sum 1, at which the scores are taken.
    shares
        Shape (C,), x, unbiased shares of the components.
    std_errors
        Shape (C,), standard errors of x, with the noise of the reports and the draw of the reporters.
    information
        Shape (C - 1, C - 1), N E'A E.
    """

    point: Floats
    shares: Floats
    std_errors: Floats
    information: Floats

    def guess(self, allowed: NDArray[np.bool_]) -> Floats:
        """Return the posterior means of the shares of the allowed components.

        The estimates and standard errors behind them are those with the other shares known to be 0.

        returns : shape (C,), non-negative with sum 1. It is 0 for the other components.
        """
        basis, chosen = contrasts(len(self.shares)), np.flatnonzero(allowed)
        kept = np.zeros((len(self.shares), len(chosen) - 1))
        kept[chosen] = contrasts(len(chosen))
        weights = basis @ self.information @ basis.T
        covariance = inverse(kept.T @ weights @ kept)
        even = np.where(allowed, 1 / len(chosen), 0)
        shares = even + kept @ covariance @ kept.T @ weights @ (self.shares - even)
        std_errors = np.sqrt(np.diag(kept @ covariance @ kept.T))
        guessed = np.zeros(len(shares))
        guessed[chosen] = posterior_shares(shares[chosen], std_errors[chosen], total=1.0).means
        return guessed


def contrasts(number: int) -> Floats:
    """E, (C, C - 1): an orthonormal basis of the vectors with sum 0 (Helmert).

    >>> basis = contrasts(4)
    >>> bool(np.allclose(basis.T @ basis, np.eye(3)) and np.allclose(basis.sum(axis=0), 0))
    True
    """
    basis = np.zeros((number, number - 1))
    for column in range(number - 1):
        basis[: column + 1, column] = 1
        basis[column + 1, column] = -(column + 1)
    return np.asarray(basis / np.linalg.norm(basis, axis=0))


def outer(vectors: Sequence[Floats]) -> Floats:
    """Product of vectors, one along each axis."""
    return np.asarray(functools.reduce(np.multiply.outer, vectors))


def inverse(matrix: Floats) -> Floats:
    """Inverse of a positive semidefinite matrix; directions without information (relative eigenvalue below 1e-12) are set to 0."""
    symmetric = (matrix + matrix.T) / 2
    with contextlib.suppress(np.linalg.LinAlgError):
        factor, lower = linalg.cho_factor(symmetric)
        diagonal = np.diag(factor)
        if diagonal.min() > 1e-5 * diagonal.max():
            return np.asarray(linalg.cho_solve((factor, lower), np.eye(len(matrix))))
    values, vectors = np.linalg.eigh(symmetric)
    weights = np.where(values > 1e-12 * max(values[-1], 0), 1 / np.where(values > 0, values, 1), 0)
    return np.asarray((vectors * weights) @ vectors.T)


def fit_point(sample: Sample, part: int) -> Floats:
    """z of a part, (C,): to convergence on a subsample, then one step on all reports. Time O(N C**2)."""
    point = _maximize(sample.thin(_SUBSAMPLE), part)
    return _quadratic_step(*_moments(sample, part, point)) if sample.num_reports > _SUBSAMPLE else point


def fit_margin(point: Floats, mean: Floats, second: Floats, num_reports: int) -> MarginFit:
    """Margin from the scores at z: one step of Fisher scoring.

    mean : (C - 1,) E' mean l        second : (C - 1, C - 1) E' A E, mean of all reports
    """
    basis, inverted = contrasts(len(point)), inverse(second)
    variance = basis @ inverted @ (second - np.outer(mean, mean)) @ inverted @ basis.T / num_reports
    return MarginFit(
        point, point + basis @ inverted @ mean, np.sqrt(np.maximum(np.diag(variance), 0)), num_reports * second
    )


def _maximize(sample: Sample, part: int) -> Floats:
    """Maximum likelihood shares of a sample that fits into memory."""
    ratios = np.concatenate([block for _, block in sample.blocks(part)], axis=1)
    point = np.full(len(ratios), 1 / len(ratios))
    for _ in range(_EM_STEPS):
        point = point * (ratios @ (1 / (point @ ratios))) / ratios.shape[1]
    fitted = point @ ratios
    for _ in range(_MAX_STEPS):
        scores = ratios / fitted
        mean = scores.mean(axis=1)
        if mean.max() - 1 < _TOLERANCE:
            break
        step = _quadratic_step(mean, scores @ scores.T / scores.shape[1]) - point
        length, start = 1.0, float(np.log(fitted).mean())
        while length > 1e-3 and float(np.log((point + length * step) @ ratios).mean()) < start:
            length /= 2
        point = point + length * step
        fitted = point @ ratios
    return _floored(point)


def _moments(sample: Sample, part: int, point: Floats) -> tuple[Floats, Floats]:
    """Mean of l and mean of l l' over all reports."""
    mean, second = np.zeros(len(point)), np.zeros((len(point),) * 2)
    for _, ratios in sample.blocks(part):
        scores = ratios / (point @ ratios)
        mean += scores.sum(axis=1)
        second += scores @ scores.T
    n = sample.num_reports
    return mean / n, second / n


def _quadratic_step(mean: Floats, information: Floats) -> Floats:
    """Maximum over z >= 0 of the quadratic model of the log-likelihood: z'(2 mean - 1) - z'A z / 2, scaled to sum 1."""
    values, vectors = np.linalg.eigh(information)
    roots = np.sqrt(np.maximum(values, 1e-12 * values[-1]))
    root = (vectors * roots).T
    target = (vectors / roots).T @ (2 * mean - 1)
    return _floored(nnls(root, target)[0])


def _floored(shares: Floats) -> Floats:
    floored = np.maximum(shares, _MIN_SHARE / len(shares))
    return np.asarray(floored / floored.sum())
