"""Search of bit counts for a frequent string that is not a candidate: evidence for it, its share, and its bits in each cohort.

Model:     `residual_bits.py`, with the likelihood L(s, t) of a string of share s beside other unlisted strings of squared shares t
Evidence:  mean of exp(L + log p(c | 0, t)) over a grid of s and t / max over t of p(c | 0, t). Without such a string its expectation is at
           most 1 for any t, so it exceeds 1,000 with probability at most 1/1,000 (universal inference, Markov's inequality).
Estimator: the maximum of L(s, t) + log p(c | 0, t). Nothing is selected, so nothing is biased by selection.
Variance:  inverse of the observed information

A fit absorbs a part of the reports, so its residuals vary less than the model expects: the evidence is smaller than exact.
docs/explanation/mathematics.md, equations (16.2) and (16.3). Source: Wasserman, Ramdas & Balakrishnan 2020.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import logsumexp

from hubbub.metrics.params import Params
from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.inference.bit_sets import most_probable_sets, sum_over_sets
from hubbub_decoder.inference.residual_bits import (
    LEAST_DEVIATIONS,
    SYMMETRIC,
    Others,
    ResidualBits,
    maximum,
)

MIN_LOG_EVIDENCE = math.log(1000)
"""Log of the evidence above which a string, or a second one, is added."""

_FIRST_SHARE = 0.4  # of the grid of shares, in standard deviations of a bit share
_SHARE_RATIO = 1.4  # of two shares of the grid
_VARIANCE_STEPS = (0.0, 1.0)  # squared shares by which t is below its maximum without the string
_REACHES = (0.4, 0.1, 0.03)  # of the search for a maximum, in logarithms of the sum of shares and of t
_MIN_RIGHT = 0.75  # a wrong cohort doubles the variance instead of removing it
_MAX_WRONG = 0.25  # number of cohorts with wrong bits, in roots of the number of cohorts


@dataclass(frozen=True, eq=False)
class FoundStrings:
    """One string, or two, found in residuals; arrays are of the c cohorts with reports.

    shares        : (J,) largest first
    positions     : (J, c, h) most probable bits, k where there are fewer
    probabilities : (c,) of these bits      unlabelled : (c,) that all strings together set these bits
    log_evidence  : for the last string
    """

    residuals: ResidualBits
    shares: Floats
    positions: Indices
    probabilities: Floats
    unlabelled: Floats
    log_evidence: float

    def std_error(self) -> float:
        """Standard error of the sum of the shares, all in proportion; tau**2 as the likelihood wants it at each sum.

        It is searched near its value for the estimated sum, within a factor e.
        """
        best, middle = self.residuals.best_others(self.shares)
        center = math.log(max(best.variance, (LEAST_DEVIATIONS * self.residuals.deviation) ** 2))

        def log_likelihood(factor: float) -> float:
            def of_log_variance(log_variance: float) -> float:
                others = Others(math.exp(log_variance), best.symmetric)
                return self.residuals.log_likelihood(factor * self.shares, others)

            return maximum(of_log_variance, center - 1, center + 1)[1]

        step = 0.05
        for _ in range(3):
            curvature = (log_likelihood(1 + step) + log_likelihood(1 - step) - 2 * middle) / step**2
            if curvature >= 0:
                return math.inf
            step = min(0.5, 1 / math.sqrt(-curvature))
        return float(self.shares.sum()) * step

    @property
    def located(self) -> bool:
        """Whether the bits of each string are known: few enough are expected to be wrong that the bias of its share is below s.e. / 8."""
        return _few_wrong(self.probabilities)

    @property
    def mostly_located(self) -> bool:
        """Whether so many of these bits are right that subtracting them halves the variance that the strings cause: 3 of 4 cohorts."""
        return float(np.mean(self.unlabelled)) > _MIN_RIGHT

    @property
    def located_together(self) -> bool:
        """Whether the bits of the strings are known, if not which string has which."""
        return _few_wrong(self.unlabelled)


Point = tuple[tuple[float, ...], Others]
"""Shares of strings, and the law of all others."""


def find_strings(residuals: ResidualBits, largest: float) -> FoundStrings | None:
    """Find the most frequent string that the expected shares do not hold; two, if one is not enough to explain the bits of each cohort.

    largest : upper limit of its share
    returns : None if the evidence is below 1,000
    """
    others, without = residuals.best_others()
    points = list(_grid_points([(share,) for share in _share_grid(residuals, largest)], others))
    one = _find(residuals, points, without)
    if one is None or one.located:
        return one
    share = float(one.shares[0])
    others, without = residuals.best_others(one.shares)
    first = [share * step for step in np.geomspace(0.6, 1.2, 6)]
    pairs = list(_grid_points([(larger, larger * part) for larger in first for part in (1.0, 0.6)], others))
    return _find(residuals, pairs, without) or one


def _share_grid(residuals: ResidualBits, largest: float) -> Floats:
    first = min(_FIRST_SHARE * residuals.deviation, largest / 2)
    return np.asarray(first * _SHARE_RATIO ** np.arange(1 + math.floor(math.log(largest / first, _SHARE_RATIO))))


def _grid_points(grid: Sequence[tuple[float, ...]], others: Others) -> Iterator[Point]:
    """Yield the points of the grid of shares and laws of the others: what a string explains is taken off t."""
    for shares in grid:
        for step in _VARIANCE_STEPS:
            for symmetric in SYMMETRIC:
                yield shares, Others(max(others.variance - step * shares[-1] ** 2, 0.0), symmetric)


def _find(residuals: ResidualBits, points: Sequence[Point], without: float) -> FoundStrings | None:
    """Strings at the largest likelihood, if the evidence for the last of them is 1,000.

    without : the largest log-likelihood without the last string
    """
    values = [residuals.log_likelihood(*point) for point in points]
    evidence = float(logsumexp(values)) - math.log(len(values)) - without
    if evidence < MIN_LOG_EVIDENCE:
        return None
    return _locate(residuals, *_maximum(residuals, points[int(np.argmax(values))]), evidence)


def _maximum(residuals: ResidualBits, start: Point) -> Point:
    """Shares, largest first, and t with the largest likelihood near a point, one parameter after the other."""
    shares, others = start
    least = (LEAST_DEVIATIONS * residuals.deviation) ** 2
    parameters = [math.log(sum(shares)), math.log(max(others.variance, least)), shares[-1] / sum(shares)]

    def point(changed: int = 0, value: float | None = None) -> Point:
        log_sum, log_variance, last = (
            parameters if value is None else [*parameters[:changed], value, *parameters[changed + 1 :]]
        )
        total = math.exp(min(log_sum, 0.0))
        parts = (1.0,) if len(shares) == 1 else (1 - last, last)
        return tuple(total * part for part in parts), Others(math.exp(log_variance), others.symmetric)

    def log_likelihood(changed: int, value: float) -> float:
        return residuals.log_likelihood(*point(changed, value))

    for reach in _REACHES:
        for i in range(1 + len(shares)):
            low, high = (parameters[i] - reach, parameters[i] + reach) if i < 2 else (0.05, 0.5)
            parameters[i], _ = maximum(partial(log_likelihood, i), low, high)
    return point()


def _locate(residuals: ResidualBits, shares: tuple[float, ...], others: Others, evidence: float) -> FoundStrings:
    """Most probable bits of strings with these shares in each cohort."""
    params = residuals.params
    _, ratios = residuals.ratios(shares, others)
    total = sum_over_sets(ratios, params)
    largest, chosen = most_probable_sets(ratios, params)
    strings = chosen.sum(axis=2).T
    same_bits = {those: np.where(strings == sum(those), ratio, -np.inf) for those, ratio in ratios.items()}
    return FoundStrings(
        residuals,
        np.array(shares),
        _to_positions(chosen, params),
        np.exp(largest - total),
        np.minimum(np.exp(sum_over_sets(same_bits, params) - total), 1.0),
        evidence,
    )


def _to_positions(chosen: Indices, params: Params) -> Indices:
    """Positions (J, c, min(h, k)) of the bits that strings set (c, k, J), k where there are fewer."""
    k, most = params.num_bits, max(params.possible_ones)
    order = np.argsort(1 - chosen, axis=1, kind="stable")[:, :most]  # set bits come first
    number = chosen.sum(axis=1)[:, None]
    return np.asarray(np.where(np.arange(most)[None, :, None] < number, order, k).transpose(2, 0, 1))


def _few_wrong(probabilities: Floats) -> bool:
    return bool(np.sum(1 - probabilities) <= _MAX_WRONG * math.sqrt(len(probabilities)))
