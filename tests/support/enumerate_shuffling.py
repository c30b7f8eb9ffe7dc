"""Exact delta of shuffled reports, by enumeration of all multisets of outputs of a small group."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, permutations

Distribution = Sequence[float]


def shuffled(people: Sequence[Distribution]) -> dict[tuple[int, ...], float]:
    """Return the probability of every multiset of outputs."""
    crowds: dict[tuple[int, ...], float] = {(0,) * len(people[0]): 1.0}
    for person in people:
        grown: dict[tuple[int, ...], float] = defaultdict(float)
        for crowd, chance in crowds.items():
            for output, more in enumerate(person):
                grown[(*crowd[:output], crowd[output] + 1, *crowd[output + 1 :])] += chance * more
        crowds = grown
    return crowds


def hockey_stick(one: dict[tuple[int, ...], float], other: dict[tuple[int, ...], float], eps: float) -> float:
    return math.fsum(max(0.0, one[crowd] - math.exp(eps) * other[crowd]) for crowd in one)


def worst_deltas(randomizer: list[Distribution], n: int, eps: float) -> Iterator[float]:
    """Yield the exact delta for every two values of one client and all values of the n - 1 others."""
    for others in combinations_with_replacement(randomizer, n - 1):
        crowds = [shuffled([mine, *others]) for mine in randomizer]
        for mine, instead in permutations(crowds, 2):
            yield hockey_stick(mine, instead, eps)
