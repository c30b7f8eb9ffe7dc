"""`Mechanism`: how the true bits of a block become the bits of a report, and what follows from it alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from hubbub.errors import ParameterError
from hubbub.mechanisms.blanket import Blanket
from hubbub.randomness import RandomBytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Rate = TypeVar("Rate", float, "NDArray[np.float64]")

MECHANISMS: dict[str, type[Mechanism]] = {}
"""Class of each word that a definition may have as its `mechanism`."""

DEFAULT = "unary"


class Mechanism(ABC):
    """Randomization of a block of bits in two stages: true bits to permanent bits, once for a value, and these to the bits of each report.

    No bit is treated differently from another one, so the law of one bit has four probabilities:

    prob_p, prob_q           : p and q, P(reported bit = 1 | permanent bit = 0), and given 1
    permanent_p, permanent_q : b and a, P(permanent bit = 1 | true bit = 0), and given 1

    word            : its word in definitions
    required_fields, optional_fields : those of its table in a definitions file
    has_independent_bits : whether the bits of a report are independent, given the value
    has_no_value_bit : whether "no value" is a value with a bit of its own, the last one, because each value has exactly one bit
    """

    __slots__ = ()

    word: ClassVar[str]
    required_fields: ClassVar[tuple[str, ...]]
    optional_fields: ClassVar[tuple[str, ...]]
    has_independent_bits: ClassVar[bool] = False
    has_no_value_bit: ClassVar[bool] = False

    prob_p: float
    prob_q: float
    permanent_p: float
    permanent_q: float

    def __init_subclass__(cls) -> None:
        if "word" in cls.__dict__:
            MECHANISMS[cls.word] = cls

    @classmethod
    @abstractmethod
    def of_fields(cls, fields: Mapping[str, Any], num_values: int) -> Self:
        """Return the mechanism of its fields in a definition, for so many values with "no value". Raises ParameterError if one is missing or out of range."""

    @property
    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """Fields of a definition besides the word: `of_fields` returns an equal mechanism."""

    @property
    @abstractmethod
    def probabilities(self) -> dict[str, float]:
        """Probabilities by their short names, for people."""

    @property
    @abstractmethod
    def digest_fields(self) -> dict[str, Any]:
        """Fields of the metric's digest besides the word, the same for equal mechanisms only."""

    @property
    def word_field(self) -> dict[str, str]:
        """The word as a field of definitions and digests; the default mechanism leaves it out."""
        return {} if self.word == DEFAULT else {"mechanism": self.word}

    @abstractmethod
    def check_num_bits(self, num_bits: int) -> None:
        """Raise ParameterError if the mechanism cannot randomize a block of so many bits."""

    @abstractmethod
    def require_collectable(self, name: str) -> None:
        """Raise DefinitionError, with the metric's name, for parameters that only imported reports may have."""

    @property
    @abstractmethod
    def has_permanent_noise(self) -> bool:
        """Return whether permanent bits may differ from true bits."""

    @property
    def prob_f(self) -> float | None:
        """f of a symmetric permanent response, exact; None if permanent_p != 1 - permanent_q."""
        return 2 * self.permanent_p if self.permanent_p + self.permanent_q == 1 else None

    @property
    def p_star(self) -> float:
        """p* = (1 - b) p + b q, the probability that a reported bit is one if the true bit is 0; exact."""
        return (1 - self.permanent_p) * self.prob_p + self.permanent_p * self.prob_q

    @property
    def q_star(self) -> float:
        """q* = (1 - a) p + a q, the probability that a reported bit is one if the true bit is 1; exact."""
        return (1 - self.permanent_q) * self.prob_p + self.permanent_q * self.prob_q

    @abstractmethod
    def permanent_response(self, num_bits: int) -> tuple[int, Callable[[int, bytes], int]]:
        """Return the number of bytes of a permanent response, and the response: true bits and these bytes to permanent bits."""

    @abstractmethod
    def instantaneous_response(self, num_bits: int, random_bytes: RandomBytes) -> Callable[[int], int]:
        """Return the instantaneous response: permanent bits to the bits of one report."""

    @abstractmethod
    def simulate(
        self, true_bits: NDArray[np.intp], num_bits: int, reports: int, rng: np.random.Generator
    ) -> Iterator[NDArray[np.bool_]]:
        """Yield the bits (n, k) of each of t reports that n clients draw from one permanent response, with exactly the law of the client.

        true_bits : (n, h) positions of the true bits of each client; k is no bit
        """

    @abstractmethod
    def epsilon(self, num_bits: int, possible_ones: Iterable[int], reports: float) -> float:
        """Return the privacy loss of t reports of one unchanging value, the largest of any two values.

        num_bits      : k
        possible_ones : numbers of true bits of a value; two values share as few of the k bits as possible
        reports       : t, an integer >= 1, or math.inf: all reports that are drawn from one permanent response
        """

    @abstractmethod
    def blanket(self, num_bits: int, possible_ones: Iterable[int], epochs: Sequence[float]) -> Blanket:
        """Return a blanket of the reports of one unchanging value; its weight is 0 where none is known.

        num_bits, possible_ones : as for `epsilon`; a finite one is required for the reports of each epoch
        epochs : numbers of reports that are drawn from each permanent response, as `reports` of `epsilon`
        """

    @abstractmethod
    def mutual_information(self, num_bits: int, possible_ones: Iterable[int], reports: float) -> float:
        """Return I in nats between t reports and t other reports of one client, for the value for which it is largest."""

    @abstractmethod
    def ones_distribution(self, num_bits: int, true_ones: int) -> NDArray[np.float64]:
        """Return P(a report has t ones) for t = 0 .. k, shape (k + 1,), of a value with so many true bits."""

    @abstractmethod
    def log_collision(self, num_bits: int, true_ones: int, reports: int) -> float:
        """Return ln P(two clients with the same true bits send the same t reports, each from one permanent response)."""

    def noise_variances(self, true_ones: Rate) -> tuple[Rate, Rate]:
        """Return the variances of a reported bit by its instantaneous and by its permanent noise.

            pi q (1-q) + (1 - pi) p (1-p)                        pi = b + (a - b) mu
            (q-p)**2 (mu a (1-a) + (1 - mu) b (1-b))

        true_ones : share mu of the reports whose true bit is one; a float, or an array of any shape
        """
        a, b, p, q = self.permanent_q, self.permanent_p, self.prob_p, self.prob_q
        ones = b + (a - b) * true_ones
        instantaneous = ones * q * (1 - q) + (1 - ones) * p * (1 - p)
        permanent = (q - p) ** 2 * (true_ones * a * (1 - a) + (1 - true_ones) * b * (1 - b))
        return instantaneous, permanent

    @abstractmethod
    def noise_covariances(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the covariances of two reported bits by their instantaneous and by their permanent noise.

        Each is a pair: where neither true bit is one, and where one of the two is. At most one true bit of a block is one.
        """


def mechanism_class(fields: Mapping[str, Any]) -> type[Mechanism]:
    """Return the class that a definition names; raises ParameterError for an unknown word."""
    word = fields.get("mechanism", DEFAULT)
    if not isinstance(word, str) or word not in MECHANISMS:
        raise ParameterError(f"mechanism must be one of {', '.join(MECHANISMS)}, got {word!r}")
    return MECHANISMS[word]


def mechanism_of_fields(fields: Mapping[str, Any], num_values: int) -> Mechanism:
    """Return the mechanism among the fields of a definition with so many values, "no value" among them.

    Raises ParameterError if one of its fields is missing or out of range."""
    of = mechanism_class(fields)
    own = {name: fields[name] for name in (*of.required_fields, *of.optional_fields) if name in fields}
    return of.of_fields(own, num_values)
