"""Gain of weights by cohort: a candidate shares its bits with frequent strings in some cohorts, and these count less.

The variance of one bit of a candidate rises with the share L of the other strings that set it, v(L) = alpha + beta L. The decoder weights
cohorts by 1 / v, so m cohorts have the variance 1 / (m E 1/v) instead of E v / m. With L = sum_u x_u Bernoulli(w) over the other strings,

    E 1/v = integral over z > 0 of exp(-alpha z) prod_u (1 - w + w exp(-beta x_u z))

by Gauss-Laguerre quadrature in alpha z.
"""

from __future__ import annotations

import numpy as np

from hubbub_decoder.array_types import Floats
from hubbub_decoder.planning.law.collisions import Shares

_LEAST_ALPHA = 0.1
"""Least alpha / E v: where the variance of pattern counts is not linear in the load, the line through its mean may fall below 0."""

_NODES, _WEIGHTS = np.polynomial.laguerre.laggauss(20)


def uneven_load_ratio(
    shares: Shares, own: Floats, mean_variance: Floats, slope: Floats | float, chance: float
) -> Floats:
    """Ratio 1 / (E v E 1/v) of candidates with shares `own`, at most 1; the candidate itself is not part of its load.

    own           : (n,) shares of the candidates       mean_variance : (n,) E v, above 0
    slope         : beta, (n,) or a number              chance        : w, that another string sets a given bit

    >>> two = Shares.of(np.array([0.5, 0.5]))
    >>> round(float(uneven_load_ratio(two, np.array([0.5]), np.array([1.25]), 1.0, 0.5)[0]), 4)  # v is 1 or 1.5: 1.2 / 1.25
    0.96
    """
    own, mean_variance = np.atleast_1d(own), np.atleast_1d(mean_variance)
    lightest = mean_variance - slope * chance * np.maximum(shares.total - own, 0)
    lightest = np.maximum(lightest, _LEAST_ALPHA * mean_variance)
    rate = (np.broadcast_to(slope, own.shape) / lightest)[:, None] * _NODES  # (n, nodes)
    of_string = np.log1p(chance * np.expm1(-rate[:, :, None] * shares.values))
    log = of_string @ shares.numbers
    nearest = np.abs(shares.values - own[:, None]).argmin(axis=1)
    is_listed = np.isclose(shares.values[nearest], own, rtol=0.2)
    log -= np.where(is_listed, 1.0, 0.0)[:, None] * of_string[np.arange(len(own)), :, nearest]
    harmonic = lightest / (np.exp(log) @ _WEIGHTS)
    known = (lightest > 0) & np.isfinite(mean_variance)
    return np.minimum(np.divide(harmonic, mean_variance, out=np.ones_like(own), where=known), 1.0)
