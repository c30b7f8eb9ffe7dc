"""Keyed tags and encrypted values."""

from __future__ import annotations

import math

import pytest

from hubbub import Metric, Params, Secret
from hubbub.encoding.bloom import bloom_bits
from hubbub.encoding.sealed_values import Sealer
from hubbub.metrics.kinds import BloomBits
from hubbub.randomness import system_random_bytes
from tests.client.conftest import HOMEPAGE, SURVEY


def test_sealed_bits_open_only_with_the_same_secret() -> None:
    mine, other = (Sealer(HOMEPAGE, Secret(bytes([n]) * 32), system_random_bytes) for n in (1, 2))
    for bloom in map(BloomBits, (0, 1, 1 << 63, 0b1010)):
        sealed = mine.seal(bloom)
        assert mine.open(sealed) == bloom != other.open(sealed)
        assert mine.seal(bloom) != sealed


@pytest.mark.parametrize("number", [0.0, 12.5, -1e300])
def test_sealed_number_opens_only_with_the_same_secret(number: float) -> None:
    mine, other = (Sealer(HOMEPAGE, Secret(bytes([n]) * 32), system_random_bytes) for n in (1, 2))
    sealed = mine.seal_number(number)
    assert len(sealed) == 16 + 8
    assert mine.open_number(sealed) == number != other.open_number(sealed)
    assert mine.seal_number(number) != sealed


def test_bytes_that_are_no_sealed_number_open_as_none() -> None:
    sealer = Sealer(HOMEPAGE, Secret(bytes(32)), system_random_bytes)
    sealed = sealer.seal_number(12.5)
    for damaged in (b"", sealed[:8], sealed[:16], sealed[:-1], sealed + b"0"):
        assert sealer.open_number(damaged) is None
    for number in (math.inf, math.nan):
        assert sealer.open_number(sealer.seal_number(number)) is None


def test_tag_depends_on_bits_metric_and_secret() -> None:
    secret, other = Secret(bytes(32)), Secret(bytes([1]) * 32)
    sealer = Sealer(HOMEPAGE, secret, system_random_bytes)
    tags = {
        sealer.tag(BloomBits(1)),
        sealer.tag(BloomBits(1)),
        sealer.tag(BloomBits(2)),
        Sealer(HOMEPAGE, other, system_random_bytes).tag(BloomBits(1)),
        Sealer(SURVEY, secret, system_random_bytes).tag(BloomBits(1)),
    }
    assert len(tags) == 4
    assert all(len(tag) == 16 for tag in tags)


def test_values_with_equal_bits_have_tags_and_sealed_digests_of_their_own() -> None:
    params = Params(num_bits=8, num_hashes=1, num_cohorts=1, prob_p=0.2, prob_q=0.8, permanent_p=0.1, permanent_q=0.5)
    metric, secret = Metric.string("pages", params), Secret(bytes(32))
    sealer = Sealer(metric, secret, system_random_bytes)
    values = [bloom_bits(metric, f"v{i}", 0) for i in range(40)]
    assert len(set(values)) <= 8
    assert len({sealer.tag(value) for value in values}) == 40
    for value in (*values, bloom_bits(metric, None, 0)):
        opened = sealer.open(sealer.seal(value))
        assert opened == value
        assert sealer.tag(opened) == sealer.tag(value)
    assert {len(sealer.seal(value)) for value in (*values, bloom_bits(metric, None, 0))} == {16 + 1 + 16}
