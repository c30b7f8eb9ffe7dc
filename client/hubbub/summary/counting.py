"""Vectorized counting of bits, ones and patterns, without unpacking bits.

Conventions: cohorts (n,) uint8 or wider; rows (n, ceil(k / 8)) uint8, bit i of a report at bit i % 8 of byte i // 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
_BITS_OF_BYTE: Counts = (np.arange(256)[:, None] >> np.arange(8)) & 1


def count_bits(
    cohorts: NDArray[Any], rows: NDArray[np.uint8], num_cohorts: int, num_bits: int
) -> tuple[Counts, Counts]:
    """Return reports per cohort, (m,), and ones per cohort and bit, (m, k).

    For each byte column: the counts of byte values per cohort, (m, 256), times the bits of each byte value, (256, 8). Exact.

    >>> count_bits(np.array([1, 1]), np.array([[0b011], [0b001]], np.uint8), num_cohorts=2, num_bits=3)[1].tolist()
    [[0, 0, 0], [2, 1, 0]]
    """
    offsets = cohorts.astype(np.int64) * 256
    reports = np.bincount(cohorts, minlength=num_cohorts)
    ones = np.empty((num_cohorts, rows.shape[1] * 8), np.int64)
    for column in range(rows.shape[1]):
        occurrences = np.bincount(offsets + rows[:, column], minlength=num_cohorts * 256)
        ones[:, column * 8 : column * 8 + 8] = occurrences.reshape(num_cohorts, 256) @ _BITS_OF_BYTE
    return reports, ones[:, :num_bits]


def count_ones(rows: NDArray[np.uint8], num_bits: int) -> Counts:
    """Return the histogram of ones: reports with 0, 1, ... k ones, (k + 1,).

    >>> count_ones(np.array([[0b011], [0b001], [0b010]], np.uint8), num_bits=3).tolist()
    [0, 2, 1, 0]
    """
    width = rows.shape[1]
    word = next(size for size in (8, 4, 2, 1) if width % size == 0)
    words = np.bitwise_count(np.ascontiguousarray(rows).view(f"u{word}"))
    ones = words[:, 0].astype(np.uint16)
    for column in range(1, words.shape[1]):
        ones += words[:, column]
    return np.bincount(ones, minlength=num_bits + 1)


def count_patterns(cohorts: NDArray[Any], rows: NDArray[np.uint8], num_cohorts: int, num_bits: int) -> Counts:
    """Return reports per cohort and bit pattern, (m, 2**k), for k <= 16.

    >>> count_patterns(np.array([0, 0]), np.array([[3], [3]], np.uint8), num_cohorts=1, num_bits=2).tolist()
    [[0, 0, 0, 2]]
    """
    patterns = rows[:, 0].astype(np.int64)
    if rows.shape[1] == 2:
        patterns |= rows[:, 1].astype(np.int64) << 8
    occurrences = np.bincount((cohorts.astype(np.int64) << num_bits) | patterns, minlength=num_cohorts << num_bits)
    return occurrences.reshape(num_cohorts, 1 << num_bits)


@dataclass(frozen=True, slots=True, eq=False)
class CountProfile:
    """Cohort sizes and histogram of ones of some reports.

    Attributes
    ----------
    reports
        Shape (m,), reports per cohort.
    ones_histogram
        Shape (k + 1,), reports with 0, 1, ... k ones. None: it is unknown.
    num_periods
        Number of periods. 0: it is unknown.
    """

    reports: NDArray[np.int64]
    ones_histogram: NDArray[np.int64] | None
    num_periods: int

    @property
    def num_reports(self) -> int:
        """N, the number of reports."""
        return int(self.reports.sum())
