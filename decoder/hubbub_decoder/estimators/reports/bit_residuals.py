"""What estimated shares leave of the bit shares, beside what they should leave: so much do unlisted strings scatter."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from hubbub.summary import BitCounts
from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.mixed_model import Misfit
from hubbub_decoder.estimators.reports.likelihood_ratios import NO_NOISE
from hubbub_decoder.model.debias import bit_shares
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.random_string import RandomString


@dataclass(frozen=True, eq=False)
class BitResiduals:
    """The bits of the reports, each weighted by one over its variance.

        E r r' = S - X Cov X' + tau**2 V (1 - d)      r = y - X z,  d = tr(S^-1 X Cov X') / rows
        S = pi (1 - pi) / (n_j (q* - p*)**2) on the diagonal

    X has a column for the average string. The bits are an unbiased estimate of X z, so their covariance with an efficient one is
    X Cov X'. That the fit takes up the same share d of the scatter V as of the noise is an approximation: with 50 candidates to 128 bits
    tau**2 comes out 13 % too small.

    rows : how many bits       bits, weights : (m k,) y and 1 / S, 0 where nothing was sent      columns : X, (m k, M + 1)
    gram : X' S^-1 X           scatter : tr(S^-1 V)
    """

    rows: int
    bits: Floats
    weights: Floats
    columns: sparse.csr_array
    gram: Floats
    scatter: float

    @classmethod
    def of(cls, counts: BitCounts, design: DesignMatrix, shares: Floats) -> BitResiduals:
        """Weigh the bits as they scatter at some shares of the candidates and of the average string, (M + 1,)."""
        params = counts.metric.params
        used = np.repeat(counts.reports > 0, params.num_bits)
        average = np.tile(RandomString.of(params).mean, params.num_cohorts)
        columns = sparse.hstack([design.matrix.astype(np.float64), sparse.csc_array(average[:, None])], format="csr")
        contrast = params.q_star - params.p_star
        mu = np.clip(columns @ np.clip(shares, 0, 1), 0, 1)
        pi = np.clip(params.p_star + contrast * mu, NO_NOISE, 1 - NO_NOISE)
        variance = pi * (1 - pi) / (np.maximum(np.repeat(counts.reports, params.num_bits), 1) * contrast**2)
        weights = np.where(used, 1 / variance, 0)
        bits = np.where(used, bit_shares(counts).ravel(), 0)
        gram = (columns.T.multiply(weights).tocsr() @ columns).toarray()
        return cls(int(used.sum()), bits, weights, columns, gram, float(weights @ (average * (1 - average))))

    def misfit(self, shares: Floats, covariance: Floats, unlisted: float = 0.0) -> Misfit:
        """Compare what efficient estimates (M + 1,) leave with what they would, were tau**2 as supposed; error is where tau = 0.

        A covariance that knows of tau**2 and of beliefs has E r r' = S + tau**2 V - X Cov X'.
        """
        fitted = float(np.sum(self.gram * covariance))
        found = float(self.weights @ (self.bits - self.columns @ shares) ** 2)
        expected = self.rows + unlisted * self.scatter - fitted
        per_unit = self.scatter * (1 - fitted / self.rows)
        if not per_unit > 0 < expected:
            return Misfit(1.0, 0.0, math.inf)
        return Misfit(found / expected, (found - expected) / per_unit, math.sqrt(2 * self.rows) / per_unit)
