"""Parameters of a block of bits: sizes (k, h, m), hash scheme and mechanism, validated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from hubbub.errors import ParameterError
from hubbub.mechanisms.mechanism import Mechanism, checked_mechanism, mechanism_of_fields
from hubbub.mechanisms.unary import UnaryResponse
from hubbub.metrics.hash_schemes import HASH_SCHEMES, HashScheme
from hubbub.number_checks import check_integer

MAX_BITS = 1024
MAX_COHORTS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class Params:
    """Parameters of RAPPOR: k, h and m of the paper, the hash scheme, and the randomized response of each bit.

    Parameters
    ----------
    num_bits
        k, in [1, 1024].
    num_hashes
        h, in [1, 1024]. "murmur3-v1" needs fewer than bits, "google-md5" has at most 16, any other hash scheme exactly 1.
    num_cohorts
        m, in [1, 65536]. Clients accept powers of two up to 256 only, and for sets the number of items.
    prob_p, prob_q
        Probability that a reported bit is one if the permanent bit is 0, and if it is 1.
    prob_f
        Probability that a permanent bit is replaced by a fair coin, in [0, 1).
    permanent_p, permanent_q
        In place of `prob_f`, the probability that a permanent bit is one if the true bit is 0, and if it is 1. One bit
        needs a symmetric response.
    hash_scheme
        Mapping from a value to bits: of strings "murmur3-v1", of imported ones "google-md5", of any other kind its own.
    mechanism
        Randomization of the bits, in place of the probabilities.

    Raises
    ------
    ParameterError
        An argument is out of range, or the arguments contradict each other.

    References
    ----------
    Erlingsson, Pihur, Korolova 2014 (arXiv 1407.6981), sec. 2.

    Examples
    --------
    >>> Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.5, prob_q=0.75, prob_f=0.5).mechanism.q_star
    0.6875
    >>> Params(num_bits=128, num_hashes=128, num_cohorts=64, prob_p=0.5, prob_q=0.75, prob_f=0.5)
    Traceback (most recent call last):
    hubbub.errors.ParameterError: num_hashes must be below num_bits, got 128 of 128: a value that sets every bit cannot be distinguished; use fewer hashes or more bits
    """

    num_bits: int
    num_hashes: int
    num_cohorts: int
    hash_scheme: str
    mechanism: Mechanism

    def __init__(
        self,
        *,
        num_bits: int,
        num_hashes: int,
        num_cohorts: int,
        prob_p: float | None = None,
        prob_q: float | None = None,
        prob_f: float | None = None,
        permanent_p: float | None = None,
        permanent_q: float | None = None,
        hash_scheme: str = "murmur3-v1",
        mechanism: Mechanism | None = None,
    ) -> None:
        set_field = object.__setattr__
        set_field(self, "num_bits", num_bits)
        set_field(self, "num_hashes", num_hashes)
        set_field(self, "num_cohorts", num_cohorts)
        set_field(self, "hash_scheme", hash_scheme)
        self._check_sizes()
        probabilities = {
            "prob_p": prob_p,
            "prob_q": prob_q,
            "prob_f": prob_f,
            "permanent_p": permanent_p,
            "permanent_q": permanent_q,
        }
        given = {name: probability for name, probability in probabilities.items() if probability is not None}
        if mechanism is None:
            mechanism = UnaryResponse.of_fields(given)
        elif given:
            raise ParameterError(
                f"mechanism was given together with {', '.join(given)}: pass the mechanism or its probabilities"
            )
        checked_mechanism(mechanism).check_block(num_bits, hash_scheme)
        set_field(self, "mechanism", mechanism)

    def _check_sizes(self) -> None:
        if not isinstance(self.hash_scheme, str) or self.hash_scheme not in HASH_SCHEMES:
            raise ParameterError(f"hash_scheme must be one of {', '.join(HASH_SCHEMES)}, got {self.hash_scheme!r}")
        check_integer("num_bits", self.num_bits, 1, MAX_BITS, hint="pass 128, for example")
        check_integer("num_cohorts", self.num_cohorts, 1, MAX_COHORTS, hint="pass 64, for example")
        check_integer("num_hashes", self.num_hashes, 1, MAX_BITS, hint="pass 2, for example")
        self.scheme.check_sizes(self.num_bits, self.num_hashes, self.num_cohorts)

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
        """Return parameters of basic RAPPOR: one bit per category, no hashing, one cohort.

        Parameters
        ----------
        num_bits
            Number of categories, k.
        prob_p, prob_q
            Probability that a reported bit is one if the permanent bit is 0, and if it is 1.
        prob_f
            Probability that a permanent bit is replaced by a fair coin, in [0, 1).
        permanent_p, permanent_q
            In place of `prob_f`, the probability that a permanent bit is one if the true bit is 0, and if it is 1.

        Returns
        -------
        Params
            Parameters with h = 1, m = 1 and the hash scheme "one-hot".

        Raises
        ------
        ParameterError
            An argument is out of range.
        """
        mechanism = UnaryResponse(
            prob_p=prob_p, prob_q=prob_q, prob_f=prob_f, permanent_p=permanent_p, permanent_q=permanent_q
        )
        return one_hot_params(num_bits, mechanism)

    def canonical(self) -> dict[str, Any]:
        """Return the fields of a metric's digest. Probabilities are numerators, so that equal bits have equal digests."""
        return {**self._sizes, **self.mechanism.word_field, **self.mechanism.digest_fields}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values.

        Returns
        -------
        dict[str, Any]
            Fields by name, as `from_dict` reads them.
        """
        return {**self._sizes, **self.mechanism.word_field, **self.mechanism.fields}

    @property
    def _sizes(self) -> dict[str, Any]:
        return {
            "hash_scheme": self.hash_scheme,
            "num_bits": self.num_bits,
            "num_hashes": self.num_hashes,
            "num_cohorts": self.num_cohorts,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Params:
        """Return the parameters among JSON values.

        Parameters
        ----------
        fields
            Fields by name. Other fields are ignored.

        Returns
        -------
        Params
            Parameters that are equal to the original ones.

        Raises
        ------
        KeyError, TypeError
            A field is missing or has the wrong type.
        ParameterError
            A field is out of range.
        """
        return cls(
            num_bits=fields["num_bits"],
            num_hashes=fields["num_hashes"],
            num_cohorts=fields["num_cohorts"],
            mechanism=mechanism_of_fields(fields, fields["num_bits"]),
            hash_scheme=fields["hash_scheme"],
        )

    @property
    def possible_ones(self) -> range | tuple[int, ...]:
        """Numbers of true bits that a value may have, "no value" included."""
        if self.mechanism.has_no_value_bit:
            return (1,)
        return self.scheme.possible_ones(min(self.num_hashes, self.num_bits))

    @property
    def scheme(self) -> type[HashScheme]:
        """The hash scheme of this name."""
        return HASH_SCHEMES[self.hash_scheme]

    @property
    def blocks(self) -> tuple[Params]:
        """These parameters: they are one block."""
        return (self,)


def one_hot_params(num_bits: int, mechanism: Mechanism) -> Params:
    """Return parameters of one bit per category with any mechanism: no hashing, one cohort."""
    return Params(num_bits=num_bits, num_hashes=1, num_cohorts=1, hash_scheme="one-hot", mechanism=mechanism)


def first_bits(blocks: Sequence[Params]) -> tuple[int, ...]:
    """Return the position of the first bit of each block.

    >>> one = Params.one_hot(1, prob_p=0.25, prob_q=0.75, prob_f=0.5)
    >>> first_bits((Params.one_hot(4, prob_p=0.25, prob_q=0.75, prob_f=0.5), one))
    (0, 4)
    """
    return tuple(accumulate((block.num_bits for block in blocks[:-1]), initial=0))
