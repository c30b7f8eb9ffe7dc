"""Least-squares fit of a mixture to counts, of which both the goodness-of-fit tests and the plausibility tests are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_RELATIVE_RANK_TOLERANCE = 1e-13


class Components(Protocol):
    """Components of a mixture over cells, R = P(cell | component), by the sums that a fit needs."""

    def mixture(self, theta: Floats) -> Floats:
        """R theta, (cells,)."""

    def score(self, weights: Floats) -> Floats:
        """R' w, (components,)."""

    def information(self, weights: Floats) -> Floats:
        """R' diag(w) R, (components, components)."""


@dataclass(frozen=True, slots=True, eq=False)
class TabulatedComponents:
    """Components given by the table R, (cells, components)."""

    probabilities: Floats

    def mixture(self, theta: Floats) -> Floats:
        return np.asarray(self.probabilities @ theta)

    def score(self, weights: Floats) -> Floats:
        return np.asarray(self.probabilities.T @ weights)

    def information(self, weights: Floats) -> Floats:
        return np.asarray(self.probabilities.T @ (self.probabilities * weights[:, None]))


def fit_shares(
    counts: NDArray[np.int64] | Floats,
    components: Components,
    expected: Floats,
    merged: NDArray[np.bool_] | None = None,
) -> tuple[Floats, int]:
    """Shares theta of the components, (components,), by weighted least squares, and the rank of the problem.

        minimize over theta   sum_s (c_s - lambda_s)**2 / expected_s        lambda = R theta

    The shares may be negative. With the `expected` counts of earlier shares this is a step of Fisher scoring: repeated steps end where
    the shares maximize the likelihood of the counts.

    counts, expected : (cells,)
    merged           : (cells,) cells that count as one; None: none do
    """
    weights = 1 / np.maximum(expected, np.finfo(float).tiny)
    if merged is not None:
        weights[merged] = 0
    information, score = components.information(weights), components.score(weights * counts)
    if merged is not None and merged.any():
        together = components.score(merged.astype(np.float64))
        information += np.outer(together, together) / expected[merged].sum()
        score += together * (counts[merged].sum() / expected[merged].sum())
    values, vectors = np.linalg.eigh(information)
    kept = values > _RELATIVE_RANK_TOLERANCE * values[-1]
    directions = vectors[:, kept]
    return directions @ ((directions.T @ score) / values[kept]), int(kept.sum())
