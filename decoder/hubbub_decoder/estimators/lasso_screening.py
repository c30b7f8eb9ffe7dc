"""Selection of candidates by lasso: beyond 100,000 candidates of bit counts, or on request.

Model:     W y = W (X x + w x_o) + N(0, I)        x >= 0        W : 1 / standard deviation of each bit share
Estimator: minimize  1/2 ||W (y - X x - w x_o)||**2 + z sum_v ||W X_v|| x_v        x_o without a penalty

A column of share 0 alone passes with probability P(Z > z), Z standard normal; so z is a penalty from the known noise.
Variance:  candidates chosen from some reports look too frequent in the same reports. So half of the cohorts choose, and the other half
estimate, with twice the variance; intervals and p-values stay valid.

docs/explanation/mathematics.md, section 6. Source: Tibshirani 1996; the penalty as in Donoho & Johnstone 1994.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.model.bit_covariance import bit_variance
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.distributions import norm
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.options import DecodingMethod

MAX_CANDIDATES = 100_000
"""Most candidates of bit counts to estimate together."""

_MAX_COLUMNS = 4_000  # that a lasso keeps
_UNPENALIZED_LENGTH = 1e4  # of the column of the unlisted strings, so that its penalty is negligible
_LEAST_PENALTY = 0.1  # without one, the coordinate descent does not converge well
_PENALTY_GROWTH = 1.15
_MIN_BIT_VARIANCE = 0.01 * 0.99


@dataclass(frozen=True, eq=False)
class Selection:
    """Candidates to fit, and the evidence to fit them to.

    columns     : (n,) of the design, ascending
    evidence    : to estimate from
    independent : no column was chosen from this evidence, so only the columns kept count as tested
    """

    columns: Indices
    evidence: Evidence
    independent: bool


def select_candidates(
    evidence: Evidence, design: DesignMatrix, *, method: DecodingMethod = "auto", keep_all: bool = False
) -> Selection:
    """Keep all columns, up to 100,000; otherwise choose in half of the cohorts, and leave the others to estimate from.

    A single cohort cannot be halved: the same reports choose and estimate.

    method : "lasso": choose among any number of columns      keep_all : keep any number
    """
    columns = len(design.groups)
    if keep_all or (columns <= MAX_CANDIDATES and method != "lasso"):
        return Selection(np.arange(columns), evidence, independent=True)
    used = np.flatnonzero(evidence.used)
    if len(used) == 1:
        kept = lasso_columns(evidence, design, evidence.num_independent // 2)
        return Selection(kept, evidence, independent=False)
    half, rest = (evidence.subset(np.isin(np.arange(len(evidence.used)), some)) for some in (used[::2], used[1::2]))
    most = min(rest.num_independent // 2, _MAX_COLUMNS)
    return Selection(lasso_columns(half, design, most), rest, independent=True)


def lasso_columns(evidence: Evidence, design: DesignMatrix, most: int) -> Indices:
    """Columns that a lasso keeps, at most `most`, ascending.

    The first penalty z lets a quarter of `most`, or 46 % of the columns, pass by chance; it grows while more are kept.
    """
    response, weighted = _whitened(evidence, design)
    z = max(float(norm.isf(min(0.5, most / (4 * len(design.groups))))), _LEAST_PENALTY)
    while True:
        kept = np.flatnonzero(_lasso(response, weighted, z)[:-1])
        if len(kept) <= most:
            return kept
        z *= _PENALTY_GROWTH


def _whitened(evidence: Evidence, design: DesignMatrix) -> tuple[Floats, sparse.csc_array]:
    """W y (n,), and W X with columns of unit length (n, M + 1), of the n bits of the cohorts with reports.

    The last column is the average random string. Only one matrix of M columns is made, because a million columns take 400 MB.
    """
    params, used, mean = evidence.params, evidence.used, evidence.random_string.mean
    variance = np.maximum(bit_variance(mean, params, evidence.repetition), _MIN_BIT_VARIANCE)
    deviation = np.sqrt(variance) / abs(params.mechanism.q_star - params.mechanism.p_star)
    weights = (np.sqrt(evidence.counts.reports[used])[:, None] / deviation).ravel()
    bits = design.matrix[np.repeat(used, params.num_bits)]
    entries = weights[bits.indices]
    squares = sparse.csc_array((entries**2, bits.indices, bits.indptr), bits.shape).sum(axis=0)
    entries *= np.repeat(1 / np.sqrt(np.maximum(squares, np.finfo(float).tiny)), np.diff(bits.indptr))
    scaled = sparse.csc_array((entries, bits.indices, bits.indptr), bits.shape)
    average = weights * np.tile(mean, np.count_nonzero(used))
    column = average / np.linalg.norm(average) * _UNPENALIZED_LENGTH
    weighted = sparse.hstack([scaled, sparse.csc_array(column[:, None])], format="csc")
    response = evidence.bit_shares[used].ravel() * weights
    return response, weighted


def _lasso(response: Floats, weighted: sparse.csc_array, z: float) -> Floats:
    """Coefficients (M + 1,) of the scaled columns, to the accuracy that a selection needs.

    scikit-learn takes 0.2 s to import and is needed by few decodings, so it is imported here.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import Lasso

    model = Lasso(alpha=z / len(response), positive=True, fit_intercept=False, max_iter=300, tol=1e-3)
    with warnings.catch_warnings():
        # candidates near the threshold are decided by the fit that follows
        warnings.simplefilter("ignore", ConvergenceWarning)
        coefficients: Floats = model.fit(weighted, response).coef_
    return coefficients
