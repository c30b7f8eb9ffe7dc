"""More candidates than the reports can carry -> those worth fitting, by a lasso whose penalty is the known noise.

No selection at all while it can be avoided: what is chosen by looking at the reports has intervals that are too narrow.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso

from hubbub.summary import BitCounts, Reports
from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.model.debias import bit_shares
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.random_string import RandomString

_MAX_COLUMNS, _MAX_NUMBERS = 4_000, 5_000
"""What one machine fits at once in reasonable time and memory: either the normal equations of the columns or those of the bits are dense."""
_COHORTS = 8

_UNPENALIZED = 1e4
_TIGHTEN = 1.15


@dataclass(frozen=True, eq=False)
class Selection:
    """What to fit, and to what.

    columns     : of the design, ascending
    counts      : the reports to estimate from
    independent : no column was chosen by looking at those reports, so that only the columns kept are tested
    """

    columns: Indices
    counts: BitCounts
    independent: bool

    def reports_of(self, reports: Reports) -> Reports:
        """Return the reports of the cohorts to estimate from."""
        kept = (self.counts.reports > 0)[reports.cohorts]
        if kept.all():
            return reports
        return Reports(reports.metric, reports.cohorts[kept], reports.rows[kept], reports.periods)


def select(counts: BitCounts, design: DesignMatrix, *, keep_all: bool = False) -> Selection:
    """Keep all columns if they can be fitted at once, else let half of the cohorts choose and leave the others to estimate from.

    What is chosen by looking at the reports looks too frequent in the same reports; people in other cohorts know nothing of the
    choice, so intervals and tests stay true. The price is twice the variance. With one cohort there is nothing to halve: the same
    reports choose and estimate.
    """
    columns = len(design.groups)
    if keep_all or columns <= capacity(counts):
        return Selection(np.arange(columns), counts, independent=True)
    used = np.flatnonzero(counts.reports)
    if len(used) == 1:
        return Selection(screen(counts, design, numbers(counts) // 2), counts, independent=False)
    rest = _only(counts, used[1::2])
    return Selection(
        screen(_only(counts, used[::2]), design, min(numbers(rest) // 2, _MAX_COLUMNS)), rest, independent=True
    )


def numbers(counts: BitCounts) -> int:
    """Return how many independent numbers the bit counts have: R = m (k - 1) + 1, in murmur3-v1 the sum of a cohort's bits being everywhere the same."""
    return int((counts.reports > 0).sum()) * (counts.metric.params.num_bits - 1) + 1


def capacity(counts: BitCounts) -> int:
    """Return how many columns can be fitted at once: 2 R, R / 2 in fewer than 8 cohorts.

    Beyond, what is believed of each follows the noise of all, and too many of the found are false (decision 10).
    """
    r = numbers(counts)
    most = 2 * r if (counts.reports > 0).sum() >= _COHORTS else r // 2
    return max(1, most if r <= _MAX_NUMBERS else min(most, _MAX_COLUMNS))


def screen(counts: BitCounts, design: DesignMatrix, most: int) -> Indices:
    """Return the columns that a lasso keeps, at most so many, ascending.

        minimize  1/2 ||W (y - X x - w x_o)||**2 + z sum_v ||W X_v|| x_v        x >= 0, x_o free of penalty

    W divides by the noise's standard deviation, so a column of share 0 alone passes with chance P(Z > z), Z standard normal;
    z lets a quarter of `most` pass by chance, and grows while more are kept.
    Source: Tibshirani 1996; a penalty from the known noise as in Donoho & Johnstone 1994.
    """
    response, weighted = _whitened(counts, design)
    z = float(norm.isf(min(0.5, most / (4 * len(design.groups)))))
    while True:
        kept = np.flatnonzero(_lasso(response, weighted, z)[:-1])
        if len(kept) <= most:
            return kept
        z = max(z, 0.1) * _TIGHTEN


def _only(counts: BitCounts, cohorts: Indices) -> BitCounts:
    """Forget the reports of all other cohorts."""
    reports, ones = np.zeros_like(counts.reports), np.zeros_like(counts.ones)
    reports[cohorts], ones[cohorts] = counts.reports[cohorts], counts.ones[cohorts]
    return BitCounts(counts.metric, reports, ones, counts.periods)


def _whitened(counts: BitCounts, design: DesignMatrix) -> tuple[Floats, sparse.csc_array]:
    """Scale rows to unit noise and columns to unit length; the last column is the average string."""
    params = counts.metric.params
    used = counts.reports > 0
    y = bit_shares(counts)
    mean = RandomString.of(params).mean
    reported = np.clip(params.p_star + (params.q_star - params.p_star) * mean, 0.01, 0.99)
    deviation = np.sqrt(reported * (1 - reported)) / abs(params.q_star - params.p_star)
    weights = (np.sqrt(counts.reports)[:, None] / deviation).ravel()
    average = np.tile(mean, len(used))
    bits = sparse.diags_array(weights) @ design.matrix.astype(np.float64)
    norms = np.sqrt(np.maximum(bits.power(2).sum(axis=0), np.finfo(float).tiny))
    scaled = bits @ sparse.diags_array(1 / norms)
    column = (weights * average) / np.linalg.norm(weights * average) * _UNPENALIZED
    weighted = sparse.hstack([scaled, sparse.csc_array(column[:, None])], format="csc")
    response = np.where(np.repeat(used, params.num_bits), y.ravel(), 0) * weights
    return response, weighted


def _lasso(response: Floats, weighted: sparse.csc_array, z: float) -> Floats:
    """Solve to screening accuracy; coefficients of the scaled columns."""
    model = Lasso(alpha=z / len(response), positive=True, fit_intercept=False, max_iter=300, tol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # who passes narrowly is settled by the refit
        coefficients: Floats = model.fit(weighted, response).coef_
    return coefficients
