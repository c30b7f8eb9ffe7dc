"""Epsilon of t reports of one metric, in closed form.

Conventions: g = f/2. For p > q, which only imported reports have, p and q are exchanged. With

    rho = (p/q)**t        sigma = ((1-q)/(1-p))**t        T(r) = ln( ((1-g) + g r) / (g + (1-g) r) )

T(rho) is the largest log-likelihood ratio of a bit that is one for the first value and zero for the second. It is attained if
all t reports show a one. T(sigma) is that of a bit with the reverse difference, attained if all t reports show a zero. Bits are independent given the value, so
the ratios add up: two values with a bits only in the first and b bits only in the second have the loss a T(rho) + b T(sigma).

The bound holds for any two values that do not change during the t reports, "no value" (no bits) included. It is exact to float
rounding. t must not depend on the value.

Source: Erlingsson et al. 2014: theorem 1 is the limit t -> infinity, theorem 2 is t = 1. Derivation: docs/privacy.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from hubbub.errors import ParameterError
from hubbub.metrics.params import Params


def epsilon(params: Params, reports: float = 1) -> float:
    """Return eps(t), the privacy loss of t reports of one unchanging value.

    - murmur3-v1 (h bits per value, or none):   max( min(h, k-h) (T(rho) + T(sigma)),  h max(T(rho), T(sigma)) )
    - google-md5 (bits may coincide):           max of a T(rho) + b T(sigma) over a, b <= h, a + b <= k
    - one-hot, several categories:              T(rho) + T(sigma)
    - one-hot, one bit (boolean):               max(T(rho), T(sigma))

    For h <= k/2 the first is h (T(rho) + T(sigma)); for larger h, "no value" may be the worst neighbour.

    reports : t, an integer >= 1, or math.inf: all reports that are drawn from one permanent response
    returns : eps in (0, inf]

    >>> paper = Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.5, prob_q=0.75, prob_f=0.5)
    >>> round(epsilon(paper), 4), round(epsilon(paper, math.inf), 4)
    (1.0743, 4.3944)
    >>> two_coins = Params.one_hot(1, prob_p=0, prob_q=1, prob_f=0.5)
    >>> round(math.exp(epsilon(two_coins)), 12), round(math.exp(epsilon_permanent(two_coins)), 12)
    (3.0, 3.0)
    """
    if not (reports == math.inf or (reports >= 1 and float(reports).is_integer())):
        raise ParameterError(f"reports must be an integer >= 1 or math.inf, got {reports}")
    one, zero = _bit_losses(params, reports)
    high, low = max(one, zero), min(one, zero)
    k, h = params.num_bits, params.num_hashes
    if params.hash_scheme == "one-hot":
        return high if k == 1 else high + low
    if params.hash_scheme == "google-md5":
        return _times(h, high) + _times(min(h, k - h), low)
    return max(_times(min(h, k - h), high + low), _times(h, high))


def epsilon_permanent(params: Params) -> float:
    """Return the epsilon of one permanent response, lim eps(t): an upper bound for any number of reports drawn from it.

    Infinite at f = 0, where there is no permanent response. A metric with `hold` has a new one in each epoch, see `lifetime.py`.
    """
    return epsilon(params, math.inf)


def epsilon_of_values(params: Params, reports_of_each: Iterable[float]) -> float:
    """Return the privacy loss of a value that changes: sum eps(t_i), with t_i reports of the i-th distinct value.

    The bound holds for histories of values that change at the same times only. Memoization does not hide that a value changed, or
    when, from an observer of linked reports: docs/privacy.md.

    >>> two_coins = Params.one_hot(1, prob_p=0, prob_q=1, prob_f=0.5)
    >>> round(math.exp(epsilon_of_values(two_coins, [1, 1])), 12)
    9.0
    """
    return math.fsum(epsilon(params, reports) for reports in reports_of_each)


def _bit_losses(params: Params, reports: float) -> tuple[float, float]:
    """Return T(rho) and T(sigma)."""
    p, q = sorted((params.prob_p, params.prob_q))
    g = params.prob_f / 2
    return _loss(reports * _log(p / q), g), _loss(reports * _log((1 - q) / (1 - p)), g)


def _loss(log_r: float, g: float) -> float:
    """Return T(r), from ln r so that r may underflow.

    >>> round(math.exp(_loss(-math.inf, 0.25)), 12)
    3.0
    """
    if g == 0:
        return -log_r
    r = math.exp(log_r)
    return math.log1p(g * (r - 1)) - _log_add(math.log(g), math.log1p(-g) + log_r)


def _log_add(x: float, y: float) -> float:
    high, low = max(x, y), min(x, y)
    return high + math.log1p(math.exp(low - high))


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def _times(count: int, loss: float) -> float:
    return count * loss if count else 0.0
