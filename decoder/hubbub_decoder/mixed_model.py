"""Shares as a linear mixed model: strong candidates fixed, weak ones and unlisted strings random.

    y_c = X_c,F x_F + X_c,W x_W + u_c x_o + e_c x_0 + s_c        x_W ~ N(0, sigma**2)        s_c ~ N(0, I + tau**2 K_c)

x_F are candidates fitted one by one; x_W those that are exchangeable (how they hash is chance, so they are noise to each other of a
known shape); x_o the unlisted strings, u their average; x_0 "no value"; K_c the scatter of unlisted strings around u.
Whether a candidate is weak matters to the others only: its own estimate always takes its own prior away again (its *cavity*), so it is
unbiased over the random hash.

Source: Henderson 1975 (mixed model equations); Harville 1977 (restricted maximum likelihood); the cavity as in Minka 2001.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from hubbub_decoder.patterns import FilterTable, Observations

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Columns = NDArray[np.intp]

_RIDGE = 1e-10
_NO_INFORMATION = 1e-9
_COLUMNS_AT_ONCE = 4096
_SAMPLE = 256


@dataclass(frozen=True, slots=True)
class Variances:
    """sigma**2 of a weak candidate's share; tau**2, the sum of squared shares of strings without a candidate."""

    weak: float
    unlisted: float


@dataclass(frozen=True, eq=False)
class Solution:
    """What the model says at given variances, for shares of a population that the reports are drawn from.

    shares     : (M,) each candidate's, its own prior taken away     variances : (M,) theirs; nan, inf where nothing is known
    posterior  : (M,) the weak shrunk, the strong as they are
    totals     : the candidates together, x_o, x_0 (3,)              totals_covariance : (3, 3)
    """

    shares: Floats
    variances: Floats
    posterior: Floats
    totals: Floats
    totals_covariance: Floats


@dataclass(frozen=True, eq=False)
class Glance:
    """What a look at the model says about who is strong, without the cost of a solution.

    posterior : (M,) as in a solution      z : (M,) shares in standard errors, roughly      others : x_o, x_0 (2,)
    """

    posterior: Floats
    z: Floats
    others: Floats


class MixedModel:
    """Observations of all cohorts, d numbers, about M candidates.

    It is solved for the shares (Henderson's equations) or for the observations, whichever takes less arithmetic. The covariance of the
    latter is S = sigma**2 X_W X_W' + (I + tau**2 K), with P = S^-1 - S^-1 F (F'S^-1 F)^-1 F'S^-1 and F all that is fixed; the d x M
    matrix X is never held then: its columns are made from the filters, some thousands at a time.
    """

    def __init__(self, observations: Observations, table: FilterTable, filter_of: NDArray[np.int16]) -> None:
        self._features = observations.features
        self._filter_of = filter_of
        self._starts = np.cumsum([0, *map(len, observations.responses)])
        self._y = np.concatenate(observations.responses)
        nothing = (table.filters == 0).astype(float)
        self._others = np.concatenate(observations.features) @ np.column_stack([table.random, nothing])
        self._scatters = [a @ table.scatter @ a.T for a in observations.features]

    @property
    def candidates(self) -> int:
        """M."""
        return int(self._filter_of.shape[1])

    def growth(self, weak: Flags, variances: Variances) -> Variances:
        """Return by what factors sigma**2 and tau**2 should grow: both 1 at their restricted maximum likelihood.

        sigma : y'P X_W X_W' P y / tr(P X_W X_W')        tau : y'P K P y / tr(P K)
        """
        d, m = len(self._y), self.candidates
        if d**3 < 2 * d * m**2 + m**3:
            return _InObservations(self, weak, variances).growth()
        return self._in_shares(weak, variances).growth()

    def glance(self, weak: Flags, variances: Variances) -> Glance:
        """Look who is strong."""
        d, m = len(self._y), self.candidates
        if d**3 < d * m**2 + m**3:
            return _InObservations(self, weak, variances).glance()
        return self._in_shares(weak, variances).glance()

    def solve(self, weak: Flags, variances: Variances) -> Solution:
        """Estimate every share; weak : (M,) which candidates are random effects to the others."""
        d, m = len(self._y), self.candidates
        if d**3 + 2 * d**2 * m < d * m**2 + m**3:
            return _InObservations(self, weak, variances).solution()
        return self._in_shares(weak, variances).solution()

    def _in_shares(self, weak: Flags, variances: Variances) -> _InShares:
        z, y, scatters = np.empty((len(self._y), self.candidates + 2)), np.empty(len(self._y)), []
        blocks = zip(self._rows(), self._features, self._filter_of, self._scatters, strict=True)
        for rows, a, chosen, k in blocks:
            root = np.linalg.inv(np.linalg.cholesky(np.eye(len(k)) + variances.unlisted * k))
            z[rows, :-2], z[rows, -2:], y[rows] = (root @ a)[:, chosen], root @ self._others[rows], root @ self._y[rows]
            scatters.append((rows, root @ k @ root.T))
        return _InShares(z, y, scatters, weak, variances.weak)

    def _rows(self) -> Iterator[slice]:
        for start, end in zip(self._starts, self._starts[1:], strict=False):
            yield slice(int(start), int(end))

    def columns(self, chosen: Columns) -> Floats:
        """Return the columns of some candidates, (d, n)."""
        return np.concatenate([a[:, f[chosen]] for a, f in zip(self._features, self._filter_of, strict=True)])

    def some_columns(self, chosen: Columns) -> Iterator[tuple[slice, Floats]]:
        """Yield the columns of candidates, some thousands at a time, and where they stand."""
        for start in range(0, len(chosen), _COLUMNS_AT_ONCE):
            part = slice(start, min(start + _COLUMNS_AT_ONCE, len(chosen)))
            yield part, self.columns(chosen[part])

    @cached_property
    def gram(self) -> Floats:
        """X X' over all candidates, (d, d)."""
        total = np.zeros((len(self._y), len(self._y)))
        for _, x in self.some_columns(np.arange(self.candidates)):
            total += x @ x.T
        return total

    def scores(self, vector: Floats) -> Floats:
        """Return X'v, (M,), by adding up numbers a filter instead of multiplying."""
        total = np.zeros(self.candidates)
        for rows, a, chosen in zip(self._rows(), self._features, self._filter_of, strict=True):
            total += (a.T @ vector[rows])[chosen]
        return total


class _InShares:
    """(Z'Z + prior) x = Z'y, all shares, x_o and x_0 at once; rows whitened."""

    def __init__(self, z: Floats, y: Floats, scatters: list[tuple[slice, Floats]], weak: Flags, sigma2: float) -> None:
        self._z, self._y, self._scatters, self._weak, self._sigma2 = z, y, scatters, weak, sigma2
        self._precision = np.zeros(z.shape[1])
        self._precision[:-2][weak] = 1 / sigma2
        normal = z.T @ z
        normal[np.diag_indices_from(normal)] += self._precision + _RIDGE * max(normal.trace() / len(normal), _RIDGE)
        self._covariance = _inverse(normal)
        self._x = self._covariance @ (z.T @ y)

    def growth(self) -> Variances:
        residual = self._y - self._z @ self._x
        squares = trace = 0.0
        for rows, k in self._scatters:
            squares += float(residual[rows] @ k @ residual[rows])
            trace += float(k.trace() - np.sum((self._z[rows] @ self._covariance) * (k @ self._z[rows])))
        weak = np.flatnonzero(self._weak)
        freedom = float(np.sum(1 - np.diag(self._covariance)[weak] / self._sigma2))
        return Variances(_ratio(float(np.sum(self._x[weak] ** 2)) / self._sigma2, freedom), _ratio(squares, trace))

    def glance(self) -> Glance:
        solution = self.solution()
        return Glance(solution.posterior, np.nan_to_num(solution.shares) / np.sqrt(solution.variances), self._x[-2:])

    def solution(self) -> Solution:
        spread, shrunk = np.diag(self._covariance)[:-2], self._x[:-2]
        left = 1 / spread - self._precision[:-2]
        known = left > _NO_INFORMATION / spread
        own = 1 / np.where(known, left, 1)
        totals, covariance = self._totals()
        return Solution(
            shares=np.where(known, own / spread * shrunk, np.nan),
            variances=np.where(known, own, np.inf),
            posterior=shrunk,
            totals=totals,
            totals_covariance=covariance,
        )

    def _totals(self) -> tuple[Floats, Floats]:
        """Sum up, the weak candidates given a mean of their own: one more unknown, its column X_W 1."""
        sums = np.zeros((3, len(self._x) + 1))
        sums[0, :-3], sums[1, -3], sums[2, -2], sums[0, -1] = 1, 1, 1, self._weak.sum()
        column = self._z[:, :-2] @ self._weak.astype(float)
        solved = self._covariance @ (self._z.T @ column)
        left = float(column @ column - column @ (self._z @ solved))
        if left <= _NO_INFORMATION * float(
            column @ column
        ):  # no weak candidates, or nothing to tell them from the unlisted
            sums = sums[:, :-1]
            return sums @ self._x, sums @ self._covariance @ sums.T
        mean = float(column @ self._y - column @ (self._z @ self._x)) / left
        direction = np.append(-solved, 1)
        covariance = np.outer(direction, direction) / left
        covariance[:-1, :-1] += self._covariance
        return sums @ (np.append(self._x, 0) + mean * direction), sums @ covariance @ sums.T


class _InObservations:
    """S = sigma**2 X_W X_W' + (I + tau**2 K) and its projection P."""

    def __init__(self, model: MixedModel, weak: Flags, variances: Variances) -> None:
        self._model, self._weak, self._sigma2 = model, weak, variances.weak
        strong = model.columns(np.flatnonzero(~weak))
        self._weak_gram = model.gram - strong @ strong.T
        s = variances.weak * self._weak_gram
        for rows, k in zip(model._rows(), model._scatters, strict=True):
            s[rows, rows] += np.eye(len(k)) + variances.unlisted * k
        self._inverse = _inverse(s)
        self._fixed = np.column_stack([strong, model._others])
        solved = self._inverse @ self._fixed
        normal = self._fixed.T @ solved
        normal[np.diag_indices_from(normal)] *= 1 + _RIDGE
        self._covariance = np.linalg.inv(normal)
        self._solved = solved
        self._projection = self._inverse - solved @ self._covariance @ solved.T
        self._projected = self._projection @ model._y

    def growth(self) -> Variances:
        squares = trace = 0.0
        for rows, k in zip(self._model._rows(), self._model._scatters, strict=True):
            squares += float(self._projected[rows] @ k @ self._projected[rows])
            trace += float(np.sum(self._projection[rows, rows] * k))
        return Variances(
            _ratio(
                float(self._projected @ self._weak_gram @ self._projected),
                float(np.sum(self._projection * self._weak_gram)),
            ),
            _ratio(squares, trace),
        )

    def glance(self) -> Glance:
        """Take the information of some weak candidates for that of all: they hash at random, so it is nearly one number."""
        weak, strong = np.flatnonzero(self._weak), np.flatnonzero(~self._weak)
        effects = self._covariance @ (self._solved.T @ self._model._y)
        score = self._model.scores(self._projected)[weak]
        posterior, z = np.empty((2, len(self._weak)))
        posterior[strong], posterior[weak] = effects[:-2], self._sigma2 * score
        z[strong] = effects[:-2] / np.sqrt(np.diag(self._covariance)[:-2])
        if len(weak):
            x = self._model.columns(weak[:: -(-len(weak) // _SAMPLE)])
            information = float(np.einsum("ij,ij->j", x, self._projection @ x).mean())
            z[weak] = score / np.sqrt(max(information * (1 - self._sigma2 * information), _RIDGE))
        return Glance(posterior, z, effects[-2:])

    def solution(self) -> Solution:
        effects = self._covariance @ (self._solved.T @ self._model._y)
        weak, strong = np.flatnonzero(self._weak), np.flatnonzero(~self._weak)
        information, score = np.empty(len(weak)), self._model.scores(self._projected)[weak]
        for part, x in self._model.some_columns(weak):
            information[part] = np.einsum("ij,ij->j", x, self._projection @ x)
        known = (information > _NO_INFORMATION * information.max(initial=0)) & (information * self._sigma2 < 1)
        certain = np.where(known, information, 1)
        shares, own, posterior = np.empty((3, len(self._weak)))
        shares[strong], own[strong] = effects[:-2], np.diag(self._covariance)[:-2]
        shares[weak] = np.where(known, score / certain, np.nan)
        own[weak] = np.where(known, 1 / certain - self._sigma2, np.inf)
        posterior[strong], posterior[weak] = effects[:-2], self._sigma2 * score
        totals, covariance = self._totals(weak)
        return Solution(shares, own, posterior, totals, covariance)

    def _totals(self, weak: Columns) -> tuple[Floats, Floats]:
        """Predict the sums, the weak candidates given a mean of their own: one more fixed effect, its column X_W 1.

        L'x_F + a'S^-1 (y - F x_F), with error variance (L - F'S^-1 a)' Cov x_F (L - F'S^-1 a) + sigma**2 M_W - a'S^-1 a,
        a = sigma**2 X_W 1 for the sum of the random parts
        """
        column = sum((x.sum(axis=1) for _, x in self._model.some_columns(weak)), start=np.zeros(len(self._inverse)))
        fixed = np.column_stack([self._fixed, column])
        solved = self._inverse @ fixed
        normal = fixed.T @ solved
        normal[np.diag_indices_from(normal)] *= 1 + _RIDGE
        covariance = np.linalg.inv(normal)
        effects = covariance @ (solved.T @ self._model._y)
        reach = np.zeros((3, len(effects)))
        reach[0, :-3], reach[1, -3], reach[2, -2], reach[0, -1] = 1, 1, 1, len(weak)
        totals = reach @ effects
        a = self._sigma2 * column
        totals[0] += float(a @ (self._inverse @ (self._model._y - fixed @ effects)))
        reach[0] -= solved.T @ a
        spread = reach @ covariance @ reach.T
        spread[0, 0] += self._sigma2 * len(weak) - float(a @ self._inverse @ a)
        return totals, spread


def _inverse(symmetric: Floats) -> Floats:
    """Invert a positive definite matrix in n**3 multiplications: Cholesky's factor, then LAPACK's inverse of it."""
    factor, failed = linalg.lapack.dpotrf(symmetric, lower=1)
    if not failed:
        inverse, failed = linalg.lapack.dpotri(factor, lower=1)
    if failed:
        raise np.linalg.LinAlgError(f"a covariance of {len(symmetric)} numbers is not positive definite")
    return np.asarray(np.tril(inverse) + np.tril(inverse, -1).T)


def _ratio(found: float, expected: float) -> float:
    return found / expected if expected > 0 and found > 0 else 1.0
