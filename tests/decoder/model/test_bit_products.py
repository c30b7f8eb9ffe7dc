"""Sums over patterns of products over bits: compared with enumeration."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest

from hubbub_decoder.model.pattern_likelihood import BitProductSums


@pytest.mark.parametrize(("num_bits", "degree"), [(1, 1), (3, 2), (4, 8), (5, 3), (6, 0), (9, 2)])
def test_sums_match_enumeration_of_patterns_and_digits(num_bits: int, degree: int, unseen_seed: int) -> None:
    rng = np.random.default_rng(unseen_seed)
    functions, values = rng.random((3, 2)), rng.random(1 << num_bits)
    sums = BitProductSums.of_functions(functions, num_bits, degree)
    found = dict(zip(sums.digits.tolist(), sums(values).tolist(), strict=True))
    assert list(found) == sorted(found)
    expected = {
        sum(digit * 3**bit for bit, digit in enumerate(digits)): sum(
            value * prod(functions[digit, pattern >> bit & 1] for bit, digit in enumerate(digits))
            for pattern, value in enumerate(values.tolist())
        )
        for digits in product(range(3), repeat=num_bits)
        if sum(digits) <= degree
    }
    assert found == pytest.approx(expected, rel=1e-9)


def test_indices_find_the_sum_of_given_digits() -> None:
    sums = BitProductSums.of_functions(np.eye(2), 6, 2)
    assert sums.digits[sums.indices(np.array([0b100001, 0, 0b000010]))].tolist() == [0b100001, 0, 0b000010]
