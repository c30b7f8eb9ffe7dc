"""What a report reveals to who sees only the shuffled crowd: privacy amplification by shuffling.

**Who is meant**: somebody who gets what the aggregator stored, n reports in an order that says nothing, or their sums. Never the
operator at the door, who sees each report come, and for whom the local eps is all there is.

**Whose reports count**: n reports *of one cohort*, this person's among them. Another cohort's reports cannot be taken for this person's
by somebody who knows the cohort, and a person has one cohort in all periods and metrics. The other n - 1 must be there, and honest.

Source: Feldman, McMillan, Talwar 2021, "Hiding among the clones" (arXiv 2012.12803), theorem 3.2. Let R0, R1 be what two values of one
person send, eps0-DP. Both are mixtures of the same two distributions, R0 = a Q0 + (1-a) Q1 and R1 = (1-a) Q0 + a Q1 with
a = e**eps0 / (1 + e**eps0), so Q0 + Q1 = R0 + R1; and whatever another sends is at least e**-eps0 max(R0, R1) >= e**-eps0 (Q0 + Q1) / 2
everywhere: with chance e**-eps0 it is a clone, drawn from Q0 or Q1 by a fair coin. So the crowd is made from two numbers, of draws from
Q0 and from Q1:  C ~ Binomial(n - 1, e**-eps0) clones, A ~ Binomial(C, 1/2) of them from Q0, and this person's own draw.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache

from hubbub.errors import ParameterError
from hubbub.metrics.params import Params
from hubbub.privacy.loss import epsilon as epsilon_of

_MOST_REPORTS = 200_000
_LEVELS = (*(10.0**-digits for digits in range(16, 0, -1)), 0.25, 0.5, 0.75, 1.0)
_STANDARD_DEVIATIONS = 12
_HALVINGS = 14


def central_epsilon(params: Params, reports: int, delta: float, periods: float = 1) -> float:
    """Return eps of (eps, delta)-DP towards who sees the shuffled reports, or their sums, of some periods; at most the local eps.

    t reports of an unchanging value are one message that is eps(t)-DP. To shuffle such messages whole and then each period by itself is
    to shuffle each period, so n people's t periods amplify eps(t). (Composing t amplified eps(1) would be wrong: the permanent noise is
    the same in all of them.)

    reports : n, people of one cohort who report in all of these periods      delta : in (0, 1)
    periods : t, a whole number from 1, or math.inf: any number of them

    >>> params = Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.5, prob_q=0.75, prob_f=0.5)
    >>> [round(central_epsilon(params, n, 1e-9), 3) for n in (100, 10_000, 1_000_000)]
    [1.011, 0.084, 0.018]
    """
    return amplified(epsilon_of(params, periods), reports, delta)


@lru_cache(maxsize=1024)
def amplified(epsilon: float, reports: int, delta: float) -> float:
    """Return the eps of (eps, delta)-DP of n shuffled reports that are eps0-DP each; at most eps0.

    The smallest eps whose `amplified_delta` is at most delta, or what theorem 3.1 says, whichever is less.
    """
    _check(epsilon, reports, delta)
    low, high = 0.0, closed_form_epsilon(epsilon, reports, delta)
    if math.isinf(high):
        return high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if amplified_delta(middle, epsilon, reports) <= delta else (middle, high)
    return high


def closed_form_epsilon(epsilon: float, reports: int, delta: float) -> float:
    """Return theorem 3.1's eps; eps0 where it says nothing.

    ln(1 + (e**eps0 - 1) (4 sqrt(2 ln(4 / delta)) / sqrt((e**eps0 + 1) n) + 4 / n)), for eps0 <= ln(n / (8 ln(2 / delta)) - 1)
    """
    room = reports / (8 * math.log(2 / delta)) - 1
    if room <= 0 or epsilon > math.log(room):
        return epsilon
    grown = math.exp(epsilon)
    clones = 4 * math.sqrt(2 * math.log(4 / delta) / ((grown + 1) * reports)) + 4 / reports
    return min(epsilon, math.log1p((grown - 1) * clones))


def amplified_delta(epsilon: float, local: float, reports: int) -> float:
    """Bound the delta of n shuffled reports that are eps0-DP each, at this eps < eps0: theorem 3.2's, never less.

        delta = sum over c of P(C = c) H(c),   H(c) = sup over sets of  P_c - e**eps Q_c

    H falls with c, since one clone more is one more coin that hides, so the clones are taken in steps at their smallest c; and delta falls
    with n, so more than 200,000 reports count as so many.
    """
    if epsilon >= local:
        return 0.0
    return math.fsum(
        chance * _hockey_stick(c, epsilon, local) for c, chance in _steps(local, min(reports, _MOST_REPORTS))
    )


def _hockey_stick(clones: int, epsilon: float, local: float) -> float:
    """Return H(c): the draws from Q0 are a + Binomial(c, 1/2) for one value, 1 - a + ... for the other.

    P / Q grows with the number j of draws from Q0, so the worst set is j >= t.
    """
    mine = 1 / (1 + math.exp(-local))
    grown = math.exp(epsilon)
    odds = (grown * mine - (1 - mine)) / (mine - grown * (1 - mine))
    t = math.floor(odds * (clones + 1) / (1 + odds)) + 1
    at_least, one_less = _coins(clones, t)
    return max(0.0, mine * one_less + (1 - mine) * at_least - grown * (mine * at_least + (1 - mine) * one_less))


def _coins(n: int, t: int) -> tuple[float, float]:
    """Return P(Binomial(n, 1/2) >= t) and P(... >= t - 1), for t > n/2."""
    if t - 1 > n:
        return 0.0, 0.0
    before = math.exp(math.lgamma(n + 1) - math.lgamma(t) - math.lgamma(n - t + 2) - n * math.log(2))
    tail, term = 0.0, before
    for j in range(t, n + 1):
        term *= (n - j + 1) / j
        tail += term
        if term < 1e-12 * tail:  # a tail too small makes H too large, never too small
            break
    return tail, tail + before


@lru_cache(maxsize=64)
def _steps(local: float, reports: int) -> tuple[tuple[int, float], ...]:
    """Return the clones in steps: the smallest number of each, and its chance."""
    n, chance = reports - 1, math.exp(-local)
    spread = _STANDARD_DEVIATIONS * math.sqrt(n * chance * (1 - chance)) + _STANDARD_DEVIATIONS
    first, last = max(0, math.floor(n * chance - spread)), min(n, math.ceil(n * chance + spread))
    sums = list(_sums(n, chance, first, last))
    below = (
        math.exp(-n * _divergence(first / n, chance)) if first else 0.0
    )  # Chernoff: fewer clones than the first step
    steps, start, done = [(0, below)], 0, 0.0
    for level in _LEVELS:  # ever finer downwards: few clones are rare, and hide little
        end = min(bisect_left(sums, level * sums[-1]), len(sums) - 1)
        if end >= start:
            steps.append((first + start, sums[end] - done))
            start, done = end + 1, sums[end]
    steps.append((last, max(0.0, 1 - done)))  # more clones than the last step: as many at least
    return tuple(steps)


def _sums(n: int, chance: float, first: int, last: int) -> Iterator[float]:
    """Yield P(first <= Binomial(n, chance) <= c) for c = first .. last."""
    total = 0.0
    for c in range(first, last + 1):
        ways = math.lgamma(n + 1) - math.lgamma(c + 1) - math.lgamma(n - c + 1)
        total += math.exp(ways + c * math.log(chance) + (n - c) * math.log1p(-chance))
        yield total


def _divergence(x: float, chance: float) -> float:
    """Return KL(x || chance) of two coins."""
    return x * math.log(x / chance) + ((1 - x) * math.log((1 - x) / (1 - chance)) if x < 1 else 0.0)


def _check(epsilon: float, reports: int, delta: float) -> None:
    if math.isnan(epsilon) or epsilon < 0:
        raise ParameterError(f"an epsilon is in [0, inf], got {epsilon}")
    if isinstance(reports, bool) or not isinstance(reports, int) or reports < 1:
        raise ParameterError(f"reports must be a whole number, at least 1, got {reports!r}")
    if not 0 < delta < 1:
        raise ParameterError(f"delta must be in (0, 1), got {delta}: it is the chance that the bound fails")
