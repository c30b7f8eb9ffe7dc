"""Distribution of the error of an estimate whose true share is x: variance and skewness depend on x, tails on the null distribution.

Model of one candidate, x^ its estimate, s(x)**2 and g(x) the variance and the skewness of x^ where the true share is x:

    P(x^ - x >= z s(x)) = max(P(N >= z), P(T_g >= z), P(Z >= z))        T_g standardized Pearson III (a shifted gamma), skewness g(x)
                                                                        Z of random strings (`null_distribution.py`)
    s(x)**2 = s(x^)**2 + (x - x^) slope, at least u + x min(slope, 0)   g(x) = (k + x slope_3) / s(x)**3

u, slope, k and slope_3 are those of `ErrorCumulants`. Where a bit expects few ones, counts are skewed and a normal tail is far too light:
with 3.4 ones, P(count >= 16) is 6e-7, the shifted gamma has 1e-6, and the normal distribution 4e-12. docs/mathematics.md, section 10.
Source: Pearson 1895 (type III); Hall 1992, section 2.2, for skewness as the leading correction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
from scipy.special import gammainc, gammaincc, gammainccinv, gammaincinv

from hubbub_decoder.array_types import Flags, Floats, Indices
from hubbub_decoder.inference.null_distribution import NullDistribution
from hubbub_decoder.model.distributions import norm

_MIN_SKEWNESS, _MAX_SKEWNESS = 1e-3, 20.0  # below, a shifted gamma is normal to 1e-4 of its tail at 1e-6
_SKEWNESS_GRID = np.concatenate([[0], np.geomspace(_MIN_SKEWNESS, _MAX_SKEWNESS, 200)])  # and its negatives
_HALVINGS = 50


def skewed_tail(z: Floats, skewness: Floats) -> Floats:
    """P(T >= z) of a shifted gamma distribution with mean 0, variance 1 and this skewness; never below the normal's.

    >>> skewed_tail(np.array([4.753424]), np.array([0.0])).round(9).tolist(), skewed_tail(np.array([6.83]), np.array([0.542])).round(7).tolist()
    ([1e-06], [1e-06])
    """
    g = np.clip(np.abs(skewness), _MIN_SKEWNESS, _MAX_SKEWNESS)
    shape = 4 / g**2
    right = gammaincc(shape, np.maximum(shape + np.sqrt(shape) * z, 0))
    left = gammainc(shape, np.maximum(shape - np.sqrt(shape) * z, 0))
    skewed = np.where(np.abs(skewness) < _MIN_SKEWNESS, 0, np.where(skewness > 0, right, left))
    return np.asarray(np.maximum(skewed, norm.sf(z)))


def skewed_quantile(probability: float, skewness: Floats) -> Floats:
    """Value that a shifted gamma distribution of this skewness exceeds with this probability; never below the normal's."""
    g = np.clip(np.abs(skewness), _MIN_SKEWNESS, _MAX_SKEWNESS)
    shape = 4 / g**2
    right = (gammainccinv(shape, probability) - shape) / np.sqrt(shape)
    left = (shape - gammaincinv(shape, probability)) / np.sqrt(shape)
    normal = norm.isf(probability)
    skewed = np.where(np.abs(skewness) < _MIN_SKEWNESS, normal, np.where(skewness > 0, right, left))
    return np.asarray(np.maximum(skewed, normal))


@dataclass(frozen=True, eq=False)
class ErrorCumulants:
    """Cumulants of the noise of M estimates, given the reporters, where the candidate's share is 0, and their growth per unit of its share.

    variances, variance_slopes : (M,) of the estimate of one candidate alone, without unlisted strings: the least that an estimate can have
    third, third_slopes        : (M,) third cumulants
    """

    variances: Floats
    variance_slopes: Floats
    third: Floats
    third_slopes: Floats

    @classmethod
    def zero(cls, size: int) -> ErrorCumulants:
        """Cumulants of normal errors with the same variance for any share."""
        return cls(*np.zeros((4, size)))

    def take(self, number: int) -> ErrorCumulants:
        """Cumulants of the first estimates."""
        return ErrorCumulants(*(getattr(self, field.name)[:number] for field in fields(self)))

    def expand(self, columns: Indices, size: int) -> ErrorCumulants:
        """Cumulants of `size` estimates of which only `columns` (M,) are known; the others are 0."""
        return ErrorCumulants(*(_expand(getattr(self, field.name), columns, size) for field in fields(self)))


def _expand(values: Floats, columns: Indices, size: int) -> Floats:
    expanded = np.zeros(size)
    expanded[columns] = values
    return expanded


@dataclass(frozen=True, eq=False)
class ErrorLaw:
    """Error of M estimates as a function of the true share.

    shares, variances : (M,) estimates, and their variances at these shares; nan where nothing is known
    cumulants         : of the noise
    null              : distribution of error / standard error of random strings; None: normal
    sampling          : 1 / N if the shares are those of a population, from which N reporters are drawn; 0 if those among the reporters
    """

    shares: Floats
    variances: Floats
    cumulants: ErrorCumulants
    null: NullDistribution | None
    sampling: float = 0.0

    def std_errors(self, x: Floats) -> Floats:
        """s(x), (M,)."""
        x, at, of = np.clip(x, 0, 1), np.clip(self.shares, 0, 1), self.cumulants
        drawn = self.sampling * x * (1 - x)
        moved = self.variances + (x - at) * of.variance_slopes + drawn - self.sampling * at * (1 - at)
        return np.sqrt(np.maximum(moved, np.maximum(of.variances + x * np.minimum(of.variance_slopes, 0) + drawn, 0)))

    def skewness(self, x: Floats) -> Floats:
        """g(x), (M,)."""
        x, s, of = np.clip(x, 0, 1), self.std_errors(x), self.cumulants
        third = of.third + x * of.third_slopes + self.sampling**2 * x
        return np.asarray(np.divide(third, s**3, out=np.zeros_like(s), where=s > 0))

    def p_values(self) -> Floats:
        """One-sided p-values of "the share is 0", (M,); nan where nothing is known. Without noise a positive share has p-value 0."""
        p, z = self.noise_p_values(), self._z_at_zero()
        return p if self.null is None else np.maximum(p, self.null.tail(z))

    def noise_p_values(self) -> Floats:
        """P-values as `p_values`, without the null distribution of random strings: the least that any test of a candidate can have."""
        return skewed_tail(self._z_at_zero(), self.skewness(np.zeros_like(self.shares)))

    def _z_at_zero(self) -> Floats:
        s = self.std_errors(np.zeros_like(self.shares))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where((self.shares == 0) & (s == 0), -np.inf, self.shares / s)

    def interval(self, level: float, p_values: Floats, retested: Flags) -> tuple[Floats, Floats]:
        """Shares x that a test of either side does not reject, (M,) and (M,): confidence intervals, not clipped.

            low = x^ - f q(low) s(low)        high = x^ + q(high) s(high)        q(x) : quantile (1 - level) / 2 of the error at x

        low > 0 exactly where p < (1 - level) / 2. f is 1 except where the p-value of a retested candidate is on the other side of that
        tail than `p_values()`. There it scales the law so that it has this p-value at share 0, and low is at least -x^.

        p_values : (M,)      retested : (M,) whether the p-value is that of another test of the same candidate than `p_values()`
        """
        tail = (1 - level) / 2
        upper, lower = (_QuantileTable.from_law(tail, self.null, sign) for sign in (1, -1))
        known = np.isfinite(self.shares) & np.isfinite(self.variances)
        x, rejected = np.where(known, self.shares, 0), p_values < tail
        factors = self._factors(p_values, retested, tail)
        steps = np.stack([self.std_errors(np.full_like(x, end)) for end in (0, 0.5, 1)]).max(axis=0) * 2

        def rejects_from_above(low: Floats) -> Flags:
            return np.asarray(x - low > factors * upper(self.skewness(low)) * self.std_errors(low))

        def accepts_from_below(high: Floats) -> Flags:
            return np.asarray(high - x <= lower(self.skewness(high)) * self.std_errors(high))

        lowest = np.where(rejected, 0, x - np.maximum(factors, 1) * upper.largest * steps)
        low = _bisect(rejects_from_above, lowest, np.where(rejected, x, np.minimum(x, 0)))
        high = _bisect(accepts_from_below, x, x + lower.largest * steps)
        return np.where(known, low, np.nan), np.where(known, high, np.nan)

    def _factors(self, p_values: Floats, retested: Flags, tail: float) -> Floats:
        """f, (M,), of `interval`: between that of a normal law and one with low = -x^."""
        zero = np.zeros_like(self.shares)
        s, g = self.std_errors(zero), self.skewness(zero)
        factors = np.ones_like(s)
        disputed = retested & ((p_values < tail) != (self.p_values() < tail))
        for j in np.flatnonzero(disputed & (self.shares > 0) & (s > 0)):
            quantile, threshold = (
                _QuantileTable.from_law(p, self.null, 1)(g[j : j + 1])[0] for p in (min(p_values[j], 0.5), tail)
            )
            z = self.shares[j] / s[j]
            factors[j] = max(z / max(quantile, threshold / 2), norm.isf(tail) / threshold)
        return factors


@dataclass(frozen=True, eq=False)
class _QuantileTable:
    """Quantile of the error by skewness, on a grid; called with skewness (M,)."""

    skewness: Floats
    quantiles: Floats

    @classmethod
    def from_law(cls, probability: float, null: NullDistribution | None, sign: int) -> _QuantileTable:
        """Distance from 0 that errors exceed with this probability: above 0 (sign 1) or below (sign -1)."""
        grid = np.concatenate([-_SKEWNESS_GRID[:0:-1], _SKEWNESS_GRID])
        of_null = (
            0.0 if null is None else null.upper_quantile(probability) if sign > 0 else null.lower_quantile(probability)
        )
        return cls(grid, np.maximum(skewed_quantile(probability, sign * grid), of_null))

    def __call__(self, skewness: Floats) -> Floats:
        return np.interp(skewness, self.skewness, self.quantiles)

    @property
    def largest(self) -> float:
        return float(self.quantiles.max())


def _bisect(moves_up: Callable[[Floats], Flags], low: Floats, high: Floats) -> Floats:
    """Upper end, (M,), of the last interval around the point up to which `moves_up` holds, halved 50 times."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        up = moves_up(middle)
        low, high = np.where(up, middle, low), np.where(up, high, middle)
    return high
