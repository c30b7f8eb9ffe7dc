"""Epsilon of t reports of one metric, in closed form.

Conventions: b = permanent_p, a = permanent_q. With

    rho   = (p/q)**t              T1 = ln( (a + (1-a) rho) / (b + (1-b) rho) )
    sigma = ((1-q)/(1-p))**t      T0 = ln( ((1-b) + b sigma) / ((1-a) + a sigma) )

T1 is the largest log-likelihood ratio of a bit that is one for the first value and zero for the second. It is attained if
all t reports show a one. T0 is that of a bit with the reverse difference, attained if all t reports show a zero.
For p > q, which only imported reports have, ones and zeros of the reports are exchanged. Bits are independent given the value,
so the ratios add up: two values with i bits only in the first and j bits only in the second have the loss i T1 + j T0.

The bound holds for any two values that do not change during the t reports, "no value" (no bits) included. It is exact to float
rounding. t must not depend on the value.

Source: Erlingsson et al. 2014: theorem 1 is the limit t -> infinity, theorem 2 is t = 1, both for a symmetric response,
b = f/2 and a = 1 - f/2. Derivation: docs/explanation/privacy.md, equations (P.1) and (P.2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from hubbub.errors import ParameterError
from hubbub.metrics.params import Params


def epsilon(params: Params, reports: float = 1) -> float:
    """Return eps(t), the privacy loss of t reports of one unchanging value.

    - murmur3-v1 (h bits per value, or none):   max( min(h, k-h) (T1 + T0),  h max(T1, T0) )
    - google-md5 (bits may coincide):           max of i T1 + j T0 over i, j <= h, i + j <= k
    - one-hot, several categories:              T1 + T0
    - one bit (boolean, threshold-v1):          max(T1, T0)
    - joint:                                    sum of the parts' eps(t), whose bits are independent given the values

    For h <= k/2 the first is h (T1 + T0); for larger h, "no value" may be the worst neighbour.

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
    if len(params.parts) > 1:
        return math.fsum(epsilon(part, reports) for part in params.parts)
    one, zero = _bit_losses(params, reports)
    high, low = max(one, zero), min(one, zero)
    k, h = params.num_bits, params.num_hashes
    if k == 1:
        return high
    if params.hash_scheme == "one-hot":
        return high + low
    if params.hash_scheme == "google-md5":
        return _times(h, high) + _times(min(h, k - h), low)
    return max(_times(min(h, k - h), high + low), _times(h, high))


def epsilon_permanent(params: Params) -> float:
    """Return the epsilon of one permanent response, lim eps(t): an upper bound for any number of reports drawn from it.

    Infinite at f = 0, where there is no permanent response, and at permanent_p = 0 or permanent_q = 1. A metric with `hold` has a new one in each epoch, see `lifetime.py`.
    """
    return epsilon(params, math.inf)


def epsilon_of_values(params: Params, reports_of_each: Iterable[float]) -> float:
    """Return the privacy loss of a value that changes: sum eps(t_i), with t_i reports of the i-th distinct value.

    The bound holds for histories whose values change at the same times only. Memoization does not hide that a value changed, or
    when, from an observer of linked reports: docs/explanation/privacy.md.

    >>> two_coins = Params.one_hot(1, prob_p=0, prob_q=1, prob_f=0.5)
    >>> round(math.exp(epsilon_of_values(two_coins, [1, 1])), 12)
    9.0
    """
    return math.fsum(epsilon(params, reports) for reports in reports_of_each)


def _bit_losses(params: Params, reports: float) -> tuple[float, float]:
    """Return T1 and T0."""
    p, q = sorted((params.prob_p, params.prob_q))
    b, a = params.permanent_p, params.permanent_q
    log_rho, log_sigma = reports * _log(p / q), reports * _log((1 - q) / (1 - p))
    if params.prob_p > params.prob_q:
        log_rho, log_sigma = log_sigma, log_rho
    one = _log_mixture(a, log_rho) - _log_mixture(b, log_rho)
    zero = _log_mixture(1 - b, log_sigma) - _log_mixture(1 - a, log_sigma)
    return one, zero


def _log_mixture(weight: float, log_r: float) -> float:
    """Return ln(w + (1-w) r), from ln r <= 0 so that r may underflow.

    >>> round(math.exp(_log_mixture(0.75, -math.inf)), 12), _log_mixture(0, -1000.0)
    (0.75, -1000.0)
    """
    if weight == 0:
        return log_r
    if weight < 0.5:
        return _log_add(math.log(weight), math.log1p(-weight) + log_r)
    return math.log1p((1 - weight) * math.expm1(log_r))


def _log_add(x: float, y: float) -> float:
    high, low = max(x, y), min(x, y)
    return high + math.log1p(math.exp(low - high))


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def _times(count: int, loss: float) -> float:
    return count * loss if count else 0.0
