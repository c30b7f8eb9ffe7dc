"""What no honest crowd would do by chance: reports with too many or too few ones, cohorts of too unequal sizes.

A report whose value sets a of its k bits has  Binomial(k - a, p*) + Binomial(a, q*)  ones, a from 0 ("no value") to h. So whatever
the values are, the numbers of ones of honest reports are a mixture of these h + 1 shapes, and cohorts are uniform. Three tests, at a
level of 1e-6 together, each a bound that holds for every number of reports, not only in the limit:

    extreme   reports beyond the tails of every shape, each side with a chance of 5e-10: their number by Chernoff's bound
    shape     D = n KL(seen || mixture), smallest over all mixtures, in K bins:  P(D >= x) <= e**-x (e x / (K - 1))**(K - 1), x >= K - 1
    cohorts   the same with D = n KL(seen || uniform), K = m

Source: Agrawal 2020, "Finite-sample concentration of the multinomial in relative entropy", theorem I.2. Reports need not be alike: a
person's values are fixed, and the bound of a sum of unlike reports is that of the mixture (docs/mathematics.md).

Reports of several periods may come from the same people, whose permanent noise and cohort stay. If any T reports may be one person's,
D / T and the number beyond the tails / T obey the same bounds, so T = number of periods.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hubbub.metrics.params import Params
from hubbub.summary.count_profile import CountProfile

FALSE_ALARM_RATE = 1e-6
TAIL_PROBABILITY = 1e-9
_LOG_LEVEL = math.log(FALSE_ALARM_RATE / 3)
_TAIL_BIN = 1e-4
_CLOSE_ENOUGH = 0.1
_MOST_STEPS = 200

Distributions = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Implausibility:
    """One test that failed, and what it saw."""

    kind: Literal["extreme", "shape", "cohorts"]
    description: str


def find_implausible(params: Params, profile: CountProfile) -> tuple[Implausibility, ...]:
    """Return what is odd about these reports; an honest crowd has any oddity with a chance of at most 1e-6."""
    return tuple(_failed_tests(params, profile))


def _failed_tests(params: Params, profile: CountProfile) -> Iterator[Implausibility]:
    periods = max(profile.num_periods, 1)
    if profile.ones_histogram is not None and profile.num_reports:
        low, high = plausible_ones(params)
        beyond = int(profile.ones_histogram[:low].sum() + profile.ones_histogram[high + 1 :].sum())
        if log_extremes_bound(beyond, profile.num_reports * TAIL_PROBABILITY) / periods < _LOG_LEVEL:
            yield Implausibility(
                "extreme",
                f"{beyond:,} of {profile.num_reports:,} reports have fewer than {low} or more than {high} ones, which an honest report "
                "has less than once in a billion: they are made up, or made under other parameters",
            )
        shapes, starts = binned_distributions(params)
        seen = np.add.reduceat(profile.ones_histogram, starts)
        if log_divergence_bound(divergence(seen, shapes) / periods, len(starts)) < _LOG_LEVEL:
            yield Implausibility(
                "shape",
                "no values whatever explain how many ones the reports have: some are made up, or made under other parameters",
            )
    m = len(profile.reports)
    if m > 1 and profile.num_reports:
        apart = divergence(profile.reports, np.full((1, m), 1 / m))
        if log_divergence_bound(apart / periods, m) < _LOG_LEVEL:
            yield Implausibility(
                "cohorts",
                f"the cohorts are unequal beyond chance, from {profile.reports.min():,} to {profile.reports.max():,} reports: a few "
                "installations send most of them, or reports are missing or made up",
            )


@lru_cache(maxsize=256)
def plausible_ones(params: Params) -> tuple[int, int]:
    """Return the fewest and the most ones that an honest report has but with a chance below 5e-10 on either side.

    >>> plausible_ones(Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0.5))
    (17, 83)
    """
    shapes = ones_distributions(params)
    below, above = np.cumsum(shapes, axis=1).max(axis=0), np.cumsum(shapes[:, ::-1], axis=1).max(axis=0)
    return int((below < TAIL_PROBABILITY / 2).sum()), params.num_bits - int((above < TAIL_PROBABILITY / 2).sum())


@lru_cache(maxsize=256)
def ones_distributions(params: Params) -> Distributions:
    """Return the chance of each number of ones for each number of true bits: (h + 1, k + 1)."""
    k = params.num_bits
    return np.array(
        [
            np.convolve(_binomial(k - a, params.p_star), _binomial(a, params.q_star))
            for a in range(params.num_hashes + 1)
        ]
    )


@lru_cache(maxsize=256)
def binned_distributions(params: Params) -> tuple[Distributions, NDArray[np.intp]]:
    """Return the shapes in bins of half a standard deviation, the tails in one bin each, and where the bins start.

    The bins depend on the parameters alone, so the bound holds.
    """
    shapes = ones_distributions(params)
    k = params.num_bits
    ones = np.arange(k + 1)
    spread = math.sqrt(max((shapes @ ones**2 - (shapes @ ones) ** 2).min(), 0))
    low = int((np.cumsum(shapes, axis=1).max(axis=0) < _TAIL_BIN).sum())
    high = k - int((np.cumsum(shapes[:, ::-1], axis=1).max(axis=0) < _TAIL_BIN).sum())
    starts = np.unique([0, *range(low, high + 1, max(1, int(spread / 2))), min(high + 1, k)])
    return np.add.reduceat(shapes, starts, axis=1), starts


def divergence(seen: NDArray[np.int64], shapes: Distributions) -> float:
    """Return n KL(seen || w @ shapes), smallest over the mixtures w, or a little less.

    Climbs the likelihood of w: moves weight to the shape that it wants most, then takes a Newton step among the shapes that have
    weight. What is missing to the best mixture is at most n (largest derivative - 1), which is taken off: the result is never above
    the true minimum.
    """
    n = int(seen.sum())
    share, there = seen[seen > 0] / n, shapes[:, seen > 0]
    weights = np.full(len(shapes), 1 / len(shapes))
    if not (weights @ there).all():
        return math.inf  # no shape has what was seen
    for _ in range(_MOST_STEPS):
        wanted = (there / (weights @ there)) @ share
        gap = n * float(wanted.max() - 1)
        if gap < _CLOSE_ENOUGH:
            break
        weights = _exchanged(weights, wanted, share, there)
        weights = _newton(weights, share, there)
    return max(n * float(share @ np.log(share / (weights @ there))) - gap, 0)


def _exchanged(
    weights: Distributions, wanted: Distributions, share: Distributions, there: Distributions
) -> Distributions:
    """Move weight from the shape that is wanted least to the one wanted most, as far as it helps."""
    to, source = int(wanted.argmax()), int(np.where(weights > 0, wanted, np.inf).argmin())
    mixture, direction = weights @ there, there[to] - there[source]
    most = weights[source] * (1 - 1e-9)  # so that no chance becomes 0
    move = 0.0
    for _ in range(5):
        slope = direction / (mixture + move * direction)
        move = min(max(move + float(share @ slope / (share @ slope**2)), 0.0), most)
    moved = weights.copy()
    moved[[to, source]] += move, -move
    return moved


def _newton(weights: Distributions, share: Distributions, there: Distributions) -> Distributions:
    """Take a Newton step among the shapes that have weight, up to where one of them has none left; stay if it leads down."""
    held = np.flatnonzero(weights)
    scaled = there[held] / (weights @ there)
    border = np.ones((len(held), 1))
    system = np.block([[(scaled * share) @ scaled.T, border], [border.T, np.zeros((1, 1))]])
    step = np.zeros_like(weights)
    step[held] = np.linalg.lstsq(system, np.append(scaled @ share, 0), rcond=None)[0][:-1]
    left = np.divide(weights, -step, out=np.full_like(weights, np.inf), where=step < 0)
    moved: Distributions = weights + min(1.0, left.min()) * step
    if left.min() <= 1:
        moved[left.argmin()] = 0
    moved = np.maximum(moved, 0)
    moved /= moved.sum()
    mixture = moved @ there
    better = bool(mixture.all()) and share @ np.log(mixture / (weights @ there)) > 0
    return moved if better else weights


def log_divergence_bound(distance: float, num_bins: int) -> float:
    """Bound ln P(n KL >= distance) for n honest reports in so many bins.

    >>> round(log_divergence_bound(20.0, 2), 2)
    -16.0
    """
    free = num_bins - 1
    if distance <= free:
        return 0.0
    return (
        -math.inf if math.isinf(distance) else free * (1 + math.log(distance / free)) - distance if free else -distance
    )


def log_extremes_bound(seen: int, expected: float) -> float:
    """Bound ln P(at least so many) of independent rare events of which so many are expected.

    >>> round(log_extremes_bound(3, 0.001), 1)
    -21.0
    """
    return 0.0 if seen <= expected else seen * (1 + math.log(expected / seen)) - expected


def _binomial(n: int, chance: float) -> Distributions:
    """Return P(Binomial(n, chance) = j) for j = 0..n."""
    if chance in (0, 1):
        certain = np.zeros(n + 1)
        certain[n if chance else 0] = 1
        return certain
    logs = np.cumsum(np.log(np.arange(1, n + 1)))
    choose = (logs[-1] if n else 0.0) - np.append(0.0, logs) - np.append(0.0, logs)[::-1]
    j = np.arange(n + 1)
    chances = np.exp(choose + j * math.log(chance) + (n - j) * math.log1p(-chance))
    return np.asarray(chances, np.float64)
