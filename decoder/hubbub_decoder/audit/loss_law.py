"""Law of the log-likelihood ratio of two values under the declared mechanism: the trials that an audit needs, and its event.

    bound reached with power z_b in n trials     ln(P_v / P_w) - c / sqrt(n)        c = z_a (sqrt(r_v) + sqrt(r_w)) + z_b sqrt(r_v + r_w)
    trials for a bound of tightness * claim      n = (c / (ln(P_v / P_w) - tightness * claim))**2

    r = (1 - P) / P : n times the variance of the log of a frequency, delta method        P_v, P_w : probabilities of the event

z_a belongs to the Clopper-Pearson limits, z_b to the power. The law chooses trials and events; no bound uses it.

The law of bits that are not independent (`Mechanism.has_independent_bits`) is simulated: the ratio l of a client with one of the two values,
drawn evenly, has the weights 1 / (1 + e**-l) under the first value and 1 / (1 + e**l) under the second, because l is the exact ratio.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import expit
from scipy.stats import norm

from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub_decoder.array_types import Bits, Floats
from hubbub_decoder.audit.bound import Event
from hubbub_decoder.audit.distinguisher import log_ratio
from hubbub_decoder.audit.laws import Flags, count_probabilities
from hubbub_decoder.random_state import seeded

TIGHTNESS = 0.95
POWER = 0.99
_MAX_ATOMS = 4_000
_SIMULATED_CLIENTS = 200_000
_CELLS_PER_BLOCK = 4_000_000
_Pattern = tuple[int | tuple[int, ...], int | tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class LossLaw:
    """Atoms of the log-likelihood ratio, ascending, with their probabilities under the first value and the second."""

    loss: Floats
    first: Floats
    second: Floats


def loss_law(metric: Metric, bits: Bits | Flags, bits_other: Bits | Flags, reports: int, epochs: int) -> LossLaw:
    """Law of the score of t reports in each of several epochs, mixed over the cohorts.

    bits, bits_other : (m, k) `response_bits` of the two values
    """
    starts, patterns = metric.kind.first_bits, Counter[tuple[_Pattern, ...]]()
    for row, other in zip(bits.astype(bool), bits_other.astype(bool), strict=True):
        differ = zip(np.split(row, starts[1:]), np.split(other, starts[1:]), metric.blocks, strict=True)
        patterns[tuple(_pattern(first, second, block) for first, second, block in differ)] += 1
    parts = [
        (law, number / len(bits))
        for pattern, number in patterns.items()
        for law in [_of_pattern(metric.blocks, reports, epochs, pattern)]
    ]
    return _merged(
        np.concatenate([law.loss for law, _ in parts]),
        np.concatenate([share * law.first for law, share in parts]),
        np.concatenate([share * law.second for law, share in parts]),
    )


def _pattern(first: Flags, second: Flags, block: Params) -> _Pattern:
    """Numbers of bits that only the first value sets, and only the second; of bits that depend on each other, their places."""
    if block.mechanism.has_independent_bits:
        return int((first & ~second).sum()), int((second & ~first).sum())
    return tuple(np.flatnonzero(first).tolist()), tuple(np.flatnonzero(second).tolist())


@lru_cache(maxsize=256)
def _of_pattern(params: tuple[Params, ...], reports: int, epochs: int, pattern: tuple[_Pattern, ...]) -> LossLaw:
    """Law for the patterns of each part."""
    law = LossLaw(np.zeros(1), np.ones(1), np.ones(1))
    steps = []
    for part, (only_first, only_second) in zip(params, pattern, strict=True):
        if isinstance(only_first, tuple) and isinstance(only_second, tuple):
            of_rows = only_first != only_second
            steps += [_of_rows(part, reports, only_first, only_second)] * epochs if of_rows else []
        elif isinstance(only_first, int) and isinstance(only_second, int):
            zero, one = count_probabilities(part, reports)
            ratio = log_ratio(one, zero)
            steps += [LossLaw(ratio, one, zero)] * only_first * epochs
            steps += [LossLaw(-ratio, zero, one)] * only_second * epochs
    for step in steps:
        law = _merged(
            np.add.outer(law.loss, step.loss).ravel(),
            np.multiply.outer(law.first, step.first).ravel(),
            np.multiply.outer(law.second, step.second).ravel(),
        )
    return law


def _of_rows(part: Params, reports: int, first: tuple[int, ...], second: tuple[int, ...]) -> LossLaw:
    """Law of two values of rows, from simulated clients of the first; those of the second have the opposite ratios, by symmetry."""
    rng, clients, d = seeded(0), _SIMULATED_CLIENTS, part.num_bits
    truth = np.zeros((2, d), bool)
    truth[0, list(first)] = truth[1, list(second)] = True
    losses = []
    for start in range(0, clients, most := max(1, _CELLS_PER_BLOCK // (d * reports))):
        size = min(most, clients - start)
        rows = np.stack([*part.mechanism.simulate(np.tile(np.array(first), (size, 1)), d, reports, rng)], axis=1)
        logs = (part.mechanism.log_probabilities(rows, np.tile(of_value, (size, 1))) for of_value in truth)
        losses.append(np.subtract(*logs))
    loss = np.concatenate(losses)
    loss = np.concatenate([loss, -loss])
    return _merged(loss, expit(loss) / clients, expit(-loss) / clients)


def _merged(loss: Floats, first: Floats, second: Floats) -> LossLaw:
    """Law with equal atoms merged; more than 4,000 atoms are rounded to a grid of so many steps."""
    rounded = loss.round(9)
    if len(np.unique(rounded)) > _MAX_ATOMS:
        step = (rounded.max() - rounded.min()) / _MAX_ATOMS
        rounded = (rounded / step).round() * step
    atoms, place = np.unique(rounded, return_inverse=True)
    merged, merged_second = (np.bincount(place, probabilities).astype(np.float64) for probabilities in (first, second))
    return LossLaw(atoms, merged, merged_second)


@dataclass(frozen=True, slots=True)
class _Events:
    """Events of the score in favour of one value, by threshold.

    sign, thresholds : of `Event`, (atoms,)        ratio : ln(P_v / P_w)        spread : c of the module's formulas
    """

    sign: int
    thresholds: Floats
    ratio: Floats
    spread: Floats


def _events(law: LossLaw, alpha: float, power: float) -> Iterator[_Events]:
    """Yield the events in favour of the first value, then those in favour of the second."""
    for sign, numerator, other in ((1, law.first, law.second), (-1, law.second[::-1], law.first[::-1])):
        with np.errstate(divide="ignore", invalid="ignore"):
            p, q = (np.cumsum(probabilities[::-1])[::-1].clip(0, 1) for probabilities in (numerator, other))
            r, s = np.maximum(1 - p, 0) / p, np.maximum(1 - q, 0) / q
            spread = norm.isf(alpha / 2) * (np.sqrt(r) + np.sqrt(s)) + norm.ppf(power) * np.sqrt(r + s)
            yield _Events(sign, sign * law.loss[::sign], np.log(p / q), np.where(q > 0, spread, np.inf))


def trials_needed(
    law: LossLaw, claim: float, alpha: float, *, tightness: float = TIGHTNESS, power: float = POWER
) -> float:
    """Trials of each value for a bound of at least `tightness * claim` with a power; infinite if no number suffices."""
    best = math.inf
    for events in _events(law, alpha, power):
        margin = events.ratio - tightness * claim
        with np.errstate(divide="ignore", invalid="ignore"):
            needed = np.where((margin > 0) & np.isfinite(events.spread), (events.spread / margin) ** 2, np.inf)
        best = min(best, float(np.nanmin(needed)))
    return best


def declared_event(law: LossLaw, trials: int, alpha: float) -> Event:
    """Event whose bound, in so many trials of each value, is the largest with power `POWER`."""
    best, largest = Event(1, math.inf), -math.inf
    for events in _events(law, alpha, POWER):
        bounds = np.where(np.isfinite(events.spread), events.ratio - events.spread / math.sqrt(trials), -np.inf)
        at = int(bounds.argmax())
        if bounds[at] > largest:
            best, largest = Event(events.sign, float(events.thresholds[at])), float(bounds[at])
    return best
