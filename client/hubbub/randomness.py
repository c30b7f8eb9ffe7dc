"""Source of random bytes, and uniform draws from it.

All randomness of the client comes through `RandomBytes`, so tests can replace it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, MutableSequence
from typing import TypeVar

T = TypeVar("T")
RandomBytes = Callable[[int], bytes]
"""Function of n that returns n independent, uniform bytes."""

system_random_bytes: RandomBytes = os.urandom
"""The operating system's generator. It keeps no state in the process, so forked processes never share random bytes."""


def uniform(random_bytes: RandomBytes) -> float:
    """Return a uniform float in [0, 1), a multiple of 2**-53. Used for waiting times; noise never uses floating point.

    >>> uniform(lambda n: bytes(n)), uniform(lambda n: b"\\xff" * n) < 1
    (0.0, True)
    """
    return (int.from_bytes(random_bytes(7), "little") >> 3) / (1 << 53)


def uniform_below(n: int, random_bytes: RandomBytes) -> int:
    """Return a uniform integer in [0, n), exact by rejection sampling.

    >>> draws = iter([b"\\x03", b"\\x01"])
    >>> uniform_below(3, lambda n: next(draws))
    1
    """
    bits = (n - 1).bit_length()
    width = (bits + 7) // 8
    while bits:
        drawn = int.from_bytes(random_bytes(width), "little") & ((1 << bits) - 1)
        if drawn < n:
            return drawn
    return 0


def draw(items: MutableSequence[T], number: int, random_bytes: RandomBytes) -> list[T]:
    """Remove `number` random items from a sequence, or all if it has fewer, and return them in random order.

    Every ordered selection has the same probability.

    >>> draw(["a", "b", "c"], 3, lambda n: bytes(n))
    ['a', 'c', 'b']
    """
    drawn = []
    for _ in range(min(number, len(items))):
        i = uniform_below(len(items), random_bytes)
        items[i], items[-1] = items[-1], items[i]
        drawn.append(items.pop())
    return drawn
