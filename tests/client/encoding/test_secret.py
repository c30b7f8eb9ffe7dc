"""Client secret, cohort and streams."""

from __future__ import annotations

import copy
import pickle

import pytest
from scipy import stats

from hubbub import ParameterError, Secret
from hubbub.testing import SeededBytes

KEY = bytes(range(32))


def test_secret_is_in_no_repr_or_pickle() -> None:
    secret = Secret(KEY)
    assert repr(secret) == str(secret) == f"{secret}" == "<secret>"
    assert not hasattr(secret, "__dict__")
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(secret)
    with pytest.raises(TypeError, match="cannot be pickled"):
        copy.deepcopy(secret)


@pytest.mark.parametrize("key", [b"", b"short", bytes(31), bytes(33), "x" * 32, None, bytearray(32)])
def test_rejects_secret_of_another_length_without_repeating_it(key: object) -> None:
    with pytest.raises(ParameterError, match=r"a secret must have 32 bytes, got .*: use Secret\.generate") as caught:
        Secret(key)  # type: ignore[arg-type]
    assert "short" not in str(caught.value)
    assert "of no bytes" not in str(caught.value)


def test_cohort_depends_on_the_secret_only_modulo_m() -> None:
    """All cohorts of a client together reveal log2(largest m) bits."""
    for number in range(200):
        secret = Secret.generate(SeededBytes(number))
        c0 = secret.cohort(256)
        assert [secret.cohort(1 << bits) for bits in range(9)] == [c0 % (1 << bits) for bits in range(9)]


def test_cohorts_are_uniform(unseen_seed: int) -> None:
    """Chi-squared over 256 cohorts, 50 expected each, alpha = 1e-6."""
    random_bytes = SeededBytes(unseen_seed)
    frequencies = [0] * 256
    for _ in range(256 * 50):
        frequencies[Secret.generate(random_bytes).cohort(256)] += 1
    assert stats.chisquare(frequencies).pvalue > 1e-6


def test_streams_of_different_fields_never_coincide() -> None:
    """Fields are prefixed by their lengths, so moving a byte to the next field changes the stream."""
    secret = Secret(KEY)
    streams = [
        secret.stream("a", b"bc"),
        secret.stream("ab", b"c"),
        secret.stream("a", b"b", b"c"),
        secret.stream("a", b"bc", b""),
        secret.stream("a", b"", b"bc"),
        secret.stream("a"),
    ]
    assert len({stream.digest(16) for stream in streams}) == len(streams)
