"""Delta of n shuffled reports of one mechanism, from the privacy blanket of its reports.

The observer is told which of the other n - 1 reports come from the blanket w, and sees all other reports as they are. With

    L(y) = P_x(y) / w(y) - e**epsilon P_x'(y) / w(y)         M ~ Binomial(n, gamma)         S = L(y_1) + ... + L(y_M),  y_i from w

shuffled reports of one client with value x or x' are (epsilon, delta)-DP for

    delta = E[max(S, 0)] / (gamma n)

The expectation is an integral over the generating function of S, for any theta > 0:

    E[e**(s S)] = (1 - gamma + gamma E[e**(s L)])**n
    E[max(S, 0)] = 1 / (2 pi)  integral over u of  E[e**(s S)] / s**2,   s = theta + i u

It is computed from above. Normal noise of standard deviation c / theta is added to S, which can only increase the expectation, since
max(., 0) is convex. Then the integrand is negligible from 6 theta / c on; what is cut off is bounded and added. The sum over a
grid of u adds the expectations of max(S + j P, 0) e**(-j P theta), j != 0, for the grid's width 2 pi / P, none of which is negative.

Floats are rounded outward, so that the result is a bound and not an approximation of one:

- The relative errors g of gamma and of the chances of w (`CHANCE_ERROR`), and r of ratios (`RATIO_ERROR`): gamma is lowered by g, which keeps
  P_x >= gamma w; the expectation is multiplied by (1 + g)**n; a product of two ratios errs by 2 r, so L <= (1 + 2 r) times the L of the
  computed ratios at e**epsilon (1 - 4 r).
- A term of the integral errs by at most n times the relative error of the generating function of one report, which is at most
  512 units in the last place (1 + |s| times the largest |L|), of a number that is largest at u = 0. Integrated over u it is added to the
  result. This takes exp, log, cos and sin of the platform to be right to 4 units in the last place.

Sources: Balle, Bell, Gascon, Nissim 2019, "The privacy blanket of the shuffle model" (arXiv 1903.02837), lemma 5.3; Lewis 2001, "A simple
option formula for general jump-diffusion and other exponential Levy processes", for the integral. Equation (P.6) in
docs/explanation/privacy-proofs.md.
"""

from __future__ import annotations

import cmath
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

from hubbub.mechanisms.blanket import CHANCE_ERROR, RATIO_ERROR, Blanket, Law, Part

_SMOOTHING = 0.2
_LAST = 6.0
_TOLERANCE = 1e-4
_SMALLEST = 1e-8
_SEARCH_STEPS = 40
_MAX_EXPONENT = 600.0
_ROUNDING = 2.0**-44
"""Relative rounding error of the generating function of one report at s = 0: 512 units of 2**-53, more than its terms have operations."""
_OPERATIONS = 10_000
"""Rounding errors that do not grow with n, in units of `_ROUNDING`: of exponents up to 600, and of the sum over the grid."""
_MAX_ROUNDING = 0.1
_CURVE_POINTS = 16
_GOLDEN = (math.sqrt(5) - 1) / 2


def blanket_epsilon(blanket: Blanket, local: float, num_reports: int, delta: float) -> float:
    """Return an epsilon, at most the local one, with which n shuffled reports are (epsilon, delta)-DP, rounded up by at most 1e-4 of it.

    blanket : of a client's reports         local : epsilon of these reports, in (0, inf)
    """
    found, theta = _SMALLEST * local, None
    for pair in _pairs(blanket, num_reports):
        if theta is None or pair.log_exponential_bound(found, theta) > math.log(delta):
            found = _smallest_epsilon(pair, found, local, delta)
            theta = theta or pair.best_theta(found)
    return found


def blanket_delta(blanket: Blanket, epsilon: float, num_reports: int, delta: float = 1e-12) -> float:
    """Return an upper bound of delta at this epsilon, for the worst pair of values; it is close if it is not much below `delta`."""
    return max(pair.delta(epsilon, delta) for pair in _pairs(blanket, num_reports))


def blanket_curve(blanket: Blanket, local: float, num_reports: int, tail: float) -> list[tuple[float, float]]:
    """Return points (epsilon, upper bound of delta), from epsilon = 0 to one whose delta is at most `tail`.

    Each bound is at most that of every mechanism with the same local epsilon, (e**local - e**epsilon) / (e**local + 1).
    """
    if not blanket.weight:
        return [(0.0, _delta_of_local(0.0, local)), (local, 0.0)]
    tail = max(tail, sys.float_info.min)
    end = blanket_epsilon(blanket, local, num_reports, tail)
    pairs, points = _pairs(blanket, num_reports), []
    for epsilon in (end * i / _CURVE_POINTS for i in range(_CURVE_POINTS)):
        worst, theta = 0.0, None
        for pair in pairs:
            if theta is None or pair.log_exponential_bound(epsilon, theta) > math.log(max(worst, tail)):
                worst = max(worst, pair.delta(epsilon, tail))
                theta = theta or pair.best_theta(epsilon)
        points.append((epsilon, min(max(worst, tail), _delta_of_local(epsilon, local))))
    return [*points, (end, tail if end < local else 0.0)]


def _delta_of_local(epsilon: float, local: float) -> float:
    return math.expm1(max(0.0, local - epsilon)) / (math.exp(-epsilon) + math.exp(local - epsilon)) * (1 + RATIO_ERROR)


def _pairs(blanket: Blanket, num_reports: int) -> list[_Pair]:
    """Return all pairs of values with a lowered weight, from those that are told apart best."""
    weight = blanket.weight * (1 - CHANCE_ERROR)
    return sorted((_Pair(parts, weight, num_reports) for parts in blanket.pairs), key=_Pair.variance, reverse=True)


def _lowered_factor(epsilon: float) -> float:
    """Return e**epsilon, lowered by the errors of both ratios of L."""
    return math.exp(epsilon) * (1 - 4 * RATIO_ERROR)


def _smallest_epsilon(pair: _Pair, low: float, high: float, delta: float) -> float:
    """Return an epsilon from `low` to `high` that suffices for a pair, by interpolation of ln delta in epsilon**2 (Illinois algorithm)."""
    at_low, at_high = pair.log_excess(low, delta), -math.inf
    if at_low <= 0:
        return low
    while high > (1 + _TOLERANCE) * low:
        middle = math.sqrt(low * high)
        if math.isfinite(at_high):
            guess = math.sqrt(low**2 + at_low / (at_low - at_high) * (high**2 - low**2))
            middle = min(max(guess, low * (1 + _TOLERANCE / 2)), high * (1 - _TOLERANCE / 3))
        excess = pair.log_excess(middle, delta)
        if excess <= 0:
            high, at_high, at_low = middle, excess, at_low / 2
        else:
            low, at_low, at_high = middle, excess, at_high / 2
    return high


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two values x and x', the weight gamma of the blanket, and n."""

    parts: tuple[Part, ...]
    weight: float
    num_reports: int

    def variance(self) -> float:
        """Return the variance of the difference of both ratios: the larger, the better are the two values told apart."""
        return math.fsum(
            part.chance
            * _moment(part.common, 2)
            * (_moment(part.first, 2) + _moment(part.second, 2) - 2 * _moment(part.first, 1) * _moment(part.second, 1))
            for part in self.parts
        )

    def log_generating(self, factor: float, s: complex) -> complex:
        """Return ln E[e**(s S)] for e**epsilon = factor."""
        mean = sum(
            part.chance * share * _mean_exp(part.first, s * ratio) * _mean_exp(part.second, -factor * s * ratio)
            for part in self.parts
            for share, ratio in part.common
        )
        return self.num_reports * cmath.log(1 + self.weight * (mean - 1))

    def largest_theta(self) -> float:
        """Return the largest theta for which the terms of the generating function are floats."""
        return _MAX_EXPONENT / max(part.common[-1][1] * part.first[-1][1] for part in self.parts)

    def best_theta(self, epsilon: float) -> float:
        """Return the theta with the smallest bound of the integrand, E[e**(theta S)] / theta**2."""
        factor, high = _lowered_factor(epsilon), math.log(self.largest_theta())
        low = min(math.log(_SMALLEST), high - 1)
        return minimizer(lambda x: self.log_generating(factor, math.exp(x)).real - 2 * x, low, high)

    def log_exponential_bound(self, epsilon: float, theta: float) -> float:
        """Return the logarithm of a bound of delta: max(S, 0) <= e**(theta S) / (e theta), for this theta or a smaller one."""
        theta = min(theta, self.largest_theta())
        factor = _lowered_factor(epsilon)
        log_mean = self.log_generating(factor, theta).real + self._rounding(factor, theta)
        return log_mean + 4 * RATIO_ERROR - 1 - math.log(theta * self.weight * self.num_reports)

    def _rounding(self, factor: float, theta: float) -> float:
        """Return a bound of the relative error of E[e**(s S)] at all s of the integral: of its floats, and of the chances of w."""
        largest = max(part.common[-1][1] * (part.first[-1][1] + factor * part.second[-1][1]) for part in self.parts)
        exponent = math.hypot(1, _LAST / _SMOOTHING) * theta * largest
        return _ROUNDING * (self.num_reports * (1 + exponent) + _OPERATIONS) + CHANCE_ERROR * self.num_reports

    def log_excess(self, epsilon: float, delta: float) -> float:
        """Return the logarithm of the delta of this pair over the given one; a delta that is not known is far too large."""
        found = self.delta(epsilon, delta)
        if math.isinf(found):
            return _MAX_EXPONENT
        return math.log(found) - math.log(delta) if found > 0 else -math.inf

    def delta(self, epsilon: float, least: float) -> float:
        """Return E[max(S, 0)] / (gamma n), rounded up; what the grid adds is small against `least`. Infinite: the floats cannot tell."""
        factor = _lowered_factor(epsilon)
        if all(part.first[-1][1] <= factor * part.second[0][1] for part in self.parts):
            return 0.0
        theta = self.best_theta(epsilon)
        width = 2 * math.pi * theta / (20 - math.log(least))
        noise, last = _SMOOTHING / theta, _LAST * theta / _SMOOTHING
        scale, rounding = self.log_generating(factor, theta).real, self._rounding(factor, theta)
        if scale > _MAX_EXPONENT:
            return 1.0
        if not rounding < _MAX_ROUNDING:
            return math.inf

        def integrand(u: float) -> float:
            s = complex(theta, u)
            return (cmath.exp(self.log_generating(factor, s) - scale + (noise * s) ** 2 / 2) / s**2).real

        inner = width * (
            integrand(0) + 2 * math.fsum(integrand(j * width) for j in range(1, math.ceil(last / width) + 1))
        )
        cut_off = 2 * math.exp(_SMOOTHING**2 / 2 - _LAST**2 / 2) / last
        rounded_off = 3 * rounding * (math.pi / theta + width / theta**2)
        bound = (inner + cut_off + rounded_off) / (2 * math.pi) * math.exp(scale) / (self.weight * self.num_reports)
        return math.inf if math.isnan(bound) else bound * math.exp(2 * rounding + 4 * RATIO_ERROR)


def _mean_exp(law: Law, s: complex) -> complex:
    return sum(chance * cmath.exp(s * ratio) for chance, ratio in law)


def _moment(law: Law, power: int) -> float:
    return math.fsum(chance * ratio**power for chance, ratio in law)


def minimizer(function: Callable[[float], float], low: float, high: float) -> float:
    """Return e**x for the x near the minimum of a function with one minimum, by golden sections."""
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(_SEARCH_STEPS):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = function(right)
    return math.exp((low + high) / 2)
