"""Privacy amplification by shuffling: epsilon of n shuffled reports of any eps0-DP mechanism.

Source: Feldman, McMillan, Talwar 2021, "Hiding among the clones" (arXiv 2012.12803), theorem 3.2. Let R0 and R1 be the
distributions of an eps0-DP report of two values, and a = e**eps0 / (1 + e**eps0). There are distributions Q0, Q1 with

    R0 = a Q0 + (1-a) Q1        R1 = (1-a) Q0 + a Q1        so Q0 + Q1 = R0 + R1

The report of any other client has a density of at least e**-eps0 max(R0, R1) >= e**-eps0 (Q0 + Q1) / 2. So with probability
e**-eps0 it is a "clone", drawn from Q0 or Q1 by a fair coin. Two numbers suffice to simulate the shuffled reports:

    C ~ Binomial(n - 1, e**-eps0)      number of clones
    A ~ Binomial(C, 1/2)               clones from Q0, plus this client's own draw from Q0 or Q1

Both theorems are rounded up. A binomial probability comes from lgamma and errs relatively by at most 1e-8 for n up to 200,000, if lgamma and log
are right to 8 units in the last place. All other errors are smaller, because no term is the difference of two rounded numbers.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache

from hubbub.number_checks import check_integer, check_number

_MAX_REPORTS = 200_000
_MAX_EPSILON = 700.0
"""Beyond it, exp(-epsilon) is no float."""
_STEP_LEVELS = (*(10.0**-digits for digits in range(16, 0, -1)), 0.25, 0.5, 0.75, 1.0)
_STANDARD_DEVIATIONS = 12
_BINOMIAL_ROUNDING = 1e-8
"""Largest relative error of a binomial probability."""
_ROUNDING = 1e-10
"""More than the relative error of any other number here."""
_BISECTION_STEPS = 14


@lru_cache(maxsize=1024)
def shuffle_amplification(epsilon: float, num_reports: int, delta: float) -> float:
    """Return the epsilon of (epsilon, delta)-DP of n shuffled reports that are eps0-DP each.

    Parameters
    ----------
    epsilon
        eps0, in [0, inf].
    num_reports
        n, an integer >= 1.
    delta
        Probability that the bound fails, in (0, 1).

    Returns
    -------
    float
        Epsilon, at most eps0.

    Raises
    ------
    ParameterError
        An argument is out of range.

    Notes
    -----
    It is the smaller of theorem 3.1 (`closed_form_epsilon`) and the smallest epsilon with `amplified_delta` <= delta
    (theorem 3.2).

    References
    ----------
    Feldman, McMillan, Talwar 2021, "Hiding among the clones" (arXiv 2012.12803), theorems 3.1 and 3.2.
    """
    check_number("epsilon", epsilon, "[0, inf]", hint="pass the epsilon of one report")
    check_crowd(num_reports, delta)
    low, high = 0.0, closed_form_epsilon(epsilon, num_reports, delta)
    if high > _MAX_EPSILON or math.exp(-epsilon) == 1.0:
        return high
    for _ in range(_BISECTION_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if amplified_delta(middle, epsilon, num_reports) <= delta else (middle, high)
    return high


def closed_form_epsilon(epsilon: float, num_reports: int, delta: float) -> float:
    """Return the epsilon of theorem 3.1, or eps0 where the theorem does not apply.

        ln(1 + (e**eps0 - 1) / (e**eps0 + 1) (8 sqrt(e**eps0 ln(4 / delta) / n) + 8 e**eps0 / n)),   if eps0 <= ln(n / (16 ln(2 / delta)))

    Theorem 3.2 of the same authors' "Stronger privacy amplification by shuffling" (arXiv 2208.04591) is smaller by a factor of up to sqrt(2), but
    its erratum restricts it to some mechanisms.
    """
    log_delta = math.log(delta)  # 4 / delta can be larger than every float
    if epsilon > math.log(num_reports / (16 * (math.log(2) - log_delta))) - _ROUNDING:
        return epsilon
    share = math.exp(epsilon) / num_reports
    clones = 8 * math.sqrt(share * (math.log(4) - log_delta)) + 8 * share
    return min(epsilon, math.log1p(math.tanh(epsilon / 2) * clones) * (1 + _ROUNDING))


def amplified_delta(epsilon: float, local: float, num_reports: int) -> float:
    """Return an upper bound of delta of n shuffled reports that are eps0-DP each, at epsilon < eps0 (theorem 3.2).

        delta = sum over c of P(C = c) H(c),   H(c) = sup over sets of  P_c - e**epsilon Q_c

    H decreases with c, so the sum is taken in steps, each at its smallest c. Delta decreases with n, so n is at most 200,000 here.
    """
    if epsilon >= local:
        return 0.0
    total = math.fsum(
        chance * _hockey_stick(c, epsilon, local) for c, chance in _clone_steps(local, min(num_reports, _MAX_REPORTS))
    )
    return total * (1 + 3 * _BINOMIAL_ROUNDING)


def _hockey_stick(clones: int, epsilon: float, local: float) -> float:
    """Return H(c), the hockey-stick divergence of the number of draws from Q0, but for the error of one binomial probability.

    The number is Bernoulli(a) + Binomial(c, 1/2) for one value, Bernoulli(1 - a) + Binomial(c, 1/2) for the other. The likelihood
    ratio increases with the number j, so the worst set is j >= t. With B ~ Binomial(c, 1/2)

        H = P(B = t - 1) (a - e**epsilon (1 - a)) - P(B >= t) (e**epsilon - 1)
    """
    one_less = -math.expm1(epsilon - local) / (1 + math.exp(-local))
    odds = math.exp(epsilon) * math.expm1(-epsilon - local) / math.expm1(epsilon - local)
    t = min(clones, math.floor(odds * (clones + 1) / (1 + odds))) + 1
    before, tail = _fair_binomial_tail(clones, t)
    return before * max(0.0, (one_less + _ROUNDING) - tail * math.expm1(epsilon) * (1 - _ROUNDING))


def _fair_binomial_tail(n: int, t: int) -> tuple[float, float]:
    """Return P(Binomial(n, 1/2) = t - 1), and P(... >= t) divided by it, for t > n/2."""
    before = math.exp(math.lgamma(n + 1) - math.lgamma(t) - math.lgamma(n - t + 2) - n * math.log(2))
    tail, term = 0.0, 1.0
    for j in range(t, n + 1):
        term *= (n - j + 1) / j
        tail += term
        if term < 1e-12 * tail:  # a truncated tail makes H larger, never smaller
            break
    return before, tail


@lru_cache(maxsize=64)
def _clone_steps(local: float, num_reports: int) -> tuple[tuple[int, float], ...]:
    """Return steps of the number of clones: (smallest number, probability) of each."""
    n, chance = num_reports - 1, math.exp(-local)
    half_width = _STANDARD_DEVIATIONS * math.sqrt(n * chance * (1 - chance)) + _STANDARD_DEVIATIONS
    first, last = max(0, math.floor(n * chance - half_width)), min(n, math.ceil(n * chance + half_width))
    sums = list(_binomial_sums(n, chance, first, last))
    # Chernoff bound on fewer clones than the first step
    below = math.exp(-n * _divergence(first / n, chance)) if first else 0.0
    steps, start, done = [(0, below)], 0, 0.0
    for level in _STEP_LEVELS:  # finer steps for few clones, which contribute most to delta
        end = min(bisect_left(sums, level * sums[-1]), len(sums) - 1)
        if end >= start:
            steps.append((first + start, sums[end] - done))
            start, done = end + 1, sums[end]
    steps.append((last, max(0.0, 1 - done * (1 - 2 * _BINOMIAL_ROUNDING))))  # more clones than the last step
    return tuple(steps)


def _binomial_sums(n: int, chance: float, first: int, last: int) -> Iterator[float]:
    """Yield P(first <= Binomial(n, chance) <= c) for c = first .. last."""
    total = 0.0
    for c in range(first, last + 1):
        ways = math.lgamma(n + 1) - math.lgamma(c + 1) - math.lgamma(n - c + 1)
        total += math.exp(ways + c * math.log(chance) + (n - c) * math.log1p(-chance))
        yield total


def _divergence(x: float, chance: float) -> float:
    """Return KL(x || chance) of two Bernoulli distributions."""
    return x * math.log(x / chance) + ((1 - x) * math.log((1 - x) / (1 - chance)) if x < 1 else 0.0)


def check_crowd(num_reports: int, delta: float) -> None:
    """Raise ParameterError unless n is an integer >= 1 and delta is in (0, 1)."""
    check_integer("num_reports", num_reports, 1, hint="pass the number of reports of one cohort")
    check_number("delta", delta, "(0, 1)", hint="it is the probability that the bound fails, such as 1e-9")
