"""A mixed model solved for the shares, by Henderson's equations: for fewer candidates than observations."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import pairwise

import numpy as np
from scipy import linalg

from hubbub_decoder.array_types import Flags, Floats
from hubbub_decoder.estimators.cholesky import inverse_root
from hubbub_decoder.estimators.mixed_model import Beliefs, MixedModel
from hubbub_decoder.estimators.solution import Misfit, Solution, Solved, Totals

_RIDGE = 1e-10
_NO_INFORMATION = 1e-9
_ROWS_AT_ONCE = 1024


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
