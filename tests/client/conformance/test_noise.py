"""The test of noise has its error probability, and finds coins that are biased, dependent or missing."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from scipy.stats import binom

from hubbub.conformance.noise import FALSE_ALARM, find_bias, is_refuted

NUM_BITS, REPORTS = 128, 192
SETS = REPORTS + NUM_BITS + 1
PERMANENT = Random(0).getrandbits(NUM_BITS)  # noqa: S311  (any bits)


def noisy(coins: np.ndarray) -> list[int]:
    """Reports with the permanent bits, of which those without a coin are flipped. coins : (reports, bits), whether a bit is kept"""
    packed = np.packbits(~coins, axis=1, bitorder="little")
    return [PERMANENT ^ int.from_bytes(row.tobytes(), "little") for row in packed]


@pytest.mark.parametrize("trials", [NUM_BITS, REPORTS, NUM_BITS * REPORTS])
def test_each_set_is_refuted_with_its_share_of_the_error_probability(trials: int) -> None:
    """By the exact binomial law of its number of kept bits."""
    numbers, alpha = np.arange(trials + 1), FALSE_ALARM / SETS
    refuted = np.array([is_refuted(int(number), trials, 0.75, alpha) for number in numbers])
    assert alpha / 100 < binom.pmf(numbers, trials, 0.75)[refuted].sum() <= alpha


@pytest.mark.parametrize(
    ("coins", "found"),
    [
        (lambda rng: rng.random((REPORTS, NUM_BITS)) < 0.75, None),
        (lambda rng: rng.random((REPORTS, NUM_BITS)) < 0.785, "bits of all reports were kept, and 18,432 are expected"),
        (
            lambda rng: (rng.random((REPORTS, NUM_BITS)) < 0.75) | (np.arange(NUM_BITS) == 127),
            "192 of 192 bits of bit 127",
        ),
        (lambda rng: np.repeat(rng.random((REPORTS, 4)) < 0.75, 32, axis=1), "bits of report"),
    ],
    ids=["the declared noise", "a little bias", "one bit without noise", "one coin for 32 bits"],
)
def test_coins(coins: object, found: str | None, unseen_seed: int) -> None:
    """Each is found, or not, with a probability of at least 1 - 1e-6."""
    bias = find_bias(noisy(coins(np.random.default_rng(unseen_seed))), PERMANENT, NUM_BITS, 0.75)  # type: ignore[operator]
    assert (bias is None) == (found is None)
    assert found is None or found in str(bias)
