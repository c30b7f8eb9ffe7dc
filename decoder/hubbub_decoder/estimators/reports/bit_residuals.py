"""Variance of unlisted strings, tau**2, from the residuals of the bits of retained reports.

Model, for all bits together, y (m k,) debiased bit shares and X with a last column for the average random string:

    r = y - X z        E r r' = S - X Cov X' + tau**2 V (1 - d)        S = C_jj / (n_j (q* - p*)**2) on the diagonal, C of `report_covariance`

    Cov : (M + 1, M + 1) of an efficient estimate z. The bits estimate X z without bias, so their covariance with it is X Cov X'.
    d   = tr(S^-1 X Cov X') / rows, the share of V that the fit takes up. This is an approximation: with 50 candidates and 128 bits, tau**2
          comes out 13 % too small.

Estimator: method of moments on the weighted residual sum of squares r' S^-1 r. Its standard error is where tau = 0.
docs/mathematics.md, section 11.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from hubbub.summary import BitCounts
from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.mixed_model import Overdispersion
from hubbub_decoder.estimators.reports.likelihood_ratios import MIN_PROBABILITY
from hubbub_decoder.model.bit_covariance import bit_variance
from hubbub_decoder.model.debias import bit_shares
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.random_string import RandomStringMoments
from hubbub_decoder.model.repetition import Repetition


@dataclass(frozen=True, eq=False)
class BitResiduals:
    """Bits of the reports, weighted by the inverse of their variance.

    rows    : number of bits with reports
    bits    : (m k,) y, 0 where there are no reports      weights : (m k,) 1 / S, 0 where there are no reports
    columns : (m k, M + 1) X                              gram : (M + 1, M + 1) X' S^-1 X
    trace   : tr(S^-1 V)
    """

    rows: int
    bits: Floats
    weights: Floats
    columns: sparse.csr_array
    gram: Floats
    trace: float

    @classmethod
    def from_counts(cls, counts: BitCounts, design: DesignMatrix, shares: Floats) -> BitResiduals:
        """Bits weighted as at these shares of the candidates and of the unlisted strings, (M + 1,)."""
        params = counts.metric.params
        used = np.repeat(counts.reports > 0, params.num_bits)
        average = np.tile(RandomStringMoments.from_params(params).mean, params.num_cohorts)
        columns = sparse.hstack([design.matrix.astype(np.float64), sparse.csc_array(average[:, None])], format="csr")
        contrast = params.q_star - params.p_star
        mu = np.clip(columns @ np.clip(shares, 0, 1), 0, 1)
        repetition = Repetition.from_periods(counts.metric, counts.periods)
        of_report = np.maximum(bit_variance(mu, params, repetition), MIN_PROBABILITY)
        variance = of_report / (np.maximum(np.repeat(counts.reports, params.num_bits), 1) * contrast**2)
        weights = np.where(used, 1 / variance, 0)
        bits = np.where(used, bit_shares(counts).ravel(), 0)
        gram = (columns.T.multiply(weights).tocsr() @ columns).toarray()
        return cls(int(used.sum()), bits, weights, columns, gram, float(weights @ (average * (1 - average))))

    def overdispersion(self, shares: Floats, covariance: Floats, unlisted_variance: float = 0.0) -> Overdispersion:
        """Compare the residuals of efficient estimates (M + 1,) with their expectation at this tau**2.

        covariance : (M + 1, M + 1) of the estimates. One that includes tau**2 and priors has E r r' = S + tau**2 V - X Cov X'.
        """
        fitted = float(np.sum(self.gram * covariance))
        found = float(self.weights @ (self.bits - self.columns @ shares) ** 2)
        expected = self.rows + unlisted_variance * self.trace - fitted
        per_unit = self.trace * (1 - fitted / self.rows)
        if not per_unit > 0 < expected:
            return Overdispersion(1.0, 0.0, math.inf)
        return Overdispersion(found / expected, (found - expected) / per_unit, math.sqrt(2 * self.rows) / per_unit)
