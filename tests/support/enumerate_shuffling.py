"""Exact delta of shuffled reports, by enumeration of all multisets of outputs of a small group.

Probabilities are floats or fractions. With fractions nothing is rounded.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from itertools import combinations_with_replacement, permutations, product
from typing import Any

from hubbub.metrics.params import Params

Chance = Any
"""A float, or a fraction in all places."""
Distribution = Sequence[Chance]


def lowered_exponential(eps: float) -> Fraction:
    """Return a fraction below e**eps by less than 1e-59 of it, so that a delta at it is at least the one at eps."""
    found = Context(prec=60, rounding=ROUND_FLOOR).exp(Decimal(eps))
    return Fraction(found) * (1 - Fraction(1, 10**59))


def exact_bit_laws(params: Params, reports: int) -> tuple[list[Fraction], list[Fraction]]:
    """Return the laws of all sequences of t reports of a bit that is zero, and one, of one permanent response, in fractions."""
    mechanism = params.mechanism
    p, q, b, a = (
        Fraction(rate) for rate in (mechanism.prob_p, mechanism.prob_q, mechanism.permanent_p, mechanism.permanent_q)
    )
    zeros, ones = [], []
    for shown in product((0, 1), repeat=reports):
        if_one, if_zero = (
            math.prod((rate if bit else 1 - rate for bit in shown), start=Fraction(1)) for rate in (q, p)
        )
        zeros.append(b * if_one + (1 - b) * if_zero)
        ones.append(a * if_one + (1 - a) * if_zero)
    return zeros, ones


def exact_report_laws(params: Params, reports: int) -> list[list[Fraction]]:
    """Return the law of all sequences of t reports of "no value" and of each category, of one permanent response, in fractions."""
    zero, one = exact_bit_laws(params, reports)
    of_values = ([one if i == value else zero for i in range(params.num_bits)] for value in range(-1, params.num_bits))
    return [[math.prod(chances, start=Fraction(1)) for chances in product(*bits)] for bits in of_values]


def shuffled(people: Sequence[Distribution]) -> dict[tuple[int, ...], Chance]:
    """Return the probability of every multiset of outputs."""
    crowds: dict[tuple[int, ...], Chance] = {(0,) * len(people[0]): 1}
    for person in people:
        grown: dict[tuple[int, ...], Chance] = defaultdict(int)
        for crowd, chance in crowds.items():
            for output, more in enumerate(person):
                grown[(*crowd[:output], crowd[output] + 1, *crowd[output + 1 :])] += chance * more
        crowds = grown
    return crowds


def hockey_stick(
    one: Mapping[tuple[int, ...], Chance], other: Mapping[tuple[int, ...], Chance], eps: float | Fraction
) -> Chance:
    """Return sup over sets of P - e**eps Q; a fraction in the place of eps is e**eps itself."""
    if isinstance(eps, Fraction):
        return sum(max(0, one[crowd] - eps * other[crowd]) for crowd in one)
    return math.fsum(max(0.0, one[crowd] - math.exp(eps) * other[crowd]) for crowd in one)


def worst_deltas(randomizer: Sequence[Distribution], n: int, eps: float | Fraction) -> Iterator[Chance]:
    """Yield the exact delta for every two values of one client and all values of the n - 1 others."""
    for others in combinations_with_replacement(randomizer, n - 1):
        crowds = [shuffled([mine, *others]) for mine in randomizer]
        for mine, instead in permutations(crowds, 2):
            yield hockey_stick(mine, instead, eps)
