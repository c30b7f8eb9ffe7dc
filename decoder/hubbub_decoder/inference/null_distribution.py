"""Null distribution of an estimate: the law of error / standard error for strings that no client reported.

Model: the reports and the fit are given; a string that no client reported hashes at random. In cohort c its filter G_c adds w_c(G_c) to
its estimate x, in standard errors s:

    x / s = sum_c w_c(G_c)        G_c independent        w_c = s A_c' P r (pattern counts); the sum of s S^-1 r over the bits set (bit counts)

The distribution of this sum is a convolution over cohorts, computed on a grid of 0.02 s. Tails are the wider of it and the normal's.

A frequent unlisted string shares a candidate's filter in Binomial(m, 1/F) cohorts: seldom, and then by much. So the errors have longer
tails than a normal distribution. The method needs no model of the unlisted strings. docs/mathematics.md, section 10.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hubbub_decoder.array_types import Floats
from hubbub_decoder.model.distributions import binom, norm

_GRID_END, _GRID_STEP = 40.0, 0.02  # standard errors
_GRID_CELLS = 2 * round(_GRID_END / _GRID_STEP) + 1
_GRID = np.linspace(-_GRID_END, _GRID_END, _GRID_CELLS)
_CAP_STANDARD_ERRORS = 1.5  # by which a cohort's part may exceed the middle ones and still count fully
_MAX_COLLISION_TAIL = 0.01
_MANY_COHORTS = 64


@dataclass(frozen=True, eq=False)
class NullDistribution:
    """Distribution of error / standard error of random strings, on a grid from -40 to 40; its tails are never below the normal's.

    at_least : P(error >= z) at each z of the grid; probability beyond the grid is at its ends
    at_most  : P(error <= z) likewise
    """

    at_least: Floats
    at_most: Floats

    @classmethod
    def from_scores(cls, scores: Iterable[Floats], probabilities: Floats | None = None) -> NullDistribution:
        """Distribution of the sum of one independent score from each cohort.

        Each score is divided between its two neighbours on the grid: the mean stays, and the variance grows a little.

        scores        : for each cohort, the score of each filter, in standard errors
        probabilities : of each filter; None: all equal

        >>> null = NullDistribution.from_scores([np.array([9.5, -0.5, -0.5, -0.5])] * 2, np.array([0.05, 0.25, 0.35, 0.35]))
        >>> float(null.tail(np.array(8.0)).round(4))  # 1 - .95**2
        0.0975
        """
        density = _convolve_all(scores, probabilities)
        at_least, at_most = np.cumsum(density[::-1])[::-1], np.cumsum(density)
        return cls(np.maximum(at_least, norm.sf(_GRID)), np.maximum(at_most, norm.cdf(_GRID)))

    def tail(self, z: Floats) -> Floats:
        """P(error / standard error >= z); nan where z is nan."""
        return np.asarray(np.maximum(np.interp(z, _GRID, self.at_least), norm.sf(z)) * np.where(z > _GRID_END, 0, 1))

    def upper_quantile(self, probability: float) -> float:
        """Value that errors exceed with at most this probability."""
        return self._outermost(self.at_least[::-1], probability, norm.isf(probability))

    def lower_quantile(self, probability: float) -> float:
        """Distance below 0, as a positive number, beyond which errors fall with at most this probability."""
        return self._outermost(self.at_most, probability, norm.isf(probability))

    @staticmethod
    def _outermost(tail: Floats, probability: float, least: float) -> float:
        """Distance from 0 of the outermost grid point with at least this tail probability; `tail` rises from the end of the grid."""
        return max(float(least), float(_GRID[-1 - min(int(np.searchsorted(tail, probability)), _GRID_CELLS - 1)]))


def collision_p_value(
    own: Sequence[float] | Floats,
    scores: Sequence[Floats],
    identical_probability: float,
    probabilities: Floats | None = None,
) -> float:
    """P-value of a candidate's scores by cohort, robust to an unlisted string that shares its filter in some cohorts.

    A reported candidate is visible in all cohorts; a collision with a frequent unlisted string is visible in some. The p-value is the
    larger of two:

        P(sum_c min(Z_c, cap) >= sum_c min(z_c, cap))        cap = mean of the middle half of the z_c + 1.5 / sqrt(m)
        max over j of P(J >= j) P(N(0, 1) >= sum of the m - j smallest z_c / sqrt(1 - j/m))

    The first caps what one cohort can contribute. The second leaves out the j largest cohorts, J = Binomial(m, identical_probability) of
    which collide with one given string, for all j with P(J >= j) <= 1/100. With 64 cohorts or more the second is skipped and
    cap = infinity, since no unlisted string collides with a candidate in most of them.

    own                   : (m,) z_c, the score of the candidate's filter in each cohort, in standard errors
    scores                : for each cohort, Z_c of every filter; cohorts in which all are 0 do not count
    identical_probability : that a string has a given string's filter in a cohort
    probabilities         : of each filter; None: all equal

    >>> met = np.array([3.0] + [0.0] * 27)  # an unlisted string adds 3 standard errors in each cohort
    >>> p = [collision_p_value(own, [met] * 4, 1 / 28) for own in ([3.0, 3.0, 0.2, -0.2], [1.5] * 4)]
    >>> p[0] > 0.003, p[1] < 0.001
    (True, True)
    """
    used = [c for c, score in enumerate(scores) if score.any()]
    z, m = np.sort([own[c] for c in used]), len(used)
    if not m:
        return 1.0
    cap, without_collisions = math.inf, 0.0
    if m < _MANY_COHORTS:
        collisions = np.arange(1, m)
        tail = binom.sf(collisions - 1, m, identical_probability)
        left = np.cumsum(z)[m - 1 - collisions] / np.sqrt(1 - collisions / m)
        without_collisions = float((tail * norm.sf(left))[tail <= _MAX_COLLISION_TAIL].max(initial=0))
        cut = (m + 1) // 4
        cap = float(z[cut : m - cut].mean()) + _CAP_STANDARD_ERRORS / math.sqrt(m)
    density = _convolve_all((np.minimum(scores[c], cap) for c in used), probabilities)
    total = float(np.clip(np.minimum(z, cap).sum(), -_GRID_END, _GRID_END))
    return max(without_collisions, float(density[math.floor(total / _GRID_STEP) + _GRID_CELLS // 2 :].sum()))


def _convolve_all(scores: Iterable[Floats], probabilities: Floats | None) -> Floats:
    """Density on the grid of the sum of one independent draw from each array of scores."""
    density = np.zeros(_GRID_CELLS)
    density[_GRID_CELLS // 2] = 1
    for values in scores:
        weights = np.full(len(values), 1 / len(values)) if probabilities is None else probabilities
        density = _convolve(density, values / _GRID_STEP, weights)
    return density


def _convolve(density: Floats, values: Floats, weights: Floats) -> Floats:
    """Add an independent draw of some values, in grid cells; probability that leaves the grid stays at its end."""
    values = np.clip(values, 1 - _GRID_CELLS, _GRID_CELLS - 2)
    lower = np.floor(values).astype(np.intp)
    part, least = values - lower, int(lower.min())
    moves = np.concatenate([lower, lower + 1]) - least
    wide = np.convolve(density, np.bincount(moves, np.concatenate([weights * (1 - part), weights * part])))
    cells = np.clip(np.arange(len(wide)) + least, 0, _GRID_CELLS - 1)
    return np.asarray(np.bincount(cells, wide, _GRID_CELLS), np.float64)
