"""Validation of Params."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from hubbub import ParameterError, Params

GOOD: dict[str, Any] = {
    "num_bits": 128,
    "num_hashes": 2,
    "num_cohorts": 64,
    "prob_p": 0.5,
    "prob_q": 0.75,
    "prob_f": 0.5,
}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("prob_f", 1, "prob_f must be in [0, 1), got 1: at f = 1 every bit is a fair coin"),
        ("prob_f", 1.0, "got 1.0: at f = 1"),
        ("prob_f", -0.1, "prob_f must be in [0, 1], got -0.1"),
        ("prob_f", 1e-9, "prob_f must be 0, 1 or at least 2**-23 from both"),
        ("prob_p", 1.5, "prob_p must be in [0, 1], got 1.5"),
        ("prob_q", 0.5, "prob_p and prob_q must differ, got 0.5 twice"),
        ("num_bits", 0, "num_bits must be an integer in [1, 1024], got 0"),
        ("num_bits", 1025, "got 1025"),
        ("num_bits", 16.0, "got 16.0"),
        ("num_bits", True, "got True"),
        ("num_hashes", 128, "num_hashes must be below num_bits, got 128 of 128"),
        ("num_hashes", 0, "num_hashes must be an integer"),
        ("num_cohorts", 0, "num_cohorts must be an integer"),
        ("hash_scheme", "sha1", "hash_scheme must be one of murmur3-v1, google-md5, one-hot, got 'sha1'"),
        ("hash_scheme", "one-hot", "one-hot needs num_hashes = 1 and num_cohorts = 1, got 2 and 64"),
    ],
)
def test_rejects_invalid_parameters_with_value_rule_and_next_step(field: str, value: object, message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        Params(**{**GOOD, field: value})
    assert message in str(caught.value)


def test_rejects_google_md5_with_too_many_bits_or_hashes() -> None:
    with pytest.raises(ParameterError, match="num_bits <= 256 and num_hashes <= 16, got 512 and 2"):
        Params(**{**GOOD, "num_bits": 512, "hash_scheme": "google-md5"})


def test_p_star_and_q_star_are_exact() -> None:
    """p* and q* need 48 binary digits, which a float holds exactly."""
    params = Params(**{**GOOD, "prob_p": 0.39, "prob_q": 0.61, "prob_f": 0.45})
    p, q, g = Fraction(params.prob_p), Fraction(params.prob_q), Fraction(params.prob_f) / 2
    assert Fraction(params.p_star) == (1 - g) * p + g * q
    assert Fraction(params.q_star) == (1 - g) * q + g * p


def test_p_star_and_q_star_match_the_rappor_paper() -> None:
    params = Params(**GOOD)
    assert (params.p_star, params.q_star) == (0.5625, 0.6875)
