"""Gain of weights by cohort: a candidate shares its bits with frequent strings in some cohorts, and these count less.

The variance of one bit of a candidate rises with the share L of the other strings that set it, v(L) = alpha + beta L. The decoder weights
cohorts by 1 / v, so m cohorts have the variance 1 / (m E 1/v) instead of E v / m. With L = sum_u x_u Bernoulli(w) over the other strings,

    E 1/v = integral over z > 0 of exp(-alpha z) prod_u (1 - w + w exp(-beta x_u z))

by the trapezoidal rule in ln z. Where 1 / E 1/v is known (`likelihood.py`), alpha follows from it, and with it the law for any added noise.
"""

from __future__ import annotations

import numpy as np

from hubbub_decoder.array_types import Floats
from hubbub_decoder.planning.law.collisions import Shares

_STEP = 0.5  # of ln z; relative error 2e-8
_LOG_ENDS = (-12.0, 3.0)  # of ln z v
_LEAST_ALPHA = 1e-6  # relative to 1 / E 1/v
_BISECTIONS = 30


def uneven_load_variance(shares: Shares, own: Floats, alpha: Floats, slope: Floats | float, chance: float) -> Floats:
    """1 / E 1/v, (n,), of candidates with shares `own`; the candidate itself is not part of its load.

    alpha : (n,) above 0      slope : beta, (n,) or a number      chance : w, that another string sets a given bit

    >>> two = Shares.of(np.array([0.5, 0.5]))
    >>> round(float(uneven_load_variance(two, np.array([0.5]), np.array([1.0]), 1.0, 0.5)[0]), 4)  # v is 1 or 1.5
    1.2
    """
    alpha = np.asarray(alpha, float)
    slope = np.broadcast_to(slope, alpha.shape)
    steps = np.arange(
        _LOG_ENDS[0], _LOG_ENDS[1] + np.log1p(np.max(slope / alpha * shares.total, initial=0)) + _STEP, _STEP
    )
    z = np.exp(steps) / (alpha + slope * shares.total)[:, None]  # (n, nodes)
    of_string = np.log1p(chance * np.expm1(-(slope[:, None] * z)[:, :, None] * shares.values))
    log = of_string @ shares.numbers
    group, listed = shares.groups_of(own)
    log -= listed[:, None] * of_string[np.arange(len(own)), :, group]
    return np.asarray(1 / (_STEP * np.sum(z * np.exp(log - alpha[:, None] * z), axis=1)))


def least_variance(shares: Shares, own: Floats, harmonic: Floats, slope: Floats | float, chance: float) -> Floats:
    """Variance alpha without a load, (n,), of candidates for which 1 / E 1/v is `harmonic`, by bisection.

    >>> two = Shares.of(np.array([0.5, 0.5]))
    >>> round(float(least_variance(two, np.array([0.5]), np.array([1.2]), 1.0, 0.5)[0]), 4)
    1.0
    """
    low, high = np.full(harmonic.shape, np.log(_LEAST_ALPHA)), np.zeros(harmonic.shape)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        below = uneven_load_variance(shares, own, harmonic * np.exp(middle), slope, chance) < harmonic
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray(harmonic * np.exp(high))
