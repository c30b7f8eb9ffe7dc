"""How losses add up: over the metrics of one person, over disjoint people, over groups.

Every mechanism composed here is pure: eps-DP with delta = 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hubbub.errors import ParameterError

_MAX_ATOMS = 50_000


@dataclass(frozen=True, slots=True)
class Composition:
    """A guarantee (epsilon, delta) and the theorem that gives it."""

    epsilon: float
    delta: float
    method: str


def sequential(epsilons: Iterable[float]) -> float:
    """Return the loss of one person who takes part in all of these: their sum.

    Source: Dwork and Roth 2014, theorem 3.16.
    """
    return math.fsum(_checked(epsilons))


def parallel(epsilons: Iterable[float]) -> float:
    """Return the loss where every person takes part in one of these only: their maximum; 0 for none.

    Source: McSherry 2009, theorem 4.
    """
    return max(_checked(epsilons), default=0.0)


def group(epsilon: float, size: int) -> float:
    """Return what `size` people who change together can lose: size x eps.

    In the local model this also bounds what one person loses whose value repeats over `size` independent secrets.

    Source: Dwork and Roth 2014, theorem 2.2.
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ParameterError(f"a group has a whole number of people, at least 1, got {size!r}")
    return size * _checked([epsilon])[0]


def compose(epsilons: Iterable[float], delta: float = 0.0) -> Composition:
    """Return the least epsilon that the composition of these pure guarantees is known to have at this delta.

    - sequential: the sum (all there is at delta = 0)
    - optimal: exact for the worst eps_i-DP mechanisms, binary randomized responses; while their sums of signs are few
    - advanced: sum eps tanh(eps/2) + sqrt(2 ln(1/delta) sum eps**2)
    - concentrated: each is eps tanh(eps/2)-zCDP; those add up, and are then turned into (epsilon, delta)

    epsilons : each in [0, inf)      delta : in [0, 1)

    Sources: Kairouz, Oh, Viswanath 2015, theorems 3.3 and 3.5; Bun and Steinke 2016, lemma 2.3; for the conversion Canonne, Kamath,
    Steinke 2020, proposition 7.

    >>> compose([0.1] * 100).epsilon
    10.0
    >>> better = compose([0.1] * 100, delta=1e-6)
    >>> better.method, round(better.epsilon, 2)
    ('optimal', 4.77)
    """
    losses = _checked(epsilons)
    if not 0 <= delta < 1:
        raise ParameterError(f"delta must be in [0, 1), got {delta}: it is the chance that the bound fails")
    known = [Composition(math.fsum(losses), 0.0, "sequential")]
    if delta > 0 and math.isfinite(known[0].epsilon):
        rho = math.fsum(map(zero_concentrated, losses))
        spread = math.sqrt(2 * math.log(1 / delta) * math.fsum(e * e for e in losses))
        known.append(Composition(rho + spread, delta, "advanced"))
        known.append(Composition(_epsilon_of_zcdp(rho, delta), delta, "concentrated"))
        if math.prod(n + 1 for n in Counter(losses).values()) <= _MAX_ATOMS:
            known.append(Composition(_optimal(losses, delta), delta, "optimal"))
    return min(known, key=lambda composition: composition.epsilon)


def zero_concentrated(epsilon: float) -> float:
    """Return the rho for which every eps-DP mechanism is rho-zCDP: eps tanh(eps/2) <= eps**2 / 2.

    The worst such mechanism is binary randomized response; its Renyi divergence over its order is largest at order 1, where it is
    the Kullback-Leibler divergence eps tanh(eps/2).

    Source: Bun and Steinke 2016, proposition 3.3 has eps**2 / 2; the smaller rho is checked against all orders in the tests.
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
    """Return the least E with delta(E) = sum over outcomes of max(0, P - e**E Q) <= delta.

    Outcomes are sums of signs s_i eps_i; P has sign + with probability e**eps / (1 + e**eps), and Q = P e**-(sum).
    """
    outcomes = {0.0: 1.0}
    for epsilon, times in Counter(epsilons).items():
        steps = [((2 * up - times) * epsilon, _chance_of_pluses(epsilon, times, up)) for up in range(times + 1)]
        spread: dict[float, float] = {}
        for loss, chance in outcomes.items():
            for step, weight in steps:
                spread[loss + step] = spread.get(loss + step, 0.0) + chance * weight
        outcomes = spread

    def failure(bound: float) -> float:
        return math.fsum(chance * -math.expm1(bound - loss) for loss, chance in outcomes.items() if loss > bound)

    low, high = 0.0, math.fsum(epsilons)
    if failure(low) <= delta:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if failure(middle) <= delta else (middle, high)
    return high


def _chance_of_pluses(epsilon: float, times: int, up: int) -> float:
    """Return the binomial probability of `up` pluses, each with chance 1 / (1 + e**-eps)."""
    ways = math.lgamma(times + 1) - math.lgamma(up + 1) - math.lgamma(times - up + 1)
    return math.exp(ways - (times - up) * epsilon - times * math.log1p(math.exp(-epsilon)))


def _checked(epsilons: Iterable[float]) -> list[float]:
    losses = [float(epsilon) for epsilon in epsilons]
    for loss in losses:
        if math.isnan(loss) or loss < 0:
            raise ParameterError(f"an epsilon is in [0, inf], got {loss}")
    return losses
