"""Where randomness comes from: the one seam, and words of k bits read through it.

Conventions: a word is `ceil(num_bits / 8)` bytes, little-endian, its high bits dropped; bit i of a word is
`(word >> i) & 1`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence
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


def shuffled(items: Sequence[T], coins: Coins) -> list[T]:
    """Return the items in a random order: that of 16 random bytes each, so every order is as likely but for n**2 / 2**129.

    >>> shuffled("abc", lambda n: b"".join(bytes([rank]) * 16 for rank in (2, 3, 1)))
    ['c', 'a', 'b']
    """
    if len(items) < 2:
        return list(items)
    drawn = coins(16 * len(items))
    return [items[i] for i in sorted(range(len(items)), key=lambda i: drawn[16 * i : 16 * i + 16])]
