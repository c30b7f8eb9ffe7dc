"""Exact dyadic probabilities of masks."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.errors import ParameterError
from hubbub.mechanisms.bernoulli import BernoulliMask
from hubbub.mechanisms.probability import DYADIC_DIGITS, numerator, round_to_dyadic


@pytest.mark.parametrize("digits", [1, 2, 3, 4])
def test_mask_distribution_is_exact_over_all_words(digits: int) -> None:
    """For every a and all 4**r sequences of 2-bit words: independent bits, each one with probability a / 2**r."""
    for a in range((1 << digits) + 1):
        frequencies = Counter(
            BernoulliMask(a, digits, 2)(iter(words)) for words in itertools.product(range(4), repeat=digits)
        )
        one = Fraction(a, 1 << digits)
        for mask in range(4):
            expected = (one if mask & 1 else 1 - one) * (one if mask & 2 else 1 - one)
            assert Fraction(frequencies[mask], 4**digits) == expected, (a, digits, mask)


@pytest.mark.parametrize("a", [0, 1, 2**22 - 1, 2**22, 2**23, 2**24 - 1, 2**24, 0xABCDEF, 0x000001 << 12])
def test_bit_probability_is_exact_at_24_digits(a: int) -> None:
    """All sequences of random digits, by the recursion P_j = (digit + P_(j-1)) / 2 from the lowest digit up."""
    by_recursion = Fraction(1 if a == 1 << DYADIC_DIGITS else 0)
    for position in range(DYADIC_DIGITS):
        by_recursion = (Fraction(a >> position & 1) + by_recursion) / 2 if a < 1 << DYADIC_DIGITS else by_recursion
    assert _probability_of_one(a) == by_recursion == Fraction(a, 1 << DYADIC_DIGITS)


def _probability_of_one(a: int) -> Fraction:
    total, open_prefixes = Fraction(0), [()]
    prefixes: list[tuple[int, ...]] = list(open_prefixes)
    while prefixes:
        prefix = prefixes.pop()
        words = iter(prefix)
        try:
            mask = BernoulliMask(a, DYADIC_DIGITS, 1)(words)
        except StopIteration:
            prefixes += [(*prefix, 0), (*prefix, 1)]
            continue
        assert next(words, None) is None, "a word was drawn and not used"
        total += Fraction(mask, 2 ** len(prefix))
    return total


def test_wide_mask_draws_every_position() -> None:
    """Words of ones leave all positions undecided until the lowest digit, which decides all k bits."""
    k = 1024
    everything = (1 << k) - 1
    a = (1 << DYADIC_DIGITS) - 1
    assert BernoulliMask(a, DYADIC_DIGITS, k)(iter([everything] * DYADIC_DIGITS)) == 0
    assert BernoulliMask(a, DYADIC_DIGITS, k)(iter([everything] * (DYADIC_DIGITS - 1) + [0])) == everything


@pytest.mark.parametrize("a", [0, 1 << DYADIC_DIGITS])
def test_probabilities_0_and_1_consume_no_words(a: int) -> None:
    def no_words() -> Iterator[int]:
        raise AssertionError("a word was drawn")
        yield 0

    assert BernoulliMask(a, DYADIC_DIGITS, 5)(no_words()) == (0 if a == 0 else 31)


@given(st.floats(0, 1), st.sampled_from([DYADIC_DIGITS - 1, DYADIC_DIGITS]))
def test_rounds_to_the_nearest_dyadic_fraction(probability: float, digits: int) -> None:
    half_a_step = Fraction(1, 2 << digits)
    try:
        held = round_to_dyadic("prob", probability, digits)
    except ParameterError:
        assert 0 < probability < 1
        assert min(Fraction(probability), 1 - Fraction(probability)) <= half_a_step
        return
    assert abs(Fraction(held) - Fraction(probability)) <= half_a_step
    assert Fraction(numerator(held, digits), 1 << digits) == Fraction(held)
    assert round_to_dyadic("prob", held, digits) == held


@pytest.mark.parametrize("probability", [-0.1, 1.1, float("nan"), float("inf"), 1e-9, 1 - 1e-9, "0.5", True, None])
def test_rejects_unrepresentable_probability_with_name_and_value(probability: object) -> None:
    with pytest.raises(ParameterError, match=r"prob_p must be .* got"):
        round_to_dyadic("prob_p", probability, DYADIC_DIGITS)  # type: ignore[arg-type]
