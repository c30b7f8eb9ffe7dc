"""Exact dyadic probabilities, and masks of bits that are one with exactly such a probability.

A probability a / 2**r is held as a float: for r <= 24 the float is exact, and so are sums of products of two
such floats (48 binary digits), which is all that p* and q* are.
"""

from __future__ import annotations

import math
from numbers import Rational

from hubbub.errors import ParameterError

DYADIC_DIGITS = 24
"""p, q and f/2 are whole numbers of 1 / 2**24."""


def round_to_dyadic(name: str, asked: float, digits: int) -> float:
    """Round a probability to the nearest a / 2**digits (ties to even a).

    asked : in [0, 1]; one strictly inside (0, 1) must not round to 0 or 1.

    >>> round_to_dyadic("prob_p", 0.75, digits=24)
    0.75
    >>> round_to_dyadic("prob_p", 1e-9, digits=24)
    Traceback (most recent call last):
    hubbub.errors.ParameterError: prob_p must be 0, 1 or at least 2**-24 from both, got 1e-09: it would round to 0
    """
    if isinstance(asked, bool) or not isinstance(asked, float | Rational):
        raise ParameterError(f"{name} must be a number in [0, 1], got {asked!r}: write it as 0.25")
    if not math.isfinite(asked) or not 0 <= asked <= 1:
        raise ParameterError(f"{name} must be in [0, 1], got {asked}: it is a probability")
    numerator = round(asked * (1 << digits))  # exact: times a power of two
    if 0 < asked < 1 and numerator in (0, 1 << digits):
        raise ParameterError(
            f"{name} must be 0, 1 or at least 2**-{digits} from both, got {asked}: "
            f"it would round to {numerator >> digits}"
        )
    return math.ldexp(numerator, -digits)


def numerator(probability: float, digits: int) -> int:
    """Return a of a held probability a / 2**digits, exactly.

    >>> numerator(0.75, digits=24) == 3 << 22
    True
    """
    return int(math.ldexp(probability, digits))
