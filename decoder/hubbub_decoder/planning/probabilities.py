"""Search for the probabilities of both responses with the smallest variance within the epsilons.

For given a, b and q the best p is the smallest within the epsilons: a larger p is the same response followed by more noise, which raises
no epsilon and lowers no variance. The same holds for b given a. So a and q are left, and the epsilon of the permanent response where
epochs of `hold` bound only some of its reports. Both are searched on a grid, and again around its best point.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hubbub.mechanisms.unary import differing_bits
from hubbub_decoder.array_types import Flags, Floats
from hubbub_decoder.planning.law.chain import Chain

_GRID = 33
_ZOOMS = 7
_FIRST_ZOOMS = 2  # to compare permanent responses
_SHRINK = 3 / _GRID
_BISECTIONS = 34
_EXTRA_EPSILON = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, math.inf)
"""Epsilon of a whole permanent response beyond that of an epoch, tried where `hold` bounds only an epoch's reports."""

Objective = Callable[[Chain], Floats]


@dataclass(frozen=True, slots=True)
class Limits:
    """Largest epsilons of one metric.

    num_bits, possible_ones : k, and the numbers of true bits that a value may have
    report       : largest epsilon of one report
    unit         : largest epsilon of `unit_reports` reports of one permanent response; infinite: no permanent response is needed
    unit_reports : t >= 1; infinite: any number of reports
    """

    num_bits: int
    possible_ones: tuple[int, ...]
    report: float
    unit: float = math.inf
    unit_reports: float = math.inf

    @property
    def most_exchanged(self) -> int:
        """h, the largest number of bits that each of two values sets alone; 0 for one bit, where a value sets all bits of another."""
        return max(min(each) for each in differing_bits(self.num_bits, self.possible_ones))

    @property
    def most_differing(self) -> int:
        """Largest number of bits in which two values differ."""
        return max(map(sum, differing_bits(self.num_bits, self.possible_ones)))

    def allow(self, chain: Chain) -> Flags:
        """Whether each chain of an array keeps the epsilon of a report, and that of a finite number of reports."""
        allowed = chain.epsilon(self.num_bits, self.possible_ones, 1) <= self.report
        if self.unit < math.inf and self.unit_reports < math.inf:
            allowed &= chain.epsilon(self.num_bits, self.possible_ones, self.unit_reports) <= self.unit
        return np.asarray(allowed)


def best_chain(limits: Limits, objective: Objective, *, symmetric: bool = False) -> Chain:
    """Probabilities with the smallest objective within the limits.

    objective : number to minimize of each chain of an array
    symmetric : whether the permanent response treats ones and zeros alike, a = 1 - b; one bit always needs such a response

    >>> from hubbub_decoder.model.repetition import Repetition
    >>> best = best_chain(Limits(64, (0, 1), report=2.0), lambda chain: chain.noise(0.0, Repetition()))
    >>> [round(float(each), 4) for each in best]  # OUE: q = 1/2, p = 1 / (e**2 + 1), without a permanent response
    [1.0, 0.0, 0.1192, 0.5]
    """
    symmetric = symmetric or limits.most_exchanged == 0
    if limits.unit == math.inf:
        totals = [math.inf]
    elif limits.unit_reports == math.inf:
        totals = [limits.unit]
    else:
        totals = [limits.unit + extra for extra in _EXTRA_EPSILON]

    def best(total: float, zooms: int) -> Chain:
        return _best_of(limits, total, objective, symmetric, zooms)

    total = totals[0] if len(totals) == 1 else min(totals, key=lambda each: float(objective(best(each, _FIRST_ZOOMS))))
    return best(total, _ZOOMS)


def _best_of(limits: Limits, total: float, objective: Objective, symmetric: bool, zooms: int) -> Chain:
    """Best chain whose permanent response has this epsilon."""
    bit_epsilon = total / max(1, limits.most_exchanged)  # of a pair of bits, of which each value sets one
    ranges = _permanent_range(bit_epsilon, total / limits.most_differing if symmetric else None)
    low, high = np.array([ranges[0], -6.0]), np.array([ranges[1], 6.0])
    first_low, first_high = low, high
    for _ in range(zooms):
        axes = [np.linspace(*ends, _GRID if ends[1] > ends[0] else 1) for ends in zip(low, high, strict=True)]
        x, y = np.meshgrid(*axes, indexing="ij")
        chains = _chains(limits, bit_epsilon, x, y, symmetric)
        values = np.where(chains.q > chains.p, objective(chains), np.inf)
        best = np.unravel_index(np.argmin(values), values.shape)
        centre, reach = np.array([x[best], y[best]]), _SHRINK * (high - low)
        low, high = np.maximum(centre - reach, first_low), np.minimum(centre + reach, first_high)
    return Chain(*(np.asarray(np.broadcast_to(each, values.shape)[best]) for each in chains))


def _permanent_range(bit_epsilon: float, symmetric_odds: float | None) -> tuple[float, float]:
    """Range of the log-odds of a; a single point where only one response has this epsilon."""
    if bit_epsilon == math.inf:
        return 0.0, 0.0
    if symmetric_odds is not None:
        return symmetric_odds, symmetric_odds
    return min(-2.0, bit_epsilon / 2 - 2), bit_epsilon + 6.0


def _chains(limits: Limits, bit_epsilon: float, log_odds_a: Floats, log_odds_q: Floats, symmetric: bool) -> Chain:
    """Chains with these log-odds of a and q, and the smallest b and p within the limits."""
    if bit_epsilon == math.inf:
        a, b = np.ones_like(log_odds_a), np.zeros_like(log_odds_a)
    else:
        a = _logistic(log_odds_a)
        b = 1 - a if symmetric else _logistic(log_odds_a - bit_epsilon)
    q = np.where(log_odds_q >= 6.0, 1.0, _logistic(log_odds_q))
    low, high = np.zeros_like(q), q
    at_zero = limits.allow(Chain(a, b, low, q))
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        fits = limits.allow(Chain(a, b, middle, q))
        low, high = np.where(fits, low, middle), np.where(fits, middle, high)
    return Chain(a, b, np.where(at_zero, 0.0, high), q)


def _logistic(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-x)))
