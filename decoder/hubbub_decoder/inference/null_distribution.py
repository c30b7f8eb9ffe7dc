"""Null distribution of an estimate: the law of error / standard error for strings that no client reported.

Model: the reports and the fit are given; a string that no client reported hashes at random. In cohort c its filter G_c adds w_c(G_c) to
its estimate x, in standard errors s:

    x / s = sum_c w_c(G_c)        G_c independent        w_c = s A_c' P r (pattern counts); the sum of s S^-1 r over the bits set (bit counts)

The distribution of this sum is a convolution over cohorts, on a grid of 0.02, scaled to variance 1: the variance of these sums is what tau**2
and s were estimated from, so only their shape is new. Tails that few random strings reach are the wider of it and the normal's.

A frequent unlisted string shares a candidate's filter in Binomial(m, 1/F) cohorts: seldom, and then by much. So the errors have longer
tails than a normal distribution. The method needs no model of the unlisted strings. docs/explanation/mathematics.md, equation (10.4).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hubbub_decoder.array_types import Floats
from hubbub_decoder.model.distributions import binom, norm

FAR_TAIL = 0.01
"""Probability below which a tail is the widest of several laws, since too little is seen of it."""

_MIN_STRINGS = 10  # in a tail that is known
_ROUNDING = 1e-9  # relative; scores that differ by less are equal
_GRID_END, _GRID_STEP = 40.0, 0.02  # standard errors
_GRID_CELLS = 2 * round(_GRID_END / _GRID_STEP) + 1
_GRID = np.linspace(-_GRID_END, _GRID_END, _GRID_CELLS)
_CAP_STANDARD_ERRORS = 1.5  # by which a cohort's part may exceed the middle ones and still count fully
_MAX_COLLISION_TAIL = 0.01
_MANY_COHORTS = 64
_GOLDEN_RATIO = (math.sqrt(5) - 1) / 2
_NEGLIGIBLE = 1e-300  # probability


@dataclass(frozen=True, eq=False)
class NullDistribution:
    """Distribution of error / standard error of random strings, scaled to mean 0 and variance 1.

    z     : (G,) values, ascending
    above : (G,) P(error > z) + P(error = z) / 2        below : (G,) P(error < z) + P(error = z) / 2
    most  : largest error of any string; an error between the end of the grid, 40, and this has the probability of all that are beyond 40
    far   : probability below which these are not lighter than the normal's: 1 %, or that of 10 strings where there are fewer than 1,000
    """

    z: Floats
    above: Floats
    below: Floats
    far: float
    most: float = 0.0

    @classmethod
    def from_scores(cls, scores: Iterable[Floats], probabilities: Floats | None = None) -> NullDistribution:
        """Distribution of the sum of one independent score from each cohort; the normal one where all scores are equal.

        Each score is divided between its two neighbours on the grid: the variance grows a little before it is scaled.

        scores        : for each cohort, the score of each filter
        probabilities : of each filter; None: all equal

        >>> null = NullDistribution.from_scores([np.array([9.5, -0.5, -0.5, -0.5])] * 2, np.array([0.05, 0.25, 0.35, 0.35]))
        >>> float(null.tail(np.array(2.6)).round(4))  # 1 - .95**2; the standard deviation is 3.08
        0.0975
        """
        centered = [
            score - np.average(score, weights=probabilities)
            for score in scores
            if np.ptp(score) > _ROUNDING * np.abs(score).max()
        ]
        spread = math.sqrt(sum(float(np.average(score**2, weights=probabilities)) for score in centered))
        normal = norm.sf(_GRID)
        if not spread > 0:
            return cls(_GRID, normal, normal[::-1], FAR_TAIL)
        density = _convolve_all((score / spread for score in centered), probabilities)
        z = _GRID / math.sqrt(float(density @ _GRID**2))
        far = min(0.5, max(FAR_TAIL, _MIN_STRINGS / math.prod(float(len(score)) for score in centered)))
        above, below = np.cumsum(density[::-1])[::-1] - density / 2, np.cumsum(density) - density / 2
        at_least = np.minimum(norm.sf(z), far)
        above[-1] = density[-1]
        most = sum(float(score.max()) for score in centered) / spread * float(z[-1] / _GRID_END)
        return cls(z, np.maximum(above, at_least), np.maximum(below, at_least[::-1]), far, most)

    def tail(self, z: Floats) -> Floats:
        """P(error / standard error >= z); nan where z is nan."""
        beyond = np.where(z > max(self.most, self.z[-1]), np.minimum(norm.sf(z), self.far), self.above[-1])
        return np.asarray(np.where(z > self.z[-1], beyond, np.interp(z, self.z, self.above)))

    def quantile(self, probability: float, sign: int = 1) -> float:
        """Distance from 0 that errors exceed with this probability, above 0 (sign 1) or below (sign -1)."""
        if sign > 0:
            return float(np.interp(probability, self.above[::-1], self.z[::-1], left=max(self.most, self.z[-1])))
        return -float(np.interp(probability, self.below, self.z))


def collision_p_value(
    own: Sequence[float] | Floats,
    scores: Sequence[Floats],
    identical_probability: float,
    probabilities: Floats | None = None,
) -> float:
    """P-value of a candidate's scores by cohort, robust to an unlisted string that shares its filter in some cohorts.

    A reported candidate is visible in all cohorts; a collision with a frequent unlisted string is visible in some. The p-value is the
    larger of two, and at least identical_probability**m, that of a string with the same filters:

        P(sum_c min(Z_c, cap) >= sum_c min(z_c, cap))        cap = mean of the middle half of the z_c + 1.5 / sqrt(m)
        max over j of P(J >= j) P(N(0, 1) >= sum of the m - j smallest z_c / sqrt(1 - j/m))

    The first caps what one cohort can contribute. The second leaves out the j largest cohorts, J = Binomial(m, identical_probability) of
    which collide with one given string, for all j with P(J >= j) <= 1/100. With 64 cohorts or more the second is skipped and
    cap = infinity, since no unlisted string collides with a candidate in most of them.

    own                   : (m,) the score of the candidate's filter in each cohort, in standard errors
    scores                : for each cohort, those of every filter; cohorts in which all are 0 do not count. z_c and Z_c are these scores less
                            the mean of their cohort, since a level that all strings have in common is no evidence for one of them
    identical_probability : that a string has a given string's filter in a cohort
    probabilities         : of each filter; None: all equal

    >>> met = np.array([3.0] + [0.0] * 27)  # an unlisted string adds 3 standard errors in each cohort
    >>> p = [collision_p_value(own, [met] * 4, 1 / 28) for own in ([3.0, 3.0, 0.2, -0.2], [1.5] * 4)]
    >>> p[0] > 0.003, p[1] < 0.001
    (True, True)
    """
    used = [c for c, score in enumerate(scores) if score.any()]
    m, levels = len(used), [float(np.average(scores[c], weights=probabilities)) for c in used]
    if not m:
        return 1.0
    unsorted = np.array([own[c] for c in used]) - levels
    z = np.sort(unsorted)
    cap, without_collisions = math.inf, 0.0
    if m < _MANY_COHORTS:
        collisions = np.arange(1, m)
        tail = binom.sf(collisions - 1, m, identical_probability)
        left = np.cumsum(z)[m - 1 - collisions] / np.sqrt(1 - collisions / m)
        without_collisions = float((tail * norm.sf(left))[tail <= _MAX_COLLISION_TAIL].max(initial=0))
        cut = (m + 1) // 4
        cap = float(z[cut : m - cut].mean()) + _CAP_STANDARD_ERRORS / math.sqrt(m)
    capped = [np.minimum(scores[c] - level, cap) for c, level in zip(used, levels, strict=True)]
    tail = sum_tail(np.minimum(unsorted, cap), capped, probabilities)
    return max(without_collisions, identical_probability**m, tail)


def sum_tail(own: Floats, scores: Sequence[Floats], probabilities: Floats | None) -> float:
    """P(sum_c R_c(Z_c) >= sum_c R_c(z_c)), exact for sums of rounded scores, however large they are.

        R_c(x) = floor(x / cell + u_c)        u_c = 1/2, in 64 cohorts or more c times the golden ratio, modulo 1

    Both sides are rounded alike, so strings with the candidate's own scores count fully. Where there are many cohorts, all scores of one may be
    within a cell; then the u_c let rounding errors cancel. A cell is 0.02 standard errors, or 0.02 standard deviations of the sum if larger.

    The walk over the cohorts counts from the candidate's own sum. After each cohort, it leaves out what the others cannot bring back to 0,
    and counts what they cannot bring below 0. So no sum has to be moved to the end of a grid.
    """
    m, weights = len(own), probabilities
    if weights is None:
        weights = np.full(len(scores[0]), 1 / len(scores[0]))
    variance = sum(float(weights @ score**2 - (weights @ score) ** 2) for score in scores)
    cell = _GRID_STEP * math.sqrt(max(1.0, variance))
    offsets = np.full(m, 0.5) if m < _MANY_COHORTS else np.arange(m) * _GOLDEN_RATIO % 1
    moves = [
        np.floor(score / cell + offset).astype(np.int64) - math.floor(z / cell + offset)
        for z, score, offset in zip(own.tolist(), scores, offsets.tolist(), strict=True)
    ]
    highest = [max(0, int(move.max())) for move in moves]
    lowest = [min(0, int(move.min())) for move in moves]
    up, down = sum(highest), sum(lowest)  # by the cohorts that are left
    density, first, counted = np.ones(1), 0, 0.0
    for move, high, low in zip(moves, highest, lowest, strict=True):
        up, down = up - high, down - low
        alive = move >= -up - first - len(density) + 1
        if not alive.any():
            return counted
        least = int(move[alive].min())
        density = np.convolve(density, np.bincount(move[alive] - least, weights[alive]))
        first += least
        sure = max(0, -down - first)
        counted += float(density[sure:].sum())
        kept = max(0, -up - first) + np.flatnonzero(density[max(0, -up - first) : sure] > _NEGLIGIBLE)
        if not len(kept):
            return counted
        density, first = density[kept[0] : kept[-1] + 1], first + int(kept[0])
    return counted


def _convolve_all(scores: Iterable[Floats], probabilities: Floats | None) -> Floats:
    """Density on the grid of the sum of one independent draw from each array of scores."""
    part, first = np.ones(1), _GRID_CELLS // 2
    for values in scores:
        weights = np.full(len(values), 1 / len(values)) if probabilities is None else probabilities
        part, first = _convolve(part, first, values / _GRID_STEP, weights)
    density = np.zeros(_GRID_CELLS)
    density[first : first + len(part)] = part
    return density


def _convolve(part: Floats, first: int, values: Floats, weights: Floats) -> tuple[Floats, int]:
    """Add an independent draw of some values, in grid cells; probability that leaves the grid stays at its end.

    part    : density on the cells from `first` on; it is 0 on all others
    returns : the same of the sum
    """
    values = np.clip(values, 1 - _GRID_CELLS, _GRID_CELLS - 2)
    lower = np.floor(values).astype(np.intp)
    share, least = values - lower, int(lower.min())
    moves = np.concatenate([lower, lower + 1]) - least
    wide = np.convolve(part, np.bincount(moves, np.concatenate([weights * (1 - share), weights * share])))
    first += least
    if first >= 0 and first + len(wide) <= _GRID_CELLS:
        return wide, first
    cells = np.clip(np.arange(first, first + len(wide)), 0, _GRID_CELLS - 1)
    return np.asarray(np.bincount(cells, wide, _GRID_CELLS), np.float64), 0
