"""`Mechanism`: how the true bits of a block become the bits of a report, and what follows from it alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from hubbub.errors import ParameterError
from hubbub.randomness import RandomBytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hubbub.mechanisms.blanket import Blanket
    from hubbub.mechanisms.ratio import ExactRatio

Rate = TypeVar("Rate", float, "NDArray[np.float64]")

MECHANISMS: dict[str, type[Mechanism]] = {}
"""Class of each word that a definition may have as its `mechanism`. `hubbub/__init__.py` imports the module of each."""

DEFAULT = "unary"


class Mechanism(ABC):
    """Randomization of a block of bits in two stages: permanent and instantaneous response.

    The permanent response maps true bits to permanent bits, once for a value. The instantaneous response maps these to
    the bits of each report. No bit is treated differently from another one, so the law of one bit has four
    probabilities.

    Attributes
    ----------
    word
        Its word in definitions.
    required_fields
        Fields that a definitions file must have.
    optional_fields
        Fields that a definitions file may have.
    has_independent_bits
        Whether the bits of a report are independent, given the value.
    has_no_value_bit
        Whether "no value" is a value with a bit of its own, the last one, because each value has exactly one bit.
    prob_p
        p, the probability that a reported bit is one if the permanent bit is 0.
    prob_q
        q, the probability that a reported bit is one if the permanent bit is 1.
    permanent_p
        b, the probability that a permanent bit is one if the true bit is 0.
    permanent_q
        a, the probability that a permanent bit is one if the true bit is 1.
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
        """Return the mechanism of its fields in a definition; raises ParameterError."""

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
    def check_block(self, num_bits: int, hash_scheme: str) -> None:
        """Check that the mechanism can randomize a block of so many bits, which have the meaning of a hash scheme; raises ParameterError."""

    @abstractmethod
    def require_collectable(self, name: str) -> None:
        """Check that clients may report under these parameters; raises DefinitionError."""

    @property
    def num_blanks(self) -> int:
        """Number of bits, the last ones, that stand for no value."""
        return 0

    @property
    @abstractmethod
    def has_permanent_noise(self) -> bool:
        """Whether permanent bits may differ from true bits."""

    @property
    def prob_f(self) -> float | None:
        """Probability f of a symmetric permanent response, exact. None: permanent_p is not 1 - permanent_q."""
        return 2 * self.permanent_p if self.permanent_p + self.permanent_q == 1 else None

    @property
    def p_star(self) -> float:
        """Probability p* = (1 - b) p + b q that a reported bit is one if the true bit is 0, exact."""
        return (1 - self.permanent_p) * self.prob_p + self.permanent_p * self.prob_q

    @property
    def q_star(self) -> float:
        """Probability q* = (1 - a) p + a q that a reported bit is one if the true bit is 1, exact."""
        return (1 - self.permanent_q) * self.prob_p + self.permanent_q * self.prob_q

    @abstractmethod
    def permanent_response(self, num_bits: int) -> tuple[int, Callable[[int, bytes], int]]:
        """Return the permanent response of a block: the random bytes that it needs, and its function of true bits and these bytes."""

    @abstractmethod
    def instantaneous_response(self, num_bits: int, random_bytes: RandomBytes) -> Callable[[int], int]:
        """Return the instantaneous response of a block: the function of permanent bits that returns the bits of one report."""

    @abstractmethod
    def simulate(
        self, true_bits: NDArray[np.intp], num_bits: int, reports: int, rng: np.random.RandomState
    ) -> Iterator[NDArray[np.bool_]]:
        """Yield the t reports that n clients draw from one permanent response each, with exactly the law of the client.

        true_bits : shape (n, h), positions of the true bits of each client. The position k is no bit.
        yields    : shape (n, k), the bits of one report of each client
        """

    @abstractmethod
    def epsilon(self, num_bits: int, possible_ones: Iterable[int], reports: float) -> float:
        """Return the privacy loss of t reports of one unchanging value, the largest of any two values.

        reports : t, an integer >= 1, or math.inf for all reports that are drawn from one permanent response
        """

    @abstractmethod
    def exact_ratio(self, num_bits: int, possible_ones: Iterable[int], reports: float) -> ExactRatio | None:
        """Return e^epsilon of `epsilon`, without rounding. None: there is no bound."""

    @abstractmethod
    def blanket(self, num_bits: int, possible_ones: Iterable[int], epochs: Sequence[float]) -> Blanket:
        """Return a privacy blanket of the reports of one unchanging value.

        epochs : number of reports that are drawn from each permanent response, an integer >= 1 or math.inf each. The epsilon of these reports is finite.
        """

    @abstractmethod
    def mutual_information(self, num_bits: int, possible_ones: Iterable[int], reports: float) -> float:
        """Return I, the mutual information between t reports and t other reports of one client.

        reports : t, an integer >= 1, or math.inf
        """

    @abstractmethod
    def ones_distribution(self, num_bits: int, true_ones: int) -> NDArray[np.float64]:
        """Return the distribution of the number of ones of a report.

        returns : shape (k + 1,), the probability of 0, 1, ... k ones.
        """

    @abstractmethod
    def log_collision(self, num_bits: int, true_ones: int, reports: int) -> float:
        """Return the logarithm of the probability that two clients with the same true bits send the same t reports."""

    def noise_variances(self, true_ones: Rate) -> tuple[Rate, Rate]:
        """Return the variances of a reported bit by its instantaneous and by its permanent noise, as `response_variances`."""
        return response_variances(self.permanent_q, self.permanent_p, self.prob_p, self.prob_q, true_ones)

    @abstractmethod
    def log_probabilities(self, reports: NDArray[np.bool_], true_bits: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return ln P(t reports of one permanent response | true bits) of n clients, -inf for reports that cannot occur.

        reports   : shape (n, t, k)
        true_bits : shape (n, k), after the permanent response if it has no noise
        returns   : shape (n,)
        """

    @abstractmethod
    def log_repeat(self, num_bits: int, true_ones: int) -> float:
        """Return ln of the probability that two reports of one permanent response are equal."""

    def log_likelihoods(self, ones: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Return ln P(reports | x) of each value x, apart from a term that is the same for all values; for bits that are not independent.

        ones    : shape (..., d), how many of the reports of one permanent response contain each value
        returns : shape (..., d)
        """
        raise NotImplementedError(
            f"{type(self).__name__}: the likelihood of independent bits is the product of those of one bit"
        )

    @abstractmethod
    def noise_covariances(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the covariances of two reported bits by their instantaneous and by their permanent noise.

        Each is a pair: where neither true bit is one, and where one of the two is. At most one true bit of a block is one.
        """


def response_variances(
    a: Rate | float, b: Rate | float, p: Rate | float, q: Rate | float, true_ones: Rate
) -> tuple[Rate, Rate]:
    """Return the variances of a bit by its instantaneous and by its permanent response, for one report.

    With pi = b + (a - b) mu, they are::

        pi q (1-q) + (1 - pi) p (1-p)
        (q-p)**2 (mu a (1-a) + (1 - mu) b (1-b))

    a, b      : P(permanent bit = 1 | true bit = 1), and | true bit = 0)
    p, q      : P(reported bit = 1 | permanent bit = 0), and | permanent bit = 1)
    true_ones : share mu of the reports whose true bit is one: a float, or an array of any shape
    returns   : both variances, of the shape of `true_ones`
    """
    ones = b + (a - b) * true_ones
    instantaneous = ones * q * (1 - q) + (1 - ones) * p * (1 - p)
    permanent = (q - p) ** 2 * (true_ones * a * (1 - a) + (1 - true_ones) * b * (1 - b))
    return instantaneous, permanent


def checked_mechanism(mechanism: Mechanism) -> Mechanism:
    """Return a mechanism that a program passed; raises ParameterError for anything else."""
    if not isinstance(mechanism, Mechanism):
        raise ParameterError(
            f"mechanism must be a Mechanism, got {type(mechanism).__name__}: "
            "pass UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5), for example"
        )
    return mechanism


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
