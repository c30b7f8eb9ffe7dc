"""Joint guess: posterior mean of the joint shares under a Dirichlet prior around independence, averaged over its strength.

Model:      P = m + E1 X E2', m = x y', with the margins x, y of the compared components known; E as in `margins.py`
Likelihood: log L(X) = vec(S)'vec(X) - vec(X)'J vec(X) / 2, the quadratic model of `dependence.py`
Prior:      Dirichlet(a m) given the margins, with concentration a = (max(I, J) - 1) (1 - u) / u; u = 0 is independence.
            Its mean of phi**2 / (min(I, J) - 1) is near u / (1 - u) for small u, with phi**2 = sum (P - m)**2 / m.
            u is uniform on [0, 1): the _STRENGTHS even steps from 0
Posterior:  of each u the mode in the log odds, in which the mode of a Dirichlet posterior is its mean. A concave problem in X:

                maximize log L(X) + a sum m log(P / m)

Evidence:   Laplace's approximation in the log odds, for posterior and prior alike, so that cells without information cancel.
            K = E1 kron E2 and W(v) = K'diag(v) K, of q = (I - 1)(J - 1) dimensions:

                log L + a sum m log(P / m) - (log |J + W(a m / P**2)| - 2 log |W(1 / P)| - q log a + log |W(1 / m)|) / 2

The guess is the mean over u weighted by the evidence. It is positive, with the margins x and y.
docs/mathematics.md, "Associations". Source: MacKay 1998 ("Choice of basis for Laplace approximation"); Daniels 1999 ("A prior for
the variance in hierarchical models") for the uniform prior of u.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from hubbub_decoder.array_types import Floats
from hubbub_decoder.association.dependence import Dependence
from hubbub_decoder.association.margins import MarginFit, contrasts

_STRENGTHS = 8
_MAX_STEPS, _TOLERANCE = 100, 1e-4  # of Newton's method; expected gain in log posterior at which it ends
_TO_BOUNDARY = 0.99  # longest step, relative to the step at which a cell reaches 0


def guess_table(
    margins: tuple[MarginFit, MarginFit], dependence: Dependence, listed: tuple[int, int], num_reports: int
) -> Floats:
    """Joint guess (C1, C2), non-negative with sum 1: the compared components depend on each other, the others do not.

    listed : number of candidates or categories of each part; other components have a share of 0 unless the test compares them
    """
    kept = dependence.test.kept
    x, y = (
        margin.guess(np.isin(np.arange(len(margin.shares)), [*range(number), *compared]))
        for margin, number, compared in zip(margins, listed, kept, strict=True)
    )
    table, scale = np.outer(x, y), dependence.overdispersion
    sides = (np.maximum(shares[list(each)], 1 / num_reports) for shares, each in zip((x, y), kept, strict=True))
    table[np.ix_(*kept)] = posterior_mean(dependence.cross / scale, dependence.information / scale, *sides)
    return np.asarray(table / table.sum())


def posterior_mean(cross: Floats, information: Floats, x: Floats, y: Floats) -> Floats:
    """Posterior mean of P (I, J) with positive margins x and y, from S (I - 1, J - 1) and J (q, q). Time O(q**3)."""
    independent, interaction = np.outer(x, y), np.zeros_like(cross)
    sides = contrasts(len(x)), contrasts(len(y))
    prior_volume = _log_determinant(_in_contrasts(1 / independent, *sides))
    tables, evidences = [independent], [0.0]
    for u in np.arange(1, _STRENGTHS) / _STRENGTHS:
        concentration = (max(len(x), len(y)) - 1) * (1 - u) / u / independent.sum()
        pseudo_counts = concentration * independent
        interaction = _mode(interaction, independent, cross, information, pseudo_counts)
        table = independent + sides[0] @ interaction @ sides[1].T
        curvature = _log_determinant(information + _in_contrasts(pseudo_counts / table**2, *sides))
        volume = curvature - 2 * _log_determinant(_in_contrasts(1 / table, *sides)) + prior_volume
        peak = _log_posterior(interaction, table, independent, cross, information, pseudo_counts)
        tables.append(table)
        evidences.append(peak - (volume - cross.size * np.log(concentration)) / 2)
    weights = np.exp(np.array(evidences) - max(evidences))
    return np.asarray(np.tensordot(weights / weights.sum(), np.array(tables), axes=1))


def _mode(start: Floats, independent: Floats, cross: Floats, information: Floats, pseudo_counts: Floats) -> Floats:
    """X at the mode of the posterior, by Newton's method from `start` with a step that keeps P positive."""
    first, second = (contrasts(number) for number in independent.shape)
    interaction, table = start, independent + first @ start @ second.T
    reached = _log_posterior(interaction, table, independent, cross, information, pseudo_counts)
    for _ in range(_MAX_STEPS):
        gradient = cross - (information @ interaction.ravel()).reshape(cross.shape)
        gradient += first.T @ (pseudo_counts / table) @ second
        curvature = information + _in_contrasts(pseudo_counts / table**2, first, second)
        step = linalg.solve(curvature, gradient.ravel(), assume_a="pos").reshape(cross.shape)
        gain, along = float((gradient * step).sum()), first @ step @ second.T
        if gain < _TOLERANCE:
            break
        length = min(1.0, _TO_BOUNDARY / max(float(np.max(-along / table)), 1e-300))
        while length * gain > _TOLERANCE / 100:
            moved, at = interaction + length * step, table + length * along
            value = _log_posterior(moved, at, independent, cross, information, pseudo_counts)
            if value > reached + 1e-4 * length * gain:
                break
            length /= 2
        else:
            break
        interaction, table, reached = moved, at, value
    return interaction


def _log_posterior(
    interaction: Floats, table: Floats, independent: Floats, cross: Floats, information: Floats, pseudo_counts: Floats
) -> float:
    """log L + sum of pseudo-counts times log(P / m)."""
    flat = interaction.ravel()
    return float(
        cross.ravel() @ flat - flat @ information @ flat / 2 + np.sum(pseudo_counts * np.log(table / independent))
    )


def _in_contrasts(weights: Floats, first: Floats, second: Floats) -> Floats:
    """K'diag(weights) K with K = first kron second, (q, q)."""
    by_row = np.einsum("ij,jb,jd->ibd", weights, second, second, optimize=True)
    p, q = first.shape[1], second.shape[1]
    return np.asarray(np.einsum("ia,ic,ibd->abcd", first, first, by_row, optimize=True).reshape(p * q, p * q))


def _log_determinant(matrix: Floats) -> float:
    return float(np.linalg.slogdet(matrix)[1])
