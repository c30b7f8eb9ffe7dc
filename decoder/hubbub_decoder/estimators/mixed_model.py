"""Shares as a linear mixed model: what is believed of each candidate is normal, unlisted strings scatter.

    y_c = X_c x + F_c x_others + s_c        x_j ~ N(mean_j, variance_j)        s_c ~ N(0, I + tau**2 K_c)

x are the candidates' shares; x_others those of the unlisted strings, whose column of F is their average pattern, and of "no value", if that
has a pattern; K_c is the unlisted strings' scatter around their average.
What is believed of a candidate matters to the others only: how it hashes is chance, so to them it is noise of a known size. Its own
estimate always takes its own belief away again (its *cavity*), so it is unbiased over the random hash.

Source: Henderson 1975 (mixed model equations); Harville 1977 (restricted maximum likelihood); the cavity as in Minka 2001.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from hubbub_decoder.array_types import Flags, Floats, Indices
from hubbub_decoder.estimators.cholesky import inverse, inverse_root

_RIDGE = 1e-10
_NO_INFORMATION = 1e-9
_ROWS_AT_ONCE = 1024
_SAMPLE = 4_096
_LOOKUP = 500  # what looking up a candidate's pair of filters costs, in multiplications


@dataclass(frozen=True, eq=False)
class Observations:
    """Numbers with unit noise, each a known sum of shares.

        y_c = A_c theta_c + N(0, I)        theta_c,g = sum of x_v over the strings with filter g in cohort c

    responses : y_c, (r_c,) for each cohort       features : A_c, (r_c, F)
    """

    responses: tuple[Floats, ...]
    features: tuple[Floats, ...]

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return sum(map(len, self.responses))


@dataclass(frozen=True, eq=False)
class Beliefs:
    """What is believed of each candidate's share beside what its own reports say: normal, (M,) and (M,) > 0."""

    means: Floats
    variances: Floats


@dataclass(frozen=True, eq=False)
class Solution:
    """What the model says of single shares of a population that the reports are drawn from.

    shares    : (M,) each candidate's, its own belief taken away     variances : (M,) theirs; nan, inf where nothing is known
    posterior : (M,) with it                                         others    : x_others (o,)
    """

    shares: Floats
    variances: Floats
    posterior: Floats
    others: Floats


@dataclass(frozen=True, eq=False)
class Totals:
    """The candidates together, then x_others: shares (1 + o,) and their covariance."""

    shares: Floats
    covariance: Floats


@dataclass(frozen=True, slots=True)
class Misfit:
    """How residuals compare with what tau**2 and the beliefs explain.

        ratio = r'S^-1 K S^-1 r / tr(P K)        step = (r'S^-1 K S^-1 r - tr(P K)) / sum_c tr(P_cc K_c P_cc K_c)

    ratio : of the variance that estimates really have to the one they claim      step : to add to tau**2 (scoring; 0 at its restricted
    maximum likelihood)      error : tau**2's standard error, sqrt(2 / sum_c tr(P_cc K_c P_cc K_c))
    """

    ratio: float
    step: float
    error: float

    @classmethod
    def of(cls, squares: list[float], blocks: list[Floats]) -> Misfit:
        """Add up the cohorts' r'S^-1 K S^-1 r and P_cc K_c."""
        expected, curvature = (sum(map(f, blocks)) for f in (np.trace, lambda b: np.sum(b * b.T)))
        found = sum(squares)
        if not found > 0 < expected or not curvature > 0:
            return cls(1.0, 0.0, np.inf)
        return cls(float(found / expected), float((found - expected) / curvature), float(np.sqrt(2 / curvature)))


class Solved(ABC):
    """A model solved under some beliefs."""

    @abstractmethod
    def solution(self, *, roughly: bool = False) -> Solution:
        """Estimate every share; roughly: the own variance of some of very many may stand for all, since all hash at random."""

    @abstractmethod
    def scores(self, without: int | None = None) -> list[Floats]:
        """Return A'P(y - X mean) of each cohort: what each of its places adds to the score of a string about which nothing is believed.

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
    latter is S = X diag(variance) X' + (I + tau**2 K), with P = S^-1 - S^-1 F (F'S^-1 F)^-1 F'S^-1; the d x M matrix X is never held
    then: candidates with the same places in two cohorts are added up first, and looked up last.

    observations : A_c and y_c of m cohorts, A_c with a column for each of p places
    places       : (m, h, M) the places a candidate takes in each cohort: its filter, or its bits
    others       : (p, o) what strings that are no candidate put there on average       scatter : (p, p) how the unlisted scatter there
    """

    def __init__(
        self, observations: Observations, places: NDArray[np.integer], others: Floats, scatter: Floats
    ) -> None:
        self.y, self.features = np.concatenate(observations.responses), observations.features
        self.places = places.astype(np.intp, copy=False)
        self.others = np.concatenate(self.features) @ others
        self.scatters = [a @ scatter @ a.T for a in self.features]
        self._starts = np.cumsum([0, *map(len, observations.responses)]).tolist()
        self._of_places, self._size = (others, scatter), len(others)

    def whitened(self, unlisted: float) -> MixedModel:
        """Return the same with noise I in place of I + tau**2 K; unlisted : tau**2."""
        roots = [np.linalg.inv(np.linalg.cholesky(np.eye(len(k)) + unlisted * k)) for k in self.scatters]
        responses = tuple(root @ self.y[rows] for root, rows in zip(roots, self.rows(), strict=True))
        features = tuple(root @ a for root, a in zip(roots, self.features, strict=True))
        return MixedModel(Observations(responses, features), self.places, *self._of_places)

    def solve(self, beliefs: Beliefs, scatter: float) -> Solved:
        """Solve under these beliefs, in whichever way takes less arithmetic; scatter : tau**2."""
        d, m = len(self.y), self.candidates
        looks = self.places.shape[0] * self.places.shape[1]
        if d**3 + _LOOKUP * looks**2 * m < d * m**2 + m**3:
            return InObservations(self, beliefs, scatter)
        return InShares(self, beliefs, scatter)

    @property
    def candidates(self) -> int:
        """M."""
        return int(self.places.shape[2])

    def rows(self) -> Iterator[slice]:
        """Yield where each cohort's observations stand."""
        for start, end in pairwise(self._starts):
            yield slice(start, end)

    def variance_ratio(self, unlisted: float, before: float) -> float:
        """Return how much larger one tau**2 makes the observations' variances than another, on average."""
        scatter = sum(map(np.trace, self.scatters)) / len(self.y)
        return float((1 + unlisted * scatter) / (1 + before * scatter))

    def sums(self, shares: Floats) -> Floats:
        """Return X x, (d,)."""
        parts = zip(self.features, self.places, strict=True)
        return np.concatenate(
            [a @ reduce(np.add, [np.bincount(one, shares, self._size) for one in taken]) for a, taken in parts]
        )

    def scores(self, vectors: Floats, every: int = 1) -> Floats:
        """Return X'v, a row a candidate, or every n-th of them; v : (d,) or (d, n)."""
        parts = zip(self.rows(), self.features, self.places[:, :, ::every], strict=True)
        return np.asarray(
            sum(looked[one] for rows, a, taken in parts for looked in [a.T @ vectors[rows]] for one in taken)
        )

    def columns(self, some: Indices) -> Floats:
        """Return the columns of X of some candidates, (d, n)."""
        parts = zip(self.features, self.places, strict=True)
        return np.concatenate([a[:, taken[:, some]].sum(axis=1) for a, taken in parts])

    def lengths(self) -> Floats:
        """Return x'x for the column x of each candidate, (M,)."""
        total = np.zeros(self.candidates)
        for a, taken in zip(self.features, self.places, strict=True):
            table = a.T @ a
            for one in taken:
                for other in taken:
                    total += table[one, other]
        return total

    def gram(self, weights: Floats) -> Floats:
        """Return X diag(weights) X', (d, d)."""
        total = np.empty((len(self.y), len(self.y)))
        for rows, a, columns, b, pairs in self._pairs():
            together = reduce(np.add, [np.bincount(pair, weights, self._size**2) for pair in pairs])
            block = a @ together.reshape(self._size, self._size) @ b.T
            total[rows, columns], total[columns, rows] = block, block.T
        return total

    def squares(self, matrix: Floats, every: int = 1) -> Floats:
        """Return x'Ax for the column x of each candidate, or of every n-th, (M / n,); matrix : A, symmetric."""
        total = np.zeros(-(-self.candidates // every))
        for rows, a, columns, b, pairs in self._pairs(every):
            table = (1 if rows == columns else 2) * (a.T @ matrix[rows, columns] @ b)
            for pair in pairs:
                total += table.take(pair)
        return total

    def _pairs(self, every: int = 1) -> Iterator[tuple[slice, Floats, slice, Floats, Iterator[Indices]]]:
        """Yield of each two cohorts what turns places into observations, and every two places of the candidates there, as one number."""
        cohorts = list(zip(self.rows(), self.features, self.places[:, :, ::every], strict=True))
        for number, (rows, a, taken) in enumerate(cohorts):
            firsts = taken * self._size
            for columns, b, others in cohorts[: number + 1]:
                yield rows, a, columns, b, (first + other for first in firsts for other in others)


class InShares(Solved):
    """(Z'Z + prior) x = Z'y + prior mean, all shares at once, x_others last; Z = (X, F) of the whitened model.

    Of Z only some cohorts are held at a time. Z'Z + prior = L L', and L^-1 is kept.
    """

    def __init__(self, model: MixedModel, beliefs: Beliefs, unlisted: float) -> None:
        self._model, self._beliefs, self._listed = model.whitened(unlisted), beliefs, model.candidates
        size = self._listed + model.others.shape[1]
        normal = np.zeros((size, size))
        for _, z in self._slabs():
            normal += z.T @ z
        precision, pull = np.zeros(size), np.zeros(size)
        precision[: self._listed], pull[: self._listed] = 1 / beliefs.variances, beliefs.means / beliefs.variances
        normal[np.diag_indices_from(normal)] += precision + _RIDGE * max(normal.trace() / size, _RIDGE)
        self._root = inverse_root(normal)
        self._right = self._scores(self._model.y) + pull
        self._x = self._times_covariance(self._right)

    def _slabs(self) -> Iterator[tuple[list[slice], Floats]]:
        """Yield Z, some cohorts at a time, and where the rows of each of them stand in it."""
        model = self._model
        held: list[Floats] = []
        for rows, a, taken in zip(model.rows(), model.features, model.places, strict=True):
            held.append(np.column_stack([reduce(np.add, (a[:, one] for one in taken)), model.others[rows]]))
            if rows.stop == len(model.y) or sum(map(len, held)) >= _ROWS_AT_ONCE:
                ends = np.cumsum([0, *map(len, held)]).tolist()
                yield [slice(start, end) for start, end in pairwise(ends)], np.concatenate(held)
                held = []

    def _sums(self, x: Floats) -> Floats:
        """Z x."""
        return self._model.sums(x[: self._listed]) + self._model.others @ x[self._listed :]

    def _scores(self, vector: Floats) -> Floats:
        """Z'v."""
        return np.concatenate([self._model.scores(vector), self._model.others.T @ vector])

    def _times_covariance(self, vector: Floats) -> Floats:
        return np.asarray(self._root.T @ (self._root @ vector))

    def solution(self, *, roughly: bool = False) -> Solution:  # noqa: ARG002, exact is as fast here
        spread, posterior = np.einsum("ij,ij->j", self._root, self._root)[: self._listed], self._x[: self._listed]
        left = 1 / spread - 1 / self._beliefs.variances
        known = left > _NO_INFORMATION / spread
        own = 1 / np.where(known, left, 1)
        shares = own * (posterior / spread - self._beliefs.means / self._beliefs.variances)
        return Solution(
            np.where(known, shares, np.nan), np.where(known, own, np.inf), posterior, self._x[self._listed :]
        )

    def scores(self, without: int | None = None) -> list[Floats]:
        x = self._x
        if without is not None:  # the others' shares given that this one is 0
            column = self._root.T @ self._root[:, without]
            x = x - column * (x[without] / column[without])
        residual = self._model.y - self._sums(x)
        return [a.T @ residual[rows] for rows, a in zip(self._model.rows(), self._model.features, strict=True)]

    def misfit(self) -> Misfit:
        residual, scatters = self._model.y - self._sums(self._x), self._model.scatters
        squares = [
            float(residual[rows] @ k @ residual[rows]) for rows, k in zip(self._model.rows(), scatters, strict=True)
        ]
        halves = (
            taken[:, rows]
            for held, z in self._slabs()
            for taken in [linalg.blas.dtrmm(1.0, self._root, z.T, lower=1)]
            for rows in held
        )
        return Misfit.of(squares, [k - half.T @ (half @ k) for half, k in zip(halves, scatters, strict=True)])

    def totals(self, exchangeable: Flags) -> Totals:
        weights, sums, column = self._weights(exchangeable)
        return Totals(weights @ np.append(self._right, column @ self._model.y), weights @ sums.T)

    def _weights(self, exchangeable: Flags) -> tuple[Floats, Floats, Floats]:
        """Return how much each equation counts for the totals, the last that of the exchangeable's mean, (1 + o, M + o + 1); what adds up to them; and X 1."""
        m, size = self._listed, len(self._x)
        others = size - m
        sums = np.zeros((1 + others, size + 1))
        sums[0, :m], sums[1:, m:-1], sums[0, -1] = 1, np.eye(others), exchangeable.sum()
        column = self._model.sums(exchangeable.astype(float))
        solved = self._times_covariance(self._scores(column))
        left = float(column @ column - column @ self._sums(solved))
        weights = np.zeros_like(sums)
        weights[:, :-1] = self._times_covariance(sums[:, :-1].T).T
        if left > _NO_INFORMATION * float(column @ column):  # else nobody, or nothing to tell them from the unlisted
            direction = np.append(-solved, 1)
            weights += np.outer(sums @ direction, direction) / left
        return weights, sums, column


class InObservations(Solved):
    """S = X diag(variance) X' + (I + tau**2 K); P = S^-1 - S^-1 F (F'S^-1 F)^-1 F'S^-1 is never held."""

    def __init__(self, model: MixedModel, beliefs: Beliefs, unlisted: float) -> None:
        self._model, self._beliefs = model, beliefs
        s = model.gram(beliefs.variances)
        for rows, k in zip(model.rows(), model.scatters, strict=True):
            s[rows, rows] += np.eye(len(k)) + unlisted * k
        self._inverse = inverse(s)
        self._surprise = model.y - model.sums(beliefs.means)
        self._solved, self._covariance, self._effects = self._fixed(model.others)
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
        parts = list(zip(model.rows(), model.features, model.places, strict=True))
        residual = self._projected
        if without is not None:
            column = np.concatenate([a[:, taken[:, without]].sum(axis=1) for _, a, taken in parts])
            projected = self._inverse @ column - self._solved @ (self._covariance @ (self._solved.T @ column))
            mean, variance = self._beliefs.means[without], self._beliefs.variances[without]
            posterior = mean + variance * float(column @ self._projected)
            residual = residual + projected * (posterior / (1 - variance * float(column @ projected)))
        return [a.T @ residual[rows] for rows, a, _ in parts]

    def misfit(self) -> Misfit:
        parts = list(zip(self._model.rows(), self._model.scatters, strict=True))
        squares = [float(self._projected[rows] @ k @ self._projected[rows]) for rows, k in parts]
        own = ((rows, self._solved[rows]) for rows, _ in parts)
        projections = [self._inverse[rows, rows] - solved @ self._covariance @ solved.T for rows, solved in own]
        return Misfit.of(squares, [p @ k for p, (_, k) in zip(projections, parts, strict=True)])

    def totals(self, exchangeable: Flags) -> Totals:
        """Predict: L'f + a'S^-1 (y - F f), with error variance (L - F'S^-1 a)' Cov f (L - F'S^-1 a) + 1'V 1 - a'S^-1 a, a = X V 1."""
        column = self._model.sums(exchangeable.astype(float))
        fixed = np.column_stack([self._model.others, column])
        solved, covariance, effects = self._fixed(fixed)
        others = self._model.others.shape[1]
        reach = np.zeros((1 + others, 1 + others))
        reach[1:, :-1], reach[0, -1] = np.eye(others), exchangeable.sum()
        totals = reach @ effects
        a = self._model.sums(self._beliefs.variances)
        totals[0] += self._beliefs.means.sum() + float(a @ (self._inverse @ (self._surprise - fixed @ effects)))
        reach[0] -= solved.T @ a
        spread = reach @ covariance @ reach.T
        spread[0, 0] += self._beliefs.variances.sum() - float(a @ self._inverse @ a)
        return Totals(totals, spread)
