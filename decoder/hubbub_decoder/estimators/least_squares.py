"""Generalized least squares of bit counts, all candidates as fixed effects: for few candidates.

Model, for cohort j with n_j reports and debiased bit shares y_j (k,):

    y_j = X_j x + w x_o + e_j        Cov e_j = S_j = C_j / (n_j (q* - p*)**2) + tau**2 V

x (M,) are the candidates' shares, and x_o is that of the unlisted strings, with w and V the moments of a random string. The rest to 1 is
"no value", which sets no bit. C_j is `report_covariance` at the shares fitted last, tau**2 the sum of squared shares of unlisted strings.

Estimator: minimize  sum_j (y_j - X_j x - w x_o)' S_j^-1 (y_j - X_j x - w x_o), four times, from "every value is an average string"
Variance:  Cov (x, x_o) = (sum_j (X_j, w)' S_j^-1 (X_j, w))^-1 as shares of a population; less x (1 - x) / N among the reporters

docs/explanation/mathematics.md, equations (3.2), (4.1) and (5.1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg, sparse

from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.estimators.fit_result import FitResult, contrast_variances
from hubbub_decoder.estimators.inverses import inverse_root, pseudo_inverse
from hubbub_decoder.inference.influence import Extremes, ReportInfluence
from hubbub_decoder.inference.intervals import reporter_variance
from hubbub_decoder.inference.multiple_testing import CandidateTests, LeaveOneOutScores, score_candidates
from hubbub_decoder.model.bit_covariance import bit_shares_and_covariances
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.model.random_string import RandomFilters

_FITS = 4
_MAX_SLAB_ROWS = 1024
_MAX_VARIANCE_INFLATION = 1e8  # of a share by the presence of others; beyond, it is not determined
_MIN_EIGENVALUE = 1e-10  # relative to the largest
_NUMBERS_PER_CANDIDATE = 20
_MIN_COHORTS_FOR_RANDOM_EFFECTS = 3


def use_fixed_effects(evidence: Evidence, design: DesignMatrix) -> bool:
    """Whether to fit all shares as fixed effects: for few candidates, or too few cohorts to treat hashing as random.

    M columns of random bits multiply every variance by 1 / (1 - M/R), R the number of independent numbers in the counts. M <= R / 20 counts
    as few; in fewer than 3 cohorts M <= R / 2 does.
    """
    few_cohorts = evidence.num_used < _MIN_COHORTS_FOR_RANDOM_EFFECTS
    return len(design.groups) <= evidence.num_independent // (2 if few_cohorts else _NUMBERS_PER_CANDIDATE)


def fit_least_squares(evidence: Evidence, design: DesignMatrix) -> FitResult:
    """Estimate the shares of all columns of the design.

    evidence : with at least one report      design : fewer columns than the bits can carry
    """
    rows, cohorts = evidence.num_used * evidence.params.num_bits, evidence.num_used
    blocks, w = list(design.blocks()), evidence.random_string.mean
    shares, unlisted, estimated = np.zeros(len(design.groups)), evidence.any_value_share, 0.0
    for _ in range(_FITS):
        unlisted_variance = estimated
        observations = _observations(evidence, blocks, shares, unlisted, unlisted_variance)
        normal = normal_equations(observations, w, len(shares))
        covariance, null_space = invert_information(normal.information)
        solution = covariance @ normal.moment
        shares, unlisted = solution[:-1], float(solution[-1])
        freedom = rows - len(solution) + null_space.shape[1]
        step, error = normal.excess(solution, rows, freedom)
        estimated = max(0.0, unlisted_variance + step) if freedom > 0 else 0.0

    def reporter_variances(contrasts: Floats) -> Floats:
        return reporter_variance(
            contrast_variances(contrasts, covariance), contrasts @ solution, evidence.num_all_clients
        )

    def influence(candidates: Indices) -> ReportInfluence:
        hashing = unlisted_variance * evidence.random_string.covariance
        changes = _changes_by_one_report(evidence, last_observations(), solution, covariance[candidates], hashing)
        return ReportInfluence.from_changes(solution[candidates], changes, evidence.num_reports)

    fit = FitResult.from_fixed_effects(solution, covariance, null_space, reporter_variances, (unlisted_variance, error))
    filters = RandomFilters.from_params(evidence.params)

    def last_observations() -> Iterator[Observation]:
        return _observations(evidence, blocks, shares, unlisted, unlisted_variance)

    tests = compare_with_filters(fit, solution, covariance, last_observations, w, filters, cohorts)
    return replace(fit, tests=tests, influence=influence)


Observation = tuple[Floats, sparse.csr_array, Floats, Callable[[Floats], float]]
"""y_j (k,), X_j (k, M) and S_j (k, k) of a cohort, and tr(A S_j' A') of a matrix A, S_j' by the parameter that the residuals estimate."""


@dataclass(frozen=True, eq=False)
class NormalEquations:
    """Sums over cohorts: information X'S^-1 X (M + 1, M + 1), moment X'S^-1 y (M + 1,), square y'S^-1 y, trace tr(S^-1 S')."""

    information: Floats
    moment: Floats
    square: float
    trace: float

    def excess(self, solution: Floats, rows: int, freedom: int) -> tuple[float, float]:
        """Step of the parameter of S by the method of moments, and the standard error of the parameter; nan and inf without residuals.

        E Q = D + step tr(S^-1 S') D / rows        Q = sum_j r_j' S_j^-1 r_j, D = `freedom` = rows - unknowns
        """
        if freedom <= 0 or not self.trace:
            return math.nan, math.inf
        per_unit = self.trace * freedom / rows
        lack_of_fit = self.square - float(solution @ self.moment)
        return (lack_of_fit - freedom) / per_unit, math.sqrt(2 * freedom) / abs(per_unit)


def normal_equations(observations: Iterable[Observation], mean: Floats, size: int) -> NormalEquations:
    """Sum over the cohorts; the whitened rows of some cohorts are stored at a time, and multiplied at once.

    mean : (k,) w, the column of the unlisted strings      size : M
    """
    gram = np.zeros((size + 2, size + 2))
    trace = 0.0
    held: list[Floats] = []
    for y_j, bits, s, trace_of_product in observations:
        whitener = inverse_root(s)
        held.append(np.column_stack([(bits.T @ whitener.T).T, whitener @ mean, whitener @ y_j]))
        trace += trace_of_product(whitener)
        if len(held) * len(s) >= _MAX_SLAB_ROWS:
            gram += _gram(held)
            held = []
    gram += _gram(held) if held else 0.0
    return NormalEquations(gram[:-1, :-1], gram[:-1, -1], float(gram[-1, -1]), trace)


def _observations(
    evidence: Evidence,
    blocks: list[sparse.csr_array],
    shares: Floats,
    unlisted: float,
    unlisted_variance: float,
) -> Iterator[Observation]:
    """Yield y_j, X_j, S_j and the trace tr(A V A') of each cohort with reports."""
    random_string = evidence.random_string
    for y_j, bits, s in bit_shares_and_covariances(evidence, blocks, shares, unlisted):
        yield y_j, bits, s + unlisted_variance * random_string.covariance, random_string.trace_of_product


def _changes_by_one_report(
    evidence: Evidence, observations: Iterable[Observation], solution: Floats, covariance: Floats, hashing: Floats
) -> Iterator[Extremes]:
    """Yield the changes of D estimates by one report more in each cohort.

    Weights Cov (X_j, w)' S_j^-1 / n_j of a report's debiased bits, less those that the fit expects: X_j x + w x_o + tau**2 V S_j^-1 r_j, the
    fitted bits and the part of unlisted strings in the residuals r_j.

    solution : (M + 1,)      covariance : (D, M + 1) rows of the candidates      hashing : tau**2 V
    """
    w, reports = evidence.random_string.mean, evidence.counts.reports[evidence.used]
    for n, (y_j, bits, s, _) in zip(reports, observations, strict=True):
        columns = np.column_stack([bits.toarray(), w])
        weights = linalg.solve(s, columns @ covariance.T, assume_a="pos").T / n
        fitted = columns @ solution
        expected = fitted + hashing @ linalg.solve(s, y_j - fitted, assume_a="pos")
        yield Extremes.of_bits(weights, evidence.params.mechanism).less(weights @ expected)


def _gram(blocks: list[Floats]) -> Floats:
    rows = np.concatenate(blocks)
    return rows.T @ rows


def invert_information(information: Floats) -> tuple[Floats, Floats]:
    """Inverse of the information, and directions without information: (M + 1, M + 1) and (M + 1, d)."""
    scale = np.sqrt(np.diag(information))
    scale[scale == 0] = 1
    try:
        half = np.linalg.inv(np.linalg.cholesky(information / np.outer(scale, scale)))
    except np.linalg.LinAlgError:
        half = None
    if half is not None and np.sum(half**2, axis=0).max() < _MAX_VARIANCE_INFLATION:
        return (half.T @ half) / np.outer(scale, scale), np.empty((len(scale), 0))
    return pseudo_inverse(information, _MIN_EIGENVALUE, 1 / _MAX_VARIANCE_INFLATION)


def compare_with_filters(
    fit: FitResult,
    solution: Floats,
    covariance: Floats,
    observations: Callable[[], Iterable[Observation]],
    mean: Floats,
    filters: RandomFilters,
    cohorts: int,
) -> CandidateTests:
    """Null distribution of the estimates, and the p-value of each candidate, (M,).

    In each cohort a random string's score is the sum of S^-1 (y - X x - w x_o) over the bits that it sets. Where candidate j is left
    out, (x, x_o) is less Cov e_j x_j / Cov_jj.

    mean : (k,) w      cohorts : number with reports
    """
    errors = np.sqrt(fit.variances)
    if np.isnan(errors).all():
        return CandidateTests.unknown(len(errors))

    def scores(solutions: Floats, scales: Floats) -> Iterator[tuple[sparse.csr_array, Floats]]:
        for y_j, bits, s, _ in observations():
            fitted = bits @ solutions[:-1] + np.outer(mean, solutions[-1])
            yield bits, scales * linalg.solve(s, y_j[:, None] - fitted, assume_a="pos")

    def leave_out(candidates: Indices) -> Iterator[LeaveOneOutScores]:
        moved = covariance[:, candidates] * (solution[candidates] / errors[candidates] ** 2)
        parts = list(scores(solution[:, None] - moved, errors[candidates]))
        own = np.array([(bits[:, candidates].T @ score).diagonal() for bits, score in parts])
        for column in range(len(candidates)):
            yield own[:, column], [filters.scores(score[:, column]) for _, score in parts]

    typical = np.array([np.nanmedian(errors)])
    random_scores = (filters.scores(score[:, 0]) for _, score in scores(solution[:, None], typical))
    return score_candidates(solution[:-1], errors, random_scores, leave_out, filters, cohorts)
