"""Independent Bernoulli bits with exact dyadic probabilities."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Literal

from hubbub.errors import HubbubError
from hubbub.randomness import RandomBytes

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
    >>> quarter(iter([0b0011, 0b0101])), quarter.max_words  # one where both digits of U are 0
    (8, 2)
    """

    __slots__ = ("_certain", "_digits", "_everything")

    def __init__(self, a: int, digits: int, num_bits: int) -> None:
        self._everything = (1 << num_bits) - 1
        self._certain = self._everything if a == 1 << digits else 0
        lowest_one = (a & -a).bit_length() - 1 if a else digits
        self._digits = tuple(a >> position & 1 for position in range(digits - 1, lowest_one - 1, -1))

    @property
    def max_words(self) -> int:
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


_WIDTHS = {1: "B", 2: "H", 4: "I", 8: "Q"}

_LITTLE: Iterator[Literal["little"]] = repeat("little")


class RandomWords:
    """Reads a block of bytes as `count` words of `width` bytes, each when it is asked for.

    Bits above the k that are meant are still there: whoever draws with them drops them.

    >>> list(RandomWords(width=2, count=2)(bytes([1, 2, 3, 4])))
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

    def block(self, random_bytes: RandomBytes) -> bytes:
        """Draw one block; raises HubbubError if coins run short."""
        block = random_bytes(self.num_bytes)
        if len(block) != self.num_bytes:
            raise HubbubError(f"coins({self.num_bytes}) gave {len(block)} bytes: noise would be missing")
        return block

    def fresh(self, random_bytes: RandomBytes) -> Iterator[int]:
        """Give uniform words for as long as they are asked for, a block at a time."""
        return chain.from_iterable(map(self, map(self.block, repeat(random_bytes))))
