"""Gain of weights by cohort: a candidate shares its bits with frequent strings in some cohorts, and these count less.

The variance of one bit of a candidate rises with the share L of the other strings that set it, v(L) = alpha + beta L. The decoder weights
cohorts by 1 / v, so m cohorts have the variance 1 / (m E 1/v) instead of E v / m. With L = sum_u x_u Bernoulli(w) over the other strings,

    E 1/v = integral over z > 0 of exp(-alpha z) prod_u (1 - w + w exp(-beta x_u z))

by Gauss-Laguerre quadrature in alpha z. Where v is not linear, the distribution of L on a grid takes the place of the integral.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.planning.law.collisions import Shares

_LEAST_ALPHA = 0.1
"""Least alpha / E v: where the variance of pattern counts is not linear in the load, the line through its mean may fall below 0."""

_STEPS = 1024
"""Steps of a load from 0 to 1; a share between two steps is divided between them, which keeps its mean."""

_MIN_CHANCE = 1e-12

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
    group, listed = _group_of(shares, own)
    log -= listed[:, None] * of_string[np.arange(len(own)), :, group]
    harmonic = lightest / (np.exp(log) @ _WEIGHTS)
    known = (lightest > 0) & np.isfinite(mean_variance)
    return np.minimum(np.divide(harmonic, mean_variance, out=np.ones_like(own), where=known), 1.0)


def uneven_load_variance(shares: Shares, own: Floats, variance: Callable[[Floats], Floats], chance: float) -> Floats:
    """1 / E 1/v(x + L), (n,), of candidates with shares `own`, for any v; the candidate itself is not part of its load.

    variance : v of one filter, by the share of all strings that have it      chance : w, below 1/2

    >>> two = Shares.of(np.array([0.5, 0.5]))
    >>> round(float(uneven_load_variance(two, np.array([0.5]), lambda load: 0.5 + load, 0.25)[0]), 4)  # v is 1 or 1.5: 1 / (3/4 + 1/6)
    1.0909
    """
    own = np.atleast_1d(own)
    group, listed = _group_of(shares, own)
    loads, chances = _loads(shares, chance)
    row = np.where(listed > 0, group, len(shares.values))
    with np.errstate(divide="ignore"):
        return np.asarray(1 / np.sum(chances[row] / variance(own[:, None] + loads[row]), axis=1))


@lru_cache(maxsize=16)
def _loads(shares: Shares, chance: float) -> tuple[Floats, Floats]:
    """Distribution of the load L: means and probabilities of about 60 intervals, (groups + 1, intervals).

    A row for each group, of which one string is left out, and one for all strings. By the characteristic function on a grid of 1,024 steps.
    """
    steps = shares.values * _STEPS
    part = np.modf(steps)[0][:, None]
    turn = np.exp(-1j * np.pi * np.arange(_STEPS + 1) / _STEPS)
    jumps = turn ** np.floor(steps)[:, None] * (1 - part + part * turn)
    of_string = np.log(1 - chance + chance * jumps)  # (groups, frequencies)
    left_out = np.vstack([of_string, np.zeros(_STEPS + 1)])
    on_grid = np.maximum(np.fft.irfft(np.exp(shares.numbers @ of_string - left_out), axis=1), 0)
    edges = np.unique(np.geomspace(1, 2 * _STEPS, 80).astype(int))
    edges = np.append(0, edges[:-1])
    chances = np.add.reduceat(on_grid, edges, axis=1)
    means = np.add.reduceat(on_grid * np.arange(2 * _STEPS) / _STEPS, edges, axis=1)
    return np.divide(means, chances, out=np.zeros_like(means), where=chances > _MIN_CHANCE), chances


def _group_of(shares: Shares, own: Floats) -> tuple[Indices, Floats]:
    """Group of the candidates with shares `own`, (n,), and 1 where such a candidate is one of `shares`, else 0."""
    group = np.abs(shares.values - own[:, None]).argmin(axis=1)
    return group, np.where(np.isclose(shares.values[group], own, rtol=0.2), 1.0, 0.0)
