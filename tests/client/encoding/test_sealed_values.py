"""Keyed tags and encrypted values."""

from __future__ import annotations

from hubbub import Secret
from hubbub.encoding.sealed_values import Sealer
from hubbub.randomness import system_random_bytes
from tests.client.conftest import HOMEPAGE, SURVEY


def test_sealed_bits_open_only_with_the_same_secret() -> None:
    mine, other = (Sealer(HOMEPAGE, Secret(bytes([n]) * 32), system_random_bytes) for n in (1, 2))
    for bloom in (0, 1, 1 << 63, 0b1010):
        sealed = mine.seal(bloom)
        assert mine.open(sealed) == bloom != other.open(sealed)
        assert mine.seal(bloom) != sealed


def test_tag_depends_on_bits_metric_and_secret() -> None:
    secret, other = Secret(bytes(32)), Secret(bytes([1]) * 32)
    sealer = Sealer(HOMEPAGE, secret, system_random_bytes)
    tags = {
        sealer.tag(1),
        sealer.tag(1),
        sealer.tag(2),
        Sealer(HOMEPAGE, other, system_random_bytes).tag(1),
        Sealer(SURVEY, secret, system_random_bytes).tag(1),
    }
    assert len(tags) == 4
    assert all(len(tag) == 16 for tag in tags)
