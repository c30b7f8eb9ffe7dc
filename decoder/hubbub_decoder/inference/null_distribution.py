"""How far the estimate of a string that nobody reported falls from 0: over the chance of how it hashes, the reports as they are.

A string without a candidate shares the bits of a candidate in Binomial(m, 1/F) cohorts. Many such strings err together as a normal does; one frequent
string does not: it seldom meets a candidate, and then by much. What another string would have been estimated to be, had it hashed otherwise,
can be computed from the residuals, so nothing about the unlisted strings need be assumed. What meets a frequent string does so in some
cohorts; what is there is there in all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom, norm

from hubbub_decoder.array_types import Floats

_REACH, _STEP = 40.0, 0.02
_CELLS = 2 * round(_REACH / _STEP) + 1
_GRID = np.linspace(-_REACH, _REACH, _CELLS)
_TELLING, _WIDER = 1e-3, 1.25
_BEYOND = 1.5  # standard errors of a cohort's part above the middle ones that still count
_SELDOM = 0.01
_MANY_COHORTS = 64


@dataclass(frozen=True, eq=False)
class ErrorLaw:
    """The law of error / standard error of those who are nothing, where its tails are longer than a normal's; else the normal.

    at_least : P(error >= z) for z on a grid from -40 to 40, what is beyond it at its ends; not below the normal's
    at_most  : P(error <= z), likewise
    """

    at_least: Floats
    at_most: Floats

    @classmethod
    def of(cls, scores: Iterable[Floats], chances: Floats | None = None) -> ErrorLaw:
        """Draw one score in each cohort, independently, and add them up.

        scores : of each cohort, what each of its filters adds to the estimate, in standard errors; divided between the two next
                 places of the grid, so that the mean stays and the spread grows a little
        chances : of each filter; all alike if None

        >>> law = ErrorLaw.of([np.array([9.5, -0.5, -0.5, -0.5])] * 2, np.array([0.05, 0.25, 0.35, 0.35]))
        >>> float(law.tail(np.array(8.0)).round(4))  # 1 - .95**2
        0.0975
        """
        law = _sum(scores, chances)
        at_least, at_most = np.cumsum(law[::-1])[::-1], np.cumsum(law)
        return cls(np.maximum(at_least, norm.sf(_GRID)), np.maximum(at_most, norm.cdf(_GRID)))

    def tail(self, z: Floats) -> Floats:
        """Return P(error / standard error >= z); nan where z is nan."""
        return np.asarray(np.maximum(np.interp(z, _GRID, self.at_least), norm.sf(z)) * np.where(z > _REACH, 0, 1))

    def above(self, chance: float) -> float:
        """Return what errors exceed with so small a chance."""
        return self._first(self.at_least[::-1], chance, norm.isf(chance))

    def below(self, chance: float) -> float:
        """Return how far below 0 errors fall with so small a chance, as a positive number."""
        return self._first(self.at_most, chance, norm.isf(chance))

    @property
    def is_skewed(self) -> bool:
        """Whether the one error in a thousand is a quarter larger than a normal's."""
        return self.above(_TELLING) > _WIDER * float(norm.isf(_TELLING))

    @staticmethod
    def _first(tail: Floats, chance: float, least: float) -> float:
        """Return the distance of the farthest place that has at least this chance; `tail` rises from the end of the grid."""
        return max(float(least), float(_GRID[-1 - min(int(np.searchsorted(tail, chance)), _CELLS - 1)]))


def chance_to_look_there(
    own: Sequence[float] | Floats, scores: Sequence[Floats], meets: float, chances: Floats | None = None
) -> float:
    """Return how often a random string looks at least as much as if it were there, in all cohorts alike, as a candidate does.

    It is the larger of two chances. One is that of a sum as large in which no cohort counts for more than 1.5 of its standard errors above what
    the middle ones say:

        T = sum_c min(z_c, cap)        cap = mean of the middle half of the candidate's z_c + 1.5 / sqrt(m), for random strings as well

    The other leaves out the cohorts that speak best for the candidate, however many of them might seldom have met one frequent string:

        max over j of P(J >= j) P(N(0, 1) >= sum of the m - j least z_c / sqrt(1 - j/m))        J = Binomial(m, meets), P(J >= j) <= 1/100

    In 64 cohorts or more the sum alone is compared, cap = infinity: no string that nobody lists meets a candidate in most of them.

    own : z_c, of each cohort, what the candidate's filter adds to its estimate, in standard errors
    scores, chances : the same of every filter, and how likely each is; all alike if None; cohorts in which all are 0 do not count
    meets : how often a candidate has the very bits of a given string in a cohort

    >>> met = np.array([3.0] + [0.0] * 27)  # a string of 3 standard errors a cohort has no candidate
    >>> chances = [chance_to_look_there(own, [met] * 4, 1 / 28) for own in ([3.0, 3.0, 0.2, -0.2], [1.5] * 4)]
    >>> chances[0] > 0.003, chances[1] < 0.001
    (True, True)
    """
    used = [c for c, score in enumerate(scores) if score.any()]
    seen, m = np.sort([own[c] for c in used]), len(used)
    if not m:
        return 1.0
    cap, without = math.inf, 0.0
    if m < _MANY_COHORTS:
        met = np.arange(1, m)
        often = binom.sf(met - 1, m, meets)
        left = np.cumsum(seen)[m - 1 - met] / np.sqrt(1 - met / m)
        without = float((often * norm.sf(left))[often <= _SELDOM].max(initial=0))
        cut = (m + 1) // 4
        cap = float(seen[cut : m - cut].mean()) + _BEYOND / math.sqrt(m)
    law = _sum((np.minimum(scores[c], cap) for c in used), chances)
    total = float(np.clip(np.minimum(seen, cap).sum(), -_REACH, _REACH))
    return max(without, float(law[math.floor(total / _STEP) + _CELLS // 2 :].sum()))


def _sum(scores: Iterable[Floats], chances: Floats | None) -> Floats:
    """Return the law, on the grid, of the sum of one independent draw from each."""
    law = np.zeros(_CELLS)
    law[_CELLS // 2] = 1
    for values in scores:
        likely = np.full(len(values), 1 / len(values)) if chances is None else chances
        law = _plus(law, values / _STEP, likely)
    return law


def _plus(law: Floats, values: Floats, chances: Floats) -> Floats:
    """Add an independent draw of some values, in cells; what leaves the grid stays at its end."""
    values = np.clip(values, 1 - _CELLS, _CELLS - 2)
    lower = np.floor(values).astype(np.intp)
    part, least = values - lower, int(lower.min())
    moves = np.concatenate([lower, lower + 1]) - least
    wide = np.convolve(law, np.bincount(moves, np.concatenate([chances * (1 - part), chances * part])))
    cells = np.clip(np.arange(len(wide)) + least, 0, _CELLS - 1)
    return np.asarray(np.bincount(cells, wide, _CELLS), np.float64)
