"""The maximum of a function of one number between two limits, by Brent's method."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

_TOLERANCE = 1e-3  # of the place
_GOLDEN = (3 - math.sqrt(5)) / 2
_RELATIVE_TOLERANCE = math.sqrt(sys.float_info.epsilon)


def maximum(function: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Return the place, to .001, and the value of the maximum of a smooth function with one maximum between two limits.

    Each step goes to the top of the parabola through the three highest points, if it is between the limits and at most half as long as
    the step before the last one. Otherwise it divides the longer side of the highest point by the golden section.

    `scipy.optimize.minimize_scalar` does the same but takes 0.15 s to import, a tenth of a decoding of few candidates.

    >>> place, value = maximum(lambda x: -((x - 2) ** 2), 0, 5)
    >>> round(place, 3), abs(round(value, 3))
    (2.0, 0.0)

    Source: Brent 1973, Algorithms for minimization without derivatives, chapter 5 (`localmin`).
    """
    best = second = third = low + _GOLDEN * (high - low)
    at_best = at_second = at_third = function(best)
    step = last_step = 0.0
    while True:
        middle = (low + high) / 2
        least_step = _RELATIVE_TOLERANCE * abs(best) + _TOLERANCE / 3
        if abs(best - middle) <= 2 * least_step - (high - low) / 2:
            return best, at_best
        numerator, denominator = _top_of_parabola(best - second, best - third, at_second - at_best, at_third - at_best)
        may_be_parabolic = abs(last_step) > least_step and abs(numerator) < abs(denominator * last_step / 2)
        last_step = step
        if may_be_parabolic and low < best + numerator / denominator < high:
            step = numerator / denominator
            if min(best + step - low, high - best - step) < 2 * least_step:
                step = math.copysign(least_step, middle - best)
        else:
            last_step = (low if best >= middle else high) - best
            step = _GOLDEN * last_step
        place = best + math.copysign(max(abs(step), least_step), step)
        value = function(place)
        if value >= at_best:
            low, high = (best, high) if place >= best else (low, best)
            best, second, third = place, best, second
            at_best, at_second, at_third = value, at_best, at_second
        else:
            low, high = (place, high) if place < best else (low, place)
            if value >= at_second or second == best:
                second, third = place, second
                at_second, at_third = value, at_second
            elif value >= at_third or third in (best, second):
                third, at_third = place, value


def _top_of_parabola(
    from_second: float, from_third: float, fall_to_second: float, fall_to_third: float
) -> tuple[float, float]:
    """Return the step to the top of the parabola through three points, as a numerator and a denominator that is not negative."""
    r, q = from_second * fall_to_third, from_third * fall_to_second
    numerator, denominator = from_third * q - from_second * r, 2 * (q - r)
    return (-numerator, denominator) if denominator > 0 else (numerator, -denominator)
