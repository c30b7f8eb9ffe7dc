"""Reports of one commit, in an order that says nothing about who came when."""

from __future__ import annotations

import os

import numpy as np

from hubbub.coins import Coins


def shuffled(cohorts: bytes, rows: bytes, coins: Coins = os.urandom) -> tuple[bytes, bytes]:
    """Permute reports uniformly: sort them by 64 random bits each (two of n agree with chance < n**2 / 2**65).

    >>> from hubbub.testing import SeededCoins
    >>> shuffled(bytes([1, 2, 3]), b"aabbcc", SeededCoins(0))
    (b'\\x02\\x03\\x01', b'bbccaa')
    """
    n = len(cohorts)
    order = np.argsort(np.frombuffer(coins(8 * n), np.uint64))
    rows_of = np.frombuffer(rows, np.uint8).reshape(n, -1)
    return np.frombuffer(cohorts, np.uint8)[order].tobytes(), rows_of[order].tobytes()
