"""Validation of Params."""

from __future__ import annotations

import math
import pickle
import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from hubbub import ParameterError, Params
from hubbub.mechanisms.unary import UnaryResponse

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
        ("prob_f", -0.1, "prob_f must be a number in [0, 1], got -0.1"),
        ("prob_f", 1e-9, "prob_f must be 0, 1 or at least 2**-23 from both"),
        ("prob_p", 1.5, "prob_p must be a number in [0, 1], got 1.5"),
        ("prob_q", 0.5, "prob_p and prob_q must differ, got 0.5 twice"),
        ("num_bits", 0, "num_bits must be an integer in [1, 1024], got 0"),
        ("num_bits", 1025, "got 1025"),
        ("num_bits", 16.0, "got 16.0"),
        ("num_bits", True, "got True"),
        ("num_hashes", 128, "num_hashes must be below num_bits, got 128 of 128"),
        ("num_hashes", 0, "num_hashes must be an integer"),
        ("num_cohorts", 0, "num_cohorts must be an integer"),
        (
            "hash_scheme",
            "sha1",
            "hash_scheme must be one of one-hot, threshold-v1, murmur3-v1, google-md5, set-v1, set-row-v1, set-hash-v1, got 'sha1'",
        ),
        ("hash_scheme", "one-hot", "one-hot needs num_hashes = 1 and num_cohorts = 1, got 2 and 64"),
    ],
)
def test_rejects_invalid_parameters_with_value_rule_and_next_step(field: str, value: object, message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        Params(**{**GOOD, field: value})
    assert message in str(caught.value)


SHAPE: dict[str, Any] = {name: GOOD[name] for name in GOOD if name != "prob_f"}


@pytest.mark.parametrize(
    ("response", "message"),
    [
        ({}, "prob_f is missing: pass prob_p, prob_q"),
        ({"permanent_p": 0.1}, "the permanent response has permanent_p = 0.1: it is either symmetric or has two"),
        ({"permanent_q": 0.5}, "has permanent_q = 0.5"),
        ({"prob_f": 0.5, "permanent_q": 0.5}, "has prob_f = 0.5, permanent_q = 0.5"),
        (
            {"prob_f": 0.5, "permanent_p": 0.25, "permanent_q": 0.75},
            "pass prob_f alone, or permanent_p and permanent_q",
        ),
        ({"permanent_p": 0.5, "permanent_q": 0.5}, "permanent_p must be below permanent_q, got 0.5 and 0.5"),
        ({"permanent_p": 0.5, "permanent_q": 0.25}, "permanent bits would be inverted; use permanent_p = 0.125"),
        ({"permanent_p": 0.1, "permanent_q": 1.5}, "permanent_q must be a number in [0, 1], got 1.5"),
        ({"permanent_p": 1e-9, "permanent_q": 0.5}, "permanent_p must be 0, 1 or at least 2**-24 from both"),
        ({"permanent_p": 0.1, "permanent_q": "1/2"}, "permanent_q must be a number in [0, 1], got '1/2'"),
        ({"permanent_p": True, "permanent_q": 0.5}, "permanent_p must be a number in [0, 1], got True"),
        ({"permanent_p": math.nan, "permanent_q": 0.5}, "permanent_p must be a number in [0, 1], got nan"),
    ],
)
def test_rejects_invalid_permanent_response(response: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        Params(**SHAPE, **response)
    assert message in str(caught.value)


def test_rejects_asymmetric_response_of_one_bit() -> None:
    noise = {"prob_p": 0.25, "prob_q": 0.75}
    with pytest.raises(ParameterError, match=r"of one bit must add up to 1, got 0\.1 and 0\.5: .*; use prob_f"):
        Params.one_hot(1, **noise, permanent_p=0.1, permanent_q=0.5)
    assert Params.one_hot(1, **noise, permanent_p=0.25, permanent_q=0.75).mechanism.prob_f == 0.5
    assert Params.one_hot(2, **noise, permanent_p=0.1, permanent_q=0.5).mechanism.prob_f is None


def test_symmetric_pair_equals_prob_f(unseen_seed: int) -> None:
    """Every pair with permanent_q = 1 - permanent_p, and its neighbours at a distance of 2**-24."""
    chance = random.Random(unseen_seed)  # noqa: S311
    for n in (0, 1, 2**23 - 1, *(chance.randrange(1, 2**23) for _ in range(200))):
        b = n / 2**24
        pair, symmetric = Params(**SHAPE, permanent_p=b, permanent_q=1 - b), Params(**SHAPE, prob_f=2 * b)
        assert pair == symmetric
        assert (pair.mechanism.prob_f, pair.mechanism.permanent_p, pair.mechanism.permanent_q) == (2 * b, b, 1 - b)
        assert pair.mechanism.fields.items() >= {"prob_f": 2 * b}.items()
        if 0 < n < 2**23 - 1:
            near = Params(**SHAPE, permanent_p=b, permanent_q=1 - b - 2**-24)
            assert near.mechanism.prob_f is None
            assert near.mechanism.fields.items() >= {"permanent_p": b, "permanent_q": 1 - b - 2**-24}.items()


def test_params_survive_copies() -> None:
    responses: list[dict[str, Any]] = [{"prob_f": 0.3}, {"permanent_p": 0.1, "permanent_q": 0.5}]
    for response in responses:
        params = Params(**SHAPE, **response)
        assert pickle.loads(pickle.dumps(params)) == params  # noqa: S301
        assert replace(params, num_bits=64) == Params(**{**SHAPE, "num_bits": 64}, **response)
        assert eval(repr(params), {"Params": Params, "UnaryResponse": UnaryResponse}) == params  # noqa: S307


def test_rejects_mechanism_together_with_its_probabilities() -> None:
    mechanism = Params(**SHAPE, prob_f=0.5).mechanism
    assert Params(num_bits=8, num_hashes=2, num_cohorts=1, mechanism=mechanism).mechanism is mechanism
    with pytest.raises(ParameterError, match="given together with prob_q: pass the mechanism or its probabilities"):
        Params(num_bits=8, num_hashes=2, num_cohorts=1, mechanism=mechanism, prob_q=0.5)


def test_rejects_mechanism_of_another_type() -> None:
    with pytest.raises(ParameterError, match="mechanism must be a Mechanism, got dict"):
        Params(num_bits=8, num_hashes=2, num_cohorts=1, mechanism={"prob_p": 0.25})  # type: ignore[arg-type]


@pytest.mark.parametrize(("num_bits", "most"), [(1, 16), (256, 16), (257, 8), (1024, 8)])
def test_google_md5_has_as_many_hashes_as_md5_has_bytes(num_bits: int, most: int) -> None:
    sizes = {**GOOD, "num_bits": num_bits, "hash_scheme": "google-md5"}
    assert Params(**{**sizes, "num_hashes": most}).possible_ones == range(min(num_bits, most) + 1)
    with pytest.raises(ParameterError, match=f"at most {most} hashes, got {most + 1}"):
        Params(**{**sizes, "num_hashes": most + 1})


def test_p_star_and_q_star_are_exact() -> None:
    """p* and q* need 48 binary digits, which a float holds exactly."""
    params = Params(**{**GOOD, "prob_p": 0.39, "prob_q": 0.61, "prob_f": 0.45})
    p, q, g = (
        Fraction(params.mechanism.prob_p),
        Fraction(params.mechanism.prob_q),
        Fraction(params.mechanism.permanent_p),
    )
    assert params.mechanism.prob_f == 2 * g
    assert Fraction(params.mechanism.p_star) == (1 - g) * p + g * q
    assert Fraction(params.mechanism.q_star) == (1 - g) * q + g * p


def test_p_star_and_q_star_of_an_asymmetric_response_are_exact() -> None:
    params = Params(**{**SHAPE, "prob_p": 0.39, "prob_q": 0.61}, permanent_p=0.013, permanent_q=0.57)
    p, q, b, a = map(
        Fraction,
        (params.mechanism.prob_p, params.mechanism.prob_q, params.mechanism.permanent_p, params.mechanism.permanent_q),
    )
    assert Fraction(params.mechanism.p_star) == (1 - b) * p + b * q
    assert Fraction(params.mechanism.q_star) == (1 - a) * p + a * q


def test_p_star_and_q_star_match_the_rappor_paper() -> None:
    params = Params(**GOOD)
    assert (params.mechanism.p_star, params.mechanism.q_star) == (0.5625, 0.6875)
