"""Likelihood of bit counts beside the shares that a fit expects: of strings that are looked for, and of all other unlisted strings.

Model of the ones c of bit i in a cohort with n reports, for the shares x_v of candidates and x_o of unlisted strings that a fit expects:

    c ~ Binomial(n, p* + (q* - p*) sum of x_v over the candidates with the bit) + Poisson(n (q* - p*) mu)
    mu ~ Gamma(mean x_o w_i, variance t w_i (1 - w_i))        t : tau**2, squared shares of the unlisted strings

Sums of few strings are skewed. Strings with sum x_o and squares t have a third cumulant of at least w t**2 / x_o, and this gamma has twice it.

A string of share s takes s off x_o and adds s to the candidates' share of its bits, which are summed over (`bit_sets.py`):

    L(s, t) = sum_c log sum_g r_g prod_{i in g} exp A_ci        A_ci : log-likelihood ratio of bit i in cohort c

docs/explanation/mathematics.md, equation (16.1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import NamedTuple

import numpy as np

from hubbub.metrics.params import Params
from hubbub_decoder.array_types import Floats
from hubbub_decoder.inference.bit_sets import Ratios, sum_over_sets
from hubbub_decoder.model.bit_covariance import bit_variance
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.model.random_string import RandomStringMoments
from hubbub_decoder.model.repetition import ONCE

SYMMETRIC = (0.0, 0.1)
"""Values of Others.symmetric."""

LEAST_DEVIATIONS = 1e-2
"""The smallest tau above 0, in standard deviations of a bit share."""

_MIN_RATIO, _EDGE = 1e-7, 1e-9  # where a gamma distribution is a constant, and distance from the poles of K
_MIN_SHAPE = 2.0  # of the gamma distribution; smaller ones are too irregular for a saddlepoint
_MIN_LOAD = 1e-2  # least mean of the unlisted strings in a bit, relative to that of their share
_MIN_PROBABILITY = 1e-12
_TOLERANCE = 1e-3  # of the logarithm of t or of a sum of shares


class Others(NamedTuple):
    """Law of the strings that are neither listed nor looked for.

    variance  : t
    symmetric : part of the noise that is counted to the gamma distributed mean, which makes it less skewed: errors of a fit are not skewed
    """

    variance: float
    symmetric: float


@dataclass(frozen=True, eq=False)
class ResidualBits:
    """Bit counts of the cohorts with reports, and the shares that a fit expects.

    ones (c, k)      reports (c, k): n of each bit, fewer where the noise of the same clients repeats
    listed   : (c, k) share of the reports whose candidate sets the bit
    unlisted : share of the unlisted strings
    """

    params: Params
    ones: Floats
    reports: Floats
    listed: Floats
    unlisted: float

    @classmethod
    def from_evidence(cls, evidence: Evidence, listed: Floats, unlisted: float) -> ResidualBits:
        """Counts and shares (m, k) of all cohorts; p > q : zeros take the place of ones.

        Where the noise of the same clients repeats in several periods, the counts of each bit are divided by the factor of its variance.
        With an asymmetric permanent response it is larger where candidates set the bit.
        """
        counts, used, params = evidence.counts, evidence.used, evidence.params
        mean = np.clip(listed[used] + unlisted * evidence.random_string.mean, 0, 1)
        both = ONCE, evidence.repetition
        once, repeated = (np.maximum(bit_variance(mean, params, repetition), _MIN_PROBABILITY) for repetition in both)
        factor = repeated / once
        ones, reports = counts.ones[used] / factor, counts.reports[used, None] / factor
        if params.mechanism.q_star < params.mechanism.p_star:
            ones = reports - ones
        return cls(params, ones, reports, listed[used], unlisted)

    @cached_property
    def _noise(self) -> tuple[float, float]:
        """Probability of a one where the true bit is 0, and the contrast, after zeros took the place of ones for p > q."""
        p, q = self.params.mechanism.p_star, self.params.mechanism.q_star
        return (p, q - p) if q > p else (1 - p, p - q)

    @cached_property
    def _mean(self) -> Floats:
        """Mean w (k,) of the bits of a random string."""
        return RandomStringMoments.from_params(self.params).mean

    @cached_property
    def deviation(self) -> float:
        """Median standard deviation of a bit share by noise alone."""
        p, contrast = self._noise
        pi = np.clip(p + contrast * (self.listed + self.unlisted * self._mean), _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
        return float(np.sqrt(np.median(pi * (1 - pi) / self.reports))) / contrast

    def variance_ratio(self, unlisted_variance: float) -> float:
        """Mean square of the residuals / variance of a bit share by noise and by unlisted strings of this tau**2."""
        p, contrast = self._noise
        true_ones = self.listed + self.unlisted * self._mean
        pi = np.clip(p + contrast * true_ones, _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
        residuals = (self.ones / self.reports - p) / contrast - true_ones
        variance = pi * (1 - pi) / (self.reports * contrast**2)
        return float(np.mean(residuals**2 / (variance + unlisted_variance * self._mean * (1 - self._mean))))

    def log_probability(self, looked_for: float, set_by: float, others: Others) -> Floats:
        """Log probability (c, k) of each bit's ones.

        looked_for : total share of the strings that are looked for and belong to `unlisted`
        set_by     : total share of those of them that set the bit
        """
        p, contrast = self._noise
        n, t = self.reports, others.variance
        rest = max(self.unlisted - looked_for, _MIN_PROBABILITY) * self._mean
        rest = np.maximum(rest, np.sqrt(_MIN_SHAPE * t * self._mean * (1 - self._mean)))
        true_ones = self.listed + (self.unlisted - looked_for) * self._mean
        # so that the other ones have a probability above 0
        load = np.clip(true_ones + p / contrast, _MIN_LOAD * rest, rest)
        pi = np.clip(p + contrast * (true_ones - load + set_by), _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
        moved = others.symmetric * pi
        expected = n * (contrast * load + moved)
        variance = np.maximum((n * contrast) ** 2 * t * self._mean * (1 - self._mean) - n * moved**2, 0)
        return log_noise_and_gamma(self.ones, n, pi - moved, expected, variance / expected)

    def log_likelihood(self, shares: Sequence[float] | Floats, others: Others) -> float:
        """Log-likelihood of strings with these shares, summed over their bits, and of all other unlisted strings."""
        unset, ratios = self.ratios(shares, others)
        return float(unset.sum() + (sum_over_sets(ratios, self.params).sum() if len(shares) else 0.0))

    def ratios(self, shares: Sequence[float] | Floats, others: Others) -> tuple[Floats, Ratios]:
        """Log probability (c, k) of bits that no string sets, and log-likelihood ratios to it."""
        total = float(sum(shares))
        unset = self.log_probability(total, 0.0, others)
        return unset, {
            those: (
                self.log_probability(total, float(np.dot(those, shares)), others) - unset if any(those) else 0 * unset
            ).T
            for those in product((0, 1), repeat=len(shares))
        }

    def best_others(self, shares: Sequence[float] | Floats = ()) -> tuple[Others, float]:
        """The law of all other strings with the largest log-likelihood given these shares, and that log-likelihood."""

        def log_likelihood(symmetric: float, log_variance: float) -> float:
            return self.log_likelihood(shares, Others(math.exp(log_variance), symmetric))

        found = []
        for symmetric in SYMMETRIC:
            log, value = maximum(
                partial(log_likelihood, symmetric), 2 * math.log(LEAST_DEVIATIONS * self.deviation), 0.0
            )
            found.append((value, Others(math.exp(log), symmetric)))
        found.append((self.log_likelihood(shares, Others(0.0, 0.0)), Others(0.0, 0.0)))
        largest, others = max(found)
        return others, largest


def maximum(function: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Place, to .001, and value of the maximum of a smooth function with one maximum between two limits.

    Brent's method: parabolas through three points, and golden sections where these do not converge.

    >>> place, value = maximum(lambda x: -((x - 2) ** 2), 0, 5)
    >>> round(place, 3), abs(round(value, 3))
    (2.0, 0.0)
    """
    from scipy.optimize import minimize_scalar  # takes 0.15 s to import, and most decodings have no such search

    found = minimize_scalar(lambda x: -function(x), bounds=(low, high), method="bounded", options={"xatol": _TOLERANCE})
    return float(found.x), -float(found.fun)


def log_noise_and_gamma(ones: Floats, reports: Floats, pi: Floats, expected: Floats, ratio: Floats) -> Floats:
    """Log probability of the sum of Binomial(reports, pi) and a Poisson count whose mean is gamma distributed.

    expected : mean of the Poisson count      ratio : variance of its mean / expected

    Saddlepoint approximation with the second-order term; exact for no ones. With z = e**theta - 1 and y = z / (1 + pi z):

        K = -reports log(1 - pi y) - expected / ratio log(1 - ratio y)        K'(theta) = ones is a quadratic equation in y

    (Of the Poisson count, the part of reports that are ones already is left out: z / (1 + pi z) in place of z.)
    Source: Daniels 1954.
    """
    b = np.maximum(ratio, _MIN_RATIO)
    rho, noise = 1 - pi, reports * pi
    square, constant = -rho * (noise * b + expected * pi), noise + expected - ones
    linear = rho * (noise + expected) - (noise * b + expected * pi) + ones * b
    root = np.sqrt(np.maximum(linear**2 - 4 * square * constant, 0))
    rising = linear > 0  # of both forms of the root, the one without cancellation
    y = np.where(rising, -2 * constant, root - linear) / np.where(rising, linear + root, 2 * square)
    y = np.clip(y, (_EDGE - 1) / rho, (1 - _EDGE) / np.maximum(b, pi))
    tilted, product_, slope, bend = (
        pi * (1 + rho * y),
        (1 + rho * y) * (1 - pi * y),
        rho - pi - 2 * rho * pi * y,
        -2 * rho * pi,
    )
    shape = expected / b
    g = b * product_ / (1 - b * y)
    g2 = g * slope + g**2
    g3 = g2 * slope + g * product_ * bend + 2 * g * g2
    g4 = g3 * slope + 2 * g2 * product_ * bend + g * product_ * slope * bend + 2 * g2**2 + 2 * g * g3
    spread = tilted * (1 - tilted)
    k2 = np.maximum(reports * spread + shape * g2, _MIN_PROBABILITY)
    k3 = reports * spread * (1 - 2 * tilted) + shape * g3
    k4 = reports * spread * (1 - 6 * spread) + shape * g4
    second = k4 / (8 * k2**2) - 5 * k3**2 / (24 * k2**3)
    theta = np.log1p(rho * y) - np.log1p(-pi * y)
    k = -reports * np.log1p(-pi * y) - shape * np.log1p(-b * y)
    density = k - theta * ones - np.log(2 * np.pi * k2) / 2 + np.sign(second) * np.log1p(np.abs(second))
    none = reports * np.log1p(-pi) - shape * np.log1p(b / rho)
    return np.where(ones > 0, density, none)
