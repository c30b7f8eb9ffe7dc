"""Tests of noise that a client draws from its own generator: reports of one value with one secret.

Each bit of a report keeps its permanent bit with probability q, independently (p = 1 - q). So the number of kept bits in any set of n bits
is binomial, and

    P(X >= x) <= exp(-n KL(x / n, q)) for x >= n q, and P(X <= x) has the same limit for x <= n q

Source: Hoeffding 1963, theorem 1. The sets are the reports, the positions, and all bits. `FALSE_ALARM` is divided among their two tails.
Two reports are equal with probability (p**2 + q**2)**k, which is 1e-26 for k = 128 and q = 3/4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

FALSE_ALARM = 1e-9
"""Probability that a client with the declared noise is refuted."""


def find_bias(reports: Sequence[int], permanent: int, num_bits: int, prob_q: float) -> str | None:
    """Return what shows that bits are not kept with probability q, independently; None if nothing does.

    reports   : bits of each report, as integers
    permanent : the permanent bits of all of them
    """
    kept = [~(report ^ permanent) & ((1 << num_bits) - 1) for report in reports]
    sets = [(f"report {number}", bits.bit_count(), num_bits) for number, bits in enumerate(kept)]
    sets += [(f"bit {bit}", sum(bits >> bit & 1 for bits in kept), len(kept)) for bit in range(num_bits)]
    sets.append(("all reports", sum(bits.bit_count() for bits in kept), len(kept) * num_bits))
    for name, number, trials in sets:
        if is_refuted(number, trials, prob_q, FALSE_ALARM / len(sets)):
            return f"{number:,} of {trials:,} bits of {name} were kept, and {trials * prob_q:,.0f} are expected"
    return None


def is_refuted(number: int, trials: int, prob: float, alpha: float) -> bool:
    """Whether a number of ones refutes a binomial law, by one of two tails; of a true law with probability at most alpha.

    >>> is_refuted(64, 64, 0.75, 1e-7), is_refuted(64, 64, 0.75, 1e-8)
    (True, False)
    """
    both = (number / trials, prob), (1 - number / trials, 1 - prob)
    divergence = sum(found * math.log(found / expected) for found, expected in both if found > 0)
    return trials * divergence > math.log(2 / alpha)
