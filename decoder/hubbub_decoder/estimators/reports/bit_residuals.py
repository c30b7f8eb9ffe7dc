"""Variance of unlisted strings, tau**2, from the residuals of the bits of retained reports.

Model, for all bits together, y (m k,) debiased bit shares, X with a last column for the average random string, g the mean score of the
reports and z = constant + K g an estimate of the shares:

    r = y - X z        S = C_jj / (n_j (q* - p*)**2) on the diagonal, C of `report_covariance`

    E r r' = S - X Cov X' + tau**2 (V + X A^-1 B K' X' + X K B A^-1 X' - C K' X' - X K C')

    Cov  : (M + 1, M + 1) of an efficient estimate z, which includes tau**2 and priors. Noise of the bits has covariance X / n with g.
    B, C : covariance that the hashing of one unlisted string gives g, and g with y (`simulated_information.py`). The score is not
           sufficient for how these strings hash: if it were, C would be X A^-1 B and the bracket V.

Estimator: method of moments on the weighted residual sum of squares Q = r' S^-1 r; for fixed K its expectation grows with tau**2 by

    tr S^-1 (V - C K' X' - X K C' + X K B K' X')

Variance:  2 (E Q)**2 / D over the square of that growth, D = E Q at tau = 0.
docs/explanation/mathematics.md, equations (11.3) and (11.4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.estimators.reports.likelihood_ratios import MIN_PROBABILITY
from hubbub_decoder.model.bit_covariance import bit_variance
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.evidence import Evidence


@dataclass(frozen=True, slots=True)
class Overdispersion:
    """Residual sum of squares Q compared with its expectation.

    ratio : Q / E Q, of the true variance of the estimates to their nominal one
    step  : from tau**2 to its estimate by the method of moments
    error : standard error of that estimate
    """

    ratio: float
    step: float
    error: float


@dataclass(frozen=True, eq=False)
class HashMoments:
    """Covariances that the hashing of one unlisted string gives, per squared share.

    scores : (M + 2, M + 2) B, of the mean score      bits : (M + 1, M + 2) X' S^-1 C, of the weighted bits with the mean score
    """

    scores: Floats
    bits: Floats


@dataclass(frozen=True, eq=False)
class BitResiduals:
    """Bits of the reports, weighted by the inverse of their variance.

    rows    : number of bits with reports                  num_cohorts : m
    bits    : (m k,) y, 0 where there are no reports      weights : (m k,) 1 / S, 0 where there are no reports
    columns : (m k, M + 1) X                              gram : (M + 1, M + 1) X' S^-1 X
    trace   : tr(S^-1 V)
    """

    rows: int
    num_cohorts: int
    bits: Floats
    weights: Floats
    columns: sparse.csr_array
    gram: Floats
    trace: float

    @classmethod
    def from_evidence(cls, evidence: Evidence, design: DesignMatrix, shares: Floats) -> BitResiduals:
        """Bits weighted as at these shares of the candidates and of the unlisted strings, (M + 1,)."""
        params = evidence.params
        used = np.repeat(evidence.used, params.num_bits)
        average = np.tile(evidence.random_string.mean, params.num_cohorts)
        columns = sparse.hstack([design.matrix.astype(np.float64), sparse.csc_array(average[:, None])], format="csr")
        contrast = params.mechanism.q_star - params.mechanism.p_star
        mu = np.clip(columns @ np.clip(shares, 0, 1), 0, 1)
        of_report = np.maximum(bit_variance(mu, params, evidence.repetition), MIN_PROBABILITY)
        variance = of_report / (np.maximum(np.repeat(evidence.counts.reports, params.num_bits), 1) * contrast**2)
        weights = np.where(used, 1 / variance, 0)
        bits = np.where(used, evidence.bit_shares.ravel(), 0)
        gram = (columns.T.multiply(weights).tocsr() @ columns).toarray()
        return cls(
            int(used.sum()),
            params.num_cohorts,
            bits,
            weights,
            columns,
            gram,
            float(weights @ (average * (1 - average))),
        )

    def string_scores(self, cohort: int, positions: Indices) -> Floats:
        """X' S^-1 (b - w) of strings in one cohort, (M + 1, strings).

        positions : (strings, h) bits of each, k for none
        """
        k = len(self.bits) // self.num_cohorts
        rows = slice(cohort * k, (cohort + 1) * k)
        deviations = np.zeros((k + 1, len(positions)))
        deviations[positions.T, np.arange(len(positions))] = 1
        columns = self.columns[rows]
        deviations = deviations[:k] - columns[:, [-1]].toarray()
        return np.asarray(columns.T @ (self.weights[rows, None] * deviations))

    def overdispersion(
        self,
        shares: Floats,
        covariance: Floats,
        reach: Floats,
        hashing: HashMoments,
        unlisted_variance: float = 0.0,
        known: Floats | None = None,
    ) -> Overdispersion:
        """Compare the residuals of efficient estimates (M + 1,) with their expectation at this tau**2.

        covariance : (M + 1, M + 1) Cov of the estimates, with tau**2 and priors
        reach      : (M + 1, M + 2) K, their derivative by the mean score
        known      : (M + 1, M + 1) A^-1 B K', the part of Cov by tau**2 if K were A^-1; needed where tau**2 is not 0
        """
        absorbed = float(np.sum(self.gram * (reach @ hashing.scores @ reach.T)))
        per_unit = self.trace - 2 * float(np.sum(hashing.bits * reach)) + absorbed
        by_noise = self.rows - float(np.sum(self.gram * covariance))
        if known is not None:
            by_noise += unlisted_variance * (2 * float(np.sum(self.gram * known)) - absorbed)
        found = float(self.weights @ (self.bits - self.columns @ shares) ** 2)
        if not per_unit > 0 < by_noise:
            return Overdispersion(1.0, 0.0, math.inf)
        expected = by_noise + unlisted_variance * per_unit
        error = math.sqrt(2 / by_noise) * max(found, by_noise) / per_unit
        return Overdispersion(found / expected, (found - expected) / per_unit, error)
