"""Composition of epsilon over the metrics of one person, over disjoint people, and over groups.

All composed mechanisms are pure: eps-DP with delta = 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hubbub.number_checks import check_integer, check_number

_MAX_ATOMS = 50_000


@dataclass(frozen=True, slots=True)
class Composition:
    """Guarantee (epsilon, delta) and the method of composition that yields it.

    Attributes
    ----------
    epsilon
        Epsilon, in [0, inf].
    delta
        Probability that the bound fails, in [0, 1).
    method
        "sequential", "optimal", "advanced" or "concentrated".
    """

    epsilon: float
    delta: float
    method: str


def sequential_composition(epsilons: Iterable[float]) -> float:
    """Return the epsilon of one person in all mechanisms: the sum.

    Parameters
    ----------
    epsilons
        Epsilon of each mechanism, in [0, inf].

    Returns
    -------
    float
        Sum of the epsilons.

    Raises
    ------
    ParameterError
        An epsilon is out of range.

    References
    ----------
    Dwork and Roth 2014, theorem 3.16.
    """
    return math.fsum(_checked(epsilons))


def parallel_composition(epsilons: Iterable[float]) -> float:
    """Return the epsilon if every person takes part in only one of the mechanisms: the maximum.

    Parameters
    ----------
    epsilons
        Epsilon of each mechanism, in [0, inf].

    Returns
    -------
    float
        Largest epsilon. It is 0 for no mechanism.

    Raises
    ------
    ParameterError
        An epsilon is out of range.

    References
    ----------
    McSherry 2009, theorem 4.
    """
    return max(_checked(epsilons), default=0.0)


def group_privacy(epsilon: float, size: int) -> float:
    """Return the epsilon of several people with values that change together: `size` times `epsilon`.

    In the local model it also bounds the loss of one person with reports of one value under `size` independent
    secrets.

    Parameters
    ----------
    epsilon
        Epsilon of one person, in [0, inf].
    size
        Number of people, an integer >= 1.

    Returns
    -------
    float
        `size` times `epsilon`.

    Raises
    ------
    ParameterError
        An argument is out of range.

    References
    ----------
    Dwork and Roth 2014, theorem 2.2.
    """
    check_integer("size", size, 1, hint="pass the number of people")
    return size * _checked([epsilon])[0]


def compose(epsilons: Iterable[float], delta: float = 0.0) -> Composition:
    """Return the smallest known epsilon of the composition of pure eps_i-DP mechanisms at this delta.

    Parameters
    ----------
    epsilons
        Epsilon of each mechanism, in [0, inf].
    delta
        Probability that the bound fails, in [0, 1).

    Returns
    -------
    Composition
        The guarantee, with the method that yields it.

    Raises
    ------
    ParameterError
        An argument is out of range.

    Notes
    -----
    The methods are:

    - sequential: sum eps_i, the only bound at delta = 0
    - optimal: exact for binary randomized responses, the worst eps_i-DP mechanisms; computed if there are at most
      50,000 outcomes
    - advanced: sum eps_i tanh(eps_i / 2) + sqrt(2 ln(1/delta) sum eps_i**2)
    - concentrated: each mechanism is eps_i tanh(eps_i / 2)-zCDP, and the sum is converted to (epsilon, delta)

    References
    ----------
    Kairouz, Oh, Viswanath 2015, theorems 3.3 and 3.5; Bun and Steinke 2016, lemma 2.3; for the conversion Canonne,
    Kamath, Steinke 2020, proposition 7.

    Examples
    --------
    >>> compose([0.1] * 100).epsilon
    10.0
    >>> better = compose([0.1] * 100, delta=1e-6)
    >>> better.method, round(better.epsilon, 2)
    ('optimal', 4.77)
    """
    losses = _checked(epsilons)
    check_number("delta", delta, "[0, 1)", hint="it is the probability that the bound fails, such as 1e-9")
    bounds = [Composition(math.fsum(losses), 0.0, "sequential")]
    if delta > 0 and math.isfinite(bounds[0].epsilon):
        rho = math.fsum(map(zero_concentrated, losses))
        deviation = math.sqrt(2 * math.log(1 / delta) * math.fsum(e * e for e in losses))
        bounds.append(Composition(rho + deviation, delta, "advanced"))
        bounds.append(Composition(_epsilon_of_zcdp(rho, delta), delta, "concentrated"))
        if math.prod(n + 1 for n in Counter(losses).values()) <= _MAX_ATOMS:
            bounds.append(Composition(_optimal(losses, delta), delta, "optimal"))
    return min(bounds, key=lambda composition: composition.epsilon)


def zero_concentrated(epsilon: float) -> float:
    """Return rho = eps tanh(eps/2) <= eps**2 / 2, for which every eps-DP mechanism is rho-zCDP.

    The worst mechanism is binary randomized response. Its Renyi divergence divided by the order is largest at order 1, where it is
    the Kullback-Leibler divergence eps tanh(eps/2).

    Source: Bun and Steinke 2016, proposition 3.3, with eps**2 / 2; tests check the smaller rho against all orders.
    """
    return epsilon * math.tanh(epsilon / 2)


def _epsilon_of_zcdp(rho: float, delta: float) -> float:
    """Return eps = min over a > 1 of  rho a + ln(1 - 1/a) - (ln delta + ln a) / (a - 1); every a is a valid bound."""

    def bound(log_excess: float) -> float:
        excess = math.exp(log_excess)
        order = 1 + excess
        return rho * order + math.log(excess / order) - (math.log(delta) + math.log(order)) / excess

    low, high = -20.0, 40.0
    for _ in range(200):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if bound(left) < bound(right) else (left, high)
    return max(0.0, bound(low))


def _optimal(epsilons: Sequence[float], delta: float) -> float:
    """Return the smallest E with sum over outcomes of max(0, P - e**E Q) <= delta.

    An outcome is a sum of s_i eps_i with signs s_i. Under P each sign is + with probability e**eps_i / (1 + e**eps_i); Q = P e**-sum.
    """
    outcomes = {0.0: 1.0}
    for epsilon, times in Counter(epsilons).items():
        steps = [((2 * up - times) * epsilon, _plus_probability(epsilon, times, up)) for up in range(times + 1)]
        combined: dict[float, float] = {}
        for loss, chance in outcomes.items():
            for step, weight in steps:
                combined[loss + step] = combined.get(loss + step, 0.0) + chance * weight
        outcomes = combined

    def failure(bound: float) -> float:
        return math.fsum(chance * -math.expm1(bound - loss) for loss, chance in outcomes.items() if loss > bound)

    low, high = 0.0, math.fsum(epsilons)
    if failure(low) <= delta:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if failure(middle) <= delta else (middle, high)
    return high


def _plus_probability(epsilon: float, times: int, up: int) -> float:
    """Return P(Binomial(times, 1 / (1 + e**-epsilon)) = up)."""
    ways = math.lgamma(times + 1) - math.lgamma(up + 1) - math.lgamma(times - up + 1)
    return math.exp(ways - (times - up) * epsilon - times * math.log1p(math.exp(-epsilon)))


def _checked(epsilons: Iterable[float]) -> list[float]:
    losses = list(epsilons)
    for loss in losses:
        check_number("epsilon", loss, "[0, inf]", hint="pass the epsilon of each mechanism")
    return list(map(float, losses))
