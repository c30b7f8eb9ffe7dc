"""Least squares for sets of hashed items, all candidates as fixed effects.

Bucket b of cohort c is a one in the true set of a client that has any item with the hash b. With debiased counts y, d_cb the share of the
clients with any of the items of a bucket, and I_cb the candidates there,

    y_cb = d_cb + e_cb        d_cb = 1 - (1 - u) prod (1 - x_i), over I_cb, where a client's items are independent
                                   = u + sum x_i - o_cb

x are the shares of the M candidates, u the expected unlisted items of a bucket, and o_cb the overlap: clients with several items of the bucket.
o is small, but the same share of x_i in every cohort, so that no number of reports removes it.

Estimator: minimize  sum (y_cb + o_cb - u - sum x_i)**2 / v_cb        o and v at the shares fitted last
Variance:  v_cb = (d q (1-q) + (1-d) p (1-p)) / (n_c (q-p)**2) + d (1-d) / n_c, of n_c reports of a cohort. Where frequent items i and j share a
           bucket, (min(x_i, x_j) - x_i x_j)**2 more: min(x_i, x_j) of the clients may have both

Cells that the candidates do not explain (P < 1e-6) get a free level: an unlisted frequent item has a bucket there. With R = C (k - m - 1)
independent numbers, the variance of a share is 1 / (1 - M / R) times that of a bucket of its own in each cohort.
docs/explanation/mathematics.md, equations (25.1) to (25.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.linalg import blas, lapack
from scipy.sparse.linalg import LinearOperator, cg

from hubbub.mechanisms.privset import PrivSet
from hubbub.text import format_count
from hubbub_decoder.array_types import Flags, Floats, Indices
from hubbub_decoder.errors import CandidateError
from hubbub_decoder.estimators.categories import RowNoise
from hubbub_decoder.estimators.items import ItemFit
from hubbub_decoder.inference.error_law import ErrorCumulants, ErrorLaw, Sampling, skewed_tail
from hubbub_decoder.inference.influence import Extremes, ReportInfluence
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.options import Target

MAX_CANDIDATES = 10_000
"""Most candidates, whose information matrix of 8 M**2 bytes is inverted."""
_FITS = 5
_TOLERANCE = 1e-10  # of the conjugate gradients
_MAX_LOAD = 0.5  # candidates over independent numbers
_FREQUENT = 0.02  # least share that two items of a bucket may have together beyond chance, to count
_SIGNIFICANT = 3.0  # standard errors
_UNEXPLAINED = 1e-6  # tail probability of a cell


@dataclass(frozen=True, eq=False)
class Cells:
    """Buckets of the cohorts with reports, C B of them, and what the counts say about each.

    matrix  : (C B, M) of the candidates      y : (C B,) debiased shares
    reports, clients : (C B,) of the cohort
    noise   : of a report      mechanism : of the rows
    """

    matrix: sparse.csr_array
    y: Floats
    reports: Floats
    clients: Floats
    noise: RowNoise
    mechanism: PrivSet

    @classmethod
    def of(cls, evidence: Evidence, design: DesignMatrix, mechanism: PrivSet) -> Cells:
        """Cells of an evidence."""
        used, buckets, k = np.flatnonzero(evidence.used), mechanism.num_items, mechanism.num_values
        rows = (used[:, None] * k + np.arange(buckets)).ravel()
        reports = np.repeat(evidence.counts.reports[used].astype(float), buckets)
        return cls(
            sparse.csr_array(design.matrix.tocsr()[rows].astype(float)),
            evidence.bit_shares[used, :buckets].ravel(),
            reports,
            reports / evidence.repetition.per_client,
            RowNoise.of_mechanism(mechanism, evidence.repetition),
            mechanism,
        )

    @property
    def _slope(self) -> float:
        return self.mechanism.prob_q - self.mechanism.prob_p

    def noise_variances(self, touched: Floats) -> Floats:
        """Variance of y given the clients' sets, of which the shares `touched` (C B,) have the bucket."""
        of_report = self.noise.absent + touched * (self.noise.present - self.noise.absent)
        return np.asarray(of_report / (self.reports * self._slope**2))

    def variances(self, touched: Floats) -> Floats:
        """Variance of y, from which the reports are a sample."""
        return self.noise_variances(touched) + touched * (1 - touched) / self.clients

    def third_cumulants(self) -> tuple[Floats, Floats]:
        """Third cumulants of the noise of y where no client has the bucket, and their growth to where all have it, (C B,)."""
        of = (self.noise.absent, self.mechanism.prob_p), (self.noise.present, self.mechanism.prob_q)
        absent, present = (v**2 / (chance * (1 - chance)) * (1 - 2 * chance) for v, chance in of)
        scale = self.reports**2 * self._slope**3
        return absent / scale, (present - absent) / scale


@dataclass(frozen=True, eq=False)
class Overlap:
    """What the shares fitted last say about the cells, (C B,).

    touched : d_cb      overlap : o_cb      together : largest share of two items beyond chance
    """

    touched: Floats
    overlap: Floats
    together: Floats

    @classmethod
    def of(cls, matrix: sparse.csr_array, shares: Floats, unlisted: float) -> Overlap:
        """Overlap where items of a client are independent.

        shares : (M,) in [0, 1]      unlisted : u
        """
        sums = matrix @ shares + unlisted
        apart = (1 - unlisted) * np.exp(matrix @ np.log1p(-np.minimum(shares, 1 - 1e-9)))
        largest, second = _two_largest(matrix, shares)
        return cls(1 - apart, sums - (1 - apart), np.maximum(second - largest * second, 0))


@dataclass(frozen=True, eq=False)
class Solution:
    """Fit at given weights (C B,): shares (M,) and u."""

    weights: Floats
    shares: Floats
    unlisted: float

    @classmethod
    def of(cls, matrix: sparse.csr_array, response: Floats, weights: Floats) -> Solution:
        """Solve the normal equations by conjugate gradients; their condition is that of random columns, about 4 for M = R / 11."""
        information = Information(matrix, weights)
        level = float(weights @ response) / information.total
        moment = matrix.T @ (weights * (response - level))
        shares = information.solve(moment)
        return cls(weights, shares, level - float(information.of_level @ shares) / information.total)


@dataclass(frozen=True, eq=False)
class Information:
    """Information of the shares after that of u: X' W X - g g' / s        g = X' W 1 (M,)        s = sum of W.

    Entries of X are 0 and 1, so g is also the diagonal of X' W X.
    """

    matrix: sparse.csr_array
    weights: Floats

    @cached_property
    def of_level(self) -> Floats:
        """Information g of u and each share."""
        return np.asarray(self.matrix.T @ self.weights)

    @property
    def total(self) -> float:
        """Information s of u."""
        return float(self.weights.sum())

    def solve(self, moment: Floats) -> Floats:
        """Product of the inverse and a vector (M,)."""
        size, total = len(moment), self.total

        def product(v: Floats) -> Floats:
            return np.asarray(
                self.matrix.T @ (self.weights * (self.matrix @ v)) - self.of_level * (self.of_level @ v / total)
            )

        operator = LinearOperator((size, size), product, dtype=float)
        scaled = LinearOperator((size, size), lambda v: v / self.of_level, dtype=float)
        return np.asarray(cg(operator, moment, rtol=_TOLERANCE, M=scaled)[0])

    def inverse(self) -> Floats:
        """Inverse, (M, M), in the memory of the information."""
        gram = self.matrix.T @ sparse.diags_array(self.weights) @ self.matrix
        dense = blas.dsyr(-1 / self.total, self.of_level, lower=True, a=gram.toarray(order="F"), overwrite_a=True)
        factor, failed = lapack.dpotrf(dense, lower=True, overwrite_a=True)
        inverse, singular = lapack.dpotri(factor, lower=True, overwrite_c=True)
        if failed or singular:
            raise CandidateError("the candidates cannot be told apart: pass fewer, or decode reports of more cohorts")
        for column in range(len(inverse)):
            inverse[column, column + 1 :] = inverse[column + 1 :, column]
        return np.asarray(inverse)


def fit_hashed_sets(evidence: Evidence, design: DesignMatrix, target: Target, mechanism: PrivSet) -> ItemFit:
    """Estimate the share of the clients with each candidate, from rows of hashed sets; raises CandidateError for too many."""
    size, independent = len(design.groups), evidence.num_used * (mechanism.num_items - 1)
    _check_number(size, independent)
    cells = Cells.of(evidence, design, mechanism)
    solution, overlap = _fit(cells, size / independent)
    shares, weights = solution.shares, solution.weights
    information = Information(cells.matrix, weights)
    covariance = information.inverse()
    residuals = cells.y + overlap.overlap - solution.unlisted - cells.matrix @ shares
    freedom = len(residuals) - size - 1
    scale = max(1.0, float(weights @ residuals**2) / freedom)
    variances = scale * covariance.diagonal()
    clients, at = evidence.num_clients, np.clip(shares, 0, 1)
    drawn = at * (1 - at) / clients
    cumulants = _cumulants(cells, overlap.touched, weights, at, np.maximum(variances - drawn, variances / size**2))
    population = target == "population"
    law = ErrorLaw(
        shares,
        variances if population else cumulants.variances + at * cumulants.variance_slopes,
        cumulants,
        None,
        Sampling.of_clients(clients) if population else Sampling(),
    )
    total = min(max(float(shares.sum()), 0.0), mechanism.max_items)
    of_total = scale * float(information.solve(np.ones(size)).sum()) - float(drawn.sum())
    of_total += total * (mechanism.max_items - total) / clients if population else 0.0
    of_mean = np.array([max(of_total, 0.0) / size**2])

    def influence(candidates: Indices) -> ReportInfluence:
        of_some = np.ascontiguousarray(covariance[:, candidates])
        changes = _changes_by_one_report(cells, overlap.touched, weights, information, of_some)
        return ReportInfluence.from_changes(shares[candidates], changes, evidence.num_reports)

    return ItemFit(
        shares,
        law,
        influence,
        ErrorLaw(shares.mean(keepdims=True), of_mean, ErrorCumulants(of_mean, *np.zeros((3, 1))), None),
    )


def _check_number(size: int, independent: int) -> None:
    """Raise CandidateError for more candidates than the counts, or the memory, can tell apart."""
    most = min(MAX_CANDIDATES, int(_MAX_LOAD * independent))
    if size > most:
        raise CandidateError(
            f"{format_count(size, 'candidate')} are too many for sets: the counts of these cohorts tell {most:,} apart. "
            "Leave out candidates that are certainly rare."
        )


def _fit(cells: Cells, load: float) -> tuple[Solution, Overlap]:
    """Fit, with the overlap and the weights of the fit before.

    load : candidates over independent numbers
    """
    level = np.full(len(cells.y), min(max(float(np.average(cells.y, weights=cells.reports)), 0.0), 1.0))
    overlap = Overlap(level, np.zeros_like(level), np.zeros_like(level))
    free = np.zeros_like(level)
    for _ in range(_FITS):
        variances = cells.variances(overlap.touched)
        is_frequent = overlap.together > np.maximum(np.sqrt(variances), _FREQUENT)
        weights = 1 / (variances + np.where(is_frequent, overlap.together, 0) ** 2 + free)
        solution = Solution.of(cells.matrix, cells.y + overlap.overlap, weights)
        shares, unlisted = solution.shares, min(max(solution.unlisted, 0.0), 1.0)
        errors = 1 / np.sqrt((1 - load) * (cells.matrix.T @ weights))
        overlap = Overlap.of(cells.matrix, _shrunk(shares, errors), unlisted)
        residuals = cells.y - overlap.touched
        free = np.where(_is_unexplained(cells, residuals, overlap.touched), residuals**2, 0)
    return solution, overlap


def _shrunk(shares: Floats, errors: Floats) -> Floats:
    """Shares in [0, 1] that explain the overlap: those far above 0, and of the others their mean, because a product of noise is noise."""
    large = shares > _SIGNIFICANT * errors
    rest = max(float(shares[~large].mean()), 0.0) if not large.all() else 0.0
    return np.clip(np.where(large, shares, rest), 0, 1)


def _is_unexplained(cells: Cells, residuals: Floats, touched: Floats) -> Flags:
    """Whether the candidates do not explain a cell, (C B,)."""
    errors = np.sqrt(cells.variances(touched))
    third, growth = cells.third_cumulants()
    skewness = (third + touched * growth) / errors**3
    tails = skewed_tail(residuals / errors, skewness), skewed_tail(-residuals / errors, -skewness)
    return np.asarray(np.minimum(*tails) < _UNEXPLAINED)


def _two_largest(rows: sparse.csr_array, shares: Floats) -> tuple[Floats, Floats]:
    """Largest and second largest share of the candidates of each cell, (C B,); 0 where there are fewer."""
    values, starts = shares[rows.indices], rows.indptr[:-1]
    filled = np.diff(rows.indptr) > 0
    largest, second = np.zeros((2, len(starts)))
    if filled.any():
        cell = np.repeat(np.arange(len(starts)), np.diff(rows.indptr))
        order = np.lexsort((-values, cell))
        ordered = values[order]
        largest[filled] = ordered[starts[filled]]
        several = np.diff(rows.indptr) > 1
        second[several] = ordered[starts[several] + 1]
    return largest, second


def _cumulants(cells: Cells, touched: Floats, weights: Floats, at: Floats, noise: Floats) -> ErrorCumulants:
    """Cumulants of the estimates as weighted means of their own cells; their variances are `noise` at the shares `at`, (M,)."""
    own = sparse.csc_array(sparse.diags_array(weights) @ cells.matrix)
    own = sparse.csc_array(own @ sparse.diags_array(1 / own.sum(axis=0)))
    squares, cubes = own.power(2), own.power(3)
    slopes = squares.T @ (cells.noise_variances(np.ones_like(touched)) - cells.noise_variances(np.zeros_like(touched)))
    third, growth = cells.third_cumulants()
    third_slopes = cubes.T @ growth
    third_at = cubes.T @ (third + touched * growth)
    least = np.maximum(noise - at * slopes, squares.T @ cells.noise_variances(np.zeros_like(touched)))
    return ErrorCumulants(least, slopes, third_at - at * third_slopes, third_slopes)


def _changes_by_one_report(
    cells: Cells, touched: Floats, weights: Floats, information: Information, covariance: Floats
) -> Iterator[Extremes]:
    """Yield the changes of D estimates by one report more in each cohort, over all rows of w ones.

    covariance : (M, D) columns of the candidates
    """
    mechanism, buckets = cells.mechanism, cells.mechanism.num_items
    p, w, slope = mechanism.prob_p, mechanism.num_ones, mechanism.prob_q - mechanism.prob_p
    of_level = information.of_level @ covariance / information.total
    for start in range(0, len(touched), buckets):
        some = slice(start, start + buckets)
        influence = np.zeros((covariance.shape[1], mechanism.num_values))  # 0 in the blanks
        influence[:, :buckets] = (
            (cells.matrix[some] @ covariance - of_level) * (weights[some] / cells.reports[some])[:, None]
        ).T
        constants = influence.sum(axis=1) * p / slope + influence[:, :buckets] @ touched[some]
        order = np.argpartition(influence, (w - 1, -w), axis=1)
        least, largest = (np.take_along_axis(influence, at, axis=1).sum(axis=1) for at in (order[:, :w], order[:, -w:]))
        ones = np.zeros(influence.shape, np.uint8)
        np.put_along_axis(ones, order[:, -w:], 1, axis=1)
        yield Extremes(least / slope, largest / slope, ones).less(constants)
