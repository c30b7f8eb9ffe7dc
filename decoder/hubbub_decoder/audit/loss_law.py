"""Law of the log-likelihood ratio of two values under the declared mechanism, and the trials that an audit needs.

    n = min over events of ((z_a (sqrt(r_v) + sqrt(r_w)) + z_b sqrt(r_v + r_w)) / (ln(P_v / P_w) - tightness * claim))**2

    r = (1 - P) / P : n times the variance of the log of a frequency, delta method        P_v, P_w : probabilities of the event

z_a belongs to the Clopper-Pearson limits, z_b to the power. Only planning uses this law; no bound does.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.stats import norm

from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub_decoder.array_types import Bits, Floats
from hubbub_decoder.audit.distinguisher import count_probabilities, log_ratio

TIGHTNESS = 0.95
POWER = 0.99
_MAX_ATOMS = 4_000


@dataclass(frozen=True, slots=True)
class LossLaw:
    """Atoms of the log-likelihood ratio, ascending, with their probabilities under the first value and the second."""

    loss: Floats
    first: Floats
    second: Floats


def loss_law(metric: Metric, bits: Bits, bits_other: Bits, reports: int, epochs: int) -> LossLaw:
    """Law of the score of t reports in each of several epochs, mixed over the cohorts.

    bits, bits_other : (m, k) Bloom bits of the two values
    """
    only_first = (bits & ~bits_other & 1).sum(axis=1)
    only_second = (bits_other & ~bits & 1).sum(axis=1)
    patterns = Counter(zip(only_first.tolist(), only_second.tolist(), strict=True))
    parts = [
        (law, number / len(bits))
        for (a, b), number in patterns.items()
        for law in [_of_pattern(metric.params, reports, a * epochs, b * epochs)]
    ]
    return _merged(
        np.concatenate([law.loss for law, _ in parts]),
        np.concatenate([share * law.first for law, share in parts]),
        np.concatenate([share * law.second for law, share in parts]),
    )


@lru_cache(maxsize=256)
def _of_pattern(params: Params, reports: int, only_first: int, only_second: int) -> LossLaw:
    """Law for numbers of bits that only the first value sets, and only the second."""
    zero, one = count_probabilities(params, reports)
    ratio = log_ratio(one, zero)
    law = LossLaw(np.zeros(1), np.ones(1), np.ones(1))
    for step in [LossLaw(ratio, one, zero)] * only_first + [LossLaw(-ratio, zero, one)] * only_second:
        law = _merged(
            np.add.outer(law.loss, step.loss).ravel(),
            np.multiply.outer(law.first, step.first).ravel(),
            np.multiply.outer(law.second, step.second).ravel(),
        )
    return law


def _merged(loss: Floats, first: Floats, second: Floats) -> LossLaw:
    """Law with equal atoms merged; more than 4,000 atoms are rounded to a grid of so many steps."""
    rounded = loss.round(9)
    if len(np.unique(rounded)) > _MAX_ATOMS:
        step = (rounded.max() - rounded.min()) / _MAX_ATOMS
        rounded = (rounded / step).round() * step
    atoms, place = np.unique(rounded, return_inverse=True)
    merged, merged_second = (np.bincount(place, each).astype(np.float64) for each in (first, second))
    return LossLaw(atoms, merged, merged_second)


def trials_needed(
    law: LossLaw, claim: float, alpha: float, *, tightness: float = TIGHTNESS, power: float = POWER
) -> float:
    """Trials of each value for a bound of at least `tightness * claim` with a power; infinite if no number suffices."""
    best = math.inf
    for numerator, other in ((law.first, law.second), (law.second[::-1], law.first[::-1])):
        with np.errstate(divide="ignore", invalid="ignore"):
            p, q = (np.cumsum(each[::-1])[::-1].clip(0, 1) for each in (numerator, other))
            margin = np.log(p / q) - tightness * claim
            r, s = np.maximum(1 - p, 0) / p, np.maximum(1 - q, 0) / q
            spread = norm.isf(alpha / 2) * (np.sqrt(r) + np.sqrt(s)) + norm.ppf(power) * np.sqrt(r + s)
            needed = np.where((margin > 0) & (q > 0), (spread / margin) ** 2, np.inf)
        best = min(best, float(np.nanmin(needed)))
    return best
