"""Shares as a linear mixed model: what is believed of each candidate is normal, unlisted strings scatter.

    y_c = X_c x + u_c x_o + e_c x_0 + s_c        x_j ~ N(mean_j, variance_j)        s_c ~ N(0, I + tau**2 K_c)

x are the candidates' shares; x_o the unlisted strings', u their average pattern, K_c their scatter around it; x_0 "no value".
What is believed of a candidate matters to the others only: how it hashes is chance, so to them it is noise of a known size. Its own
estimate always takes its own belief away again (its *cavity*), so it is unbiased over the random hash.

Source: Henderson 1975 (mixed model equations); Harville 1977 (restricted maximum likelihood); the cavity as in Minka 2001.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from hubbub_decoder.patterns import FilterTable, Observations

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_RIDGE = 1e-10
_NO_INFORMATION = 1e-9
_SAMPLE = 4_096
_BLOCK = 256
_LOOKUP = 500  # what looking up a candidate's pair of filters costs, in multiplications


@dataclass(frozen=True, eq=False)
class Beliefs:
    """What is believed of each candidate's share beside what its own reports say: normal, (M,) and (M,) > 0."""

    means: Floats
    variances: Floats


@dataclass(frozen=True, eq=False)
class Solution:
    """What the model says of single shares of a population that the reports are drawn from.

    shares    : (M,) each candidate's, its own belief taken away     variances : (M,) theirs; nan, inf where nothing is known
    posterior : (M,) with it                                         others    : x_o, x_0 (2,)
    """

    shares: Floats
    variances: Floats
    posterior: Floats
    others: Floats


@dataclass(frozen=True, eq=False)
class Totals:
    """The candidates together, x_o and x_0: shares (3,) and their covariance (3, 3)."""

    shares: Floats
    covariance: Floats


@dataclass(frozen=True, slots=True)
class Misfit:
    """How residuals compare with what tau**2 and the beliefs explain.

        ratio = r'S^-1 K S^-1 r / tr(P K)        step = (r'S^-1 K S^-1 r - tr(P K)) / sum_c tr(P_cc K_c P_cc K_c)

    ratio : of the variance that estimates really have to the one they claim      step : to add to tau**2 (scoring; 0 at its restricted
    maximum likelihood)
    """

    ratio: float
    step: float

    @classmethod
    def of(cls, squares: list[float], blocks: list[Floats]) -> Misfit:
        """Add up the cohorts' r'S^-1 K S^-1 r and P_cc K_c."""
        expected, curvature = (sum(map(f, blocks)) for f in (np.trace, lambda b: np.sum(b * b.T)))
        found = sum(squares)
        if not found > 0 < expected or not curvature > 0:
            return cls(1.0, 0.0)
        return cls(float(found / expected), float((found - expected) / curvature))


class Solved(ABC):
    """A model solved under some beliefs."""

    @abstractmethod
    def solution(self, *, roughly: bool = False) -> Solution:
        """Estimate every share; roughly: the own variance of some of very many may stand for all, since all hash at random."""

    @abstractmethod
    def scores(self, without: int | None = None) -> list[Floats]:
        """Return A'P(y - X mean) of each cohort: what a filter there adds to the score of a string about which nothing is believed.

        without : a candidate, to be left out of the model: P_{-j} r_{-j} = P r + P x_j posterior_j / (1 - s_j x_j'P x_j), s_j its belief's variance
        """

    @abstractmethod
    def misfit(self) -> Misfit:
        """Compare residuals with what is expected of them."""

    @abstractmethod
    def totals(self, exchangeable: Flags) -> Totals:
        """Sum up, the exchangeable candidates given a mean of their own: one more unknown, its column X 1.

        A belief about hundreds of small shares would otherwise decide their sum.
        """


class MixedModel:
    """Observations of all cohorts, d numbers, about M candidates.

    It is solved for the shares (Henderson's equations) or for the observations, whichever takes less arithmetic. The covariance of the
    latter is S = X diag(variance) X' + (I + tau**2 K), with P = S^-1 - S^-1 F (F'S^-1 F)^-1 F'S^-1 and F = (u, e); the d x M matrix X is
    never held then: candidates with the same two filters in two cohorts are added up first, and looked up last.
    """

    def __init__(self, observations: Observations, table: FilterTable, filter_of: NDArray[np.int16]) -> None:
        self._features = observations.features
        self._filter_of = filter_of.astype(np.intp)
        self._size = len(table.filters)
        self._starts = np.cumsum([0, *map(len, observations.responses)])
        self._y = np.concatenate(observations.responses)
        nothing = (table.filters == 0).astype(float)
        self._others = np.concatenate(observations.features) @ np.column_stack([table.random, nothing])
        self._scatters = [a @ table.scatter @ a.T for a in observations.features]

    @property
    def candidates(self) -> int:
        """M."""
        return int(self._filter_of.shape[1])

    def solved(self, beliefs: Beliefs, unlisted: float) -> Solved:
        """Solve under these beliefs; unlisted : tau**2."""
        d, m, cohorts = len(self._y), self.candidates, len(self._features)
        if d**3 + _LOOKUP * cohorts**2 * m < d * m**2 + m**3:
            return _InObservations(self, beliefs, unlisted)
        return _InShares(self, beliefs, unlisted)

    def rows(self) -> Iterator[slice]:
        """Yield where each cohort's observations stand."""
        for start, end in zip(self._starts, self._starts[1:], strict=False):
            yield slice(int(start), int(end))

    def variance_ratio(self, unlisted: float, before: float) -> float:
        """Return how much larger one tau**2 makes the observations' variances than another, on average."""
        scatter = sum(map(np.trace, self._scatters)) / len(self._y)
        return float((1 + unlisted * scatter) / (1 + before * scatter))

    def sums(self, shares: Floats) -> Floats:
        """Return X x, (d,)."""
        parts = zip(self._features, self._filter_of, strict=True)
        return np.concatenate([a @ np.bincount(chosen, shares, self._size) for a, chosen in parts])

    def scores(self, vectors: Floats, every: int = 1) -> Floats:
        """Return X'v, a row a candidate, or every n-th of them; v : (d,) or (d, n)."""
        parts = zip(self.rows(), self._features, self._filter_of[:, ::every], strict=True)
        return np.asarray(sum((a.T @ vectors[rows])[chosen] for rows, a, chosen in parts))

    def gram(self, weights: Floats) -> Floats:
        """Return X diag(weights) X', (d, d)."""
        total = np.empty((len(self._y), len(self._y)))
        for rows, a, columns, b, pair in self._pairs():
            together = np.bincount(pair, weights, self._size**2).reshape(self._size, self._size)
            block = a @ together @ b.T
            total[rows, columns], total[columns, rows] = block, block.T
        return total

    def squares(self, matrix: Floats, every: int = 1) -> Floats:
        """Return x'Ax for the column x of each candidate, or of every n-th, (M / n,); matrix : A, symmetric."""
        total = np.zeros(-(-self.candidates // every))
        for rows, a, columns, b, pair in self._pairs(every):
            total += ((1 if rows == columns else 2) * (a.T @ matrix[rows, columns] @ b)).take(pair)
        return total

    def _pairs(self, every: int = 1) -> Iterator[tuple[slice, Floats, slice, Floats, NDArray[np.intp]]]:
        cohorts = list(zip(self.rows(), self._features, self._filter_of[:, ::every], strict=True))
        for place, (rows, a, chosen) in enumerate(cohorts):
            first = chosen * self._size
            for columns, b, other in cohorts[: place + 1]:
                yield rows, a, columns, b, first + other


class _InShares(Solved):
    """(Z'Z + prior) x = Z'y + prior mean, all shares, x_o and x_0 at once; rows whitened. Z'Z + prior = L L', and L^-1 is kept."""

    def __init__(self, model: MixedModel, beliefs: Beliefs, unlisted: float) -> None:
        self._z, self._y = np.empty((len(model._y), model.candidates + 2)), np.empty(len(model._y))
        self._scatters, self._looks = [], []
        for rows, a, chosen, k in zip(model.rows(), model._features, model._filter_of, model._scatters, strict=True):
            root = np.linalg.inv(np.linalg.cholesky(np.eye(len(k)) + unlisted * k))
            self._z[rows, :-2], self._z[rows, -2:] = (root @ a)[:, chosen], root @ model._others[rows]
            self._y[rows] = root @ model._y[rows]
            self._scatters.append((rows, root @ k @ root.T))
            self._looks.append((rows, root @ a))
        self._beliefs = beliefs
        normal = self._z.T @ self._z
        precision = np.append(1 / beliefs.variances, [0, 0])
        normal[np.diag_indices_from(normal)] += precision + _RIDGE * max(normal.trace() / len(normal), _RIDGE)
        self._root = _inverse_root(normal)
        self._x = self._times_covariance(self._z.T @ self._y + np.append(beliefs.means / beliefs.variances, [0, 0]))

    def _times_covariance(self, vector: Floats) -> Floats:
        return np.asarray(self._root.T @ (self._root @ vector))

    def solution(self, *, roughly: bool = False) -> Solution:  # noqa: ARG002, exact is as fast here
        spread, posterior = np.einsum("ij,ij->j", self._root, self._root)[:-2], self._x[:-2]
        left = 1 / spread - 1 / self._beliefs.variances
        known = left > _NO_INFORMATION / spread
        own = 1 / np.where(known, left, 1)
        shares = own * (posterior / spread - self._beliefs.means / self._beliefs.variances)
        return Solution(np.where(known, shares, np.nan), np.where(known, own, np.inf), posterior, self._x[-2:])

    def scores(self, without: int | None = None) -> list[Floats]:
        x = self._x
        if without is not None:  # the others' shares given that this one is 0
            column = self._root.T @ self._root[:, without]
            x = x - column * (x[without] / column[without])
        residual = self._y - self._z @ x
        return [look.T @ residual[rows] for rows, look in self._looks]

    def misfit(self) -> Misfit:
        residual = self._y - self._z @ self._x
        taken = linalg.blas.dtrmm(1.0, self._root, self._z.T, lower=1)
        blocks = [k - taken[:, rows].T @ (taken[:, rows] @ k) for rows, k in self._scatters]
        return Misfit.of([float(residual[rows] @ k @ residual[rows]) for rows, k in self._scatters], blocks)

    def totals(self, exchangeable: Flags) -> Totals:
        sums = np.zeros((3, len(self._x) + 1))
        sums[0, :-3], sums[1, -3], sums[2, -2], sums[0, -1] = 1, 1, 1, exchangeable.sum()
        column = self._z[:, :-2] @ exchangeable.astype(float)
        solved = self._times_covariance(self._z.T @ column)
        left = float(column @ column - column @ (self._z @ solved))
        if left <= _NO_INFORMATION * float(column @ column):  # nobody, or nothing to tell them from the unlisted
            reach = self._root @ sums[:, :-1].T
            return Totals(sums[:, :-1] @ self._x, reach.T @ reach)
        mean = float(column @ self._y - column @ (self._z @ self._x)) / left
        direction = np.append(-solved, 1)
        reach, moved = self._root @ sums[:, :-1].T, sums @ direction
        return Totals(sums[:, :-1] @ self._x + mean * moved, reach.T @ reach + np.outer(moved, moved) / left)


class _InObservations(Solved):
    """S = X diag(variance) X' + (I + tau**2 K); P = S^-1 - S^-1 F (F'S^-1 F)^-1 F'S^-1 is never held."""

    def __init__(self, model: MixedModel, beliefs: Beliefs, unlisted: float) -> None:
        self._model, self._beliefs = model, beliefs
        s = model.gram(beliefs.variances)
        for rows, k in zip(model.rows(), model._scatters, strict=True):
            s[rows, rows] += np.eye(len(k)) + unlisted * k
        self._inverse = _inverse(s)
        self._surprise = model._y - model.sums(beliefs.means)
        self._solved, self._covariance, self._effects = self._fixed(model._others)
        self._projected = self._inverse @ self._surprise - self._solved @ self._effects

    def _fixed(self, columns: Floats) -> tuple[Floats, Floats, Floats]:
        """Return S^-1 F, (F'S^-1 F)^-1 and the effects of some columns F without a prior."""
        solved = self._inverse @ columns
        normal = columns.T @ solved
        normal[np.diag_indices_from(normal)] += _RIDGE * (normal.diagonal() + _RIDGE * normal.diagonal().max())
        covariance: Floats = np.asarray(np.linalg.inv(normal))
        return solved, covariance, covariance @ (solved.T @ self._surprise)

    def solution(self, *, roughly: bool = False) -> Solution:
        means, variances = self._beliefs.means, self._beliefs.variances
        every = -(-len(means) // _SAMPLE) if roughly else 1
        fixed = self._model.scores(self._solved, every)
        information = self._model.squares(self._inverse, every) - np.einsum(
            "ia,ab,ib->i", fixed, self._covariance, fixed
        )
        score = self._model.scores(self._projected)
        if every > 1:
            information = 1 / (np.median(1 / information - variances[::every]) + variances)
        known = (information > _NO_INFORMATION * information.max(initial=0)) & (information * variances < 1)
        certain = np.where(known, information, 1)
        return Solution(
            shares=np.where(known, means + score / certain, np.nan),
            variances=np.where(known, 1 / certain - variances, np.inf),
            posterior=means + variances * score,
            others=self._effects,
        )

    def scores(self, without: int | None = None) -> list[Floats]:
        model = self._model
        parts = list(zip(model.rows(), model._features, model._filter_of, strict=True))
        residual = self._projected
        if without is not None:
            column = np.concatenate([a[:, chosen[without]] for _, a, chosen in parts])
            projected = self._inverse @ column - self._solved @ (self._covariance @ (self._solved.T @ column))
            mean, variance = self._beliefs.means[without], self._beliefs.variances[without]
            posterior = mean + variance * float(column @ self._projected)
            residual = residual + projected * (posterior / (1 - variance * float(column @ projected)))
        return [a.T @ residual[rows] for rows, a, _ in parts]

    def misfit(self) -> Misfit:
        parts = list(zip(self._model.rows(), self._model._scatters, strict=True))
        squares = [float(self._projected[rows] @ k @ self._projected[rows]) for rows, k in parts]
        own = ((rows, self._solved[rows]) for rows, _ in parts)
        projections = [self._inverse[rows, rows] - solved @ self._covariance @ solved.T for rows, solved in own]
        return Misfit.of(squares, [p @ k for p, (_, k) in zip(projections, parts, strict=True)])

    def totals(self, exchangeable: Flags) -> Totals:
        """Predict: L'f + a'S^-1 (y - F f), with error variance (L - F'S^-1 a)' Cov f (L - F'S^-1 a) + 1'V 1 - a'S^-1 a, a = X V 1."""
        column = self._model.sums(exchangeable.astype(float))
        fixed = np.column_stack([self._model._others, column])
        solved, covariance, effects = self._fixed(fixed)
        reach = np.zeros((3, 3))
        reach[1, 0], reach[2, 1], reach[0, 2] = 1, 1, exchangeable.sum()
        totals = reach @ effects
        a = self._model.sums(self._beliefs.variances)
        totals[0] += self._beliefs.means.sum() + float(a @ (self._inverse @ (self._surprise - fixed @ effects)))
        reach[0] -= solved.T @ a
        spread = reach @ covariance @ reach.T
        spread[0, 0] += self._beliefs.variances.sum() - float(a @ self._inverse @ a)
        return Totals(totals, spread)


def _inverse(symmetric: Floats) -> Floats:
    """Invert a positive definite matrix, which is overwritten, in n**3 multiplications: Cholesky's factor, then LAPACK's inverse of it."""
    inverse, failed = linalg.lapack.dpotri(_factor(symmetric), lower=1, overwrite_c=1)
    _must_be_definite(failed, symmetric)
    for start in range(0, len(inverse), _BLOCK):  # what is below the diagonal, above it
        end = start + _BLOCK
        inverse[start:end, end:] = inverse[end:, start:end].T
        corner = inverse[start:end, start:end]
        corner[:] = np.tril(corner) + np.tril(corner, -1).T
    return np.asarray(inverse.T)


def _inverse_root(symmetric: Floats) -> Floats:
    """Return L^-1, lower triangular, of a positive definite matrix L L', which is overwritten: two thirds of its inverse's work."""
    root, failed = linalg.lapack.dtrtri(_factor(symmetric), lower=1, overwrite_c=1)
    _must_be_definite(failed, symmetric)
    return np.asarray(root)


def _factor(symmetric: Floats) -> Floats:
    factor, failed = linalg.lapack.dpotrf(
        symmetric.T, lower=1, overwrite_a=1
    )  # its own transpose, as LAPACK lays it out
    _must_be_definite(failed, symmetric)
    return np.asarray(factor)


def _must_be_definite(failed: int, symmetric: Floats) -> None:
    if failed:
        raise np.linalg.LinAlgError(f"a covariance of {len(symmetric)} numbers is not positive definite")
