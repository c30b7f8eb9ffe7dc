"""Dependence of two parts: an efficient estimate of D = P - x y', and a score test of D = 0.

Model: joint shares P (C1, C2) with margins x, y. Given cohort and values, the bits of the parts are independent, so within cohort c

    E S_c = (n_c - 1) A1_c D A2_c'        S_c = sum over its reports of (l1 - mean_c l1) (l2 - mean_c l2)'

Scores are centred in each cohort: an unlisted string moves a cohort's mean score of both parts, and its mean is not dependence.

Estimator: D = E1 X E2', vec X = J^-1 vec(sum_c E1'S_c E2)       J = sum_c (n_c - 1) (E1'V1_c E1) kron (E2'V2_c E2)
           V_c covariance of the scores within the cohort, E as in `margins.py`. This is one step of Fisher scoring from independence
Test:      T = vec(S)' J^-1 vec(S), compared with chi-squared of (I - 1)(J - 1) degrees of freedom, over the components that are kept

If the parts are independent given the cohort, all pairings of the two sides' reports within a cohort are equally likely. Over these
pairings E S = 0 and Cov vec(S) = J exactly, for every choice of components and scores that is made from the margins alone. So
unlisted strings, rare components and estimated margins leave the level of the test alone, and its covariance has the error of two
small matrices instead of one with ((I - 1)(J - 1))**2 entries.

docs/mathematics.md, "Associations". Source: Rao 1948 for score tests; Strasser and Weber 1999 for the permutation moments.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hubbub_decoder.array_types import Floats
from hubbub_decoder.association.margins import MarginFit, contrasts, inverse
from hubbub_decoder.association.moments import CohortMoments
from hubbub_decoder.model.distributions import chi2

_KEPT_STANDARD_ERRORS = 2.0
MIN_COHORTS = 4
"""Fewest cohorts from which the variance between cohorts is estimated."""


@dataclass(frozen=True, eq=False)
class IndependenceTest:
    """Score test of independence: its statistic, degrees of freedom and p-value, and the components that it compares."""

    statistic: float
    degrees_of_freedom: int
    p_value: float
    kept: tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Dependence:
    """Estimate of D and the matrices behind it.

    interaction   : (C1 - 1, C2 - 1) X
    cross         : (I - 1, J - 1) S in contrasts of the compared components        information : its covariance under independence
    inverse_information : J^-1, the covariance of vec X under independence
    overdispersion : at least 1, mean square of the cohorts' residuals S_c - (n_c - 1) V1_c X V2_c over their variance under independence
    """

    interaction: Floats
    cross: Floats
    information: Floats
    inverse_information: Floats
    overdispersion: float
    test: IndependenceTest

    @property
    def table(self) -> Floats:
        """D, (C1, C2), with row and column sums 0."""
        p, q = self.interaction.shape
        return np.asarray(contrasts(p + 1) @ self.interaction @ contrasts(q + 1).T)


def fit_dependence(moments: CohortMoments, margins: tuple[MarginFit, MarginFit]) -> Dependence:
    """Estimate D of two parts and test independence. Time O(m (C1 C2)**2 + (C1 C2)**3), memory O((C1 C2)**2)."""
    cross, covariances = moments.crosses.sum(axis=0), moments.covariances
    p, q = cross.shape
    weights = np.maximum(moments.sizes - 1, 0)
    information = _kronecker_sum(weights, *covariances)
    inverted = inverse(information)
    interaction = (inverted @ cross.ravel()).reshape(p, q)
    kept = (_kept(margins[0]), _kept(margins[1]))
    chosen = tuple(contrasts(n + 1).T @ _sub_contrasts(n + 1, keep) for n, keep in zip((p, q), kept, strict=True))
    tested = (chosen[0].T @ cross @ chosen[1]).ravel()
    reduced = tuple(np.einsum("mab,ap,bq->mpq", v, g, g) for v, g in zip(covariances, chosen, strict=True))
    null = _kronecker_sum(weights, *reduced)
    statistic = float(tested @ np.linalg.lstsq(null, tested, rcond=1e-10)[0])
    df = len(tested)
    test = IndependenceTest(statistic, df, float(chi2.sf(statistic, df)), kept)
    overdispersion = _overdispersion(moments, interaction)
    return Dependence(
        interaction,
        tested.reshape(chosen[0].shape[1], -1),
        null,
        inverted,
        overdispersion,
        test,
    )


def _overdispersion(moments: CohortMoments, interaction: Floats) -> float:
    """Mean square of the cohorts' residual cross products, in their standard deviations under independence; at least 1."""
    used = moments.sizes > 1
    if used.sum() < MIN_COHORTS:
        return 1.0
    v1, v2 = (covariance[used] for covariance in moments.covariances)
    n = moments.sizes[used, None, None] - 1
    residuals = moments.crosses[used] - n * (v1 @ interaction @ v2)
    variances = n * np.einsum("mpp->mp", v1)[:, :, None] * np.einsum("mqq->mq", v2)[:, None, :]
    return max(1.0, float(np.mean(residuals**2 / np.where(variances > 0, variances, 1))) * len(n) / (len(n) - 1))


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


def _kronecker_sum(weights: np.ndarray, first: Floats, second: Floats) -> Floats:
    """sum_c w_c V1_c kron V2_c, by one matrix product over the cohorts."""
    (m, p, _), q = first.shape, second.shape[1]
    flat = (first * weights[:, None, None]).reshape(m, p * p).T @ second.reshape(m, q * q)
    return np.asarray(flat.reshape(p, p, q, q).transpose(0, 2, 1, 3).reshape(p * q, p * q))
