"""Shuffle and sort reports, so that their order does not reveal the order of arrival."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from hubbub.randomness import RandomBytes


def shuffle_reports(cohorts: bytes, rows: bytes, random_bytes: RandomBytes = os.urandom) -> tuple[bytes, bytes]:
    """Return reports in a uniformly random order: sorted by 64 random bits each.

    Any two of n reports have equal bits with probability below n**2 / 2**65.


    >>> from hubbub.testing import SeededBytes
    >>> shuffle_reports(bytes([1, 2, 3]), b"aabbcc", SeededBytes(0))
    (b'\\x02\\x03\\x01', b'bbccaa')
    """
    n = len(cohorts)
    order = np.argsort(np.frombuffer(random_bytes(8 * n), np.uint64))
    rows_of = np.frombuffer(rows, np.uint8).reshape(n, -1)
    return np.frombuffer(cohorts, np.uint8)[order].tobytes(), rows_of.take(order, axis=0).tobytes()


def sort_reports(cohorts: bytes, rows: bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return reports sorted by cohort and bits, as arrays cohorts (n,) and bits (n, ceil(k / 8)); n >= 1.

    The result does not depend on the order of the input.

    >>> [part.tolist() for part in sort_reports(bytes([3, 1, 3]), b"bbcaaa")]
    [[1, 3, 3], [[99, 97], [97, 97], [98, 98]]]
    """
    n = len(cohorts)
    width = 1 + len(rows) // n
    joined = np.hstack([np.frombuffer(part, np.uint8).reshape(n, -1) for part in (cohorts, rows)])
    ordered = np.sort(joined.view(f"S{width}").ravel()).view(np.uint8).reshape(n, width)
    return ordered[:, 0], ordered[:, 1:]
