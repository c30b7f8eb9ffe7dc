"""A mixed model solved for the observations, by their covariance: for more candidates than observations."""

from __future__ import annotations

import numpy as np

from hubbub_decoder.array_types import Flags, Floats
from hubbub_decoder.estimators.cholesky import inverse
from hubbub_decoder.estimators.mixed_model import Beliefs, MixedModel
from hubbub_decoder.estimators.solution import Misfit, Solution, Solved, Totals

_RIDGE = 1e-10
_NO_INFORMATION = 1e-9
_SAMPLE = 4_096


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
