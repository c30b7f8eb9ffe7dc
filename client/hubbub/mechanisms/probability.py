"""Probabilities as exact dyadic fractions a / 2**24.

A float holds a / 2**r exactly for r <= 24. Sums of products of two such floats, as in p* and q*, need at most 48 binary
digits and are exact as well.
"""

from __future__ import annotations

import math

from hubbub.errors import ParameterError
from hubbub.number_checks import check_number

DYADIC_DIGITS = 24
"""Binary digits of p, q and f/2: each is a multiple of 1 / 2**24."""


def round_to_dyadic(name: str, probability: float, digits: int) -> float:
    """Return the nearest a / 2**digits to a probability (ties to even a).

    probability : in [0, 1]; a value strictly between 0 and 1 must not round to 0 or 1

    >>> round_to_dyadic("prob_p", 0.75, digits=24)
    0.75
    >>> round_to_dyadic("prob_p", 1e-9, digits=24)
    Traceback (most recent call last):
    hubbub.errors.ParameterError: prob_p must be 0, 1 or at least 2**-24 from both, got 1e-09: it would round to 0
    """
    check_number(name, probability, "[0, 1]", hint="write a probability as 0.25")
    numerator = round(probability * (1 << digits))  # exact: the factor is a power of two
    if 0 < probability < 1 and numerator in (0, 1 << digits):
        raise ParameterError(
            f"{name} must be 0, 1 or at least 2**-{digits} from both, got {probability}: "
            f"it would round to {numerator >> digits}"
        )
    return math.ldexp(numerator, -digits)


def numerator(probability: float, digits: int) -> int:
    """Return a of a rounded probability a / 2**digits, exactly.

    >>> numerator(0.75, digits=24) == 3 << 22
    True
    """
    return int(math.ldexp(probability, digits))
