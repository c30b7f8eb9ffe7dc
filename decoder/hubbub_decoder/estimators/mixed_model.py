"""Linear mixed model of shares, solved exactly.

Model, for cohorts c = 1 .. m with whitened observations y_c (r_c,), d numbers in all:

    y_c = X_c x + F_c f + s_c        x_v ~ N(mean_v, variance_v)        s_c ~ N(0, I + tau**2 K_c)

    x (M,)   shares of the candidates: random effects, with the prior that `empirical_bayes.py` fits
    f (o,)   fixed effects: the share of the unlisted strings, whose column of F is the average random string, and of "no value"
    X_c      sum of the columns of A_c at the candidate's positions in cohort c (its filter, or its bits)
    tau**2   sum of squared shares of the unlisted strings; K_c = A_c V A_c', V the covariance of a random string's indicator

Estimator: how a string hashes is random, so a candidate with a prior is noise of known variance to the others. Each estimate is that of
its *cavity*, its own prior removed; so it is unbiased over the random hash. With posterior mean m_v and variance P_vv:

    1/variance(x_v) = 1/P_vv - 1/variance_v        x_v = variance(x_v) (m_v / P_vv - mean_v / variance_v)

`CandidateSpaceSolver` takes time O(d M**2 + M**3). It is the estimator of retained reports; for counts, `message_passing.py` has the same
estimates in O(M m) an iteration.

docs/mathematics.md, section 7. Source: Henderson 1975 (mixed model equations); Harville 1977 (restricted maximum likelihood); Minka 2001
(the cavity).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from hubbub_decoder.array_types import Flags, Floats
from hubbub_decoder.estimators.inverses import inverse_root
from hubbub_decoder.model.observations import Observations

_RELATIVE_RIDGE = 1e-10
_MIN_INFORMATION = 1e-9  # relative; a share with less is not determined
_MAX_SLAB_ROWS = 1024


@dataclass(frozen=True, eq=False)
class CandidatePriors:
    """Normal prior of each candidate's share: means (M,) and variances (M,) > 0."""

    means: Floats
    variances: Floats


@dataclass(frozen=True, eq=False)
class ShareEstimates:
    """Estimates of single shares of a population, under given priors.

    shares          : (M,) each without its own prior; nan where the reports do not determine it
    variances       : (M,) of `shares`; nan or inf where the reports do not determine it
    posterior_means : (M,) with the prior
    fixed_effects   : (o,) f
    """

    shares: Floats
    variances: Floats
    posterior_means: Floats
    fixed_effects: Floats


@dataclass(frozen=True, eq=False)
class Totals:
    """Sum of all candidates' shares, then the fixed effects: shares (1 + o,) and covariance (1 + o, 1 + o)."""

    shares: Floats
    covariance: Floats


@dataclass(frozen=True, slots=True)
class Overdispersion:
    """Residuals compared with the variance that tau**2 and the priors explain.

        ratio = r'S^-1 K S^-1 r / tr(P K)        step = (r'S^-1 K S^-1 r - tr(P K)) / sum_c tr(P_cc K_c P_cc K_c)

    ratio : of the true variance of the estimates to their nominal one
    step  : of Fisher scoring for tau**2; 0 at its restricted maximum likelihood
    error : standard error of tau**2, sqrt(2 / sum_c tr(P_cc K_c P_cc K_c))
    """

    ratio: float
    step: float
    error: float

    @classmethod
    def from_sums(cls, found: float, expected: float, curvature: float) -> Overdispersion:
        """From r'S^-1 K S^-1 r, tr(P K) and sum_c tr(P_cc K_c P_cc K_c)."""
        if not found > 0 < expected or not curvature > 0:
            return cls(1.0, 0.0, np.inf)
        return cls(float(found / expected), float((found - expected) / curvature), float(np.sqrt(2 / curvature)))


class MixedModel:
    """Mixed model of d observations and M candidates, before priors are given.

    The (d, M) matrix X is never stored: candidates with equal positions in two cohorts are added up first, and looked up last.

    observations   : y_c and A_c of m cohorts, with noise I
    positions      : (m, h, M) positions of each candidate in each cohort: its filter, or its bits
    fixed_patterns : (p, o) average pattern over positions of the unlisted strings and of "no value": F_c = A_c fixed_patterns
    covariance     : (p, p) V, of a random string's indicator: K_c = A_c V A_c'
    """

    def __init__(
        self,
        observations: Observations,
        positions: NDArray[np.integer],
        fixed_patterns: Floats,
        covariance: Floats,
    ) -> None:
        self.y, self.features = np.concatenate(observations.responses), observations.features
        self.positions = positions.astype(np.intp, copy=False)
        self.fixed_columns = np.concatenate(self.features) @ fixed_patterns
        self.unlisted_covariances = [a @ covariance @ a.T for a in self.features]
        self._starts = np.cumsum([0, *map(len, observations.responses)]).tolist()
        self._of_positions, self._num_positions = (fixed_patterns, covariance), len(fixed_patterns)

    @property
    def num_candidates(self) -> int:
        """M."""
        return int(self.positions.shape[2])

    def solve(self, priors: CandidatePriors, unlisted_variance: float) -> CandidateSpaceSolver:
        """Solve under these priors and tau**2."""
        return CandidateSpaceSolver(self, priors, unlisted_variance)

    def whitened(self, unlisted_variance: float) -> MixedModel:
        """Return the same model with noise I in place of I + tau**2 K."""
        covariances = self.unlisted_covariances
        roots = [np.linalg.inv(np.linalg.cholesky(np.eye(len(k)) + unlisted_variance * k)) for k in covariances]
        responses = tuple(root @ self.y[rows] for root, rows in zip(roots, self.rows(), strict=True))
        features = tuple(root @ a for root, a in zip(roots, self.features, strict=True))
        return MixedModel(Observations(responses, features), self.positions, *self._of_positions)

    def rows(self) -> Iterator[slice]:
        """Yield the rows of y of each cohort."""
        for start, end in pairwise(self._starts):
            yield slice(start, end)

    def variance_ratio(self, unlisted_variance: float, before: float) -> float:
        """Ratio of the observations' mean variance under one tau**2 to that under another."""
        trace = sum(map(np.trace, self.unlisted_covariances)) / len(self.y)
        return float((1 + unlisted_variance * trace) / (1 + before * trace))

    def predict(self, shares: Floats) -> Floats:
        """X x, (d,), of shares x (M,)."""
        parts = zip(self.features, self.positions, strict=True)
        size = self._num_positions
        return np.concatenate(
            [a @ reduce(np.add, [np.bincount(one, shares, size) for one in taken]) for a, taken in parts]
        )

    def scores(self, vector: Floats) -> Floats:
        """X'v, (M,); v : (d,)."""
        parts = zip(self.rows(), self.features, self.positions, strict=True)
        return np.asarray(
            sum(looked[one] for rows, a, taken in parts for looked in [a.T @ vector[rows]] for one in taken)
        )


class CandidateSpaceSolver:
    """Henderson's mixed model equations, in M + o unknowns (shares and fixed effects).

        (Z'Z + D) (x, f) = Z'y + D mean        Z = (X, F) of the whitened model        D = diag(1/variance), 0 for the fixed effects

    Z'Z + D = L L', and L^-1 is kept. Z is computed slab by slab, some cohorts at a time.
    """

    def __init__(self, model: MixedModel, priors: CandidatePriors, unlisted_variance: float) -> None:
        self._model, self._priors, self._listed = model.whitened(unlisted_variance), priors, model.num_candidates
        size = self._listed + model.fixed_columns.shape[1]
        normal = np.zeros((size, size))
        for _, z in self._slabs():
            normal += z.T @ z
        precision, pull = np.zeros(size), np.zeros(size)
        precision[: self._listed], pull[: self._listed] = 1 / priors.variances, priors.means / priors.variances
        ridge = _RELATIVE_RIDGE * max(normal.trace() / size, _RELATIVE_RIDGE)
        normal[np.diag_indices_from(normal)] += precision + ridge
        self._root = inverse_root(normal)
        self._right = self._scores(self._model.y) + pull
        self._x = self._times_covariance(self._right)

    def _slabs(self) -> Iterator[tuple[list[slice], Floats]]:
        """Yield Z, some cohorts at a time, with the rows of each cohort in it."""
        model = self._model
        held: list[Floats] = []
        for rows, a, taken in zip(model.rows(), model.features, model.positions, strict=True):
            held.append(np.column_stack([reduce(np.add, (a[:, one] for one in taken)), model.fixed_columns[rows]]))
            if rows.stop == len(model.y) or sum(map(len, held)) >= _MAX_SLAB_ROWS:
                ends = np.cumsum([0, *map(len, held)]).tolist()
                yield [slice(start, end) for start, end in pairwise(ends)], np.concatenate(held)
                held = []

    def _predict(self, x: Floats) -> Floats:
        """Z x."""
        return self._model.predict(x[: self._listed]) + self._model.fixed_columns @ x[self._listed :]

    def _scores(self, vector: Floats) -> Floats:
        """Z'v."""
        return np.concatenate([self._model.scores(vector), self._model.fixed_columns.T @ vector])

    def _times_covariance(self, vector: Floats) -> Floats:
        return np.asarray(self._root.T @ (self._root @ vector))

    def estimates(self, *, approximate: bool = False) -> ShareEstimates:  # noqa: ARG002, exact variances cost nothing here
        """Estimates of all shares, each without its own prior; approximate : variances need not be final."""
        posterior_variances = np.einsum("ij,ij->j", self._root, self._root)[: self._listed]
        posterior_means = self._x[: self._listed]
        precision = 1 / posterior_variances - 1 / self._priors.variances
        known = precision > _MIN_INFORMATION / posterior_variances
        variances = 1 / np.where(known, precision, 1)
        shares = variances * (posterior_means / posterior_variances - self._priors.means / self._priors.variances)
        return ShareEstimates(
            shares=np.where(known, shares, np.nan),
            variances=np.where(known, variances, np.inf),
            posterior_means=posterior_means,
            fixed_effects=self._x[self._listed :],
        )

    def overdispersion(self) -> Overdispersion:
        """Compare the residuals with their expected variance."""
        residual, covariances = self._model.y - self._predict(self._x), self._model.unlisted_covariances
        squares = [
            float(residual[rows] @ k @ residual[rows]) for rows, k in zip(self._model.rows(), covariances, strict=True)
        ]
        halves = (
            product[:, rows]
            for held, z in self._slabs()
            for product in [linalg.blas.dtrmm(1.0, self._root, z.T, lower=1)]
            for rows in held
        )
        blocks = [k - half.T @ (half @ k) for half, k in zip(halves, covariances, strict=True)]
        curvature = sum(float(np.sum(b * b.T)) for b in blocks)
        return Overdispersion.from_sums(sum(squares), sum(float(np.trace(b)) for b in blocks), curvature)

    def totals(self, exchangeable: Flags) -> Totals:
        """Totals, with one more fixed effect: the mean of the exchangeable candidates (M,), its column X 1.

        Without it, the priors of hundreds of small shares would decide their sum.
        """
        weights, sums, column = self._total_weights(exchangeable)
        return Totals(weights @ np.append(self._right, column @ self._model.y), weights @ sums.T)

    def _total_weights(self, exchangeable: Flags) -> tuple[Floats, Floats, Floats]:
        """Weights of the equations in the totals (1 + o, M + o + 1), the sums that they estimate, and the column X 1.

        The last equation is that of the mean of the exchangeable candidates.
        """
        m, size = self._listed, len(self._x)
        fixed = size - m
        sums = np.zeros((1 + fixed, size + 1))
        sums[0, :m], sums[1:, m:-1], sums[0, -1] = 1, np.eye(fixed), exchangeable.sum()
        column = self._model.predict(exchangeable.astype(float))
        solved = self._times_covariance(self._scores(column))
        left = float(column @ column - column @ self._predict(solved))
        weights = np.zeros_like(sums)
        weights[:, :-1] = self._times_covariance(sums[:, :-1].T).T
        if left > _MIN_INFORMATION * float(
            column @ column
        ):  # else no candidate is exchangeable, or X 1 is a fixed column
            direction = np.append(-solved, 1)
            weights += np.outer(sums @ direction, direction) / left
        return weights, sums, column
