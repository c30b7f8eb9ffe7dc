"""Joint guess: posterior mean of the joint shares under a Dirichlet prior around independence, averaged over its strength.

Model:      P = m + K X, m = x y' [z], with the margins of the compared components known. K has the columns of E1 kron E2, E as in
            `margins.py`; of three parts those of each pair times the margin of the third, and E1 kron E2 kron E3
Likelihood: log L(X) = S'X - X'J X / 2, the quadratic model of `dependence.py`
Prior:      Dirichlet(a m) given the margins, with concentration a = (max(I, J) - 1) (1 - u) / u; u = 0 is independence.
            Its mean of phi**2 / (min(I, J) - 1) is near u / (1 - u) for small u, with phi**2 = sum (P - m)**2 / m.
            u is uniform on [0, 1): the _STRENGTHS even steps from 0
Posterior:  of each u the mode in the log odds, in which the mode of a Dirichlet posterior is its mean. A concave problem in X:

                maximize log L(X) + a sum m log(P / m)

Evidence:   Laplace's approximation in the log odds, for posterior and prior alike, so that cells without information cancel.
            W(v) = K'diag(v) K has q dimensions:

                log L + a sum m log(P / m) - (log |J + W(a m / P**2)| - 2 log |W(1 / P)| - q log a + log |W(1 / m)|) / 2

The guess is the mean over u weighted by the evidence. It is positive, with the margins of m.
docs/explanation/mathematics.md, equations (20.9) to (20.11). Source: MacKay 1998 ("Choice of basis for Laplace approximation"); Daniels 1999 ("A prior for
the variance in hierarchical models") for the uniform prior of u.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from hubbub_decoder.array_types import Floats
from hubbub_decoder.association.dependence import Dependence
from hubbub_decoder.association.margins import MarginFit, contrasts, outer
from hubbub_decoder.association.moments import Subset

_STRENGTHS = 8
_MAX_STEPS, _TOLERANCE = 100, 1e-4  # of Newton's method; expected gain in log posterior at which it ends
_TO_BOUNDARY = 0.99  # longest step, relative to the step at which a cell reaches 0


def guess_table(
    margins: Sequence[MarginFit], dependences: Mapping[Subset, Dependence], listed: Sequence[int], num_reports: int
) -> Floats:
    """Joint guess (C1, C2[, C3]), non-negative with sum 1: the compared components depend on each other, the others do not.

    listed : number of candidates or categories of each part; other components have a share of 0 unless the test compares them
    """
    kept = dependences[tuple(range(len(margins)))].test.kept
    guessed = [
        margin.guess(np.isin(np.arange(len(margin.shares)), [*range(number), *compared]))
        for margin, number, compared in zip(margins, listed, kept, strict=True)
    ]
    table = outer(guessed)
    sides = [np.maximum(shares[list(rows)], 1 / num_reports) for shares, rows in zip(guessed, kept, strict=True)]
    cross = np.concatenate([found.cross.ravel() / found.overdispersion for found in dependences.values()])
    information = linalg.block_diag(*(found.information / found.overdispersion for found in dependences.values()))
    table[np.ix_(*kept)] = posterior_mean(cross, information, Interactions.of_subsets(sides, tuple(dependences)))
    return np.asarray(table / table.sum())


@dataclass(frozen=True, eq=False)
class Interactions:
    """Directions K (cells, q) in which a table with fixed margins can differ from independence m (cells,)."""

    sides: Sequence[Floats]
    independent: Floats
    columns: Floats

    @classmethod
    def of_subsets(cls, sides: Sequence[Floats], subsets: Sequence[Subset]) -> Interactions:
        """Contrasts of the parts of each subset, times the margins of the others."""
        columns = []
        for subset in subsets:
            factors = [contrasts(len(x)) if part in subset else x[:, None] for part, x in enumerate(sides)]
            columns.append(functools.reduce(lambda left, right: np.asarray(np.kron(left, right)), factors))
        return cls(sides, outer(sides).ravel(), np.concatenate(columns, axis=1))

    def weighted(self, weights: Floats) -> Floats:
        """W(v) = K'diag(v) K, (q, q); of two parts by one part after the other."""
        if len(self.sides) > 2:
            return np.asarray((self.columns.T * weights) @ self.columns)
        first, second = (contrasts(len(side)) for side in self.sides)
        by_row = np.einsum("ij,jb,jd->ibd", weights.reshape(len(first), -1), second, second, optimize=True)
        q = self.columns.shape[1]
        return np.asarray(np.einsum("ia,ic,ibd->abcd", first, first, by_row, optimize=True).reshape(q, q))


def posterior_mean(cross: Floats, information: Floats, interactions: Interactions) -> Floats:
    """Posterior mean of P (I, J[, L]) from S (q,) and J (q, q). Time O(q**3)."""
    independent, shape = interactions.independent, [len(side) for side in interactions.sides]
    prior_volume = _log_determinant(interactions.weighted(1 / independent))
    mode, tables, evidences = np.zeros(len(cross)), [independent], [0.0]
    for u in np.arange(1, _STRENGTHS) / _STRENGTHS:
        concentration = (max(shape) - 1) * (1 - u) / u / independent.sum()
        posterior = _Posterior(cross, information, interactions, concentration * independent)
        mode = posterior.mode(mode)
        table = posterior.table(mode)
        volume = _log_determinant(posterior.curvature(table)) - 2 * _log_determinant(interactions.weighted(1 / table))
        evidence = posterior.log_density(mode, table) - (volume + prior_volume - len(cross) * np.log(concentration)) / 2
        tables.append(table)
        evidences.append(evidence)
    weights = np.exp(np.array(evidences) - max(evidences))
    return np.asarray((weights / weights.sum() @ np.array(tables)).reshape(shape))


@dataclass(frozen=True, eq=False)
class _Posterior:
    """Posterior of X in the log odds for one strength; pseudo_counts : (cells,) a m."""

    cross: Floats
    information: Floats
    interactions: Interactions
    pseudo_counts: Floats

    def table(self, interaction: Floats) -> Floats:
        return self.interactions.independent + self.interactions.columns @ interaction

    def log_density(self, interaction: Floats, table: Floats) -> float:
        """log L + sum of pseudo-counts times log(P / m)."""
        likelihood = self.cross @ interaction - interaction @ self.information @ interaction / 2
        return float(likelihood + self.pseudo_counts @ np.log(table / self.interactions.independent))

    def curvature(self, table: Floats) -> Floats:
        return np.asarray(self.information + self.interactions.weighted(self.pseudo_counts / table**2))

    def mode(self, start: Floats) -> Floats:
        """X at the mode, by Newton's method from `start` with steps that keep P positive."""
        interaction, table = start, self.table(start)
        reached = self.log_density(interaction, table)
        for _ in range(_MAX_STEPS):
            gradient = self.cross - self.information @ interaction
            gradient += self.interactions.columns.T @ (self.pseudo_counts / table)
            step = linalg.solve(self.curvature(table), gradient, assume_a="pos")
            gain, along = float(gradient @ step), self.interactions.columns @ step
            length = min(1.0, _TO_BOUNDARY / max(float(np.max(-along / table)), 1e-300))
            while length * gain > _TOLERANCE:
                value = self.log_density(interaction + length * step, table + length * along)
                if value > reached + 1e-4 * length * gain:
                    break
                length /= 2
            else:
                break
            interaction, table, reached = interaction + length * step, table + length * along, value
        return interaction


def _log_determinant(matrix: Floats) -> float:
    return float(np.linalg.slogdet(matrix)[1])
