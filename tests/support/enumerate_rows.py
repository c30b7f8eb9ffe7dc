"""Distribution of t reports of subset selection, by enumeration of permanent values and rows."""

from __future__ import annotations

import math
from itertools import combinations, product

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
