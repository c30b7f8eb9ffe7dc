"""Hash scheme murmur3-v1: distinct and uniform bits."""

from __future__ import annotations

import itertools

import mmh3
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hubbub.hashing import murmur3_v1

ALPHA = 1e-6


@given(st.binary(max_size=40), st.integers(0, 255), st.integers(2, 1024), st.data())
def test_murmur3_v1_sets_h_distinct_bits(value: bytes, cohort: int, num_bits: int, data: st.DataObject) -> None:
    num_hashes = data.draw(st.integers(1, min(16, num_bits - 1)))
    positions = murmur3_v1.bit_positions(value, cohort, num_bits, num_hashes)
    assert len(set(positions)) == num_hashes
    assert all(0 <= position < num_bits for position in positions)


@given(st.binary(max_size=20), st.integers(0, 255), st.integers(8, 64))
def test_murmur3_v1_takes_the_rth_free_position(value: bytes, cohort: int, num_bits: int) -> None:
    """A second implementation, with a list of free positions."""
    mask = (1 << 64) - 1
    g1, g2 = mmh3.hash64(value, 0, signed=False)
    base = murmur3_v1.mix(g1 ^ murmur3_v1.mix(cohort)) + g2
    free = list(range(num_bits))
    expected = [free.pop(((murmur3_v1.mix((base + i) & mask) >> 32) * (num_bits - i)) >> 32) for i in range(5)]
    assert murmur3_v1.bit_positions(value, cohort, num_bits, 5) == expected


@given(st.binary(max_size=20), st.integers(0, 255))
def test_murmur3_v1_uses_all_32_bits_of_a_position(value: bytes, cohort: int) -> None:
    """With 2**32 bits the position is the upper half of the mixed word."""
    g1, g2 = mmh3.hash64(value, 0, signed=False)
    word = murmur3_v1.mix((murmur3_v1.mix(g1 ^ murmur3_v1.mix(cohort)) + g2) % (1 << 64))
    assert murmur3_v1.bit_positions(value, cohort, 1 << 32, 1) == [word >> 32]


@pytest.mark.parametrize(("num_bits", "num_hashes"), [(8, 2), (13, 1), (9, 3)])
def test_bit_subsets_are_equally_likely_in_every_cohort(num_bits: int, num_hashes: int) -> None:
    """Chi-squared over all subsets, 60 expected each, for 16 cohorts, at alpha = 1e-6 together."""
    subsets = list(itertools.combinations(range(num_bits), num_hashes))
    for cohort in range(16):
        frequencies = dict.fromkeys(subsets, 0)
        for number in range(60 * len(subsets)):
            positions = murmur3_v1.bit_positions(b"value %d" % number, cohort, num_bits, num_hashes)
            frequencies[tuple(sorted(positions))] += 1
        assert stats.chisquare(list(frequencies.values())).pvalue > ALPHA / 16, cohort


def test_cohorts_hash_one_value_independently() -> None:
    """First bits of one value in cohorts 2j and 2j+1: a 8 x 8 table over values, alpha = 1e-6."""
    table = [[0] * 8 for _ in range(8)]
    for number in range(6400):
        value = b"another %d" % number
        even = murmur3_v1.bit_positions(value, 2 * (number % 64), 8, 1)[0]
        odd = murmur3_v1.bit_positions(value, 2 * (number % 64) + 1, 8, 1)[0]
        table[even][odd] += 1
    assert stats.chi2_contingency(table).pvalue > ALPHA
