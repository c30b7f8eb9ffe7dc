"""Bit shares + design matrix -> shares of candidates, by generalized least squares with the true covariance.

Conventions: the last unknown is x_o, the share of strings without a candidate, whose column is the average string w; what
is missing to 1 is "no value", which sets no bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import linalg, sparse

from hubbub.summary import BitCounts
from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.estimators.fit_result import FitResult, contrast_variances
from hubbub_decoder.estimators.lasso_screening import numbers
from hubbub_decoder.inference.intervals import reporter_variance
from hubbub_decoder.inference.multiple_testing import Seen, tested
from hubbub_decoder.inference.null_distribution import ErrorLaw
from hubbub_decoder.model.bit_covariance import bit_shares_with_noise
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.random_string import RandomPlaces, RandomString

_REFITS = 3
_ROWS_AT_ONCE = 1024
_MAX_INFLATION = 1e8  # variance of a share through the presence of others, beyond which it is not identified
_NULL = 1e-10
_COHORTS = 3


@dataclass(frozen=True, eq=False)
class _Normal:
    """Sums over cohorts: A = X' S^-1 X, b = X' S^-1 y, y' S^-1 y and tr(S^-1 V)."""

    information: Floats
    moment: Floats
    square: float
    trace: float


def must_be_fixed(counts: BitCounts, design: DesignMatrix) -> bool:
    """Say whether every share is to be left open: it costs next to nothing, or there are too few cohorts to call hashing chance.

    M columns of random bits make every variance 1 / (1 - M/R) times what it would be alone, R the independent numbers; M <= R / 20 is asked.
    """
    return len(design.groups) <= numbers(counts) // 20 or int((counts.reports > 0).sum()) < _COHORTS


def fit_least_squares(counts: BitCounts, design: DesignMatrix, num_reports: int | None = None) -> FitResult:
    """Fit all columns of the design at once.

        minimize  sum_j (y_j - X_j x)' S_j^-1 (y_j - X_j x)        S_j = C_j / (n_j (q* - p*)**2) + tau**2 V
        Cov x = (sum_j X_j' S_j^-1 X_j)^-1

    C_j is `report_covariance` of cohort j at the last shares fitted, at first of nothing but average strings. Strings
    without a candidate do not hash like their average: V is the scatter of one, tau**2 the sum of their squared shares.

    counts      : bit counts with at least one report      design : fewer columns than the bits can carry
    num_reports : of all cohorts, if `counts` holds only some of them
    Source: generalized least squares; tau**2 by the method of moments on the residuals.
    """
    rows = int((counts.reports > 0).sum()) * counts.metric.params.num_bits
    random_string = RandomString.of(counts.metric.params)
    blocks = list(design.blocks())
    shares, unlisted, scatter = np.zeros(len(design.groups)), random_string.share_of_all(counts), 0.0
    for _ in range(1 + _REFITS):
        weighted_with = scatter
        normal = _normal_equations(counts, blocks, random_string, shares, unlisted, weighted_with)
        covariance, unexplained = _inverse(normal.information)
        solution = covariance @ normal.moment
        shares, unlisted = solution[:-1], float(solution[-1])
        scatter, scatter_std = _scatter(normal, solution, rows, unexplained.shape[1], weighted_with)
    n = num_reports or counts.num_reports

    def reporter_variances(contrasts: Floats) -> Floats:
        return reporter_variance(contrast_variances(contrasts, covariance), contrasts @ solution, n)

    found = FitResult.from_fixed_effects(
        solution, covariance, unexplained, reporter_variances, (weighted_with, scatter_std)
    )
    return found.with_tests(*_tested(found, solution, covariance, counts, blocks, random_string))


def _tested(
    found: FitResult,
    solution: Floats,
    covariance: Floats,
    counts: BitCounts,
    blocks: list[sparse.csr_array],
    random_string: RandomString,
) -> tuple[ErrorLaw | None, Floats]:
    """Return how random strings err, and how often one would look as frequent as each candidate.

    In each cohort a random string's score is the sum of S^-1 (y - X x - w x_o) over the bits that it sets; where candidate j is left out,
    (x, x_o) is less Cov e_j x_j / Cov_jj. Where sets of h bits are too many to go through, some are drawn.
    """
    errors = np.sqrt(found.variances)
    if np.isnan(errors).all():
        return None, np.full(len(errors), np.nan)
    strings = RandomPlaces.of_bits(counts.metric.params)

    def scores(solutions: Floats, scales: Floats) -> Iterator[tuple[sparse.csr_array, Floats]]:
        for y_j, bits, s in _covariances(
            counts, blocks, random_string, solution[:-1], solution[-1], found.unlisted_variance
        ):
            fitted = bits @ solutions[:-1] + np.outer(random_string.mean, solutions[-1])
            yield bits, scales * np.linalg.solve(s, y_j[:, None] - fitted)

    def left_out(some: Indices) -> Iterator[Seen]:
        moved = covariance[:, some] * (solution[some] / errors[some] ** 2)
        parts = list(scores(solution[:, None] - moved, errors[some]))
        own = np.array([(bits[:, some].T @ score).diagonal() for bits, score in parts])
        for place in range(len(some)):
            yield own[:, place], [strings.scores(score[:, place]) for _, score in parts]

    typical = np.array([np.nanmedian(errors)])
    anybody = (strings.scores(score[:, 0]) for _, score in scores(solution[:, None], typical))
    return tested(solution[:-1], errors, anybody, left_out, strings, int((counts.reports > 0).sum()))


def _scatter(normal: _Normal, solution: Floats, rows: int, blind: int, weighted_with: float) -> tuple[float, float]:
    """Return tau**2 by the method of moments, not below 0, and its standard error.

    E Q = D + (tau**2 - t) tr(S^-1 V) D / rows        Q = sum_j r_j' S_j^-1 r_j, D = rows - unknowns, t = `weighted_with`
    """
    freedom = rows - len(solution) + blind
    if freedom <= 0:
        return 0.0, math.inf
    per_unit = normal.trace * freedom / rows
    lack_of_fit = normal.square - float(solution @ normal.moment)
    return max(0.0, weighted_with + (lack_of_fit - freedom) / per_unit), math.sqrt(2 * freedom) / per_unit


def _normal_equations(
    counts: BitCounts,
    blocks: list[sparse.csr_array],
    random_string: RandomString,
    shares: Floats,
    unlisted: float,
    scatter: float,
) -> _Normal:
    """Sum over the cohorts; whitened rows of some cohorts are held at a time, and multiplied at once."""
    gram = np.zeros((len(shares) + 2, len(shares) + 2))
    trace = 0.0
    held: list[Floats] = []
    for y_j, bits, s in _covariances(counts, blocks, random_string, shares, unlisted, scatter):
        whitener = np.linalg.inv(np.linalg.cholesky(s))
        held.append(np.column_stack([(bits.T @ whitener.T).T, whitener @ random_string.mean, whitener @ y_j]))
        trace += float(np.sum((whitener @ random_string.covariance) * whitener))
        if len(held) * len(s) >= _ROWS_AT_ONCE:
            gram += _gram(held)
            held = []
    gram += _gram(held) if held else 0.0
    return _Normal(gram[:-1, :-1], gram[:-1, -1], float(gram[-1, -1]), trace)


def _covariances(
    counts: BitCounts,
    blocks: list[sparse.csr_array],
    random_string: RandomString,
    shares: Floats,
    unlisted: float,
    scatter: float,
) -> Iterator[tuple[Floats, sparse.csr_array, Floats]]:
    """Yield y_j, X_j and S_j of each cohort that sent anything."""
    for y_j, bits, s in bit_shares_with_noise(counts, blocks, random_string, shares, unlisted):
        yield y_j, bits, s + scatter * random_string.covariance


def _gram(blocks: list[Floats]) -> Floats:
    rows = np.concatenate(blocks)
    return rows.T @ rows


def _inverse(information: Floats) -> tuple[Floats, Floats]:
    """Invert, or pseudo-invert and return the directions without information: (M + 1, M + 1) and (M + 1, d)."""
    scale = np.sqrt(np.diag(information))
    scale[scale == 0] = 1
    correlation = information / np.outer(scale, scale)
    try:
        half = np.linalg.inv(np.linalg.cholesky(correlation))
    except np.linalg.LinAlgError:
        half = None
    if half is not None and np.sum(half**2, axis=0).max() < _MAX_INFLATION:
        return (half.T @ half) / np.outer(scale, scale), np.empty((len(scale), 0))
    values, vectors = np.linalg.eigh(correlation)
    known = values > max(_NULL * values[-1], 1 / _MAX_INFLATION)
    inverse = (vectors[:, known] / values[known]) @ vectors[:, known].T
    blind = linalg.orth(vectors[:, ~known] / scale[:, None])
    return inverse / np.outer(scale, scale), blind
