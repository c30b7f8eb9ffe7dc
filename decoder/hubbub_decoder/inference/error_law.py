"""Distribution of the error of an estimate of which the true share is x.

Model of one candidate, x^ its estimate, s(x)**2 and g(x) the variance and the skewness of x^ where the true share is x:

    x^ - x exceeds Q(p; x) with probability p        Q(p; x) = s(x) q_T(p; g(x)) + s(0) (q_Z(p) - q_T(p; g(0)))
    s(x)**2 = s(x^)**2 + (x - x^) slope + S(x) - S(x^), at least u + x min(slope, 0) + S(x)        S(x) = x (1 - x) v
    g(x)    = (k + x slope_3 + x (1 - x) (3 slope v + (1 - 2 x) w)) / s(x)**3

    v, w share of the candidate's reports among those drawn (`Sampling`): its variance and third cumulant, and 3 slope v its covariance
         with the variance of the noise
    T    standardized Pearson III, a shifted gamma: noise, as a function of x
    Z    error of random strings (`null_distribution.py`): the law at share 0 given the reports, since a string hashes at random

So Q(p; 0) = s(0) q_Z(p), and the candidate's own reports add noise to that. In tails that few random strings reach (p < 1 %), q_Z stands for
the largest of q_Z, q_T and the normal quantile. Without random strings, Z = T.

Estimates that are a count have steps. An interval then has half a step more on either side, and P(x^ >= y) is that of y less half a step
(Yates 1934). For counts of one bit, 95 % intervals then miss at most .025 on either side at any share, and .028 with a single report.

u, slope, k and slope_3 are those of `ErrorCumulants`. Where a bit expects few ones, counts are skewed and a normal tail is far too light:
with 3.4 ones, P(count >= 16) is 6e-7, the shifted gamma has 1e-6, and the normal distribution 4e-12. docs/explanation/mathematics.md, equation (10.1).
Source: Pearson 1895 (type III); Hall 1992, section 2.2, for skewness as the leading correction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
from scipy.special import gammainc, gammaincc, gammainccinv, gammaincinv

from hubbub_decoder.array_types import Flags, Floats, Indices
from hubbub_decoder.inference.null_distribution import FAR_TAIL, NullDistribution
from hubbub_decoder.model.distributions import norm

_MIN_SKEWNESS, _MAX_SKEWNESS = 1e-3, 20.0  # below, a shifted gamma is normal to 1e-4 of its tail at 1e-6
_SKEWNESS_GRID = np.unique(np.geomspace(_MIN_SKEWNESS, _MAX_SKEWNESS, 200) * np.array([[-1.0], [0.0], [1.0]]))
_HALVINGS = 50
_SAME_COUNT = 1e-6  # of a step


def skewed_tail(z: Floats, skewness: Floats) -> Floats:
    """P(T >= z) of a shifted gamma distribution with mean 0, variance 1 and this skewness; below 1 % never lighter than the normal's.

    >>> skewed_tail(np.array([4.753424]), np.array([0.0])).round(9).tolist(), skewed_tail(np.array([6.83]), np.array([0.542])).round(7).tolist()
    ([1e-06], [1e-06])
    """
    g = np.clip(np.abs(skewness), _MIN_SKEWNESS, _MAX_SKEWNESS)
    shape = 4 / g**2
    right = gammaincc(shape, np.maximum(shape + np.sqrt(shape) * z, 0))
    left = gammainc(shape, np.maximum(shape - np.sqrt(shape) * z, 0))
    normal = norm.sf(z)
    skewed = np.where(np.abs(skewness) < _MIN_SKEWNESS, normal, np.where(skewness > 0, right, left))
    return np.asarray(np.maximum(skewed, np.minimum(normal, FAR_TAIL)))


def skewed_quantile(probability: float, skewness: Floats) -> Floats:
    """Value that a shifted gamma distribution of this skewness exceeds with this probability; below 1 % at least the normal's."""
    g = np.clip(np.abs(skewness), _MIN_SKEWNESS, _MAX_SKEWNESS)
    shape = 4 / g**2
    right = (gammainccinv(shape, probability) - shape) / np.sqrt(shape)
    left = (shape - gammaincinv(shape, probability)) / np.sqrt(shape)
    normal = norm.isf(probability)
    skewed = np.where(np.abs(skewness) < _MIN_SKEWNESS, normal, np.where(skewness > 0, right, left))
    return np.asarray(skewed if probability >= FAR_TAIL else np.maximum(skewed, normal))


def quantiles_at_zero(probability: float, skewness: Floats, null: NullDistribution | None) -> Floats:
    """q_Z(p) of the upper side, in the shape of the skewness; null: Z, None: T."""
    return _with_random_strings(skewed_quantile(probability, skewness), probability, null, 1)


def _with_random_strings(skewed: Floats, probability: float, null: NullDistribution | None, sign: int) -> Floats:
    """q_Z(p), given q_T(p) in `skewed`."""
    if null is None:
        return skewed
    quantile = null.quantile(probability, sign)
    return np.maximum(skewed, quantile) if probability < null.far else np.full_like(skewed, quantile)


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

    def take(self, columns: Indices | slice) -> ErrorCumulants:
        """Cumulants of some estimates."""
        return ErrorCumulants(*(getattr(self, field.name)[columns] for field in fields(self)))

    def expand(self, columns: Indices, size: int) -> ErrorCumulants:
        """Cumulants of `size` estimates of which only `columns` (M,) are known; the others are 0."""
        return ErrorCumulants(*(_expand(getattr(self, field.name), columns, size) for field in fields(self)))


def _expand(values: Floats, columns: Indices, size: int) -> Floats:
    expanded = np.zeros(size)
    expanded[columns] = values
    return expanded


@dataclass(frozen=True, eq=False)
class Sampling:
    """Cumulants of the share of one value among n clients, who are drawn from N clients with the share x of it.

        Var = x (1 - x) v        v = (1 / n - 1 / N) N / (N - 1)
        third cumulant = x (1 - x) (1 - 2 x) w        w = v (1 / n - 2 / N) N / (N - 2)

    variance, third : v and w, a number or (M,); the default is that of all N clients, whose share is x

    Source: Johnson, Kemp & Kotz 2005, section 6.3 (hypergeometric), N = infinity: section 3.2 (binomial).

    >>> drawn = Sampling.of_clients(2, 4)  # of the clients 1, 1, 0 and 0: a share of 0, 1/2 or 1 with probabilities 1/6, 2/3 and 1/6
    >>> round(drawn.variance / 4, 12), drawn.third
    (0.083333333333, 0.0)
    """

    variance: Floats | float = 0.0
    third: Floats | float = 0.0

    @classmethod
    def of_clients(cls, drawn: Floats | float, among: float = math.inf) -> Sampling:
        """Cumulants where `drawn` clients, n, are drawn from `among`, N; inf: from a population."""
        variance = (1 / drawn - 1 / among) / max(1 - 1 / among, 1 / 2)
        return cls(variance, variance * (1 / drawn - 2 / among) / max(1 - 2 / among, 1 / 3))

    def take(self, columns: Indices) -> Sampling:
        """Cumulants of some estimates."""
        return Sampling(
            *(
                cumulants[columns] if isinstance(cumulants, np.ndarray) else cumulants
                for cumulants in (self.variance, self.third)
            )
        )

    def of_honest(self, left: float) -> Sampling:
        """Cumulants where a part `left` of the clients is drawn."""
        return Sampling(self.variance / left, self.third / left**2)


@dataclass(frozen=True, eq=False)
class ErrorLaw:
    """Error of M estimates as a function of the true share.

    shares, variances : (M,) estimates, and their variances at these shares; nan where nothing is known
    cumulants         : of the noise
    null              : distribution of error / standard error of random strings; None: normal
    sampling          : of the clients whose reports are observed, from all reporters or from a population
    steps             : differences of two possible estimates, (M,), if an estimate is one count; 0 for weighted sums of many counts
    """

    shares: Floats
    variances: Floats
    cumulants: ErrorCumulants
    null: NullDistribution | None
    sampling: Sampling = Sampling()
    steps: Floats | float = 0.0

    def take(self, columns: Indices) -> ErrorLaw:
        """Law of some estimates, which have no null distribution in common."""
        return replace(
            self,
            shares=self.shares[columns],
            variances=self.variances[columns],
            cumulants=self.cumulants.take(columns),
            sampling=self.sampling.take(columns),
            steps=self.steps[columns] if isinstance(self.steps, np.ndarray) else self.steps,
        )

    def of_honest(self, shares: Floats, forged: float) -> ErrorLaw:
        """Law of other estimates of the same candidates, from all reports but a share `forged`."""
        left, of = 1 - forged, self.cumulants
        cumulants = ErrorCumulants(
            of.variances / left, of.variance_slopes / left, of.third / left**2, of.third_slopes / left**2
        )
        return replace(
            self,
            shares=shares,
            variances=self.variances / left,
            cumulants=cumulants,
            sampling=self.sampling.of_honest(left),
            steps=self.steps / left,
        )

    def std_errors(self, x: Floats) -> Floats:
        """s(x), (M,)."""
        x, at, of = np.clip(x, 0, 1), np.clip(self.shares, 0, 1), self.cumulants
        drawn = self.sampling.variance * x * (1 - x)
        moved = self.variances + (x - at) * of.variance_slopes + drawn - self.sampling.variance * at * (1 - at)
        return np.sqrt(np.maximum(moved, np.maximum(of.variances + x * np.minimum(of.variance_slopes, 0) + drawn, 0)))

    def skewness(self, x: Floats) -> Floats:
        """g(x), (M,)."""
        x, s, of = np.clip(x, 0, 1), self.std_errors(x), self.cumulants
        drawn = 3 * of.variance_slopes * self.sampling.variance + (1 - 2 * x) * self.sampling.third
        third = of.third + x * of.third_slopes + x * (1 - x) * drawn
        return np.asarray(np.divide(third, s**3, out=np.zeros_like(s), where=s > 0))

    def p_values(self) -> Floats:
        """One-sided p-values of "the share is 0", (M,); nan where nothing is known. Without noise a positive share has p-value 0."""
        noise = self.noise_p_values()
        if self.null is None:
            return noise
        return np.maximum(np.minimum(noise, self.null.far), self.null.tail(self._z_at_zero()))

    def noise_p_values(self) -> Floats:
        """P-values as `p_values`, without the null distribution of random strings: the least that a retest of a candidate can have."""
        return skewed_tail(self._z_at_zero(), self.skewness(np.zeros_like(self.shares)))

    def cuts(self, p_values: Floats, largest: Floats, retested: Flags) -> Floats:
        """Share at which an estimate would have the p-value `largest`, (M,): s(0) q_Z(largest) + half a step, at most its own share.

        p_values : (M,) of the estimates      largest : (M,) in (0, 1)      retested : (M,) as in `scales`
        """
        zero = np.zeros_like(self.shares)
        s, g = self.std_errors(zero), self.skewness(zero)
        quantiles = [float(quantiles_at_zero(p, g[j], self.null)) for j, p in enumerate(largest.tolist())]
        cuts = s * quantiles * np.maximum(self.scales(p_values, retested), 1) + self.steps / 2
        return np.minimum(cuts, self.shares)

    def scales(self, p_values: Floats, retested: Flags) -> Floats:
        """Factor of the law, (M,), with which the estimate of a retested candidate has its p-value; 1 for the others.

        p_values : (M,) of the estimates      retested : (M,) whether it comes from another test of the candidate
        """
        zero = np.zeros_like(self.shares)
        s, g, scales = self.std_errors(zero), self.skewness(zero), np.ones_like(zero)
        for j in np.flatnonzero(retested & (p_values > 0) & (p_values < 0.5) & (s > 0)):
            scales[j] = self.shares[j] / s[j] / float(quantiles_at_zero(float(p_values[j]), g[j], self.null))
        return scales

    def _z_at_zero(self) -> Floats:
        s = self.std_errors(np.zeros_like(self.shares))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where((self.shares == 0) & (s == 0), -np.inf, (self.shares - self.steps / 2) / s)

    def interval(self, level: float, p_values: Floats, retested: Flags) -> tuple[Floats, Floats]:
        """Shares x that a test of either side does not reject, (M,) and (M,): confidence intervals, not clipped.

            low = x^ - step / 2 - f Q(tail; low)        high = x^ + step / 2 + Q(tail; high), that of the lower side        tail = (1 - level) / 2

        low > 0 exactly where p < tail. f is 1 except where the p-value of a retested candidate is on the other side of that tail than
        `p_values()`. There it scales the law so that it has this p-value at share 0, and low is at least -x^.

        p_values : (M,)      retested : (M,) whether the p-value is that of another test of the same candidate than `p_values()`
        """
        tail = (1 - level) / 2
        known = np.isfinite(self.shares) & np.isfinite(self.variances)
        if not known.all():  # of a million candidates that a lasso screens, some hundred are known
            low, high = np.full((2, len(known)), np.nan)
            at = np.flatnonzero(known)
            low[at], high[at] = self.take(at).interval(level, p_values[at], retested[at])
            return low, high
        rejected, below = p_values < tail, self.shares - self.steps / 2
        upper, factors = self._quantiles(tail, 1), self._factors(p_values, retested, tail)

        def rejects_from_above(low: Floats) -> Flags:
            return np.asarray(below - low > factors * upper(low))

        lowest = np.where(rejected, 0, below - np.maximum(factors, 1) * upper.largest * self._reach())
        low = _bisect(rejects_from_above, lowest, np.where(rejected, below, np.minimum(below, 0)))
        return low, self._upper_ends(self.shares + self.steps / 2, tail)

    def detection_limits(self, largest: float, power: float, *, on_grid: bool) -> Floats:
        """Share x with which an estimate has at most the p-value `largest` with probability `power`, (M,), not clipped.

            x = c + Q(1 - power; x), that of the lower side        c = s(0) q_Z(largest) + step / 2

        Where estimates are on a grid, c is half a step below the least of them that has such a p-value: x is the upper end of the interval
        of the estimate before it. Over all grids, the mean of this c is the c above.

        on_grid : whether estimates differ from `shares` by whole steps
        """
        c = self.thresholds(largest)
        if on_grid:
            steps = np.where(self.steps > 0, self.steps, 1)
            least = self.shares + np.ceil((c - self.shares) / steps - _SAME_COUNT) * steps
            c = np.where(self.steps > 0, least - self.steps / 2, c)
        return self._upper_ends(c, 1 - power)

    def thresholds(self, largest: float) -> Floats:
        """Estimate that has the p-value `largest`, (M,): s(0) q_Z(largest) + half a step."""
        zero = np.zeros_like(self.shares)
        return np.asarray(
            self.std_errors(zero) * quantiles_at_zero(largest, self.skewness(zero), self.null) + self.steps / 2
        )

    def _upper_ends(self, above: Floats, tail: float) -> Floats:
        """Largest share x, (M,), with x - above <= Q(tail; x), that of the lower side."""
        lower = self._quantiles(tail, -1)

        def accepts(high: Floats) -> Flags:
            return np.asarray(high - above <= lower(high))

        return _bisect(accepts, above, above + lower.largest * self._reach())

    def _reach(self) -> Floats:
        """Distance, (M,), in units of a quantile, within which an end of an interval is: two of the largest standard errors."""
        return np.asarray(
            np.stack([self.std_errors(np.full_like(self.shares, x)) for x in (0, 0.5, 1)]).max(axis=0) * 2
        )

    def _quantiles(self, probability: float, sign: int) -> _Quantiles:
        """Q(p; x) of the upper (sign 1) or lower (sign -1) side."""
        zero, table = np.zeros_like(self.shares), skewed_quantile(probability, sign * _SKEWNESS_GRID)
        skewed = np.interp(self.skewness(zero), _SKEWNESS_GRID, table)
        at_zero = _with_random_strings(skewed, probability, self.null, sign)
        largest = float(max(table.max(), at_zero.max(initial=0)))
        return _Quantiles(self, table, self.std_errors(zero) * (at_zero - skewed), largest)

    def _factors(self, p_values: Floats, retested: Flags, tail: float) -> Floats:
        """f, (M,), of `interval`: between that of a normal law and one with low = -x^."""
        s, g = self.std_errors(np.zeros_like(self.shares)), self.skewness(np.zeros_like(self.shares))
        factors = np.ones_like(s)
        disputed = retested & ((p_values < tail) != (self.p_values() < tail))
        for j in np.flatnonzero(disputed & (self.shares > 0) & (s > 0)):
            quantile, threshold = (float(quantiles_at_zero(p, g[j], self.null)) for p in (min(p_values[j], 0.5), tail))
            z, threshold = self.shares[j] / s[j], max(threshold, norm.isf(tail) / 2)
            factors[j] = max(z / max(quantile, threshold / 2), norm.isf(tail) / threshold)
        return factors


@dataclass(frozen=True, eq=False)
class _Quantiles:
    """Q(p; x) of one p: table (G,) of q_T by skewness, and s(0) (q_Z - q_T), (M,)."""

    law: ErrorLaw
    table: Floats
    deviations: Floats
    largest: float

    def __call__(self, x: Floats) -> Floats:
        return self.law.std_errors(x) * np.interp(self.law.skewness(x), _SKEWNESS_GRID, self.table) + self.deviations


def _bisect(moves_up: Callable[[Floats], Flags], low: Floats, high: Floats) -> Floats:
    """Upper end, (M,), of the last interval around the point up to which `moves_up` holds, halved 50 times."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        up = moves_up(middle)
        low, high = np.where(up, middle, low), np.where(up, high, middle)
    return high
