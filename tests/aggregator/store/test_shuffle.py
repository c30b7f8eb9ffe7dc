"""Shuffle: reports lose their order and keep their contents."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
from scipy.stats import chisquare

from hubbub.testing import SeededBytes
from hubbub_aggregator.store.shuffle import shuffle_reports

ALPHA = 1e-6


def test_shuffle_keeps_cohort_and_bits_together() -> None:
    numbers = np.arange(200, dtype=np.uint8)
    rows = np.stack([numbers, 255 - numbers, numbers ^ 85], axis=1)
    cohorts, bits = shuffle_reports(numbers.tobytes(), rows.tobytes())
    assert sorted(cohorts) == sorted(numbers.tobytes())
    assert cohorts != numbers.tobytes()
    assert np.array_equal(np.frombuffer(bits, np.uint8).reshape(-1, 3), rows[list(cohorts)])


def test_shuffle_orders_are_equally_likely(unseen_seed: int) -> None:
    """All 24 orders of 4 reports, 200 expected of each: an order missing, or twice as likely, is seen for sure."""
    random_bytes = SeededBytes(unseen_seed)
    frequencies = Counter(shuffle_reports(b"\0\1\2\3", b"abcd", random_bytes)[0] for _ in range(24 * 200))
    assert chisquare([frequencies[bytes(order)] for order in permutations(range(4))]).pvalue > ALPHA
