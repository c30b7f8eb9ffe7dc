"""Clopper-Pearson lower bound on epsilon from the frequencies of one event under two values.

    eps >= ln( P(E | v) / P(E | w) )  >=  ln( low(x_v, n_v) / high(x_w, n_w) )        with probability 1 - alpha

    low, high : Clopper-Pearson limits, each at alpha / 2 (Bonferroni); x : reports of n in which the event occurred

The bound holds for any mechanism and any event that was chosen without these trials. An event is a set of scores: at least a
threshold, in favour of v against w, or at most one, in favour of w against v.

Sources: Clopper and Pearson 1934; Jagielski, Ullman, Oprea 2020 (arXiv 2006.07709), section 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from hubbub_decoder.array_types import Floats

_MAX_THRESHOLDS = 2_000
_MIN_LOG_ALPHA = -400.0
_ROUNDING_SLACK = 1e-9
_SCORE_TOLERANCE = 5e-7
"""Half of the grid on which scores are rounded: equal sums of floats in another order count as equal."""


@dataclass(frozen=True, slots=True)
class Event:
    """Event of a score: `sign * score >= threshold`.

    Attributes
    ----------
    sign
        1 favours the first value against the second, -1 the reverse.
    threshold
        Threshold of the score.
    """

    sign: int
    threshold: float

    def occurs(self, scores: Floats) -> NDArray[np.bool]:
        """Return in which trials the event occurs."""
        return self.sign * scores >= self.threshold - _SCORE_TOLERANCE


@dataclass(frozen=True, slots=True)
class Bound:
    """Lower bound on epsilon, and the counts on which it rests.

    Attributes
    ----------
    epsilon
        Lower bound. 0: the event shows no difference.
    occurred
        Occurrences of the event under the value that it favours.
    trials
        Trials with the value that the event favours.
    occurred_other
        Occurrences of the event under the other value.
    trials_other
        Trials with the other value.
    """

    epsilon: float
    occurred: int
    trials: int
    occurred_other: int
    trials_other: int

    @property
    def estimate(self) -> float:
        """Estimate of ln(P(E | v) / P(E | w)), half an occurrence added to each count.

        >>> round(Bound(0.9, 300, 399, 100, 399).estimate, 3)
        1.095
        """
        frequency, other = (
            (self.occurred + 0.5) / (self.trials + 1),
            (self.occurred_other + 0.5) / (self.trials_other + 1),
        )
        return math.log(frequency / other)


def clopper_pearson_low(count: Floats, trials: int, alpha: float) -> Floats:
    """Lower limit of a binomial probability, which exceeds the truth with probability at most alpha; 0 for no occurrence.

    >>> clopper_pearson_low(np.array([0.0, 10.0]), 10, 0.5).round(3)
    array([0.   , 0.933])
    """
    count = np.asarray(count, float)
    limits: Floats = np.where(count > 0, betaincinv(np.maximum(count, 1), trials - count + 1, alpha), 0.0)
    return limits


def clopper_pearson_high(count: Floats, trials: int, alpha: float) -> Floats:
    """Upper limit of a binomial probability, which is below the truth with probability at most alpha.

    >>> clopper_pearson_high(np.array([0.0, 10.0]), 10, 0.5).round(3)
    array([0.067, 1.   ])
    """
    return 1 - clopper_pearson_low(trials - np.asarray(count, float), trials, alpha)


def epsilon_lower_bounds(count: Floats, trials: int, other: Floats, trials_other: int, alpha: float) -> Floats:
    """Lower bounds on epsilon of several events, each valid with probability 1 - alpha on its own."""
    with np.errstate(divide="ignore"):
        ratio = np.log(clopper_pearson_low(count, trials, alpha / 2)) - np.log(
            clopper_pearson_high(other, trials_other, alpha / 2)
        )
    bounds: Floats = np.maximum(ratio, 0.0)
    return bounds


def p_value_of_claim(bound: Bound, claim: float) -> float:
    """Smallest error probability at which the bound of these counts exceeds a claim; 1 if none does."""
    counts = (np.array(float(bound.occurred)), bound.trials, np.array(float(bound.occurred_other)), bound.trials_other)

    def exceeds(log_alpha: float) -> bool:
        return float(epsilon_lower_bounds(*counts, math.exp(log_alpha))) > claim + _ROUNDING_SLACK

    low, high = _MIN_LOG_ALPHA, 0.0
    if not exceeds(high):
        return 1.0
    if exceeds(low):
        return math.exp(low)
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if exceeds(middle) else (middle, high)
    return math.exp(high)


def bound_of_event(event: Event, scores: Floats, scores_other: Floats, alpha: float) -> Bound:
    """Lower bound from scores of trials of the first value and of the second, none of which chose the event."""
    hits, misses = int(event.occurs(scores).sum()), int(event.occurs(scores_other).sum())
    counts = [(hits, len(scores)), (misses, len(scores_other))][:: event.sign]
    (x, n), (y, m) = counts
    return Bound(float(epsilon_lower_bounds(np.array(x), n, np.array(y), m, alpha)), x, n, y, m)


def choose_event(scores: Floats, scores_other: Floats, alpha: float) -> Event:
    """Event with the largest lower bound on these trials. The choice biases that bound upwards.

    Thresholds are the distinct scores, or 2,000 quantiles of them, in both directions.
    """
    best, largest = Event(1, float("inf")), -1.0
    for sign, first, second in ((1, scores, scores_other), (-1, -scores_other, -scores)):
        first, second = np.sort(first), np.sort(second)
        thresholds = np.unique(first)
        if len(thresholds) > _MAX_THRESHOLDS:
            thresholds = thresholds[np.linspace(0, len(thresholds) - 1, _MAX_THRESHOLDS).astype(int)]
        counts = [
            len(ordered) - np.searchsorted(ordered, thresholds - _SCORE_TOLERANCE).astype(float)
            for ordered in (first, second)
        ]
        bounds = epsilon_lower_bounds(counts[0], len(first), counts[1], len(second), alpha)
        at = int(bounds.argmax())
        if bounds[at] > largest:
            best, largest = Event(sign, float(thresholds[at])), float(bounds[at])
    return best
