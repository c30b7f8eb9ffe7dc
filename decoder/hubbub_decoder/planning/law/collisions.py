"""Other strings with the same bits: the noise of their unknown shares, and the weights of the cohorts by their known ones.

**Unknown shares.** A string of known share is subtracted, and one of unknown share is noise. With V_v the variance of the share of
candidate v given all reports, candidates add t = sum_v V_v to the unlisted strings' tau**2 (`estimators/message_passing.py`). V_v depends
on the estimates' variance, and that on t, so t is a fixed point ("state evolution"; Bayati and Montanari 2011):

    t = tau**2 + sum_v V_v(s)          s_v**2 = Var x_v(t)

V_v is the posterior variance under the decoder's prior, a mixture of normals, here one around each of the candidates' shares with .3 of
it as standard deviation. The decoder fits the weights of the mixture to the estimates, which adds d_v'H^-1 d_v to V_v
(`inference/prior.py`). Where all shares are fixed effects, V_v = s_v**2.

**Uneven load.** A candidate shares its bits with frequent strings in some cohorts, and these count less. The variance of one bit of a
candidate rises with the share L of the other strings that set it, v(L) = alpha + beta L. The decoder weights cohorts by 1 / v, so m
cohorts have the variance 1 / (m E 1/v) instead of E v / m. With L = sum_u x_u Bernoulli(w) over the other strings,

    E 1/v = integral over z > 0 of exp(-alpha z) prod_u (1 - w + w exp(-beta x_u z))

by the trapezoidal rule in ln z. Where 1 / E 1/v is known (`likelihood.py`), alpha follows from it, and with it the law for any added noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hubbub_decoder.array_types import Flags, Floats, Indices
from hubbub_decoder.inference.prior import PSEUDO_CANDIDATES, RELATIVE_WIDTH

_MAX_ATOMS = 32
_VERY_MANY = 1e9
_SAME_SHARE = 0.2  # relative difference of a listed candidate's share from that of its group
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(15)
_MAX_ITERATIONS = 100
_TOLERANCE = 1e-4
_LOAD_STEP = 0.5  # of ln z; relative error 2e-8
_LOG_ENDS = (-12.0, 3.0)  # of ln z v
_LEAST_ALPHA = 1e-6  # relative to 1 / E 1/v
_BISECTIONS = 30


@dataclass(frozen=True, eq=False)
class Shares:
    """Shares of the candidates, those of similar size taken together.

    values  : (n,) ascending      numbers : (n,) of candidates with each
    """

    values: Floats
    numbers: Floats

    @classmethod
    def of(cls, shares: Floats) -> Shares:
        """Group the shares (M,) of all candidates into at most 32, by their logarithm; the largest ones stay alone.

        >>> grouped = Shares.of(np.array([0.5, 0.25, 0.25]))
        >>> grouped.values.tolist(), grouped.numbers.tolist()
        ([0.25, 0.5], [2.0, 1.0])
        """
        values, counts = np.unique(shares, return_counts=True)
        numbers = counts.astype(np.float64)
        if len(values) > _MAX_ATOMS:
            edges = np.geomspace(values[values > 0][0], values[-1], _MAX_ATOMS)
            group = np.searchsorted(edges, values * (1 + 1e-12), side="right")
            sizes = np.bincount(group, numbers).astype(np.float64)
            sums = np.bincount(group, numbers * values)
            return cls(sums[sizes > 0] / sizes[sizes > 0], sizes[sizes > 0])
        return cls(values, numbers)

    @classmethod
    @lru_cache(maxsize=16)
    def zipf(cls, num_candidates: int, total: float = 1.0) -> Shares:
        """Shares of the candidates under Zipf's law, min(c / rank, 1), with this sum, of at most M.

        >>> Shares.zipf(3, 2.5).values.round(9).tolist()
        [0.6, 0.9, 1.0]
        """
        weights = 1 / np.arange(1, num_candidates + 1)
        for full in range(num_candidates):
            rest = (total - full) * weights[full:] / weights[full:].sum()
            if rest[0] <= 1:
                break
        return cls.of(np.concatenate([np.ones(full), rest]))

    @classmethod
    def average(cls, total: float) -> Shares:
        """Very many small shares with this sum: every string is an average one."""
        return cls(np.array([total / _VERY_MANY]), np.array([_VERY_MANY]))

    def groups_of(self, own: Floats) -> tuple[Indices, Flags]:
        """Group of candidates with shares `own`, (n,), and whether such a candidate is one of these shares."""
        group = np.abs(self.values - own[:, None]).argmin(axis=1)
        return group, np.isclose(self.values[group], own, rtol=_SAME_SHARE, atol=0)

    @property
    def count(self) -> float:
        """Number of candidates M."""
        return float(self.numbers.sum())

    @property
    def total(self) -> float:
        """Sum of all shares."""
        return float(self.numbers @ self.values)

    def mean(self, of_each: Floats) -> float:
        """Mean over the candidates of a number (n,) of each group."""
        return float(self.numbers @ of_each / self.count)


def unknown_squares(shares: Shares, variance: Callable[[float], Floats], *, fixed_effects: bool) -> float:
    """Fixed point t; above 1 where the shares are known worse than without reports.

    variance : s**2 (n,) of the estimates of `shares`, as a function of t, increasing
    """
    t = 0.0
    for _ in range(_MAX_ITERATIONS):
        errors = variance(t)
        spread = errors if fixed_effects else posterior_variances(shares, errors)
        after = float(shares.numbers @ spread)
        if abs(after - t) <= _TOLERANCE * after:
            return after
        t = after
    return t


def posterior_variances(shares: Shares, errors: Floats) -> Floats:
    """Expected posterior variance of a candidate of each group, (n,), from an estimate with these variances (n,).

    E over the estimate, by Gauss-Hermite quadrature, of the variance under the mixture of all groups' normals, with the error of its fit.
    """
    x, spread = shares.values, (RELATIVE_WIDTH * shares.values) ** 2
    observed = x[:, None] + np.sqrt(errors + spread)[:, None] * _NODES  # (n, nodes)
    total = errors + spread
    with np.errstate(divide="ignore"):
        log = np.log(shares.numbers) - (observed[:, :, None] - x) ** 2 / (2 * total) - np.log(total) / 2
    chance = np.exp(log - log.max(axis=2, keepdims=True))
    chance /= chance.sum(axis=2, keepdims=True)
    gain = spread / total
    means = x + gain * (observed[:, :, None] - x)
    deviations = means - (chance * means).sum(axis=2, keepdims=True)
    variance = (chance * (deviations**2 + gain * errors)).sum(axis=2)
    weights = _WEIGHTS / _WEIGHTS.sum()
    members, moved = (factor.reshape(-1, len(x)) for factor in (chance, chance * deviations))
    number = np.outer(shares.numbers, weights).ravel()[:, None]
    information = (number * members).T @ members + PSEUDO_CANDIDATES * np.eye(len(x))
    of_fit = np.sum(moved @ np.linalg.inv(information) * moved, axis=1).reshape(variance.shape)
    return np.asarray(np.minimum(variance + of_fit, np.maximum(variance, errors[:, None])) @ weights)


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
        _LOG_ENDS[0], _LOG_ENDS[1] + np.log1p(np.max(slope / alpha * shares.total, initial=0)) + _LOAD_STEP, _LOAD_STEP
    )
    z = np.exp(steps) / (alpha + slope * shares.total)[:, None]  # (n, nodes)
    of_string = np.log1p(chance * np.expm1(-(slope[:, None] * z)[:, :, None] * shares.values))
    log = of_string @ shares.numbers
    group, listed = shares.groups_of(own)
    log -= listed[:, None] * of_string[np.arange(len(own)), :, group]
    return np.asarray(1 / (_LOAD_STEP * np.sum(z * np.exp(log - alpha[:, None] * z), axis=1)))


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
