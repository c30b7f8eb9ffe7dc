"""Joint shares of two or three parts with their standard errors, conditional shares, and a joint guess.

Estimator: P = x_1 x_2 [x_3] + the sum over the subsets of two or three parts of D multiplied by the margins of the other parts, with
           the margins of `margins.py` and D of `dependence.py`; unbiased to first order, possibly negative
Variance:  mean square of each cell's influence over a sample of reports, divided by N. With x1 the influence on the margin of a part,
           E (E'V E)^-1 E'l, and P_-k the table of the parts but k, a report has the influence

    sum_k x1_k P_-k + sum over subsets of (influence on D) times the margins of the other parts

           on D, in contrasts:  N J^-1 (s1 s2 [s3] - V X V - sum_k r_k [- sum_k s_k C_-k])

           s_k : scores centred within the cohort          V X V : X multiplied by V_c along each axis, the mean of the product
           r_k : residual of s_k s_k' in the place of V_k, less V X V, after regression on s_k
           C_-k : covariance of the scores of the other two parts in the cohort: the noise of the centring, for three parts only

    r is the noise of the estimated J. The regression removes the part of it that the fitted margins absorb.
Unlisted strings shift the scores of a cohort. The variances of the margins and of each D are multiplied by the ratio of the variance
between cohorts to that within them, where it is above 1: of D averaged over the components, of the margins moved toward the average.

Conditional shares r = P / M have Fieller's interval: all r with (P - r M)**2 <= z**2 (Var P - 2 r Cov(P, M) + r**2 Var M).

docs/explanation/mathematics.md, equations (20.5) and (20.6). Source: Fieller 1954 for ratios.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.association.components import Sample
from hubbub_decoder.association.dependence import MIN_COHORTS, Dependence, along_axes
from hubbub_decoder.association.guess import guess_table
from hubbub_decoder.association.margins import MarginFit, contrasts, inverse, outer
from hubbub_decoder.association.moments import CohortMoments, Subset, subsets

_MIN_SAMPLE, _MAX_SAMPLE = 2_000, 10_000
_SAMPLE_CELLS = 1 << 22


@dataclass(frozen=True, eq=False)
class Ratio:
    """Conditional shares: cells over their sums along some axes, with the variances and covariances of both, of equal shapes."""

    cells: Floats
    sums: Floats
    cell_variance: Floats
    covariance: Floats
    sum_variance: Floats

    @property
    def shares(self) -> Floats:
        """Cells over sums; nan where the sum is not positive."""
        return np.asarray(np.where(self.sums > 0, self.cells / np.where(self.sums > 0, self.sums, 1), np.nan))

    def interval(self, z: float) -> tuple[Floats, Floats]:
        """Fieller's interval; nan where the sum is not clearly positive: below z standard errors."""
        square = self.sums**2 - z**2 * self.sum_variance
        half = self.cells * self.sums - z**2 * self.covariance
        constant = self.cells**2 - z**2 * self.cell_variance
        clear = (square > 0) & (self.sums > 0)
        root, divisor = np.sqrt(np.maximum(half**2 - square * constant, 0)), np.where(clear, square, 1)
        low, high = ((half + sign * root) / divisor for sign in (-1, 1))
        return np.where(clear, low, np.nan), np.where(clear, high, np.nan)


@dataclass(frozen=True, eq=False)
class JointShares:
    """Joint shares of a subset of parts, and their guess.

    Attributes
    ----------
    shares
        Shape (C1, C2) or (C1, C2, C3), share of each combination of components.
    std_errors
        Shape of `shares`, standard errors of the shares.
    given
        Conditional shares of the other parts, given the first part, and of three parts given the first two.
    guess
        Shape of `shares`, non-negative guess of the shares with sum 1.
    """

    shares: Floats
    std_errors: Floats
    given: tuple[Ratio, ...]
    guess: Floats


def joint_shares(
    sample: Sample,
    moments: CohortMoments,
    margins: Sequence[MarginFit],
    dependences: Mapping[Subset, Dependence],
    parts: Subset = (0, 1),
    *,
    of_reporters: bool = True,
) -> JointShares:
    """Combine margins and dependences into the table of a subset of the sample's parts.

    of_reporters : whether the shares are those among the reporters; else those of the population that they were drawn from
    """
    table, n = _table(parts, margins, dependences), sample.num_reports
    later = [tuple(range(first, len(parts))) for first in range(1, len(parts))]  # axes that a condition adds over
    squares = np.zeros_like(table)
    with_sums, of_sums = (np.zeros((len(later), *table.shape)) for _ in range(2))
    for influence in _influences(sample, moments, margins, dependences, parts):
        squares += np.mean(influence**2, axis=0)
        for index, axes in enumerate(later):
            sums = influence.sum(axis=tuple(axis + 1 for axis in axes), keepdims=True)
            with_sums[index] += np.mean(influence * sums, axis=0)
            of_sums[index] += np.mean(sums**2, axis=0)
    totals = np.array([np.broadcast_to(table.sum(axis=axes, keepdims=True), table.shape) for axes in later])
    shares, positive = np.maximum(table, 0), np.maximum(totals, 0)
    drawn = 1.0 if of_reporters else 0.0
    variance = np.maximum(squares - drawn * shares * (1 - shares), 1e-6 * squares) / n
    covariances = (with_sums - drawn * shares * (1 - positive)) / n
    variances = np.maximum(of_sums - drawn * positive * (1 - positive), 1e-6 * of_sums) / n
    given = tuple(
        Ratio(table, total, variance, covariance, of_total)
        for total, covariance, of_total in zip(totals, covariances, variances, strict=True)
    )
    listed = [sample.parts[part].listed for part in parts]
    guess = guess_table([margins[part] for part in parts], _relative(dependences, parts), listed, n)
    return JointShares(table, np.sqrt(variance), given, guess)


def _relative(dependences: Mapping[Subset, Dependence], parts: Subset) -> dict[Subset, Dependence]:
    """Dependences of the subsets of `parts`, by positions in it."""
    return {tuple(map(parts.index, subset)): dependences[subset] for subset in subsets(parts)}


def _table(parts: Subset, margins: Sequence[MarginFit], dependences: Mapping[Subset, Dependence]) -> Floats:
    """P of a subset of parts; of one part its margin."""
    table = outer([margins[part].shares for part in parts])
    for subset in subsets(parts):
        table = table + _with_margins(dependences[subset].table, subset, parts, margins)
    return table


def _with_margins(of_subset: Floats, subset: Subset, parts: Subset, margins: Sequence[MarginFit]) -> Floats:
    """Multiply a tensor over the components of `subset`, its last axes, by the margins of the other parts."""
    leading = of_subset.ndim - len(subset)
    for axis, part in enumerate(parts):
        if part not in subset:
            of_subset = np.expand_dims(of_subset, leading + axis)
            shape = [1] * of_subset.ndim
            shape[leading + axis] = -1
            of_subset = of_subset * margins[part].shares.reshape(shape)
    return of_subset


def _influences(
    sample: Sample,
    moments: CohortMoments,
    margins: Sequence[MarginFit],
    dependences: Mapping[Subset, Dependence],
    parts: Subset,
) -> Iterator[Floats]:
    """Yield arrays (n, C1, C2[, C3]): the influences of a sample of reports, and those of independent excesses between cohorts."""
    cells = int(np.prod([len(margins[part].shares) for part in parts]))
    thin = sample.thin(max(_MIN_SAMPLE, min(_MAX_SAMPLE, _SAMPLE_CELLS // cells)))
    cohorts = np.repeat(np.arange(len(thin.sizes)), thin.sizes)
    scores, on_margins, ratios = {}, {}, {}
    for part in parts:
        basis, means, margin = contrasts(len(margins[part].shares)), moments.means[part], margins[part]
        likelihood = np.concatenate([block for _, block in thin.blocks(part)], axis=1)
        scores[part] = (basis.T @ (likelihood / (margin.point @ likelihood))).T - means[cohorts]
        solved = inverse(scores[part].T @ scores[part] / len(scores[part])) @ basis.T
        on_margins[part] = scores[part] @ solved
        ratios[part] = _between_cohorts(moments.sizes, means @ solved, on_margins[part])
    total = np.zeros((len(cohorts), *(len(margins[part].shares) for part in parts)))
    for part in parts:
        rest = tuple(other for other in parts if other != part)
        of_rest = np.expand_dims(_table(rest, margins, dependences), parts.index(part))
        shape = [len(cohorts), *(1 for _ in parts)]
        shape[1 + parts.index(part)] = -1
        influence = on_margins[part].reshape(shape) * of_rest
        total += influence
        if ratios[part].max() > 1:
            yield np.sqrt(ratios[part] - 1).reshape(shape[1:]) * influence
    for subset in subsets(parts):
        of_subset = _interaction_influence(subset, scores, cohorts, moments, dependences)
        influence = _with_margins(of_subset, subset, parts, margins)
        total += influence
        excess = dependences[subset].overdispersion - 1
        if excess > 0:
            yield np.sqrt(excess) * influence
    yield total


def _interaction_influence(
    subset: Subset,
    scores: Mapping[int, Floats],
    cohorts: Indices,
    moments: CohortMoments,
    dependences: Mapping[Subset, Dependence],
) -> Floats:
    """Influences (n, C1, C2[, C3]) of reports on D of a subset."""
    order, axes = len(subset), "abc"[: len(subset)]
    covariances, interaction = [moments.covariances[part] for part in subset], dependences[subset].interaction
    products = np.einsum(f"{','.join(f'n{axis}' for axis in axes)}->n{axes}", *(scores[part] for part in subset))
    products += (order - 1) * along_axes(interaction, covariances)[cohorts]
    for position, (axis, part) in enumerate(zip(axes, subset, strict=True)):
        rest, score = axes.replace(axis, ""), scores[part]
        matrices = [*covariances]
        matrices[position] = np.broadcast_to(np.eye(score.shape[1]), matrices[position].shape)
        along = np.einsum(f"n{axis},n{axes}->n{rest}", score, along_axes(interaction, matrices)[cohorts])
        residual = np.einsum(f"n{axis},n{rest}->n{axes}", score, along).reshape(len(score), -1)
        residual -= score @ (inverse(score.T @ score) @ (score.T @ residual))
        products -= residual.reshape(products.shape)
        if order == 3:
            pair = tuple(other for other in subset if other != part)
            others = along_axes(dependences[pair].interaction, [moments.covariances[other] for other in pair])
            products -= np.einsum(f"n{axis},n{rest}->n{axes}", score, others[cohorts])
    scale = dependences[subset].inverse_information * max(float(moments.weights(order).sum()), 1.0)
    influence = (products.reshape(len(products), -1) @ scale).reshape(products.shape)
    for place, number in enumerate(interaction.shape, start=1):
        influence = np.moveaxis(np.tensordot(influence, contrasts(number + 1), axes=(place, 1)), -1, place)
    return np.asarray(influence)


def _between_cohorts(sizes: Indices, of_cohort: Floats, influence: Floats) -> Floats:
    """Ratio (C,), at least 1, of the variance of each component's estimate by the cohorts' means to that by single reports.

    An unlisted string shares bits with some candidates and not with others, and the ratio of one component has m - 1 degrees of
    freedom only. So each ratio is moved toward their mean: its weight is h / (h + 2 / (m - 1)), with h the squared coefficient of
    variation of the ratios less its expectation 2 / (m - 1) under a common ratio.

    of_cohort : (m, C) mean influence of each cohort        influence : (n, C) of single reports
    """
    used = sizes > 0
    m = int(used.sum())
    if m < MIN_COHORTS:
        return np.ones(influence.shape[1])
    weights = sizes[used]
    deviations = of_cohort[used] - np.average(of_cohort[used], axis=0, weights=weights)
    between = (weights[:, None] * deviations**2).sum(axis=0) / (m - 1)
    within = np.mean(influence**2, axis=0)
    ratios = between / np.where(within > 0, within, 1)
    mean, sampling = float(ratios.mean()), 2 / (m - 1)
    heterogeneity = max(0.0, float(ratios.var(ddof=1)) / max(mean, 1e-300) ** 2 - sampling) if len(ratios) > 1 else 0.0
    return np.asarray(np.maximum(1, mean + heterogeneity / (heterogeneity + sampling) * (ratios - mean)))
