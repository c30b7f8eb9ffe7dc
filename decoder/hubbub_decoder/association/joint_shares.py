"""Joint shares of two parts with their standard errors, conditional shares, and a joint guess.

Estimator: P = x y' + D, with the margins of `margins.py` and D of `dependence.py`; unbiased to first order, possibly negative
Variance:  mean square of each cell's influence over a sample of reports, divided by N. A report has the influence

    x1 y' + x y2' + J^-1 (s1 s2' - V1 X V2 - r1 - r2)       x1, y2 : E (E'V E)^-1 E' l of each part, its influence on the margins
                                                  s1, s2 : scores in contrasts, centred within the cohort
                                                  r1, r2 : residuals of s1 s1'X V2 and V1 X s2 s2' after regression on s1 and s2

    r1 and r2 are the noise of the estimated J. The regression removes the part of it that the fitted margins absorb.
Unlisted strings shift the scores of a cohort. The variances of the margins and of D are multiplied by the ratio of the variance
between cohorts to that within them, averaged over the components, where it is above 1.

docs/mathematics.md, "Associations".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.association.components import Sample
from hubbub_decoder.association.dependence import MIN_COHORTS, Dependence
from hubbub_decoder.association.guess import guess_table
from hubbub_decoder.association.margins import MarginFit, contrasts, inverse
from hubbub_decoder.association.moments import CohortMoments

_MIN_SAMPLE, _MAX_SAMPLE = 2_000, 10_000
_BLOCK_CELLS = 1 << 22


@dataclass(frozen=True, eq=False)
class JointShares:
    """Joint shares P (C1, C2), their standard errors, those of both conditionals, and the joint guess.

    shares, std_errors       : of the share of each pair of components
    rows, row_errors         : P(second | first), with standard errors; nan where the first component has no positive share
    columns, column_errors   : P(first | second), with standard errors
    guess                    : (C1, C2) of `guess.py`
    """

    shares: Floats
    std_errors: Floats
    rows: Floats
    row_errors: Floats
    columns: Floats
    column_errors: Floats
    guess: Floats


def joint_shares(
    sample: Sample,
    moments: CohortMoments,
    margins: tuple[MarginFit, MarginFit],
    dependence: Dependence,
    *,
    of_reporters: bool = True,
) -> JointShares:
    """Combine margins and dependence into a table with standard errors.

    of_reporters : whether the shares are those among the reporters; else those of the population that they were drawn from
    """
    x, y = (margin.shares for margin in margins)
    table = np.outer(x, y) + dependence.table
    with np.errstate(divide="ignore", invalid="ignore"):
        rows = np.where(x[:, None] > 0, table / x[:, None], np.nan)
        columns = np.where(y > 0, table / y, np.nan)
        of_table, of_rows, of_columns = _mean_squares(sample, moments, margins, dependence, rows, columns)
        draw = table * (1 - table), rows * (1 - rows) / x[:, None], columns * (1 - columns) / y
        n = sample.num_reports
        errors = [
            np.sqrt(np.maximum(square - (np.maximum(drawn, 0) if of_reporters else 0), 1e-6 * square) / n)
            for square, drawn in zip((of_table, of_rows, of_columns), draw, strict=True)
        ]
    listed = sample.parts[0].listed, sample.parts[1].listed
    guess = guess_table(margins, dependence, listed, sample.num_reports)
    return JointShares(table, errors[0], rows, errors[1], columns, errors[2], guess)


def _mean_squares(
    sample: Sample,
    moments: CohortMoments,
    margins: tuple[MarginFit, MarginFit],
    dependence: Dependence,
    rows: Floats,
    columns: Floats,
) -> tuple[Floats, Floats, Floats]:
    """Mean squares of the influences on P, on P(second | first) and on P(first | second), each (C1, C2)."""
    (x, y), bases = (margin.shares for margin in margins), [contrasts(len(margin.point)) for margin in margins]
    thin = sample.thin(max(_MIN_SAMPLE, min(_MAX_SAMPLE, _BLOCK_CELLS // (len(x) * len(y)))))
    cohorts = np.repeat(np.arange(len(thin.sizes)), thin.sizes)
    centred = []
    for part, (margin, basis, means) in enumerate(zip(margins, bases, moments.means, strict=True)):
        ratios = np.concatenate([block for _, block in thin.blocks(part)], axis=1)
        centred.append((basis.T @ (ratios / (margin.point @ ratios))).T - means[cohorts])
    first, second = centred
    solved = [inverse(scores.T @ scores / len(scores)) for scores in centred]
    on_margins = [scores @ inverted @ basis.T for scores, inverted, basis in zip(centred, solved, bases, strict=True)]
    inflation = [
        _between_cohorts(moments.sizes, means @ inverted @ basis.T, influence)
        for means, inverted, basis, influence in zip(moments.means, solved, bases, on_margins, strict=True)
    ]
    v1, v2 = moments.covariances
    right = np.einsum("pq,mqr->mpr", dependence.interaction, v2)  # X V2_c
    left = np.einsum("mpr,rq->mpq", v1, dependence.interaction)  # V1_c X
    along_first = np.einsum("np,npq->nq", first, right[cohorts])
    along_second = np.einsum("npq,nq->np", left[cohorts], second)
    n, p, q = len(first), *dependence.interaction.shape
    coefficients_1 = (
        solved[0] @ np.einsum("np,nr,nq->prq", first, first, along_first, optimize=True).reshape(p, p * q) / n
    )
    coefficients_2 = (
        solved[1] @ np.einsum("nq,np,nr->qpr", second, along_second, second, optimize=True).reshape(q, p * q) / n
    )
    scale = dependence.inverse_information * max(sample.num_reports - int((sample.sizes > 0).sum()), 1)
    offsets = np.einsum("mpr,mrq->mpq", v1, right).reshape(-1, p * q)  # V1_c X V2_c
    sums = [np.zeros((len(x), len(y))) for _ in range(4)]
    block = max(1, _BLOCK_CELLS // (len(x) * len(y)))
    for start in range(0, n, block):
        a, b = first[start : start + block], second[start : start + block]
        u, w = along_first[start : start + block], along_second[start : start + block]
        products = (a[:, :, None] * (b - u)[:, None, :] - w[:, :, None] * b[:, None, :]).reshape(len(a), p * q)
        products += a @ coefficients_1 + b @ coefficients_2 + offsets[cohorts[start : start + block]]
        interaction = (products @ scale).reshape(len(a), p, q)
        of_dependence = np.einsum("up,npq,vq->nuv", bases[0], interaction, bases[1], optimize=True)
        m1, m2 = (each[start : start + block] for each in on_margins)
        influence = of_dependence + m1[:, :, None] * y + x[:, None] * m2[:, None, :]
        sums[0] += np.einsum("nuv,nuv->uv", influence, influence)
        sums[3] += np.einsum("nuv,nuv->uv", of_dependence, of_dependence)
        by_row = (influence - rows * m1[:, :, None]) / x[:, None]
        by_column = (influence - columns * m2[:, None, :]) / y
        sums[1] += np.einsum("nuv,nuv->uv", by_row, by_row)
        sums[2] += np.einsum("nuv,nuv->uv", by_column, by_column)
    extra = [
        (ratio - 1) * np.mean(influence**2, axis=0) for ratio, influence in zip(inflation, on_margins, strict=True)
    ]
    of_pairs = (dependence.overdispersion - 1) * sums[3] / n
    of_table = sums[0] / n + of_pairs + np.outer(extra[0], y**2) + np.outer(x**2, extra[1])
    of_rows = (
        sums[1] / n
        + of_pairs / x[:, None] ** 2
        + extra[1]
        + np.outer(extra[0], np.ones(len(y))) * ((rows - y) / x[:, None]) ** 2
    )
    of_columns = (
        sums[2] / n
        + of_pairs / y**2
        + extra[0][:, None]
        + np.outer(np.ones(len(x)), extra[1]) * ((columns - x[:, None]) / y) ** 2
    )
    return of_table, of_rows, of_columns


def _between_cohorts(sizes: Indices, of_cohort: Floats, influence: Floats) -> float:
    """Ratio, at least 1, of the variance of the margins' estimates by the cohorts' means to that by single reports.

    of_cohort : (m, C) mean influence of each cohort        influence : (n, C) of single reports
    """
    used = sizes > 0
    m = int(used.sum())
    if m < MIN_COHORTS:
        return 1.0
    weights = sizes[used]
    deviations = of_cohort[used] - np.average(of_cohort[used], axis=0, weights=weights)
    between = (weights[:, None] * deviations**2).sum(axis=0) / (m - 1)
    within = np.mean(influence**2, axis=0)
    return max(1.0, float(np.mean(between / np.where(within > 0, within, 1))))
