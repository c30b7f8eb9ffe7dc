"""`Kind`: which values a metric accepts, the true bits that a client computes from one of them, and its facts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from hubbub.errors import DefinitionError, InvalidValueError
from hubbub.mechanisms.mechanism import Mechanism, mechanism_class
from hubbub.metrics.hash_schemes import HashScheme
from hubbub.metrics.params import Params, first_bits
from hubbub.metrics.rules import check_collectable
from hubbub.text import format_count, with_article

if TYPE_CHECKING:
    from collections.abc import Sequence, Set
    from decimal import Decimal
    from fractions import Fraction

    from hubbub.metrics.buckets import Buckets

Value: TypeAlias = "str | bool | float | Decimal | Fraction | Set[str] | Sequence[str] | None"
"""Value that a client records; None: no value."""

JointValue: TypeAlias = "tuple[Value, ...] | Mapping[str, object]"
"""Values of the parts of a joint metric: in the order of the parts, or by name, also as a TypedDict."""

DIGEST_BYTES = 16


class BloomBits(int):
    """True bits of a value in one cohort: bit i is one where the Bloom filter, the category or the bucket sets bit i.

    Attributes
    ----------
    value_digest
        First 16 bytes of SHA-256 of a string. It is empty for "no value" and for metrics without hashing. For a joint
        metric, the digests of its string parts are concatenated, with 16 zero bytes for a string part without a value.
    """

    value_digest: bytes = b""


class KindWord(StrEnum):
    """Word of a kind in definitions, commands and wishes.

    Attributes
    ----------
    STRING
        Strings, looked up in a list of candidates.
    CATEGORICAL
        One of a list of categories.
    BOOLEAN
        True or false.
    ORDINAL
        Numbers, in buckets.
    JOINT
        Combinations of the values of two or more metrics.
    SET
        Sets of items.
    """

    STRING = "string"
    CATEGORICAL = "categorical"
    BOOLEAN = "boolean"
    ORDINAL = "ordinal"
    JOINT = "joint"
    SET = "set"


class Fact(NamedTuple):
    """What a definition says, for people.

    `metrics show`, the catalogue, the plan and the pages of a report list the same facts.

    items : texts of the definition's author, which the text introduces. They are not escaped.
    """

    label: str
    text: str
    items: tuple[str, ...] = ()

    def of_part(self, name: str) -> Fact:
        """Return the fact as a fact of a part of a joint metric."""
        return self._replace(label=f"{self.label} of {name}")

    def line(self, most: int | None = None, shown: Callable[[str], str] = str) -> str:
        """Return text and items in one line.

        most  : largest number of items that are listed. None: all.
        shown : function that escapes an item

        >>> Fact("value", "one of 3 categories", ("a", "b", "c")).line(2)
        'one of 3 categories: a, b and 1 more'
        """
        if not self.items:
            return self.text
        listed = ", ".join(map(shown, self.items[:most]))
        left = len(self.items[most:]) if most is not None else 0
        return f"{self.text}: {listed}{f' and {left:,} more' if left else ''}"


SAME_PATTERN = "change, and return to earlier values, at the same times"
"""What two histories have in common if the sum over distinct values bounds their loss."""


class ChangeWords(NamedTuple):
    """What a change of a value means, in plain words for users."""

    unchanged: str = "your answer does not change"
    event: str = "your answer changes"
    known: str = "it changed"
    changing: str = "values"


KINDS: dict[KindWord, type[Kind]] = {}
"""Kind of each word, which the modules of this folder fill; that of "ordinal" returns a mean if the fields say so."""


class Kind(ABC):
    """Kind of a metric's values.

    The bits of a report are one block, or for a joint metric a block for each part, under one cohort (`blocks`).

    Attributes
    ----------
    word
        Its word in definitions.
    required_fields
        Required fields of its table in a definitions file, besides those of the mechanism.
    optional_fields
        Optional fields of this table.
    json_fields
        Fields of `to_dict` that are empty for every other kind.
    needs_candidates
        Whether its values are unknown strings, so that the analyst lists candidates.
    is_tested
        Whether the decoder tests which values are present.
    has_shares
        Whether its reports estimate shares of values. False: they estimate the mean of numbers alone.
    has_threshold
        Whether its true bits depend on a threshold of the client, `Secret.threshold`.
    has_exclusive_values
        Whether a client has at most one of the values, so that their shares add up to at most 1.
    adds_up
        Whether a bit is one if it is one for any recording of the period.
    value_noun
        Word for one of its values in tables.
    value_nouns
        Plural of `value_noun`.
    change
        Words for users about a change of the value.
    """

    word: ClassVar[KindWord]
    required_fields: ClassVar[tuple[str, ...]] = ()
    optional_fields: ClassVar[tuple[str, ...]] = ()
    json_fields: ClassVar[tuple[str, ...]] = ()
    needs_candidates: ClassVar[bool] = False
    is_tested: ClassVar[bool] = False
    has_shares: ClassVar[bool] = True
    has_threshold: ClassVar[bool] = False
    has_exclusive_values: ClassVar[bool] = True
    adds_up: ClassVar[bool] = False
    value_noun: ClassVar[str] = "category"
    value_nouns: ClassVar[str] = "categories"
    change: ClassVar[ChangeWords] = ChangeWords()
    _no_value_is: ClassVar[str] = "among them"

    def __init_subclass__(cls) -> None:
        if "word" in cls.__dict__:
            KINDS[cls.word] = cls

    def __str__(self) -> str:
        return self.word

    @abstractmethod
    def true_bits(self, value: Any, cohort: int, threshold: float | None = None) -> BloomBits:
        """Return the true bits of a value, before both randomized responses.

        cohort    : cohort of the client, in [0, m)
        threshold : threshold of the client, for a kind with `has_threshold`

        Raises InvalidValueError for a value that is not one of the metric. The message never contains the value.
        """

    @abstractmethod
    def parse_value(self, text: str) -> Value | JointValue:
        """Return the value that a text on the command line stands for; raises InvalidValueError."""

    def check_group(self) -> None:
        """Check that reports of this kind may have a public label; raises DefinitionError."""
        return

    def warnings(self) -> Iterator[str]:
        """Yield what is valid, and perhaps not what the author of the definition means."""
        yield from ()

    @property
    def labels(self) -> tuple[str, ...]:
        """Name of each bit; () if the bits are hashed or those of parts."""
        return ()

    @property
    def named_values(self) -> tuple[str, ...]:
        """Values that a population or a list of categories may name; () of strings and joint values."""
        return self.labels

    @property
    def estimated_values(self) -> tuple[str, ...]:
        """Named values that a decoding has a share of: all but those without a bit of their own."""
        return self.named_values

    @property
    def num_strings(self) -> int:
        """Number of strings in a value: each has a digest of 16 bytes in the value's key."""
        return 0

    @property
    def whole_cohorts(self) -> range:
        """Cohorts whose reports are of whole values: all, but with `discover` only the held-out group."""
        return range(self.num_cohorts)

    @property
    def has_held_out_group(self) -> bool:
        """Whether only a held-out group of the cohorts reports whole values, as with `discover`."""
        return len(self.whole_cohorts) < self.num_cohorts

    @property
    def accumulating(self) -> Buckets | None:
        """Buckets of a number that depends on all recordings of a period. None: one recording is reported."""
        return None

    @property
    def has_own_cohort(self) -> bool:
        """Whether a client's cohort is drawn for this metric alone, and not for all its metrics."""
        return False

    @property
    def in_clear(self) -> str:
        """What the cohort says in clear about the question, in plain words for users; "" if nothing."""
        return ""

    @property
    def has_no_value(self) -> bool:
        """Whether a period without a recording is reported as such, and not as a default."""
        return True

    @property
    @abstractmethod
    def components(self) -> Mapping[str, BlockKind]:
        """Kind of each block by its name.

        A joint metric has one for each part. Any other kind has itself, with the name "".
        """

    @property
    def blocks(self) -> tuple[Params, ...]:
        """Parameters of each block, in the order of their bits."""
        return tuple(component.params for component in self.components.values())

    @property
    def num_bits(self) -> int:
        """Bits of a report, k: those of all blocks."""
        return sum(block.num_bits for block in self.blocks)

    @property
    def num_cohorts(self) -> int:
        """Number of cohorts, m: a block without cohorts has the same bits in each cohort of the others."""
        return max(block.num_cohorts for block in self.blocks)

    @property
    def first_bits(self) -> tuple[int, ...]:
        """Position of the first bit of each block."""
        return first_bits(self.blocks)

    @property
    @abstractmethod
    def distinct_values(self) -> float:
        """Number of values with different true bits, "no value" included; infinite for strings."""

    @property
    def bounded_histories(self) -> str:
        """Histories of values for which the sum of the distinct values' epsilons is a bound.

        Under each secret and definition, the reported values of two periods are equal in one history exactly where they are in the other. The
        histories a, b, a and a, b, c have no bound, although both change in each period: only the first repeats a permanent response.
        """
        no_value = f', "no value" {self._no_value_is},' if self.has_no_value else ""
        return f"between histories whose {self.change.changing}{no_value} {SAME_PATTERN}"

    def representative_clients(self, values: Sequence[Any]) -> Iterator[tuple[int, float | None]]:
        """Yield cohort and threshold of clients, so that every other client tells the same values apart as one of them does."""
        yield 0, None

    def is_valid_at_sight(self, value: object) -> bool:
        """Return True if a value is valid for certain, without computing its bits; False if `true_bits` decides."""
        return False

    @abstractmethod
    def require_collectable(self, name: str) -> None:
        """Check that clients may report under these parameters; raises DefinitionError."""

    @abstractmethod
    def canonical(self) -> dict[str, Any]:
        """Return the fields of the metric's digest, as JSON values. Equal bits have equal values."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""

    @classmethod
    @abstractmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Kind:
        """Return the kind of the fields that `to_dict` returned.

        Raises KeyError, TypeError, DefinitionError, ParameterError.
        """

    @abstractmethod
    def facts(self) -> Iterator[Fact]:
        """Yield what a client may record, what becomes of it, and the bits and probabilities of a report."""

    @classmethod
    @abstractmethod
    def fields_of_table(cls, table: Mapping[str, Any]) -> tuple[str, ...]:
        """Return all fields that this kind may have in a table of a definitions file."""

    @classmethod
    @abstractmethod
    def from_table(cls, table: Mapping[str, Any]) -> Kind:
        """Return the kind of a table in a definitions file; raises DefinitionError, ParameterError."""

    def to_table(self) -> dict[str, Any]:
        """Return the fields of a table in a definitions file."""
        return {}


@dataclass(frozen=True)
class BlockKind(Kind):
    """Kind whose bits are one block."""

    params: Params

    @property
    def components(self) -> Mapping[str, BlockKind]:
        return {"": self}

    @property
    def blocks(self) -> tuple[Params]:
        return (self.params,)

    @property
    def distinct_values(self) -> float:
        return self.params.num_bits + (self.has_no_value and not self.params.mechanism.has_no_value_bit)

    @property
    def no_value(self) -> BloomBits:
        """True bits of "no value": none, or the last bit if the mechanism gives it one."""
        return BloomBits(1 << self.params.num_bits - 1 if self.params.mechanism.has_no_value_bit else 0)

    def require_collectable(self, name: str) -> None:
        check_collectable(name, self.params)

    def check_part(self, name: str) -> None:
        """Check that the kind can be a part of a joint metric; raises DefinitionError."""

    def canonical(self) -> dict[str, Any]:
        return {"categories": [], "other": None, "kind": self.word, **self.params.canonical()}

    def to_dict(self) -> dict[str, Any]:
        return {**self.params.to_dict(), "categories": [], "other": None}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> BlockKind:
        return cls(Params.from_dict(fields))

    @classmethod
    def fields_of_table(cls, table: Mapping[str, Any]) -> tuple[str, ...]:
        mechanism = mechanism_class(table)
        of_mechanism = ("mechanism", *mechanism.required_fields, *mechanism.optional_fields)
        return (*of_mechanism, *cls.required_fields, *cls.optional_fields)

    def _bit_facts(self) -> Iterator[Fact]:
        params = self.params
        sizes = [f"k = {format_count(params.num_bits, 'bit')}"]
        sizes += [f"h = {format_count(params.num_hashes, 'hash')}"] if self.num_strings else []
        sizes += [f"m = {format_count(params.num_cohorts, 'cohort')}"] if params.num_cohorts > 1 else []
        yield Fact("bits", f"{', '.join(sizes)}, {params.hash_scheme}")
        if params.mechanism.word_field:
            yield Fact("mechanism", params.mechanism.word)
        probabilities = params.mechanism.probabilities.items()
        yield Fact("probabilities", ", ".join(f"{name} = {probability:.6g}" for name, probability in probabilities))

    def _check_scheme(self, num_bits: int, scheme: type[HashScheme]) -> None:
        num_bits = row_bits(num_bits, self.params.mechanism, has_no_value=self.has_no_value)
        if self.params.scheme is not scheme or self.params.num_bits != num_bits:
            raise DefinitionError(
                f"{with_article(self.word)} metric needs {scheme.name} parameters of {num_bits} bits, "
                f"got {self.params.hash_scheme} of {self.params.num_bits}"
            )


def row_bits(num_labels: int, mechanism: Mechanism, *, has_no_value: bool) -> int:
    """Return the bits of a report: one of each label, and one of "no value" if the mechanism needs it."""
    return num_labels + (has_no_value and mechanism.has_no_value_bit)


def kind_from_dict(fields: Mapping[str, Any]) -> Kind:
    """Return the kind of JSON values with the entry `kind`. Raises KeyError, TypeError, DefinitionError, ParameterError."""
    word = kind_word(fields["kind"])
    for owner, of in KINDS.items():
        name = next((name for name in of.json_fields if fields.get(name) and word is not owner), None)
        if name is not None:
            raise DefinitionError(f"only {with_article(owner)} metric has {name}, got {with_article(word)} one")
    if issubclass(KINDS[word], BlockKind) and not fields.keys() >= {"categories", "other"}:
        raise DefinitionError(
            "categories or other is missing: the definition was changed or damaged after it was written"
        )
    return KINDS[word].from_dict(fields)


def kind_from_table(table: Mapping[str, Any]) -> Kind:
    """Return the kind of a table in a definitions file. Raises DefinitionError for a missing field, and what `Kind.from_table` raises."""
    word = kind_word(table["kind"])
    required = KINDS[word].required_fields
    for field in required:
        if field not in table:
            raise DefinitionError(f"{field} is missing: {with_article(word)} metric needs {', '.join(required)}")
    return KINDS[word].from_table(table)


def kind_word(word: object) -> KindWord:
    """Return the word of a kind; raises DefinitionError for any other."""
    if isinstance(word, str) and word in tuple(KindWord):
        return KindWord(word)
    raise DefinitionError(f"kind must be one of {', '.join(KindWord)}, got {word!r}")


def require_str(kind: Kind, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValueError(f"a {kind} metric accepts a str or None, got {with_article(type(value).__name__)}")
    return value
