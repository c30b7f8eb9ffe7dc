"""Search of bit counts for a frequent string that is not a candidate: evidence for it, its share, and its bits in each cohort.

Model of the ones c of bit i in a cohort with n reports, for the shares x_v of candidates and x_o of unlisted strings that a fit expects:

    c ~ Binomial(n, p* + (q* - p*) sum of x_v over the candidates with the bit) + Poisson(n (q* - p*) mu)
    mu ~ Gamma(mean x_o w_i, variance t w_i (1 - w_i))        t : tau**2, squared shares of the unlisted strings

Sums of few strings are skewed. Strings with sum x_o and squares t have a third cumulant of at least w t**2 / x_o, and this gamma has twice it.

A string of share s takes s off x_o and adds s to the candidates' share of its bits. With A_i the log-likelihood ratio of bit i and r_g the
probability of the set g of bits, the bits are summed over, so none is chosen:

    L(s, t) = sum_c log sum_g r_g prod_{i in g} exp A_ci        all sets of d bits: e_d(exp A_c) / C(k, d), e_d the elementary symmetric polynomial

Two strings of shares s_1, s_2 have A_i(s_1), A_i(s_2), and A_i(s_1 + s_2) where they meet: coefficients of a polynomial in two variables.

Evidence:  mean of exp(L + log p(c | 0, t)) over a grid of s and t / max over t of p(c | 0, t). Without such a string its expectation is at
           most 1 for any t, so it exceeds 1,000 with probability at most 1/1,000 (universal inference, Markov's inequality).
Estimator: the maximum of L(s, t) + log p(c | 0, t). Nothing is selected, so nothing is biased by selection.
Variance:  inverse of the observed information

A fit absorbs a part of the reports, so its residuals vary less than the model expects: the evidence is smaller than exact.
docs/mathematics.md, section 16. Source: Wasserman, Ramdas & Balakrishnan 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from hubbub.metrics.params import Params
from hubbub.summary import BitCounts
from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.model.bit_covariance import bit_variance
from hubbub_decoder.model.random_string import RandomStringMoments, distinct_bit_probabilities
from hubbub_decoder.model.repetition import ONCE, Repetition

MIN_LOG_EVIDENCE = math.log(1000)
"""Log of the evidence above which a string, or a second one, is added."""

_MIN_RATIO, _EDGE = 1e-7, 1e-9  # where a gamma distribution is a constant, and distance from the poles of K
_MIN_SHAPE = 2.0  # of the gamma distribution; smaller ones are too irregular for a saddlepoint
_MIN_LOAD = 1e-2  # least mean of the unlisted strings in a bit, relative to that of their share
_MIN_PROBABILITY = 1e-12
_FIRST_SHARE = 0.4  # of the grid of shares, in standard deviations of a bit share
_SHARE_RATIO = 1.4  # of two shares of the grid
_SYMMETRIC = (0.0, 0.1)  # values of Others.symmetric
_VARIANCE_STEPS = (0.0, 1.0)  # squared shares by which t is below its maximum without the string
_LEAST_DEVIATIONS = 1e-2  # the smallest tau above 0, in standard deviations of a bit share
_TOLERANCE = 1e-3  # of the logarithm of t or of a sum of shares
_REACHES = (0.4, 0.1, 0.03)  # of the search for a maximum, in logarithms of the sum of shares and of t
_MIN_RIGHT = 0.75  # a wrong cohort doubles the variance instead of removing it
_MAX_WRONG = 0.25  # number of cohorts with wrong bits, in roots of the number of cohorts

Ratios = dict[tuple[int, ...], Floats]
"""Log-likelihood ratios (k, c) of bits, by the strings that set them: a tuple with 0 or 1 for each string."""


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
    def from_counts(cls, counts: BitCounts, listed: Floats, unlisted: float) -> ResidualBits:
        """Counts and shares (m, k) of all cohorts; p > q : zeros take the place of ones.

        Where the noise of the same clients repeats in several periods, the counts of each bit are divided by the factor of its variance.
        With an asymmetric permanent response it is larger where candidates set the bit.
        """
        used, params = counts.reports > 0, counts.metric.params
        mean = np.clip(listed[used] + unlisted * RandomStringMoments.from_params(params).mean, 0, 1)
        repetition = Repetition.from_periods(counts.metric, counts.periods)
        once, repeated = (np.maximum(bit_variance(mean, params, each), _MIN_PROBABILITY) for each in (ONCE, repetition))
        factor = repeated / once
        ones, reports = counts.ones[used] / factor, counts.reports[used, None] / factor
        if params.q_star < params.p_star:
            ones = reports - ones
        return cls(params, ones, reports, listed[used], unlisted)

    @cached_property
    def _noise(self) -> tuple[float, float]:
        """Probability of a one where the true bit is 0, and the contrast, after zeros took the place of ones for p > q."""
        p, q = self.params.p_star, self.params.q_star
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
        load = np.clip(
            true_ones + p / contrast, _MIN_LOAD * rest, rest
        )  # so that the other ones have a probability above 0
        pi = np.clip(p + contrast * (true_ones - load + set_by), _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
        moved = others.symmetric * pi
        expected = n * (contrast * load + moved)
        variance = np.maximum((n * contrast) ** 2 * t * self._mean * (1 - self._mean) - n * moved**2, 0)
        return log_noise_and_gamma(self.ones, n, pi - moved, expected, variance / expected)

    def log_likelihood(self, shares: Sequence[float] | Floats, others: Others) -> float:
        """Log-likelihood of strings with these shares, summed over their bits, and of all other unlisted strings."""
        unset, ratios = self.ratios(shares, others)
        return float(unset.sum() + (_sum_over_sets(ratios, self.params).sum() if len(shares) else 0.0))

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
        for symmetric in _SYMMETRIC:
            log, value = _golden_section(
                partial(log_likelihood, symmetric), 2 * math.log(_LEAST_DEVIATIONS * self.deviation), 0.0
            )
            found.append((value, Others(math.exp(log), symmetric)))
        found.append((self.log_likelihood(shares, Others(0.0, 0.0)), Others(0.0, 0.0)))
        largest, others = max(found)
        return others, largest


@dataclass(frozen=True, eq=False)
class FoundStrings:
    """One string, or two, found in residuals; arrays are of the c cohorts with reports.

    shares        : (J,) largest first
    positions     : (J, c, h) most probable bits, k where there are fewer
    probabilities : (c,) of these bits      unlabelled : (c,) that all strings together set these bits
    log_evidence  : for the last string
    """

    residuals: ResidualBits
    shares: Floats
    positions: Indices
    probabilities: Floats
    unlabelled: Floats
    log_evidence: float

    def std_error(self) -> float:
        """Standard error of the sum of the shares, all in proportion; tau**2 as the likelihood wants it at each sum."""

        def log_likelihood(factor: float) -> float:
            return self.residuals.best_others(factor * self.shares)[1]

        middle, step = log_likelihood(1.0), 0.05
        for _ in range(3):
            curvature = (log_likelihood(1 + step) + log_likelihood(1 - step) - 2 * middle) / step**2
            if curvature >= 0:
                return math.inf
            step = min(0.5, 1 / math.sqrt(-curvature))
        return float(self.shares.sum()) * step

    @property
    def located(self) -> bool:
        """Whether the bits of each string are known: few enough are expected to be wrong that the bias of its share is below s.e. / 8."""
        return _few_wrong(self.probabilities)

    @property
    def mostly_located(self) -> bool:
        """Whether so many of these bits are right that subtracting them halves the variance that the strings cause: 3 of 4 cohorts."""
        return float(np.mean(self.unlabelled)) > _MIN_RIGHT

    @property
    def located_together(self) -> bool:
        """Whether the bits of the strings are known, if not which string has which."""
        return _few_wrong(self.unlabelled)


Point = tuple[tuple[float, ...], Others]
"""Shares of strings, and the law of all others."""


def find_strings(residuals: ResidualBits, largest: float) -> FoundStrings | None:
    """Find the most frequent string that the expected shares do not hold; two, if one is not enough to explain the bits of each cohort.

    largest : upper limit of its share
    returns : None if the evidence is below 1,000
    """
    others, without = residuals.best_others()
    points = list(_grid_points([(share,) for share in _share_grid(residuals, largest)], others))
    one = _find(residuals, points, without)
    if one is None or one.located:
        return one
    share = float(one.shares[0])
    others, without = residuals.best_others(one.shares)
    first = [share * step for step in np.geomspace(0.6, 1.2, 6)]
    pairs = list(_grid_points([(each, each * part) for each in first for part in (1.0, 0.6)], others))
    return _find(residuals, pairs, without) or one


def _share_grid(residuals: ResidualBits, largest: float) -> Floats:
    first = min(_FIRST_SHARE * residuals.deviation, largest / 2)
    return np.asarray(first * _SHARE_RATIO ** np.arange(1 + math.floor(math.log(largest / first, _SHARE_RATIO))))


def _grid_points(grid: Sequence[tuple[float, ...]], others: Others) -> Iterator[Point]:
    """Yield the points of the grid of shares and laws of the others: what a string explains is taken off t."""
    for shares in grid:
        for step in _VARIANCE_STEPS:
            for symmetric in _SYMMETRIC:
                yield shares, Others(max(others.variance - step * shares[-1] ** 2, 0.0), symmetric)


def _find(residuals: ResidualBits, points: Sequence[Point], without: float) -> FoundStrings | None:
    """Strings at the largest likelihood, if the evidence for the last of them is 1,000.

    without : the largest log-likelihood without the last string
    """
    values = [residuals.log_likelihood(*point) for point in points]
    evidence = float(logsumexp(values)) - math.log(len(values)) - without
    if evidence < MIN_LOG_EVIDENCE:
        return None
    return _locate(residuals, *_maximum(residuals, points[int(np.argmax(values))]), evidence)


def _maximum(residuals: ResidualBits, start: Point) -> Point:
    """Shares, largest first, and t with the largest likelihood near a point, one parameter after the other."""
    shares, others = start
    least = (_LEAST_DEVIATIONS * residuals.deviation) ** 2
    parameters = [math.log(sum(shares)), math.log(max(others.variance, least)), shares[-1] / sum(shares)]

    def point(changed: int = 0, value: float | None = None) -> Point:
        log_sum, log_variance, last = (
            parameters if value is None else [*parameters[:changed], value, *parameters[changed + 1 :]]
        )
        total = math.exp(min(log_sum, 0.0))
        parts = (1.0,) if len(shares) == 1 else (1 - last, last)
        return tuple(total * part for part in parts), Others(math.exp(log_variance), others.symmetric)

    def log_likelihood(changed: int, value: float) -> float:
        return residuals.log_likelihood(*point(changed, value))

    for reach in _REACHES:
        for i in range(1 + len(shares)):
            low, high = (parameters[i] - reach, parameters[i] + reach) if i < 2 else (0.05, 0.5)
            parameters[i], _ = _golden_section(partial(log_likelihood, i), low, high)
    return point()


def _golden_section(function: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Place, to .001, and value of the maximum of a function with one maximum between two limits.

    >>> place, value = _golden_section(lambda x: -((x - 2) ** 2), 0, 5)
    >>> round(place, 3), round(value, 3)
    (2.0, -0.0)
    """
    step = (math.sqrt(5) - 1) / 2
    left, right = high - step * (high - low), low + step * (high - low)
    of_left, of_right = function(left), function(right)
    while high - low > _TOLERANCE:
        if of_left > of_right:
            high, right, of_right = right, left, of_left
            left = high - step * (high - low)
            of_left = function(left)
        else:
            low, left, of_left = left, right, of_right
            right = low + step * (high - low)
            of_right = function(right)
    return (left, of_left) if of_left > of_right else (right, of_right)


def _locate(residuals: ResidualBits, shares: tuple[float, ...], others: Others, evidence: float) -> FoundStrings:
    """Most probable bits of strings with these shares in each cohort."""
    params = residuals.params
    _, ratios = residuals.ratios(shares, others)
    total = _sum_over_sets(ratios, params)
    largest, chosen = _most_probable_sets(ratios, params)
    strings = chosen.sum(axis=2).T
    same_bits = {those: np.where(strings == sum(those), ratio, -np.inf) for those, ratio in ratios.items()}
    return FoundStrings(
        residuals,
        np.array(shares),
        _to_positions(chosen, params),
        np.exp(largest - total),
        np.minimum(np.exp(_sum_over_sets(same_bits, params) - total), 1.0),
        evidence,
    )


def _to_positions(chosen: Indices, params: Params) -> Indices:
    """Positions (J, c, h) of the bits that strings set (c, k, J), k where there are fewer than h."""
    k, h = params.num_bits, params.num_hashes
    order = np.argsort(1 - chosen, axis=1, kind="stable")[:, :h]  # set bits come first
    number = chosen.sum(axis=1)[:, None]
    return np.asarray(np.where(np.arange(h)[None, :, None] < number, order, k).transpose(2, 0, 1))


def _few_wrong(probabilities: Floats) -> bool:
    return bool(np.sum(1 - probabilities) <= _MAX_WRONG * math.sqrt(len(probabilities)))


def _size_weights(params: Params) -> Floats:
    """Log of P(d distinct bits) / C(k, d), d = 0 .. h."""
    chances = [0.0, *distinct_bit_probabilities(params)]
    return np.array([math.log(p / math.comb(params.num_bits, d)) if p else -math.inf for d, p in enumerate(chances)])


def _final_weights(params: Params, strings: int) -> Floats:
    """Log weights of the numbers of bits of all strings, (h + 1,) * J + (1,)."""
    weights = _size_weights(params)
    total = np.zeros((1,))
    for _ in range(strings):
        total = np.add.outer(total, weights)
    return total.reshape(*total.shape[1:], 1)


def _shifted(those: tuple[int, ...], size: int) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Numbers of bits before and after these strings set one more."""
    return tuple(slice(0, size - one) for one in those), tuple(slice(one, size) for one in those)


def _sum_over_sets(ratios: Ratios, params: Params) -> Floats:
    """Log of the mean over the random bits of all strings of the product of the bits' likelihood ratios, (c,).

    Sums by the strings' numbers of bits, of half of the bits and of the other half, are joined until one group is left.
    """
    most = params.num_hashes
    sums: Ratios = dict(ratios)
    while (groups := len(next(iter(sums.values())))) > 1:
        if groups % 2:  # a bit that no string sets
            sums = {
                n: np.vstack([each, np.full((1, each.shape[1]), -np.inf if any(n) else 0.0)])
                for n, each in sums.items()
            }
        joined: Ratios = {}
        for (n, left), (o, right) in product(sums.items(), repeat=2):
            number = tuple(a + b for a, b in zip(n, o, strict=True))
            if max(number) <= most:
                term = left[::2] + right[1::2]
                joined[number] = np.logaddexp(joined[number], term) if number in joined else term
        sums = joined
    weights = _final_weights(params, len(next(iter(sums))))
    return np.asarray(logsumexp([weights[number] + each[0] for number, each in sums.items()], axis=0))


def _most_probable_sets(ratios: Ratios, params: Params) -> tuple[Floats, Indices]:
    """Log weight of the most probable bits of all strings, (c,), and which string sets which bit there, (c, k, J) of 0 and 1."""
    strings, size = len(next(iter(ratios))), params.num_hashes + 1
    k, cohorts = next(iter(ratios.values())).shape
    options = list(ratios)
    state = np.full((size,) * strings + (cohorts,), -np.inf)
    state[(0,) * strings] = 0
    choices = np.zeros((k, *state.shape), np.int8)
    for bit in range(k):
        after = np.full_like(state, -np.inf)
        for number, those in enumerate(options):
            source, target = _shifted(those, size)
            value = state[source] + ratios[those][bit]
            better = value > after[target]
            after[target] = np.where(better, value, after[target])
            choices[bit][target] = np.where(better, number, choices[bit][target])
        state = after
    weighted = (state + _final_weights(params, strings)).reshape(-1, cohorts)
    best = weighted.argmax(axis=0)
    at = np.stack(np.unravel_index(best, state.shape[:-1]), axis=1)
    chosen = np.zeros((cohorts, k, strings), np.intp)
    every = np.arange(cohorts)
    for bit in reversed(range(k)):
        chosen[:, bit] = np.array(options)[choices[(bit, *at.T, every)]]
        at = at - chosen[:, bit]
    return weighted[best, every], chosen


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
    y = np.where(linear > 0, -2 * constant / (linear + root), (root - linear) / (2 * square))
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
