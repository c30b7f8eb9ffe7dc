"""Tests for implausible reports: numbers of ones or cohort sizes that genuine reports have with probability below 1e-6.

The number of ones of a report whose value sets a of the k bits, a = 0 ("no value") .. h, has the distribution

    Binomial(k - a, p*) + Binomial(a, q*)

For any values, the numbers of ones of genuine reports are a mixture of these h + 1 distributions, and cohorts are uniform. Three
tests have a false alarm rate of at most 1e-6 together. Each is a finite-sample bound, valid for any number n of reports:

    extreme   number of reports in the tails of all distributions (5e-10 on each side): Chernoff bound
    shape     D = n KL(observed || mixture), minimized over mixtures, in K bins:  P(D >= x) <= e**-x (e x / (K - 1))**(K - 1), x >= K - 1
    cohorts   the same bound with D = n KL(observed || uniform), K = m

Reports of several periods may come from the same clients, which keep their cohort and permanent noise. If up to T reports come from
one client, the bounds hold for D / T and for the number of extreme reports / T. T is the number of periods.

Source: Agrawal 2020, "Finite-sample concentration of the multinomial in relative entropy", theorem I.2. The values of the clients
are fixed and need not be equal: docs/explanation/mathematics.md, equation (14.1).
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
from hubbub.summary.counting import CountProfile
from hubbub.summary.mixtures import TabulatedComponents, fit_shares

FALSE_ALARM_RATE = 1e-6
TAIL_PROBABILITY = 1e-9
_LOG_ALARM_RATE_PER_TEST = math.log(FALSE_ALARM_RATE / 3)
_TAIL_BIN_PROBABILITY = 1e-4
_GAP_TOLERANCE = 0.1
_MAX_STEPS = 200
_PARTS_OF_A_STEP = 0.5 ** np.arange(8)

Distributions = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Implausibility:
    """Failed plausibility test: its kind and a description with the numbers."""

    kind: Literal["extreme", "shape", "cohorts"]
    description: str


def find_implausible(blocks: tuple[Params, ...], profile: CountProfile) -> tuple[Implausibility, ...]:
    """Return the failed plausibility tests; any test fails for genuine reports with probability at most 1e-6."""
    return tuple(_failed_tests(blocks, profile))


def _failed_tests(blocks: tuple[Params, ...], profile: CountProfile) -> Iterator[Implausibility]:
    periods = max(profile.num_periods, 1)
    if profile.ones_histogram is not None and profile.num_reports:
        low, high = plausible_ones(blocks)
        num_extreme = int(profile.ones_histogram[:low].sum() + profile.ones_histogram[high + 1 :].sum())
        if log_extremes_bound(num_extreme, profile.num_reports * TAIL_PROBABILITY) / periods < _LOG_ALARM_RATE_PER_TEST:
            yield Implausibility(
                "extreme",
                f"{num_extreme:,} of {profile.num_reports:,} reports have fewer than {low} or more than {high} ones, which has a probability below "
                "1e-9 for a genuine report. The reports are fabricated or were made with other parameters.",
            )
        distributions, starts = binned_distributions(blocks)
        observed = np.add.reduceat(profile.ones_histogram, starts)
        if log_divergence_bound(divergence(observed, distributions) / periods, len(starts)) < _LOG_ALARM_RATE_PER_TEST:
            yield Implausibility(
                "shape",
                "The histogram of the number of ones fits no mixture of values. Some reports are fabricated or were made with other parameters.",
            )
    m = len(profile.reports)
    if m > 1 and profile.num_reports:
        cohort_divergence = divergence(profile.reports, np.full((1, m), 1 / m))
        if log_divergence_bound(cohort_divergence / periods, m) < _LOG_ALARM_RATE_PER_TEST:
            yield Implausibility(
                "cohorts",
                f"Cohort sizes differ more than by chance, from {profile.reports.min():,} to {profile.reports.max():,} reports. A few "
                "clients send most of them, or reports are missing or fabricated.",
            )


@lru_cache(maxsize=256)
def plausible_ones(blocks: tuple[Params, ...]) -> tuple[int, int]:
    """Return (low, high): a genuine report has fewer than low or more than high ones with probability below 5e-10 each.

    >>> params = Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0.5)
    >>> plausible_ones(params.blocks)
    (17, 83)
    """
    distributions = ones_distributions(blocks)
    below, above = np.cumsum(distributions, axis=1).max(axis=0), np.cumsum(distributions[:, ::-1], axis=1).max(axis=0)
    return int((below < TAIL_PROBABILITY / 2).sum()), len(above) - 1 - int((above < TAIL_PROBABILITY / 2).sum())


@lru_cache(maxsize=256)
def ones_distributions(blocks: tuple[Params, ...]) -> Distributions:
    """Return P(number of ones = t | true bits), t = 0 .. k: a row for each number of true bits from 0 to h (of hashes that coincide, at most k), shape (h + 1, k + 1).

    Of several blocks, a row for each combination of their numbers of true bits. The law depends on the value only through these numbers.
    """
    rows: Distributions = np.ones((1, 1))
    for block in blocks:
        of_block = [block.mechanism.ones_distribution(block.num_bits, a) for a in range(max(block.possible_ones) + 1)]
        rows = np.array([np.convolve(row, block_row) for row in rows for block_row in of_block])
    return rows


@lru_cache(maxsize=256)
def binned_distributions(blocks: tuple[Params, ...]) -> tuple[Distributions, NDArray[np.intp]]:
    """Return the distributions in bins, (h + 1, K), and the starts of the bins, (K,).

    Bins are half a standard deviation wide, and each tail is one bin. They depend on the parameters only, as the bound requires.
    """
    distributions = ones_distributions(blocks)
    ones = np.arange(distributions.shape[1])
    k = int(ones[-1])
    std_dev = math.sqrt(max((distributions @ ones**2 - (distributions @ ones) ** 2).min(), 0))
    low = int((np.cumsum(distributions, axis=1).max(axis=0) < _TAIL_BIN_PROBABILITY).sum())
    high = k - int((np.cumsum(distributions[:, ::-1], axis=1).max(axis=0) < _TAIL_BIN_PROBABILITY).sum())
    starts = np.unique([0, *range(low, high + 1, max(1, int(std_dev / 2))), min(high + 1, k)])
    return np.add.reduceat(distributions, starts, axis=1), starts


def divergence(observed: NDArray[np.int64], distributions: Distributions) -> float:
    """Return a lower bound of min over w of n KL(observed || w @ distributions), close to the minimum.

    Maximizes the likelihood of the mixture weights w by constrained steps of Fisher scoring. The distance to the maximum is at most
    n (largest derivative - 1), which is subtracted, so the result never exceeds the true minimum.

    Source: Wang 2007, "On fast computation of the non-parametric maximum likelihood estimate of a mixing distribution" (JRSS B 69, 185-198).

    observed : (K,) counts        distributions : (h + 1, K) probabilities
    """
    n = int(observed.sum())
    seen = observed > 0
    share, components = observed[seen] / n, distributions[:, seen]
    weights = np.full(len(distributions), 1 / len(distributions))
    if not (weights @ components).all():
        return math.inf  # a bin with reports has probability 0
    for _ in range(_MAX_STEPS):
        derivative = (components / (weights @ components)) @ share
        gap = n * float(derivative.max() - 1)
        if gap < _GAP_TOLERANCE:
            break
        weights = _move_to_component(weights, int(derivative.argmax()), share, components)
        weights = _newton_step(weights, observed / n, distributions)
    return max(n * _divergence_per_report(share, weights @ components) - gap, 0)


def _divergence_per_report(share: Distributions, mixture: Distributions) -> float:
    """KL(share || mixture) over bins with reports; infinite if the mixture has probability 0 in one."""
    return float(share @ np.log(share / mixture)) if mixture.all() else math.inf


def _move_to_component(
    weights: Distributions, to: int, share: Distributions, components: Distributions
) -> Distributions:
    """Return weights after a line search towards one component, from which no probability becomes 0."""
    mixture = weights @ components
    direction = components[to] - mixture
    move = 0.0
    for _ in range(5):
        slope = direction / (mixture + move * direction)
        move = min(max(move + float(share @ slope / (share @ slope**2)), 0.0), 1 - 1e-9)
    moved = weights * (1 - move)
    moved[to] += move
    return moved


def _newton_step(weights: Distributions, share: Distributions, distributions: Distributions) -> Distributions:
    """Return weights after a step of Fisher scoring, constrained to 0 or more; a part of it, or none, if the likelihood would fall."""
    mixture, seen = weights @ distributions, share > 0
    best = _fit_weights(weights, share, distributions, mixture)
    before = _divergence_per_report(share[seen], mixture[seen])
    for part in _PARTS_OF_A_STEP:
        moved: Distributions = weights + part * (best - weights)
        if _divergence_per_report(share[seen], (moved @ distributions)[seen]) < before:
            return moved
    return weights


def _fit_weights(
    weights: Distributions, share: Distributions, distributions: Distributions, mixture: Distributions
) -> Distributions:
    """Return the weights of 0 or more with the weighted least squares: on the way from given ones, each that would be negative leaves."""
    active = np.flatnonzero(weights)
    left = weights[active]
    while len(active) > 1:
        target = fit_shares(share, TabulatedComponents(distributions[active].T), mixture)[0]
        if (target >= 0).all():
            left = target
            break
        falling = left - target
        lengths = np.divide(left, falling, out=np.full_like(left, np.inf), where=falling > 0)
        first = int(lengths.argmin())
        left = np.maximum(left - min(1.0, lengths[first]) * falling, 0)
        active, left = np.delete(active, first), np.delete(left, first)
    found = np.zeros_like(weights)
    found[active] = left / left.sum() if left.sum() > 0 else 1 / len(left)
    return found


def log_divergence_bound(distance: float, num_bins: int) -> float:
    """Return an upper bound of ln P(n KL >= distance) for n genuine reports in `num_bins` bins.

    >>> round(log_divergence_bound(20.0, 2), 2)
    -16.0
    """
    free = num_bins - 1
    if distance <= free:
        return 0.0
    return (
        -math.inf if math.isinf(distance) else free * (1 + math.log(distance / free)) - distance if free else -distance
    )


def log_extremes_bound(observed: int, expected: float) -> float:
    """Return an upper bound of ln P(number of independent rare events >= observed), given the expected number (Chernoff).

    >>> round(log_extremes_bound(3, 0.001), 1)
    -21.0
    """
    return 0.0 if observed <= expected else observed * (1 + math.log(expected / observed)) - expected
