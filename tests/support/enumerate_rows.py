"""Distributions of t reports of mechanisms with rows, by enumeration of permanent values, or true sets, and rows."""

from __future__ import annotations

import math
from collections.abc import Collection
from itertools import combinations, product

from hubbub.mechanisms.privset import PrivSet
from hubbub.mechanisms.subset import SubsetSelection


def row_distribution(mechanism: SubsetSelection, reports: int) -> list[tuple[float, ...]]:
    """Return P(all t reports | value) for each value, over all sequences of rows."""
    d, w, q = mechanism.num_values, mechanism.num_ones, mechanism.prob_q
    rows = list(combinations(range(d), w))
    given = [
        [q / math.comb(d - 1, w - 1) if v in row else (1 - q) / math.comb(d - 1, w) for row in rows] for v in range(d)
    ]
    of_permanent = [tuple(map(math.prod, product(law, repeat=reports))) for law in given]
    a = mechanism.permanent_q
    return [
        tuple(
            math.fsum((a if v == value else (1 - a) / (d - 1)) * probability for v, probability in enumerate(chances))
            for chances in zip(*of_permanent, strict=True)
        )
        for value in range(d)
    ]


def true_sets(mechanism: PrivSet, own: Collection[int]) -> list[tuple[int, ...]]:
    """Return the true sets of a client with these own values, which have equal probabilities."""
    m, blanks = mechanism.max_items, range(mechanism.num_items, mechanism.num_values)
    if len(own) > m:
        return list(combinations(sorted(own), m))
    return [(*sorted(own), *filled) for filled in combinations(blanks, m - len(own))]


def set_distribution(mechanism: PrivSet, own: Collection[int], reports: int = 1) -> list[float]:
    """Return P(all t reports | own values), over all sequences of rows in the order of `combinations`.

    A row of w ones has the weight exp(epsilon) if it touches the true set, and 1 otherwise. The true set is the same in all reports.
    """
    rows, weight = combinations(range(mechanism.num_values), mechanism.num_ones), math.exp(mechanism.epsilon(0, (), 1))
    of_rows = [set(row) for row in rows]
    laws, sets = [], true_sets(mechanism, own)
    for true_set in sets:
        weights = [weight if row.intersection(true_set) else 1.0 for row in of_rows]
        law = [chance / math.fsum(weights) for chance in weights]
        laws.append(list(map(math.prod, product(law, repeat=reports))))
    return [math.fsum(chances) / len(sets) for chances in zip(*laws, strict=True)]
