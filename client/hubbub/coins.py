"""Where randomness comes from: the one seam, and words of k bits read through it.

Conventions: a word is `ceil(num_bits / 8)` bytes, little-endian, its high bits dropped; bit i of a word is
`(word >> i) & 1`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

Coins = Callable[[int], bytes]
"""`coins(n)` gives n fresh uniform bytes."""

system_coins: Coins = os.urandom
"""The operating system's generator: no state in the process, so nothing to share across a fork."""

_WORDS_AT_ONCE = 8


def fresh_words(coins: Coins, num_bits: int) -> Iterator[int]:
    """Yield uniform words of `num_bits` bits for as long as they are asked for."""
    width = (num_bits + 7) // 8
    kept = (1 << num_bits) - 1
    from_bytes = int.from_bytes
    while True:
        block = coins(width * _WORDS_AT_ONCE)
        for start in range(0, len(block), width):
            yield from_bytes(block[start : start + width], "little") & kept
