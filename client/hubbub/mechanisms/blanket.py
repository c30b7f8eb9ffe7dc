"""Privacy blankets: the common part of the reports of all values, and how the report of one value stands out from it.

A mechanism with the law P_x of the reports of a value x has a blanket w with the weight gamma if, for every value x and report y,

    P_x(y) >= gamma w(y)

So a client's reports are drawn from w with probability gamma, whatever its value is. Such reports hide those of another client.

Weights, chances and ratios are floats. For at most `MAX_FACTORS` factors, a weight and a chance are within 1e-11 of the exact ones, relatively
(`CHANCE_ERROR`), and a ratio within 1e-10 (`RATIO_ERROR`): `times` merges ratios whose logarithms agree in 13 digits, and all other operations are
wrong by a few units in the last place. Whoever computes a bound adds these errors to it.

Source: Balle, Bell, Gascon, Nissim 2019, "The privacy blanket of the shuffle model" (arXiv 1903.02837), section 5.
Equations (P.4) to (P.6) in docs/explanation/privacy.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from operator import itemgetter

Law = tuple[tuple[float, float], ...]
"""Law of a ratio P_x(y) / w(y) for y drawn from the blanket w: its (probability, ratio), in the order of the ratios."""

CERTAIN: Law = ((1.0, 1.0),)
CHANCE_ERROR = 1e-11
"""Largest relative error of the weight and of the chances of a blanket."""
RATIO_ERROR = 1e-10
"""Largest relative error of the ratios of a blanket."""
MAX_FACTORS = 100
"""Most laws that are multiplied: one for each true bit and epoch."""
MAX_RATIOS = 16
_MAX_COMMON_RATIOS = 6
_DIGITS = 13


@dataclass(frozen=True, slots=True)
class Part:
    """Part of the blanket, in which the ratios of two values are a common factor times independent ones.

    chance : its probability under the blanket
    common : law of the common factor c
    first, second : laws of P_x(y) / (c w(y)) and P_x'(y) / (c w(y))
    """

    chance: float
    common: Law
    first: Law
    second: Law


@dataclass(frozen=True, slots=True)
class Blanket:
    """Privacy blanket of a mechanism, with the ratios by which every two values stand out from it.

    weight : gamma, in [0, 1]
    pairs  : parts of the blanket for each pair of values, up to symmetry

    Source: Balle, Bell, Gascon, Nissim 2019, "The privacy blanket of the shuffle model" (arXiv 1903.02837), section 5.
    """

    weight: float
    pairs: tuple[tuple[Part, ...], ...]


def joined(blankets: Iterable[Blanket]) -> Blanket:
    """Return the blanket of independent reports, one of each mechanism: weights and ratios multiply."""
    return reduce(_joined, blankets)


def _joined(one: Blanket, other: Blanket) -> Blanket:
    pairs = tuple(
        tuple(
            Part(
                x.chance * y.chance,
                times(x.common, y.common, _MAX_COMMON_RATIOS),
                times(x.first, y.first),
                times(x.second, y.second),
            )
            for x, y in product(parts, others)
        )
        for parts, others in product(one.pairs, other.pairs)
    )
    return Blanket(one.weight * other.weight, pairs)


def blanket_of_bits(bit: Law, num_bits: int, possible_ones: Iterable[int]) -> Blanket:
    """Return a blanket of k independent bits: the law of "no value", whose weight is the smallest ratio of a value's bits to it.

        w = P_0        gamma = r**h,  r = min over y of P(y | true bit 1) / P(y | true bit 0)

    One bit has a heavier one, w(y) ~ min(P_0(y), P_1(y)).

    bit           : law of P(y | 1) / P(y | 0) for y drawn from P(. | 0); y may be several reports of the bit
    num_bits      : k
    possible_ones : numbers of true bits of a value, at most h

    >>> coin = ((0.75, 1 / 3), (0.25, 3.0))  # answers 1 with probability 1/4 if the bit is 0, and 3/4 if it is 1
    >>> blanket_of_bits(coin, 1, (0, 1)).weight, round(blanket_of_bits(coin, 8, (0, 1)).weight, 4)
    (0.5, 0.3333)
    """
    ones = tuple(possible_ones)
    if num_bits == 1:
        return _blanket_of_one_bit(bit)
    powers = [CERTAIN]
    for _ in range(max(ones)):
        powers.append(times(powers[-1], bit))
    pairs = tuple(
        (Part(1.0, spread(powers[shared], _MAX_COMMON_RATIOS), powers[first - shared], powers[second - shared]),)
        for first, second in product(ones, repeat=2)
        for shared in range(max(0, first + second - num_bits), min(first, second) + 1)
    )
    return Blanket(bit[0][1] ** max(ones), pairs)


def _blanket_of_one_bit(bit: Law) -> Blanket:
    weight = math.fsum(chance * min(1.0, ratio) for chance, ratio in bit)
    points = [
        (chance * common / weight, (weight / common, weight * ratio / common))
        for chance, ratio in bit
        for common in (min(1.0, ratio),)
    ]
    pairs = tuple(
        tuple(Part(chance, CERTAIN, ((1.0, ratios[first]),), ((1.0, ratios[second]),)) for chance, ratios in points)
        for first, second in product((0, 1), repeat=2)
    )
    return Blanket(weight, pairs)


def times(one: Law, other: Law, most: int = MAX_RATIOS) -> Law:
    """Return the law of the product of two independent ratios, with at most so many of them (`spread`)."""
    equal: dict[float, list[tuple[float, float]]] = {}
    for (chance, ratio), (more, factor) in product(one, other):
        equal.setdefault(round(math.log(ratio * factor), _DIGITS), []).append((chance * more, ratio * factor))
    merged = [
        (math.fsum(chance for chance, _ in points), min(ratio for _, ratio in points)) for points in equal.values()
    ]
    return spread(merged, most)


def spread(law: Sequence[tuple[float, float]], most: int) -> Law:
    """Return a law with at most so many ratios, evenly spaced on a logarithmic scale, that is larger in convex order.

    Each ratio is replaced by the two neighbours with its mean. Every expectation of a convex function grows, and so does the bound of delta.

    >>> spread([(0.5, 1.0), (0.25, 2.0), (0.25, 3.0)], 2)
    ((0.625, 1.0), (0.375, 3.0))
    """
    ordered = sorted(law, key=itemgetter(1))
    if len(ordered) <= most:
        return tuple(ordered)
    low, high = ordered[0][1], ordered[-1][1]
    nodes = [low * (high / low) ** (i / (most - 1)) for i in range(most - 1)] + [high]
    chances: list[list[float]] = [[] for _ in nodes]
    place = 0
    for chance, ratio in ordered:
        while place < most - 2 and ratio > nodes[place + 1]:
            place += 1
        below, above = nodes[place], nodes[place + 1]
        chances[place].append(chance * max(0.0, (above - ratio) / (above - below)))
        chances[place + 1].append(chance * min(1.0, (ratio - below) / (above - below)))
    sums = map(math.fsum, chances)
    return tuple((chance, node) for chance, node in zip(sums, nodes, strict=True) if chance > 0)
