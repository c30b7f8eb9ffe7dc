"""Parameters of the RAPPOR mechanism (k, h, m, p, q, f, hash scheme), validated."""

from __future__ import annotations

from dataclasses import dataclass

from hubbub.errors import ParameterError
from hubbub.metrics.probability import DYADIC_DIGITS, round_to_dyadic

HASH_SCHEMES = ("murmur3-v1", "google-md5", "one-hot")
"""Mappings from a value to bits: two Bloom filters, and one bit per category."""

MAX_BITS = 1024
MAX_COHORTS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Parameters of RAPPOR: k, h, m, p, q, f of the paper, and the hash scheme.

    num_bits    : k, in [1, 1024]
    num_hashes  : h, in [1, k); one-hot: exactly 1
    num_cohorts : m, in [1, 65536]; clients accept powers of two up to 256 only
    prob_p      : p = P(IRR bit = 1 | PRR bit = 0), in [0, 1], rounded to a / 2**24
    prob_q      : q = P(IRR bit = 1 | PRR bit = 1), in [0, 1], rounded to a / 2**24; q != p
    prob_f      : f = share of bits that the PRR replaces by a fair coin, in [0, 1), rounded to a / 2**23

    The rounded probabilities are exact as floats. Sampling, privacy accounting and decoding all use them.

    Source: Erlingsson, Pihur, Korolova 2014 (arXiv 1407.6981), sec. 2.

    >>> Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.5, prob_q=0.75, prob_f=0.5).q_star
    0.6875
    >>> Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.5, prob_q=0.75, prob_f=1)
    Traceback (most recent call last):
    hubbub.errors.ParameterError: prob_f must be in [0, 1), got 1: at f = 1 every bit is a fair coin and nothing can be decoded
    """

    num_bits: int
    num_hashes: int
    num_cohorts: int
    prob_p: float
    prob_q: float
    prob_f: float
    hash_scheme: str = "murmur3-v1"

    def __post_init__(self) -> None:
        if self.hash_scheme not in HASH_SCHEMES:
            raise ParameterError(f"hash_scheme must be one of {', '.join(HASH_SCHEMES)}, got {self.hash_scheme!r}")
        _check_integer("num_bits", self.num_bits, 1, MAX_BITS)
        _check_integer("num_cohorts", self.num_cohorts, 1, MAX_COHORTS)
        _check_integer("num_hashes", self.num_hashes, 1, MAX_BITS)
        if self.hash_scheme == "one-hot":
            if self.num_hashes != 1 or self.num_cohorts != 1:
                raise ParameterError(
                    "one-hot needs num_hashes = 1 and num_cohorts = 1, "
                    f"got {self.num_hashes} and {self.num_cohorts}: a category is one bit, the same in every client"
                )
        elif self.num_hashes >= self.num_bits:
            raise ParameterError(
                f"num_hashes must be below num_bits, got {self.num_hashes} of {self.num_bits}: "
                "a value that sets every bit cannot be distinguished; use fewer hashes or more bits"
            )
        if self.hash_scheme == "google-md5" and (self.num_bits > 256 or self.num_hashes > 16):
            raise ParameterError(
                "google-md5 uses one byte of MD5 per hash, so num_bits <= 256 and num_hashes <= 16, "
                f"got {self.num_bits} and {self.num_hashes}; use murmur3-v1"
            )
        if self.prob_f == 1:
            raise ParameterError(
                f"prob_f must be in [0, 1), got {self.prob_f}: "
                "at f = 1 every bit is a fair coin and nothing can be decoded"
            )
        set_field = object.__setattr__
        set_field(self, "prob_p", round_to_dyadic("prob_p", self.prob_p, DYADIC_DIGITS))
        set_field(self, "prob_q", round_to_dyadic("prob_q", self.prob_q, DYADIC_DIGITS))
        set_field(self, "prob_f", round_to_dyadic("prob_f", self.prob_f, DYADIC_DIGITS - 1))
        if self.prob_p == self.prob_q:
            raise ParameterError(
                f"prob_p and prob_q must differ, got {self.prob_p} twice: "
                "the report would not depend on the value; use prob_p = 0.25 and prob_q = 0.75, for example"
            )

    @classmethod
    def one_hot(cls, num_bits: int, *, prob_p: float, prob_q: float, prob_f: float) -> Params:
        """Return parameters of basic RAPPOR: one bit per category, no hashing, one cohort."""
        return cls(
            num_bits=num_bits,
            num_hashes=1,
            num_cohorts=1,
            prob_p=prob_p,
            prob_q=prob_q,
            prob_f=prob_f,
            hash_scheme="one-hot",
        )

    @property
    def p_star(self) -> float:
        """p* = (1 - f/2) p + (f/2) q, the probability that a reported bit is one if the true bit is 0; exact."""
        g = self.prob_f / 2
        return (1 - g) * self.prob_p + g * self.prob_q

    @property
    def q_star(self) -> float:
        """q* = (1 - f/2) q + (f/2) p, the probability that a reported bit is one if the true bit is 1; exact."""
        g = self.prob_f / 2
        return (1 - g) * self.prob_q + g * self.prob_p

    @property
    def row_bytes(self) -> int:
        """Bytes of one report's bits: ceil(k / 8)."""
        return (self.num_bits + 7) // 8


def _check_integer(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ParameterError(f"{name} must be an integer in [{low}, {high}], got {value!r}")
