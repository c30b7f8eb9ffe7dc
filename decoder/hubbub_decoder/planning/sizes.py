"""Search for the numbers of bits, hashes and cohorts of a string metric.

More bits and cohorts separate strings better. But bits identify a client, and cohorts leave fewer reports among which one is hidden. So of
all sizes within 1 % of the smallest variance the plan takes the first in this order: 64 cohorts, more, fewer; in each, the fewest bits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from hubbub_decoder.planning.law.accuracy import Accuracy

BITS = (8, 16, 32, 64, 128, 256, 512, 1024)
COHORTS = (64, 128, 256, 32, 16, 8)
TOLERANCE = 1.01


def best_size(
    num_hashes: int,
    cohorts: Collection[int],
    most_bits: int,
    law: Callable[[tuple[int, int, int]], Accuracy],
    smallest: float,
) -> tuple[int, int, int]:
    """First size (k, h, m) whose mean variance is within 1 % of the smallest.

    cohorts   : allowed numbers of them, in the order of preference      most_bits : largest number of bits
    law       : accuracy of a size                                      smallest  : smallest share that matters
    """
    bits = [k for k in BITS if k <= most_bits]
    largest = [(bits[-1], num_hashes, m) for m in cohorts]
    best = min(largest, key=lambda size: law(size).mean_variance(smallest))
    bound = TOLERANCE * law(best).mean_variance(smallest)
    sizes = ((k, num_hashes, m) for m in cohorts for k in bits)
    return next((size for size in sizes if law(size).mean_variance(smallest) <= bound), best)
