"""Exact dyadic probabilities, and masks of bits that are one with exactly such a probability.

A probability a / 2**r is held as a float: for r <= 24 the float is exact, and so are sums of products of two
such floats (48 binary digits), which is all that p* and q* are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from numbers import Rational

from hubbub.errors import ParameterError

DIGITS = 24
"""p, q and f/2 are whole numbers of 1 / 2**24."""


def nearest_dyadic(name: str, asked: float, digits: int) -> float:
    """Round a probability to the nearest a / 2**digits (ties to even a).

    asked : in [0, 1]; one strictly inside (0, 1) must not round to 0 or 1.

    >>> nearest_dyadic("prob_p", 0.75, digits=24)
    0.75
    >>> nearest_dyadic("prob_p", 1e-9, digits=24)
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


_HALF = (1,)


class BernoulliMask:
    """Draws `num_bits` independent bits, each one with probability exactly a / 2**digits.

    Bit by bit this compares a uniform binary fraction U = 0.u1 u2 ... with 0.d1 d2 ... dr, the digits of
    a / 2**digits, most significant first: the bit is one where U < a / 2**digits. A word holds one digit of U for all bits at
    once, and a position leaves `still_open` at the first digit where the two differ. High-order zeros of a are
    digits like any others. Below the lowest one of a no open position can become one any more, so the
    walk stops there: the same mask from fewer words (docs/decisions/0001).

    a : in [0, 2**digits]; 0 and 2**digits draw nothing.

    >>> quarter = BernoulliMask(0b01, digits=2, num_bits=4)
    >>> quarter(iter([0b0011, 0b0101])), quarter.most_words  # one where both digits of U are 0
    (8, 2)
    """

    __slots__ = ("_certain", "_digits", "_everything")

    def __init__(self, a: int, digits: int, num_bits: int) -> None:
        self._everything = (1 << num_bits) - 1
        self._certain = self._everything if a == 1 << digits else 0
        lowest_one = (a & -a).bit_length() - 1 if a else digits
        self._digits = tuple(a >> position & 1 for position in range(digits - 1, lowest_one - 1, -1))

    @property
    def most_words(self) -> int:
        """How many words a mask may take; it takes fewer once no position is open."""
        return len(self._digits)

    def __call__(self, words: Iterator[int]) -> int:
        """Draw one mask from words whose bits above `num_bits` mean nothing; raises StopIteration where they end too early."""
        mask = self._certain
        still_open = self._everything
        if self._digits == _HALF:
            return still_open & ~next(words)
        for digit in self._digits:
            same = still_open & next(words)
            if digit:
                mask |= still_open ^ same
                still_open = same
            else:
                still_open ^= same
            if not still_open:
                break
        return mask
