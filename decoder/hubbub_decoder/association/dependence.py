"""Dependence of two or three parts: an efficient estimate of their interaction, and a score test of independence.

Model: joint shares P with margins x_k. The interaction D of a subset of parts is the central moment of their indicators: of two parts
P - x y', of three the sum of (e1 - x)(e2 - y)(e3 - z) over P. Given cohort and values, the bits of the parts are independent, so
within cohort c, with the tensor D multiplied by a matrix along each axis,

    E S_c = w_c D x_1 A1_c x_2 A2_c [x_3 A3_c]        S_c = sum over its reports of the product of the parts' centred scores

Scores are centred in each cohort: an unlisted string moves a cohort's mean score of all parts, and its mean is not dependence.

Estimator: D = X multiplied by E along each axis, vec X = J^-1 vec(sum_c S_c in contrasts)        J = sum_c w_c V1_c kron V2_c [kron V3_c]
           V_c covariance of the scores in contrasts within the cohort, E as in `margins.py`, w_c = n_c - 1 for two parts. For two
           parts this is one step of Fisher scoring from independence
Test:      T = vec(S)' J^-1 vec(S), compared with chi-squared, over the components that are kept: of two parts (I - 1)(J - 1)
           degrees of freedom. The products of different subsets are uncorrelated if all parts are independent, so their statistics add up

If the parts are independent given the cohort, all pairings of their reports within a cohort are equally likely. Over these pairings
E S = 0 and, of two parts, Cov vec(S) = J exactly, for every choice of components and scores that is made from the margins alone. So
unlisted strings, rare components and estimated margins leave the level of the test alone, and its covariance has the error of two
small matrices instead of one with ((I - 1)(J - 1))**2 entries.

docs/explanation/mathematics.md, equations (20.3) and (20.4). Source: Rao 1948 for score tests; Strasser and Weber 1999 for the permutation moments; Lancaster
1969 ("The chi-squared distribution") for the decomposition of three parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hubbub_decoder.array_types import Floats
from hubbub_decoder.association.margins import MarginFit, contrasts, inverse
from hubbub_decoder.association.moments import CohortMoments, Subset
from hubbub_decoder.model.distributions import chi2

_KEPT_STANDARD_ERRORS = 2.0
MIN_COHORTS = 4
"""Fewest cohorts from which the variance between cohorts is estimated."""


@dataclass(frozen=True, eq=False)
class IndependenceTest:
    """Score test of independence.

    Attributes
    ----------
    statistic
        Chi-squared statistic under independence.
    degrees_of_freedom
        Degrees of freedom of the statistic.
    p_value
        p-value in [0, 1].
    kept
        Positions of the components of each part that the test compares.
    """

    statistic: float
    degrees_of_freedom: int
    p_value: float
    kept: tuple[tuple[int, ...], ...]

    @classmethod
    def from_sum(cls, statistic: float, degrees_of_freedom: int, kept: tuple[tuple[int, ...], ...]) -> IndependenceTest:
        """Return the test of a sum of squared scores."""
        return cls(statistic, degrees_of_freedom, float(chi2.sf(statistic, degrees_of_freedom)), kept)


@dataclass(frozen=True, eq=False)
class Dependence:
    """Estimate of the interaction D of a subset of parts, and the matrices behind it.

    interaction   : (C1 - 1, C2 - 1[, C3 - 1]) X
    cross         : (I - 1, J - 1[, K - 1]) S in contrasts of the compared components
    information   : its covariance under independence
    inverse_information : J^-1, the covariance of vec X under independence
    overdispersion : at least 1, mean square of the cohorts' residuals of S_c over their variance under independence
    test          : of D = 0 among the compared components, if all parts are independent
    """

    interaction: Floats
    cross: Floats
    information: Floats
    inverse_information: Floats
    overdispersion: float
    test: IndependenceTest

    @property
    def table(self) -> Floats:
        """D, (C1, C2[, C3]), with sums 0 along each axis."""
        return along_axes(self.interaction, [contrasts(number + 1) for number in self.interaction.shape])


def fit_dependence(moments: CohortMoments, margins: Sequence[MarginFit], parts: Subset = (0, 1)) -> Dependence:
    """Estimate D of a subset of parts and test D = 0. Time O(m q**2 + q**3), memory O(q**2), with q entries of X."""
    cross, covariances = moments.crosses[parts].sum(axis=0), [moments.covariances[part] for part in parts]
    weights = moments.weights(len(parts))
    inverted = inverse(_kronecker_sum(weights, covariances))
    interaction = (inverted @ cross.ravel()).reshape(cross.shape)
    kept = tuple(_kept(margins[part]) for part in parts)
    chosen = [contrasts(n + 1).T @ _sub_contrasts(n + 1, keep) for n, keep in zip(cross.shape, kept, strict=True)]
    tested = along_axes(cross, [matrix.T for matrix in chosen])
    null = _kronecker_sum(weights, [g.T @ v @ g for v, g in zip(covariances, chosen, strict=True)])
    statistic = float(tested.ravel() @ np.linalg.lstsq(null, tested.ravel(), rcond=1e-10)[0])
    test = IndependenceTest.from_sum(statistic, tested.size, kept)
    scale = weights.reshape(-1, *(1 for _ in parts))
    residuals = moments.crosses[parts] - scale * along_axes(interaction, covariances)
    overdispersion = _overdispersion(residuals, covariances, weights)
    return Dependence(interaction, tested, null, inverted, overdispersion, test)


def along_axes(tensor: Floats, matrices: Sequence[Floats]) -> Floats:
    """Multiply each axis of a tensor (d1, d2[, d3]) by a matrix (e, d); matrices (m, e, d) of cohorts give (m, e1, e2[, e3]).

    >>> along_axes(np.eye(2), [np.ones((1, 2)), np.eye(2)]).tolist()
    [[1.0, 1.0]]
    """
    old, new = "abc"[: tensor.ndim], "xyz"[: tensor.ndim]
    batch = "m" if matrices[0].ndim == 3 else ""
    factors = ",".join(f"{batch}{e}{d}" for e, d in zip(new, old, strict=True))
    return np.asarray(np.einsum(f"{old},{factors}->{batch}{new}", tensor, *matrices, optimize=True))


def _overdispersion(residuals: Floats, covariances: Sequence[Floats], weights: Floats) -> float:
    """Mean square of the cohorts' residual products, in their standard deviations under independence; at least 1."""
    used = weights > 0
    number = int(used.sum())
    if number < MIN_COHORTS:
        return 1.0
    variances = weights.reshape(-1, *(1 for _ in covariances))
    for axis, covariance in enumerate(covariances, start=1):
        shape = [1] * residuals.ndim
        shape[0], shape[axis] = covariance.shape[:2]
        variances = variances * np.einsum("mpp->mp", covariance).reshape(shape)
    ratios = residuals[used] ** 2 / np.where(variances[used] > 0, variances[used], 1)
    return max(1.0, float(np.mean(ratios)) * number / (number - 1))


def _kept(margin: MarginFit) -> tuple[int, ...]:
    """Components with a share of more than two standard errors, and at least the two largest: the others have no power to add."""
    clear = margin.shares > _KEPT_STANDARD_ERRORS * margin.std_errors
    largest = np.argsort(margin.shares)[::-1][:2]
    clear[largest] = True
    return tuple(np.flatnonzero(clear).tolist())


def _sub_contrasts(number: int, kept: tuple[int, ...]) -> Floats:
    """Contrasts (C, kept - 1) of the kept components only."""
    basis = np.zeros((number, len(kept) - 1))
    basis[list(kept)] = contrasts(len(kept))
    return basis


def _kronecker_sum(weights: Floats, matrices: Sequence[Floats]) -> Floats:
    """sum_c w_c V1_c kron V2_c [kron V3_c], by one matrix product over the cohorts."""
    *leading, last = matrices
    left = weights[:, None, None] * leading[0]
    for matrix in leading[1:]:
        size = left.shape[1] * matrix.shape[1]
        left = np.einsum("mpr,mqs->mpqrs", left, matrix).reshape(len(left), size, size)
    (m, p, _), q = left.shape, last.shape[1]
    flat = left.reshape(m, p * p).T @ last.reshape(m, q * q)
    return np.asarray(flat.reshape(p, p, q, q).transpose(0, 2, 1, 3).reshape(p * q, p * q))
