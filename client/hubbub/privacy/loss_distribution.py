"""Distribution of the privacy loss of a mechanism, from points of its curve of delta, and the epsilon of independent mechanisms together.

A mechanism M is (epsilon, delta(epsilon))-DP for each epsilon >= 0, for every pair of neighbours in both orders. So its hockey-stick
divergence h(a) = sup over sets of P - a Q is at most delta(ln a) for a >= 1, and at most 1 - a + a delta(-ln a) for a < 1. It is convex in a, so
it is also at most the lower convex envelope of finitely many of these points. The envelope is the curve of two distributions with
finitely many losses ln(P / Q), one for each vertex a: P has a times, and Q has once, the change of the slope there.

Whatever pair of neighbours each of several independent mechanisms has, the product of their worst pairs is at least as far apart:

    delta <= E_P[max(0, 1 - e**(epsilon - S))] <= E_P[e**(theta (S - epsilon))] theta**theta / (1 + theta)**(1 + theta)

for the sum S of the losses and any theta > 0. An infinite loss adds its probability.

Sources: Zhu, Dong, Wang 2022, "Optimal accounting of differential privacy via characteristic function" (arXiv 2106.08567), theorem 10;
Doroshenko et al. 2022, "Connect the dots" (arXiv 2207.04380), for the envelope; Canonne, Kamath, Steinke 2020, "The discrete Gaussian for
differential privacy" (arXiv 2004.00010), proposition 12, for the second inequality. Equation (P.7) in docs/explanation/privacy-proofs.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hubbub.privacy.blanket import minimizer

_ROUNDING = 1e-9
"""More than the relative rounding errors of a moment and of the result, which are a few units in the last place for each point of a curve."""
_MAX_EXPONENT = 600.0
_SMALLEST_THETA = 1e-3


@dataclass(frozen=True, slots=True)
class LossDistribution:
    """Distribution of the privacy loss under P, the same in both orders of the neighbours.

    losses   : (loss > 0, its probability under P, that under Q). The probabilities of the loss with the other sign are reversed
    infinite : probability of an infinite loss
    """

    losses: tuple[tuple[float, float, float], ...]
    infinite: float

    @classmethod
    def of_curve(cls, points: Sequence[tuple[float, float]]) -> LossDistribution:
        """Return the distribution of points (epsilon, upper bound of delta) of a curve, epsilon ascending from 0.

        >>> coin = LossDistribution.of_curve([(0.0, 0.5), (math.log(3), 0.0)])  # 3/4 against 1/4
        >>> [[round(number, 12) for number in loss] for loss in coin.losses], coin.infinite
        ([[1.098612288668, 0.75, 0.25]], 0.0)
        """
        # x = a - 1, which keeps the digits of a small epsilon
        right = [(math.expm1(epsilon), delta) for epsilon, delta in points]
        left = [(-x / (1 + x), (x + delta) / (1 + x)) for x, delta in reversed(right[1:])]
        vertices = _lower_envelope([(-1.0, 1.0), *left, *right])
        slopes = [(v - y) / (u - x) for (x, y), (u, v) in pairwise(vertices)]
        changes = [after - before for before, after in pairwise([*slopes, 0.0])]
        losses = [
            (math.log1p(x), (1 + x) * change, change)
            for (x, _), change in zip(vertices[1:], changes, strict=True)
            if x > 0
        ]
        return cls(tuple(losses), vertices[-1][1])

    def log_moment(self, theta: float) -> float:
        """Return ln E_P[e**(theta loss)] over the finite losses, rounded up."""
        none = max(0.0, 1 - self.infinite - math.fsum(first + second for _, first, second in self.losses))
        return (
            math.log(
                none
                + math.fsum(
                    first * math.exp(theta * loss) + second * math.exp(-theta * loss)
                    for loss, first, second in self.losses
                )
            )
            + _ROUNDING
        )


def epsilon_of_independent(mechanisms: Sequence[tuple[LossDistribution, int]], delta: float) -> float:
    """Return an epsilon with which independent mechanisms together are (epsilon, delta)-DP, rounded up; infinite if there is none.

    mechanisms : distributions, each with the number of mechanisms that have it

    >>> coin = LossDistribution.of_curve([(0.0, 0.5), (math.log(3), 0.0)])
    >>> round(epsilon_of_independent([(coin, 100)], 1e-9), 1), round(100 * math.log(3), 1)
    (103.9, 109.9)
    """
    rest = delta * (1 - _ROUNDING) - math.fsum(law.infinite * number for law, number in mechanisms)
    if rest <= 0:
        return math.inf

    def bound(theta: float) -> float:
        moments = math.fsum(number * law.log_moment(theta) for law, number in mechanisms)
        return (moments - theta * math.log1p(1 / theta) - math.log1p(theta) - math.log(rest)) / theta

    largest = max((law.losses[-1][0] for law, _ in mechanisms if law.losses), default=1.0)
    theta = minimizer(lambda x: bound(math.exp(x)), math.log(_SMALLEST_THETA), math.log(_MAX_EXPONENT / largest))
    return max(0.0, bound(theta)) * (1 + _ROUNDING)


def _lower_envelope(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the vertices of the lower convex envelope of points in the order of x."""
    vertices: list[tuple[float, float]] = []
    for x, y in points:
        while len(vertices) > 1:
            (u, v), (w, z) = vertices[-2:]
            if (z - v) * (x - w) < (y - z) * (w - u):
                break
            vertices.pop()
        vertices.append((x, y))
    return vertices
