"""Words of independent Bernoulli bits with exact dyadic probabilities.

Conventions: a word is ceil(k / 8) bytes, little-endian; bit i of a word is `(word >> i) & 1`, and bits from k on are ignored.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import chain, repeat
from typing import TYPE_CHECKING, Literal

from hubbub.errors import HubbubError
from hubbub.randomness import RandomBytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_DIGITS_OF_HALF = (1,)


class BernoulliMask:
    """Mask of `num_bits` independent bits, each one with probability exactly a / 2**digits.

        bit = 1 where U < a / 2**digits          U = 0.u1 u2 ..., a uniform binary fraction per bit

    U is compared with the binary digits d1 d2 ... dr of a / 2**digits, most significant digit first. Each word contains one
    digit of U for all bits, and a position is decided at the first digit where the two differ. The comparison stops after the
    last one among d1 ... dr, because no undecided position can become one after it (docs/decisions/0001).

    a : in [0, 2**digits]; 0 and 2**digits consume no words

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
        """Largest number of words that one mask consumes; it consumes fewer if all positions are decided early."""
        return len(self._digits)

    def __call__(self, words: Iterator[int]) -> int:
        """Return one mask. Bits of the words from `num_bits` on are ignored. Raises StopIteration if there are too few words."""
        mask = self._certain
        undecided = self._everything
        if self._digits == _DIGITS_OF_HALF:
            return undecided & ~next(words)
        for digit in self._digits:
            same = undecided & next(words)
            if digit:
                mask |= undecided ^ same
                undecided = same
            else:
                undecided ^= same
            if not undecided:
                break
        return mask


_STRUCT_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}

_LITTLE_ENDIAN: Iterator[Literal["little"]] = repeat("little")


class RandomWords:
    """Reader of a block of bytes as `count` words of `width` bytes, decoded lazily. Bits from k on are not cleared.

    >>> list(RandomWords(width=2, count=2)(bytes([1, 2, 3, 4])))
    [513, 1027]
    """

    __slots__ = ("_slices", "_unpack", "num_bytes")

    def __init__(self, width: int, count: int) -> None:
        self.num_bytes = width * count
        self._slices = tuple(slice(start, start + width) for start in range(0, self.num_bytes, width))
        self._unpack = struct.Struct(f"<{count}{_STRUCT_CODES[width]}").unpack if width in _STRUCT_CODES else None

    def __call__(self, block: bytes) -> Iterator[int]:
        if self._unpack is not None:
            return iter(self._unpack(block))
        return map(int.from_bytes, map(block.__getitem__, self._slices), _LITTLE_ENDIAN)

    def draw_block(self, random_bytes: RandomBytes) -> bytes:
        """Return one block of random bytes; raises HubbubError if the source returns too few."""
        block = random_bytes(self.num_bytes)
        if len(block) != self.num_bytes:
            raise HubbubError(
                f"random_bytes({self.num_bytes}) returned {len(block)} bytes: noise would be missing from the report"
            )
        return block

    def stream(self, random_bytes: RandomBytes) -> Iterator[int]:
        """Return an infinite iterator of random words, drawn one block at a time."""
        return chain.from_iterable(map(self, map(self.draw_block, repeat(random_bytes))))


def draw_bits(probability: float, shape: tuple[int, ...], rng: np.random.RandomState) -> NDArray[np.bool_]:
    """Return random bits that are one with exactly the given probability, from about one random byte per bit, for simulations.

    A uniform binary fraction is compared with the probability. Its first 8 digits decide 255 of 256 bits; the others use 53 more
    digits. p* and q* have at most 48 digits.

    >>> import numpy as np
    >>> draw_bits(1.0, (3,), np.random.RandomState()).tolist()
    [True, True, True]
    """
    import numpy as np

    scaled = probability * 256
    whole = int(scaled)
    drawn = rng.randint(256, size=shape, dtype=np.uint8)
    bits = drawn < whole
    undecided = drawn == whole
    bits[undecided] = rng.random(np.count_nonzero(undecided)) < scaled - whole
    return bits
