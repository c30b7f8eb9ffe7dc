"""Where randomness comes from: the one seam, and words of k bits read through it.

Conventions: a word is `ceil(num_bits / 8)` bytes, little-endian, its high bits dropped; bit i of a word is
`(word >> i) & 1`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Literal, TypeVar

from hubbub.errors import HubbubError

T = TypeVar("T")
Coins = Callable[[int], bytes]
"""`coins(n)` gives n fresh uniform bytes."""

system_coins: Coins = os.urandom
"""The operating system's generator: no state in the process, so nothing to share across a fork."""

_WIDTHS = {1: "B", 2: "H", 4: "I", 8: "Q"}
_LITTLE: Iterator[Literal["little"]] = repeat("little")


class Words:
    """Reads a block of bytes as `count` words of `width` bytes, each when it is asked for.

    Bits above the k that are meant are still there: whoever draws with them drops them.

    >>> list(Words(width=2, count=2)(bytes([1, 2, 3, 4])))
    [513, 1027]
    """

    __slots__ = ("_places", "_unpack", "num_bytes")

    def __init__(self, width: int, count: int) -> None:
        self.num_bytes = width * count
        self._places = tuple(slice(start, start + width) for start in range(0, self.num_bytes, width))
        self._unpack = struct.Struct(f"<{count}{_WIDTHS[width]}").unpack if width in _WIDTHS else None

    def __call__(self, block: bytes) -> Iterator[int]:
        if self._unpack is not None:
            return iter(self._unpack(block))
        return map(int.from_bytes, map(block.__getitem__, self._places), _LITTLE)

    def block(self, coins: Coins) -> bytes:
        """Draw one block; raises HubbubError if coins run short."""
        block = coins(self.num_bytes)
        if len(block) != self.num_bytes:
            raise HubbubError(f"coins({self.num_bytes}) gave {len(block)} bytes: noise would be missing")
        return block

    def fresh(self, coins: Coins) -> Iterator[int]:
        """Give uniform words for as long as they are asked for, a block at a time."""
        return chain.from_iterable(map(self, map(self.block, repeat(coins))))


def uniform(coins: Coins) -> float:
    """Draw from [0, 1), for waiting times; noise never goes through floating point.

    >>> uniform(lambda n: bytes(n)), uniform(lambda n: b"\\xff" * n) < 1
    (0.0, True)
    """
    return (int.from_bytes(coins(7), "little") >> 3) / (1 << 53)


def below(n: int, coins: Coins) -> int:
    """Draw a whole number in [0, n), each exactly as likely: what is too large is drawn again.

    >>> draws = iter([b"\\x03", b"\\x01"])
    >>> below(3, lambda n: next(draws))
    1
    """
    bits = (n - 1).bit_length()
    width = (bits + 7) // 8
    while bits:
        drawn = int.from_bytes(coins(width), "little") & ((1 << bits) - 1)
        if drawn < n:
            return drawn
    return 0


def draw(items: list[T], number: int, coins: Coins) -> list[T]:
    """Take so many items out of a list, or all if there are fewer, each choice in each order exactly as likely.

    >>> draw(["a", "b", "c"], 3, lambda n: bytes(n))
    ['a', 'c', 'b']
    """
    drawn = []
    for _ in range(min(number, len(items))):
        i = below(len(items), coins)
        items[i], items[-1] = items[-1], items[i]
        drawn.append(items.pop())
    return drawn
