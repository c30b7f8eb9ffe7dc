"""Kinds of values: which values a metric accepts, and the true bits that a client computes from one of them.

    StringKind        Bloom filter of a string, or of the fragment that the client's cohort reports
    CategoricalKind   one bit for each category                    BooleanKind   one bit
    OrdinalKind       one bit for each bucket of numbers           MeanKind      one bit: a number reaches the client's threshold
    JointKind         the bits of two or three parts, one part after the other

A kind is what differs between metrics besides their periods and their documentation; `Metric` adds these and the name, also to messages.
Its word is the `kind` of a definition. A mean has the word of an ordinal metric.

Source: Erlingsson, Pihur, Korolova 2014 (arXiv 1407.6981), sec. 2 (string) and 4 (one-hot); docs/explanation/format.md.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from hubbub.errors import DefinitionError, InvalidValueError, ParameterError
from hubbub.hashing import google_md5, murmur3_v1
from hubbub.metrics.buckets import BUCKET_FIELDS, Buckets, Several, finite_number, format_number
from hubbub.metrics.discovery import Discovery
from hubbub.metrics.joint import JointParams
from hubbub.metrics.params import MAX_BITS, MEAN_COHORTS, Params
from hubbub.metrics.rules import check_collectable, check_metric_name
from hubbub.text import format_count, with_article

if TYPE_CHECKING:
    from decimal import Decimal
    from fractions import Fraction

Value: TypeAlias = "str | bool | float | Decimal | Fraction | None"
JointValue: TypeAlias = "tuple[Value, ...] | Mapping[str, Value]"
"""Values of the parts of a joint metric: in the order of the parts, or by name."""

DIGEST_BYTES = 16
MIN_STRING_BITS = 8


class BloomBits(int):
    """True bits of a value in one cohort: bit i is one where the Bloom filter, the category or the bucket sets bit i.

    value_digest : first 16 bytes of SHA-256 of a string; empty for "no value" and for metrics without hashing. For a joint metric the
                   digests of its string parts are concatenated, with 16 zero bytes for a string part without a value
    """

    value_digest: bytes = b""


class KindWord(StrEnum):
    """Word of a kind in definitions, commands and wishes."""

    STRING = "string"
    CATEGORICAL = "categorical"
    BOOLEAN = "boolean"
    ORDINAL = "ordinal"
    JOINT = "joint"


class Fact(NamedTuple):
    """What a definition says, for people. `metrics show`, the catalogue, reports and plans list the same facts.

    items : texts of the definition's author, which the text introduces; not escaped
    """

    label: str
    text: str
    items: tuple[str, ...] = ()

    def of_part(self, name: str) -> Fact:
        """Return the fact as that of a part of a joint metric."""
        return self._replace(label=f"{self.label} of {name}")

    def line(self, most: int | None = None, shown: Callable[[str], str] = str) -> str:
        """Return text and items in one line; `most` of the items are listed, each as `shown` returns it.

        >>> Fact("value", "one of 3 categories", ("a", "b", "c")).line(2)
        'one of 3 categories: a, b and 1 more'
        """
        if not self.items:
            return self.text
        listed = ", ".join(map(shown, self.items[:most]))
        left = len(self.items[most:]) if most is not None else 0
        return f"{self.text}: {listed}{f' and {left:,} more' if left else ''}"


@dataclass(frozen=True)
class Kind(ABC):
    """Kind of a metric's values.

    params : sizes and mechanism of its bits

    word             : its word in definitions
    required_fields, optional_fields : those of its table in a definitions file, besides the probabilities
    needs_candidates : whether its values are unknown strings, so that the analyst lists candidates and the decoder tests them
    has_shares       : whether its reports estimate shares of values; False: the mean of numbers alone
    value_noun       : one of its values in tables, with its plural `value_nouns`
    """

    params: Params

    word: ClassVar[KindWord]
    required_fields: ClassVar[tuple[str, ...]] = ()
    optional_fields: ClassVar[tuple[str, ...]] = ()
    needs_candidates: ClassVar[bool] = False
    has_shares: ClassVar[bool] = True
    value_noun: ClassVar[str] = "category"
    value_nouns: ClassVar[str] = "categories"

    def __str__(self) -> str:
        return self.word

    @abstractmethod
    def true_bits(self, value: Any, cohort: int, threshold: float | None = None) -> BloomBits:
        """Return the true bits of a value in a cohort. Raises InvalidValueError; its message never contains the value."""

    @abstractmethod
    def parse_value(self, text: str) -> Value | JointValue:
        """Return the value that a text on the command line stands for. Raises InvalidValueError."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Name of each bit; () if the bits are hashed or those of parts."""
        return ()

    @property
    def named_values(self) -> tuple[str, ...]:
        """Values that a population or a list of categories may name; () of strings and joint values."""
        return self.labels

    @property
    def num_strings(self) -> int:
        """Number of strings in a value: each has a digest of 16 bytes in the value's key."""
        return 0

    @property
    def has_no_value(self) -> bool:
        """Whether a period without a recording is reported as such, and not as a default."""
        return True

    @property
    def distinct_values(self) -> float:
        """Number of values with different true bits, "no value" included; infinite for strings."""
        return self.params.num_bits + self.has_no_value

    def is_valid_at_sight(self, value: object) -> bool:
        """Return whether a value is valid for certain, without computing its bits; False: `true_bits` decides."""
        return False

    def require_collectable(self, name: str) -> None:
        """Raise DefinitionError, with the metric's name, for parameters that only imported reports may have."""
        check_collectable(name, self.params)

    def canonical(self) -> dict[str, Any]:
        """Return the fields of the metric's digest."""
        return {"categories": [], "other": None, "kind": self.word, **self.params.canonical()}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values; `kind_from_dict` reads them."""
        return {**self.params.to_dict(), "categories": [], "other": None}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Kind:
        """Return the kind of the fields that `to_dict` returned. Raises KeyError, TypeError, DefinitionError, ParameterError."""
        return cls(Params.from_dict(fields))

    @abstractmethod
    def facts(self) -> Iterator[Fact]:
        """Yield what a client may record, what becomes of it, and the bits and probabilities of a report."""

    def _bit_facts(self) -> Iterator[Fact]:
        params = self.params
        sizes = [f"k = {format_count(params.num_bits, 'bit')}"]
        sizes += [f"h = {format_count(params.num_hashes, 'hash')}"] if self.num_strings else []
        sizes += [f"m = {format_count(params.num_cohorts, 'cohort')}"] if params.num_cohorts > 1 else []
        yield Fact("bits", f"{', '.join(sizes)}, {params.hash_scheme}")
        probabilities = params.mechanism.probabilities.items()
        yield Fact("probabilities", ", ".join(f"{name} = {each:.6g}" for name, each in probabilities))

    @classmethod
    @abstractmethod
    def from_table(cls, table: Mapping[str, Any], probabilities: Mapping[str, Any]) -> Kind:
        """Return the kind of a table in a definitions file that has all required fields. Raises DefinitionError, ParameterError."""

    def to_table(self) -> dict[str, Any]:
        """Return the fields of a table in a definitions file, without those that have their default; `from_table` reads them."""
        return {}

    def _check_scheme(self, num_bits: int, scheme: str = "one-hot") -> None:
        if self.params.hash_scheme != scheme or self.params.num_bits != num_bits:
            raise DefinitionError(
                f"{with_article(self.word)} metric needs {scheme} parameters of {num_bits} bits, "
                f"got {self.params.hash_scheme} of {self.params.num_bits}"
            )


_HASH_FUNCTIONS = {"murmur3-v1": murmur3_v1.bit_positions, "google-md5": google_md5.bit_positions}


@dataclass(frozen=True)
class StringKind(Kind):
    """Any string, as a Bloom filter: bit i is one if one of the h hashes has position i.

    discover : groups of cohorts that report fragments, whose strings `hubbub discover` finds; None: each client reports the whole string
    """

    discover: Discovery | None = None

    word = KindWord.STRING
    required_fields = ("num_bits", "num_hashes", "num_cohorts")
    optional_fields = ("hash_scheme", "discover")
    needs_candidates = True
    value_noun = "candidate"
    value_nouns = "candidates"

    def __post_init__(self) -> None:
        if self.params.hash_scheme not in _HASH_FUNCTIONS:
            raise DefinitionError("a string metric needs a Bloom filter; use hash_scheme = 'murmur3-v1'")
        if self.params.num_bits < MIN_STRING_BITS:
            raise DefinitionError(
                f"num_bits of a string metric must be {MIN_STRING_BITS} to {MAX_BITS}, got {self.params.num_bits}"
            )
        if self.discover is None:
            return
        if self.params.hash_scheme != "murmur3-v1":
            raise DefinitionError(
                f"only a string metric with hash_scheme = 'murmur3-v1' has a discover table, got {self.params.hash_scheme}"
            )
        self.discover.check_cohorts(self.params.num_cohorts)

    @property
    def num_strings(self) -> int:
        return 1

    @property
    def distinct_values(self) -> float:
        return math.inf

    def is_valid_at_sight(self, value: object) -> bool:
        return type(value) is str and value.isascii()

    def true_bits(self, value: Any, cohort: int, threshold: float | None = None) -> BloomBits:
        if value is None:
            return BloomBits(0)
        text = _utf8(_require_str(self, value))
        if text is None:  # not raised in _utf8: the UnicodeEncodeError there contains the value
            raise InvalidValueError("the value cannot be encoded as UTF-8: remove lone surrogates")
        params, discover = self.params, self.discover
        hashed = text if discover is None else discover.fragment(text, discover.group(cohort, params.num_cohorts))
        bits = _bits_at(_HASH_FUNCTIONS[params.hash_scheme](hashed, cohort, params.num_bits, params.num_hashes))
        bits.value_digest = hashlib.sha256(text).digest()[:DIGEST_BYTES]
        return bits

    def parse_value(self, text: str) -> Value:
        return text

    def facts(self) -> Iterator[Fact]:
        yield Fact("value", "any text; only its hashed bits are reported")
        yield from self._bit_facts()
        if self.discover is None:
            return
        discover, m = self.discover, self.params.num_cohorts
        held_out = len(discover.cohorts(len(discover.lengths), m))
        symbols = "bytes" if discover.alphabet is None else f"characters of {len(discover.alphabet)}"
        part = "a prefix" if discover.method == "prefixes" else f"the last {discover.shortest} of a prefix"
        lengths = ", ".join(map(str, discover.lengths))
        yield Fact(
            "discover",
            f"each client reports {part} of {lengths} {symbols}, or the whole value ({held_out} of {m} cohorts)",
        )
        yield Fact(
            "cohort and group",
            f"of this metric alone: an identifier of {m.bit_length() - 1} bits, the same in all of a client's reports",
        )

    def canonical(self) -> dict[str, Any]:
        if self.discover is None:
            return super().canonical()
        return {**super().canonical(), "discover": self.discover.digest_fields(self.params.num_cohorts)}

    def to_dict(self) -> dict[str, Any]:
        discover = {} if self.discover is None else {"discover": self.discover.to_dict()}
        return {**super().to_dict(), **discover}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Kind:
        return cls(Params.from_dict(fields), _discovery(fields))

    @classmethod
    def from_table(cls, table: Mapping[str, Any], probabilities: Mapping[str, Any]) -> StringKind:
        sizes = {name: table[name] for name in (*cls.required_fields, "hash_scheme") if name in table}
        return cls(Params(**sizes, **probabilities), _discovery(table))

    def to_table(self) -> dict[str, Any]:
        fields = {name: getattr(self.params, name) for name in self.required_fields}
        if self.params.hash_scheme != "murmur3-v1":
            fields["hash_scheme"] = self.params.hash_scheme
        if self.discover is not None:
            fields["discover"] = {name: each for name, each in self.discover.to_dict().items() if each is not None}
        return fields


@dataclass(frozen=True)
class CategoricalKind(Kind):
    """One of 2 to 1024 categories, in the order of their bits (basic RAPPOR).

    other : category that replaces unknown values; None: unknown values are invalid
    """

    categories: tuple[str, ...]
    other: str | None = None

    word = KindWord.CATEGORICAL
    required_fields = ("categories",)
    optional_fields = ("other",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", tuple(self.categories))
        _check_number_of_categories(len(self.categories))
        self._check_scheme(len(self.categories))
        for category in self.categories:
            if not isinstance(category, str) or not category:
                raise DefinitionError(f"a category must be a non-empty string, got {category!r}")
            if any("\ud800" <= character <= "\udfff" for character in category):
                raise DefinitionError(
                    f"categories must be encodable as UTF-8, got {category!r}: remove lone surrogates"
                )
        if len(set(self.categories)) != len(self.categories):
            repeated = sorted({c for c in self.categories if self.categories.count(c) > 1})
            raise DefinitionError(f"categories must be distinct, got {', '.join(repeated)} more than once")
        if self.other is not None and self.other not in self.categories:
            raise DefinitionError(f"other must be one of the categories, got {self.other!r}")

    @property
    def labels(self) -> tuple[str, ...]:
        return self.categories

    def true_bits(self, value: Any, cohort: int, threshold: float | None = None) -> BloomBits:
        if value is None:
            return BloomBits(0)
        known = _require_str(self, value) in self.categories
        if not known and self.other is None:
            raise InvalidValueError(
                f"the value is none of the {len(self.categories)} categories: "
                "add it to `categories`, or set `other` to the category of unknown values"
            )
        return BloomBits(1 << self.categories.index(value if known else self.other))

    def parse_value(self, text: str) -> Value:
        return text

    def facts(self) -> Iterator[Fact]:
        yield Fact("value", f"one of {len(self.categories)} categories", self.categories)
        if self.other is not None:
            yield Fact("unknown value", "reported as", (self.other,))
        yield from self._bit_facts()

    def canonical(self) -> dict[str, Any]:
        return {**super().canonical(), "categories": list(self.categories), "other": self.other}

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "categories": list(self.categories), "other": self.other}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Kind:
        return cls(Params.from_dict(fields), tuple(fields["categories"]), fields["other"])

    @classmethod
    def one_hot(cls, categories: Sequence[str], other: str | None, probabilities: Mapping[str, Any]) -> CategoricalKind:
        """Return the kind of categories with one bit for each."""
        _check_number_of_categories(len(categories))
        return cls(Params.one_hot(len(categories), **probabilities), tuple(categories), other)

    @classmethod
    def from_table(cls, table: Mapping[str, Any], probabilities: Mapping[str, Any]) -> CategoricalKind:
        if not isinstance(table["categories"], list):
            raise DefinitionError(f"categories must be a list of strings, got {table['categories']!r}")
        return cls.one_hot(table["categories"], table.get("other"), probabilities)

    def to_table(self) -> dict[str, Any]:
        return {"categories": list(self.categories), **({} if self.other is None else {"other": self.other})}


@dataclass(frozen=True)
class BooleanKind(Kind):
    """True or not: False and "no value" have no bit and are one value."""

    word = KindWord.BOOLEAN

    def __post_init__(self) -> None:
        self._check_scheme(1)

    @property
    def labels(self) -> tuple[str, ...]:
        return ("true",)

    @property
    def named_values(self) -> tuple[str, ...]:
        return ("true", "false")

    def true_bits(self, value: Any, cohort: int, threshold: float | None = None) -> BloomBits:
        if value is not None and not isinstance(value, bool):
            raise InvalidValueError(
                f"a boolean metric accepts True, False or None, got {with_article(type(value).__name__)}"
            )
        return BloomBits(bool(value))

    def facts(self) -> Iterator[Fact]:
        yield Fact("value", "yes or no; a period without a recording is reported as no")
        yield from self._bit_facts()

    def parse_value(self, text: str) -> Value:
        if text not in ("true", "false"):
            raise InvalidValueError("a value of a boolean metric must be true or false")
        return text == "true"

    @classmethod
    def from_table(cls, table: Mapping[str, Any], probabilities: Mapping[str, Any]) -> BooleanKind:
        return cls(Params.one_hot(1, **probabilities))


_REPORTED_NUMBER: Mapping[Several, str] = {
    Several.ONE: "one at random",
    Several.SUM: "the sum",
    Several.MAX: "the largest",
    Several.LAST: "the last",
}


@dataclass(frozen=True)
class NumberKind(Kind):
    """Numbers in declared buckets."""

    buckets: Buckets

    word = KindWord.ORDINAL
    required_fields = BUCKET_FIELDS[:1]
    optional_fields = BUCKET_FIELDS[1:]
    value_noun = "bucket"
    value_nouns = "buckets"

    def __post_init__(self) -> None:
        if self.buckets.is_mean != isinstance(self, MeanKind):
            raise DefinitionError(
                f"{type(self).__name__} does not estimate the {self.buckets.estimate}: use Metric.ordinal(...)"
            )
        self._check_scheme(len(self.buckets), self.buckets.hash_scheme)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.buckets.labels

    @property
    def has_no_value(self) -> bool:
        return self.buckets.default is None

    def number(self, value: object) -> float:
        """Return a recorded value as a double. Raises InvalidValueError for anything but a finite real number."""
        number = finite_number(value)
        if number is None:
            problem = "NaN or an infinity" if isinstance(value, float) else with_article(type(value).__name__)
            raise InvalidValueError(f"an ordinal metric accepts a finite number or None, got {problem}")
        return number

    def parse_value(self, text: str) -> Value:
        try:
            return float(text)
        except ValueError:
            raise InvalidValueError("a value of an ordinal metric must be a number such as 12.5") from None

    def facts(self) -> Iterator[Fact]:
        yield self._range_fact()
        buckets = self.buckets
        yield Fact("several recordings", _REPORTED_NUMBER[buckets.several])
        yield Fact(
            "no recording", "no value" if buckets.default is None else f"{format_number(buckets.default)}{self._unit}"
        )
        yield from self._bit_facts()

    @abstractmethod
    def _range_fact(self) -> Fact: ...

    @property
    def _unit(self) -> str:
        return f" {self.buckets.unit}" if self.buckets.unit else ""

    def canonical(self) -> dict[str, Any]:
        return {**super().canonical(), "buckets": self.buckets.digest_fields()}

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "buckets": self.buckets.to_dict()}

    @classmethod
    def from_table(cls, table: Mapping[str, Any], probabilities: Mapping[str, Any]) -> OrdinalKind | MeanKind:
        return ordinal_kind(Buckets.from_dict(table), probabilities)

    def to_table(self) -> dict[str, Any]:
        fields = self.buckets.to_dict()
        return {name: fields[name] for name in BUCKET_FIELDS if fields.get(name) not in (None, "", [])}


@dataclass(frozen=True)
class OrdinalKind(NumberKind):
    """The bucket of a number, to estimate the distribution of the numbers, its quantiles and its mean."""

    def _range_fact(self) -> Fact:
        edges = list(map(format_number, self.buckets.edges))
        return Fact(
            "value",
            f"a number, reported as one of {len(self.buckets)} buckets with the edges",
            (*edges[:-1], f"{edges[-1]}{self._unit}"),
        )

    def true_bits(self, value: Any, cohort: int, threshold: float | None = None) -> BloomBits:
        number = self.buckets.default if value is None else self.number(value)
        return BloomBits(0 if number is None else 1 << self.buckets.index_of(number))

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Kind:
        if "buckets" not in fields:
            raise DefinitionError("an ordinal metric needs buckets, got none: pass Buckets((0, 10, 20))")
        buckets = Buckets.from_dict(fields["buckets"])
        return (MeanKind if buckets.is_mean else OrdinalKind)(Params.from_dict(fields), buckets)


@dataclass(frozen=True)
class MeanKind(NumberKind):
    """Whether a number reaches the client's threshold, to estimate the mean of the numbers alone.

    threshold of `true_bits` : `Secret.threshold` of the client. None is enough if the bit is the same for all thresholds of the cohort

    Source: Ding, Kulkarni, Yekhanin 2017 (1BitMean); `Buckets`.
    """

    has_shares = False

    def _range_fact(self) -> Fact:
        low, high = map(format_number, self.buckets.edges)
        return Fact("value", f"a number from {low} to {high}{self._unit}, of which only the mean is estimated")

    @property
    def distinct_values(self) -> float:
        return 2

    def true_bits(self, value: Any, cohort: int, threshold: float | None = None) -> BloomBits:
        number = self.number(self.buckets.default if value is None else value)
        fraction, m = self.buckets.fraction(number), self.params.num_cohorts
        if threshold is None and cohort < fraction * m < cohort + 1:
            raise InvalidValueError(
                "threshold is missing, and the bit of this number depends on it: use Encoder.bloom_bits"
            )
        return BloomBits(fraction >= ((cohort + 1) / m if threshold is None else threshold))


def ordinal_kind(buckets: Buckets, probabilities: Mapping[str, Any]) -> OrdinalKind | MeanKind:
    """Return the kind of numbers in buckets: their distribution, or with `estimate = "mean"` their mean alone."""
    params = Params(
        num_bits=len(buckets),
        num_hashes=1,
        num_cohorts=MEAN_COHORTS if buckets.is_mean else 1,
        hash_scheme=buckets.hash_scheme,
        **probabilities,
    )
    return (MeanKind if buckets.is_mean else OrdinalKind)(params, buckets)


@dataclass(frozen=True)
class JointKind(Kind):
    """Values of two or three parts, reported together: string, categorical or boolean, each by its name.

    parts : kind of each part by its name, in the order of their bits
    """

    params: Params = field(init=False)
    parts: Mapping[str, Kind]

    word = KindWord.JOINT
    required_fields = ("part",)

    def __post_init__(self) -> None:
        for name, part in self.parts.items():
            check_metric_name(name)
            if isinstance(part, NumberKind):
                raise DefinitionError(
                    f"part {name} must be a string, categorical or boolean metric, got an ordinal one: "
                    "declare its buckets as categories"
                )
            if isinstance(part, StringKind) and part.discover is not None:
                raise DefinitionError(
                    f"part {name} must not have a discover table: its cohort is that of the joint metric"
                )
        try:
            params = JointParams([part.params for part in self.parts.values()])
        except ParameterError as problem:
            raise DefinitionError(str(problem)) from None
        object.__setattr__(self, "params", params)

    def __hash__(self) -> int:
        return hash(tuple(self.parts.items()))

    @property
    def num_strings(self) -> int:
        return sum(part.num_strings for part in self.parts.values())

    @property
    def distinct_values(self) -> float:
        return math.prod(part.distinct_values for part in self.parts.values())

    def facts(self) -> Iterator[Fact]:
        for name, part in self.parts.items():
            yield from (fact.of_part(name) for fact in part.facts())

    def require_collectable(self, name: str) -> None:
        for of_part, part in self.parts.items():
            part.require_collectable(f"{name}: part {of_part}")

    def true_bits(self, value: Any, cohort: int, threshold: float | None = None) -> BloomBits:
        bits, digests, offset = 0, b"", 0
        for (name, part), of_part in zip(self.parts.items(), self._values(value), strict=True):
            try:
                bloom = part.true_bits(of_part, cohort)
            except InvalidValueError as problem:
                raise InvalidValueError(f"part {name}: {problem}") from None
            bits |= bloom << offset
            offset += part.params.num_bits
            digests += bloom.value_digest.ljust(DIGEST_BYTES * part.num_strings, b"\0")
        joint = BloomBits(bits)
        joint.value_digest = digests
        return joint

    def _values(self, value: Any) -> Sequence[Value]:
        """Return the value of each part."""
        names = ", ".join(self.parts)
        if value is None:
            return (None,) * len(self.parts)
        if isinstance(value, Mapping):
            if not value.keys() <= self.parts.keys():
                raise InvalidValueError(f"the mapping has keys that are no parts of the metric: use {names} only")
            return [value.get(name) for name in self.parts]
        if not isinstance(value, tuple):
            raise InvalidValueError(
                f"a joint metric accepts a tuple or a mapping of {names}, or None, got {type(value).__name__}"
            )
        if len(value) != len(self.parts):
            raise InvalidValueError(f"the tuple must have {len(self.parts)} values ({names}), got {len(value)}")
        return value

    def parse_value(self, text: str) -> JointValue:
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise InvalidValueError(
                'a value of a joint metric must be a JSON object of its parts, such as {"part": "value"}'
            )
        return value

    def canonical(self) -> dict[str, Any]:
        return {
            "kind": self.word,
            "parts": [{**part.canonical(), "name": name} for name, part in self.parts.items()],
        }

    def to_dict(self) -> dict[str, Any]:
        parts = [{"name": name, "kind": str(part), **part.to_dict()} for name, part in self.parts.items()]
        return {"parts": parts}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Kind:
        return cls.of_pairs([(part["name"], kind_from_dict(part)) for part in fields["parts"]])

    @classmethod
    def from_table(cls, table: Mapping[str, Any], probabilities: Mapping[str, Any]) -> JointKind:
        """Raise DefinitionError: the parts are tables of their own, which `definitions.py` reads."""
        raise DefinitionError("kind must be string, categorical or boolean, got 'joint': list its parts instead")

    @classmethod
    def of_pairs(cls, parts: Iterable[tuple[str, Kind]]) -> JointKind:
        """Return the joint kind of (name, kind) pairs. Raises DefinitionError if two have one name."""
        pairs = tuple(parts)
        if len(dict(pairs)) != len(pairs):
            raise DefinitionError(f"the parts must have distinct names, got {', '.join(name for name, _ in pairs)}")
        return cls(dict(pairs))


KINDS: Mapping[KindWord, type[Kind]] = {
    each.word: each for each in (StringKind, CategoricalKind, BooleanKind, OrdinalKind, JointKind)
}
_FIELDS_OF_ONE_KIND: Mapping[str, KindWord] = {
    "discover": KindWord.STRING,
    "categories": KindWord.CATEGORICAL,
    "other": KindWord.CATEGORICAL,
    "buckets": KindWord.ORDINAL,
    "parts": KindWord.JOINT,
}


def kind_from_dict(fields: Mapping[str, Any]) -> Kind:
    """Return the kind of JSON values with the entry `kind`. Raises KeyError, TypeError, DefinitionError, ParameterError."""
    word = kind_word(fields["kind"])
    for name, owner in _FIELDS_OF_ONE_KIND.items():
        if fields.get(name) and word is not owner:
            raise DefinitionError(f"only {with_article(owner)} metric has {name}, got {with_article(word)} one")
    if word is not KindWord.JOINT and not fields.keys() >= {"categories", "other"}:
        raise DefinitionError(
            "categories or other is missing: the definition was changed or damaged after it was written"
        )
    return KINDS[word].from_dict(fields)


def kind_word(word: object) -> KindWord:
    """Return the word of a kind; raises DefinitionError for any other."""
    if isinstance(word, str) and word in tuple(KindWord):
        return KindWord(word)
    raise DefinitionError(f"kind must be one of {', '.join(KindWord)}, got {word!r}")


def _check_number_of_categories(number: int) -> None:
    """Raise DefinitionError unless a categorical metric can have so many categories."""
    if not 2 <= number <= MAX_BITS:
        raise DefinitionError(
            f"a categorical metric needs 2 to {MAX_BITS} categories, got {number}: "
            f"use a boolean metric for one category, a string metric for more than {MAX_BITS}"
        )


def _discovery(fields: Mapping[str, Any]) -> Discovery | None:
    return Discovery.from_dict(fields["discover"]) if "discover" in fields else None


def _require_str(kind: Kind, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValueError(f"a {kind} metric accepts a str or None, got {with_article(type(value).__name__)}")
    return value


def _utf8(value: str) -> bytes | None:
    try:
        return value.encode()
    except UnicodeEncodeError:
        return None


def _bits_at(positions: Iterable[int]) -> BloomBits:
    bits = 0
    for position in positions:
        bits |= 1 << position
    return BloomBits(bits)
