"""Variance of a candidate's share from bit counts, in closed form.

A candidate of share x sets h of k bits in each of m cohorts; other strings of total share s set random bits there. By symmetry the
candidate's share is the mean of its own bits less the mean of the other k - h bits, averaged over the cohorts. N clients send T reports each:

    Var x = (noise(x + s h/k) / h + noise(s h/k) / (k - h)) / (N T)  +  s / (N (k-1))  +  t / (m (k-1))

    noise           : variance of one debiased bit by both responses, at its share of true ones (`Chain.noise`)
    s / (N (k-1))   : the clients with another string are in random cohorts
    t / (m (k-1))   : other strings share bits with the candidate; t is the sum of the squares of their unknown shares (`collisions.py`)

It is the variance of the share among the reporters. Without collisions (k, m -> infinity) N Var is noise(x) / (h T).
docs/mathematics.md, equation (18.2).
"""

from __future__ import annotations

import numpy as np

from hubbub_decoder.array_types import Floats
from hubbub_decoder.model.repetition import Repetition
from hubbub_decoder.planning.law.chain import Chain


def bit_count_variance(
    chain: Chain,
    size: tuple[int, int, int],
    num_clients: float,
    repetition: Repetition,
    share: Floats | float,
    others: Floats | float,
    unknown: Floats | float = 0.0,
) -> Floats:
    """Variance of a candidate's share among the reporters, from bit counts of a string metric.

    size       : (k, h, m)
    num_clients: N      share : x      others : s, with x at most 1      unknown : t

    >>> oue = Chain(*map(np.asarray, (1.0, 0.0, 1 / (np.exp(2) + 1), 0.5)))
    >>> round(float(1e6 * bit_count_variance(oue, (128, 1, 64), 1e6, Repetition(), 0.0, 1.0)), 4)  # .7241, and 3 % for sharing 128 bits
    0.7455
    """
    k, h, m = size
    loaded = others * h / k
    noise = chain.noise(loaded + share, repetition) / h + chain.noise(loaded, repetition) / (k - h)
    return np.asarray(
        noise / (num_clients * repetition.per_client) + others / (num_clients * (k - 1)) + unknown / (m * (k - 1))
    )
