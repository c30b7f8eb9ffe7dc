"""Posterior of each share where the errors have the law of random strings, which is not normal.

Model:      x_v = share_v + s_v Z_v        share_v ~ G for all candidates v        Z ~ the null distribution (`null_distribution.py`)
            G = sum_k weights_k G_k        G_0 = a point mass at 0        G_k = quantiles of N(centre_k, (.3 centre_k)**2)
Likelihood: L_k(x_v) = mean over the points t of G_k of f((x_v - t) / s_v)        f : density of Z, smoothed by .15

It is used where no candidate is subtracted from the others. A frequent string then adds its share to all candidates that have its bits in a
cohort. A normal law takes these errors for shares; the null distribution has them. docs/explanation/mathematics.md, equation (8.2).
Source: Efron 2016 (deconvolution with a prior on a grid).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.inference.null_distribution import NullDistribution
from hubbub_decoder.inference.prior import (
    PSEUDO_CANDIDATES,
    RELATIVE_WIDTH,
    mixture_weights,
    prior_centres,
    stratified_weights,
)
from hubbub_decoder.model.distributions import norm

_POINTS, _POINTS_PER_ERROR = 9, 2  # of each component: at least, and for each typical standard error of its centre
_SMOOTHING = 0.15  # standard errors
_LEAST = 1e-3  # of the normal density: a law that is not seen in the tails is no lighter
_TINY = 1e-300
_ROWS = 2_000  # candidates at once


@dataclass(frozen=True, eq=False)
class DiscretePosterior:
    """Posterior of M shares on T points that are the same for all.

    points : (T,) ascending      weights : (K,) prior, or (M, K)      components : (T,) of each point
    """

    x: Floats
    std_errors: Floats
    null: NullDistribution
    points: Floats
    components: Indices
    weights: Floats
    statistic: float

    @classmethod
    def fit(cls, x: Floats, std_errors: Floats, null: NullDistribution, strata: Indices | None) -> DiscretePosterior:
        """Fit the prior's weights to estimates x (M,), as `fit_prior` does; statistic : 2 ln(L / L_0), L_0 that of shares that are all 0."""
        centres = prior_centres(x, std_errors**2)
        numbers = np.maximum(_POINTS, _POINTS_PER_ERROR * centres / np.median(std_errors)).astype(int)
        numbers[0] = 1
        components = np.repeat(np.arange(len(centres)), numbers)
        probabilities = np.concatenate([(np.arange(number) + 0.5) / number for number in numbers])
        points = centres[components] * (1 + RELATIVE_WIDTH * norm.ppf(probabilities))
        order = np.argsort(points, kind="stable")
        points, components = points[order], components[order]
        sizes = np.bincount(components)
        likelihood = np.vstack(
            [
                np.array([np.bincount(components, row) for row in _densities(x[rows], std_errors[rows], null, points)])
                / sizes
                for rows in _blocks(len(x))
            ]
        )
        weights = mixture_weights(likelihood, centres, 1 / len(x), PSEUDO_CANDIDATES)
        own = weights if strata is None else stratified_weights(likelihood, weights, strata)[strata]
        statistic = 2 * float(np.log((likelihood * own).sum(axis=1) / likelihood[:, 0]).sum())
        return cls(x, std_errors, null, points, components, own, statistic)

    def summarize(self, levels: tuple[float, ...]) -> tuple[Floats, Floats]:
        """Means (M,), and quantiles at the levels, (levels, M)."""
        means, quantiles = np.empty(len(self.x)), np.empty((len(levels), len(self.x)))
        of_points = np.atleast_2d(self.weights / np.bincount(self.components))[:, self.components]
        for rows in _blocks(len(self.x)):
            prior = of_points if len(of_points) == 1 else of_points[rows]
            posterior = prior * _densities(self.x[rows], self.std_errors[rows], self.null, self.points)
            reach = np.cumsum(posterior / posterior.sum(axis=1, keepdims=True), axis=1)
            means[rows] = np.diff(reach, axis=1, prepend=0) @ self.points
            for quantile, level in zip(quantiles, levels, strict=True):
                quantile[rows] = self.points[np.minimum((reach < level).sum(axis=1), len(self.points) - 1)]
        return means, quantiles


def _densities(x: Floats, std_errors: Floats, null: NullDistribution, points: Floats) -> Floats:
    """Density of Z at (x - t) / s, (M, T)."""
    z = (x[:, None] - points) / std_errors[:, None]
    step = float(null.z[1] - null.z[0])
    reach = np.arange(-round(4 * _SMOOTHING / step), round(4 * _SMOOTHING / step) + 1) * step
    kernel = np.exp(-((reach / _SMOOTHING) ** 2) / 2)
    density = np.convolve(-np.diff(null.above) / step, kernel / kernel.sum(), "same")
    seen = np.interp(z, (null.z[1:] + null.z[:-1]) / 2, density, left=0, right=0)
    return np.asarray(np.maximum(seen, _LEAST * np.exp(-(z**2) / 2)) + _TINY)


def _blocks(size: int) -> list[slice]:
    return [slice(start, start + _ROWS) for start in range(0, size, _ROWS)]
