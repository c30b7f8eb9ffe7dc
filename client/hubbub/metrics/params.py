"""Parameters of the RAPPOR mechanism (k, h, m, p, q, permanent response, hash scheme), validated."""

from __future__ import annotations

from dataclasses import dataclass

from hubbub.errors import ParameterError
from hubbub.metrics.probability import DYADIC_DIGITS, round_to_dyadic

HASH_SCHEMES = ("murmur3-v1", "google-md5", "one-hot", "threshold-v1")
"""Mappings from a value to bits: two Bloom filters, one bit per category, and one bit that compares a number with a threshold."""

PERMANENT_FIELDS = ("prob_f", "permanent_p", "permanent_q")
"""Fields of a definition that describe its permanent response: the first, or the two others."""

MAX_BITS = 1024
MAX_COHORTS = 1 << 16
MEAN_COHORTS = 16
"""Cohorts of a metric that estimates a mean: more hardly lower its variance."""


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class Params:
    """Parameters of RAPPOR: k, h, m, p, q of the paper, the permanent response, and the hash scheme.

    num_bits    : k, in [1, 1024]
    num_hashes  : h, in [1, k); one-hot and threshold-v1: exactly 1
    num_cohorts : m, in [1, 65536]; clients accept powers of two up to 256 only
    prob_p      : p = P(IRR bit = 1 | PRR bit = 0), in [0, 1], rounded to n / 2**24
    prob_q      : q = P(IRR bit = 1 | PRR bit = 1), in [0, 1], rounded to n / 2**24; q != p
    permanent_p : b = P(PRR bit = 1 | true bit = 0), in [0, 1], rounded to n / 2**24
    permanent_q : a = P(PRR bit = 1 | true bit = 1), in [0, 1], rounded to n / 2**24; a > b

    The permanent response is passed in one of two ways: as permanent_p and permanent_q, or as

    prob_f      : f = share of bits that the PRR replaces by a fair coin, in [0, 1), rounded to n / 2**23.
                  It is the symmetric response, permanent_p = f/2 and permanent_q = 1 - f/2, and None of all others

    One bit needs the symmetric response. The rounded probabilities are exact as floats. Sampling, privacy accounting and decoding
    all use them.

    Sources: Erlingsson, Pihur, Korolova 2014 (arXiv 1407.6981), sec. 2; for permanent_p != 1 - permanent_q, Arcolezi, Couchot,
    Al Bouna, Xiao 2022, "Improving the utility of locally differentially private protocols for longitudinal and
    multidimensional frequency estimates", sec. 3 (L-OSUE).

    >>> Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.5, prob_q=0.75, prob_f=0.5).q_star
    0.6875
    >>> Params(num_bits=128, num_hashes=1, num_cohorts=64, prob_p=0.25, prob_q=0.75, permanent_p=0.0625, permanent_q=0.5).p_star
    0.28125
    >>> Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.5, prob_q=0.75, prob_f=1)
    Traceback (most recent call last):
    hubbub.errors.ParameterError: prob_f must be in [0, 1), got 1: at f = 1 every bit is a fair coin and nothing can be decoded
    """

    num_bits: int
    num_hashes: int
    num_cohorts: int
    prob_p: float
    prob_q: float
    permanent_p: float
    permanent_q: float
    hash_scheme: str

    def __init__(
        self,
        *,
        num_bits: int,
        num_hashes: int,
        num_cohorts: int,
        prob_p: float,
        prob_q: float,
        prob_f: float | None = None,
        permanent_p: float | None = None,
        permanent_q: float | None = None,
        hash_scheme: str = "murmur3-v1",
    ) -> None:
        set_field = object.__setattr__
        set_field(self, "num_bits", num_bits)
        set_field(self, "num_hashes", num_hashes)
        set_field(self, "num_cohorts", num_cohorts)
        set_field(self, "hash_scheme", hash_scheme)
        self._check_sizes()
        b, a = _permanent_probabilities(prob_f, permanent_p, permanent_q)
        set_field(self, "permanent_p", b)
        set_field(self, "permanent_q", a)
        set_field(self, "prob_p", round_to_dyadic("prob_p", prob_p, DYADIC_DIGITS))
        set_field(self, "prob_q", round_to_dyadic("prob_q", prob_q, DYADIC_DIGITS))
        if self.prob_p == self.prob_q:
            raise ParameterError(
                f"prob_p and prob_q must differ, got {self.prob_p} twice: "
                "the report would not depend on the value; use prob_p = 0.25 and prob_q = 0.75, for example"
            )
        if num_bits == 1 and self.prob_f is None:
            raise ParameterError(
                f"permanent_p and permanent_q of one bit must add up to 1, got {b:.6g} and {a:.6g}: "
                "an asymmetric response protects one of the two values less than the other; use prob_f"
            )

    def _check_sizes(self) -> None:
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
        elif self.hash_scheme == "threshold-v1":
            if self.num_hashes != 1 or self.num_bits != 1:
                raise ParameterError(
                    "threshold-v1 needs num_bits = 1 and num_hashes = 1, "
                    f"got {self.num_bits} and {self.num_hashes}: a number is compared with one threshold"
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

    @classmethod
    def one_hot(
        cls,
        num_bits: int,
        *,
        prob_p: float,
        prob_q: float,
        prob_f: float | None = None,
        permanent_p: float | None = None,
        permanent_q: float | None = None,
    ) -> Params:
        """Return parameters of basic RAPPOR: one bit per category, no hashing, one cohort."""
        return cls(
            num_bits=num_bits,
            num_hashes=1,
            num_cohorts=1,
            prob_p=prob_p,
            prob_q=prob_q,
            prob_f=prob_f,
            permanent_p=permanent_p,
            permanent_q=permanent_q,
            hash_scheme="one-hot",
        )

    @property
    def prob_f(self) -> float | None:
        """f of a symmetric permanent response, exact; None if permanent_p != 1 - permanent_q."""
        return 2 * self.permanent_p if self.permanent_p + self.permanent_q == 1 else None

    @property
    def permanent_fields(self) -> dict[str, float]:
        """Arguments that define the permanent response, as in a definitions file: prob_f, or permanent_p and permanent_q."""
        f = self.prob_f
        return {"permanent_p": self.permanent_p, "permanent_q": self.permanent_q} if f is None else {"prob_f": f}

    @property
    def probabilities(self) -> dict[str, float]:
        """All probabilities by their short names: p and q; f, or permanent_p and permanent_q."""
        response = {"f" if name == "prob_f" else name: each for name, each in self.permanent_fields.items()}
        return {"p": self.prob_p, "q": self.prob_q, **response}

    @property
    def parts(self) -> tuple[Params, ...]:
        """Parameters of each part of a joint metric; of every other metric, these parameters alone."""
        return (self,)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Position of the first bit of each part."""
        return (0,)

    @property
    def has_permanent_noise(self) -> bool:
        """Return whether permanent bits may differ from true bits; false at f = 0."""
        return (self.permanent_p, self.permanent_q) != (0, 1)

    @property
    def p_star(self) -> float:
        """p* = (1 - b) p + b q, the probability that a reported bit is one if the true bit is 0; exact."""
        return (1 - self.permanent_p) * self.prob_p + self.permanent_p * self.prob_q

    @property
    def q_star(self) -> float:
        """q* = (1 - a) p + a q, the probability that a reported bit is one if the true bit is 1; exact."""
        return (1 - self.permanent_q) * self.prob_p + self.permanent_q * self.prob_q

    @property
    def row_bytes(self) -> int:
        """Bytes of one report's bits: ceil(k / 8)."""
        return (self.num_bits + 7) // 8


def _permanent_probabilities(
    prob_f: float | None, permanent_p: float | None, permanent_q: float | None
) -> tuple[float, float]:
    """Return permanent_p and permanent_q, rounded, of the arguments of a response."""
    if prob_f is not None and permanent_p is None and permanent_q is None:
        if prob_f == 1:
            raise ParameterError(
                f"prob_f must be in [0, 1), got {prob_f}: at f = 1 every bit is a fair coin and nothing can be decoded"
            )
        half = round_to_dyadic("prob_f", prob_f, DYADIC_DIGITS - 1) / 2
        return half, 1 - half
    if prob_f is None and permanent_p is not None and permanent_q is not None:
        b = round_to_dyadic("permanent_p", permanent_p, DYADIC_DIGITS)
        a = round_to_dyadic("permanent_q", permanent_q, DYADIC_DIGITS)
        if b >= a:
            raise ParameterError(
                f"permanent_p must be below permanent_q, got {b:.6g} and {a:.6g}: "
                + ("permanent bits would not depend on the value" if b == a else "permanent bits would be inverted")
                + "; use permanent_p = 0.125 and permanent_q = 0.5, for example"
            )
        return b, a
    given = ", ".join(
        f"{name} = {value}"
        for name, value in (("prob_f", prob_f), ("permanent_p", permanent_p), ("permanent_q", permanent_q))
        if value is not None
    )
    raise ParameterError(
        f"the permanent response has {given or 'no probabilities'}: it is either symmetric or has two probabilities; "
        "pass prob_f alone, or permanent_p and permanent_q without prob_f"
    )


def _check_integer(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ParameterError(f"{name} must be an integer in [{low}, {high}], got {value!r}")
