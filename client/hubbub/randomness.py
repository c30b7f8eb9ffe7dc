"""Where randomness comes from: the one seam, and words of k bits read through it.

Conventions: a word is `ceil(num_bits / 8)` bytes, little-endian, its high bits dropped; bit i of a word is
`(word >> i) & 1`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
RandomBytes = Callable[[int], bytes]
"""`coins(n)` gives n fresh uniform bytes."""

system_random_bytes: RandomBytes = os.urandom
"""The operating system's generator: no state in the process, so nothing to share across a fork."""


def uniform(random_bytes: RandomBytes) -> float:
    """Draw from [0, 1), for waiting times; noise never goes through floating point.

    >>> uniform(lambda n: bytes(n)), uniform(lambda n: b"\\xff" * n) < 1
    (0.0, True)
    """
    return (int.from_bytes(random_bytes(7), "little") >> 3) / (1 << 53)


def uniform_below(n: int, random_bytes: RandomBytes) -> int:
    """Draw a whole number in [0, n), each exactly as likely: what is too large is drawn again.

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


def draw(items: list[T], number: int, random_bytes: RandomBytes) -> list[T]:
    """Take so many items out of a list, or all if there are fewer, each choice in each order exactly as likely.

    >>> draw(["a", "b", "c"], 3, lambda n: bytes(n))
    ['a', 'c', 'b']
    """
    drawn = []
    for _ in range(min(number, len(items))):
        i = uniform_below(len(items), random_bytes)
        items[i], items[-1] = items[-1], items[i]
        drawn.append(items.pop())
    return drawn
