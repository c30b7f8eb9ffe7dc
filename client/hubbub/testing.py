"""Plain objects for tests of hosts that embed hubbub, and for our own: repeatable coins.

Never for production: noise that can be repeated can be removed.
"""

from __future__ import annotations

import hashlib


class SeededCoins:
    """Coins that repeat: a SHAKE-256 stream of a seed, read from its start.

    >>> SeededCoins(b"a seed")(4) == SeededCoins(b"a seed")(4)
    True
    """

    _BLOCK = 1 << 16

    def __init__(self, seed: bytes | str | int) -> None:
        self._seed = repr(seed).encode()
        self._blocks = 0
        self._left = b""

    def __call__(self, num_bytes: int) -> bytes:
        while len(self._left) < num_bytes:
            block = hashlib.shake_256(self._blocks.to_bytes(8, "little") + self._seed).digest(self._BLOCK)
            self._left += block
            self._blocks += 1
        drawn, self._left = self._left[:num_bytes], self._left[num_bytes:]
        return drawn
