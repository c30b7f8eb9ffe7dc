"""Categories and booleans: one bit for each value (basic RAPPOR)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import normalize

from hubbub.errors import DefinitionError, InvalidValueError, ParameterError
from hubbub.mechanisms.mechanism import Mechanism, mechanism_of_fields
from hubbub.metrics.hash_schemes import HashScheme
from hubbub.metrics.kinds.kind import (
    BlockKind,
    BloomBits,
    Fact,
    KindWord,
    Value,
    require_str,
    row_bits,
)
from hubbub.metrics.params import MAX_BITS, Params, one_hot_params
from hubbub.text import with_article

_NAMES_OF_REST = frozenset({"other", "others", "else", "unknown", "rest", "misc"})


class OneHot(HashScheme):
    """Bit i is one for the value i."""

    name = "one-hot"

    @classmethod
    def check_sizes(cls, num_bits: int, num_hashes: int, num_cohorts: int) -> None:
        if num_hashes != 1 or num_cohorts != 1:
            raise ParameterError(
                f"{cls.name} needs num_hashes = 1 and num_cohorts = 1, got {num_hashes} and {num_cohorts}: "
                "a category is one bit, the same in every client"
            )


@dataclass(frozen=True)
class CategoricalKind(BlockKind):
    """One of 2 to 1024 categories, in the order of their bits (basic RAPPOR).

    other : category that replaces unknown values; None: unknown values are invalid
    """

    categories: tuple[str, ...]
    other: str | None = None

    word = KindWord.CATEGORICAL
    required_fields = ("categories",)
    optional_fields = ("other",)
    json_fields = ("categories", "other")

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", tuple(self.categories))
        _check_number_of_categories(len(self.categories))
        self._check_scheme(len(self.categories), OneHot)
        check_names(self.categories, "a category", "categories")
        if self.other is not None and self.other not in self.categories:
            raise DefinitionError(f"other must be one of the categories, got {self.other!r}")

    def warnings(self) -> Iterator[str]:
        rest = None if self.other else name_of_rest(self.categories)
        if rest is not None:
            yield (
                f"`other` is not set, so a value that is not listed is counted as invalid, and not as {rest!r}. Set other = {rest!r} below "
                "the categories, or rename this category if every value is listed"
            )
        yield from spelling_warnings(self.categories)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.categories

    def true_bits(self, value: Any, cohort: int, threshold: float | None = None) -> BloomBits:
        if value is None:
            return self.no_value
        known = require_str(self, value) in self.categories
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
    def from_dict(cls, fields: Mapping[str, Any]) -> BlockKind:
        return cls(Params.from_dict(fields), tuple(fields["categories"]), fields["other"])

    @classmethod
    def one_hot(cls, categories: Sequence[str], other: str | None, mechanism: Mechanism) -> CategoricalKind:
        """Return the kind of categories with one bit for each."""
        _check_number_of_categories(len(categories))
        num_bits = row_bits(len(categories), mechanism, has_no_value=True)
        return cls(one_hot_params(num_bits, mechanism), tuple(categories), other)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> CategoricalKind:
        if not isinstance(table["categories"], list):
            raise DefinitionError(f"categories must be a list of strings, got {table['categories']!r}")
        categories = table["categories"]
        _check_number_of_categories(len(categories))
        return cls.one_hot(categories, table.get("other"), mechanism_of_fields(table, len(categories) + 1))

    def to_table(self) -> dict[str, Any]:
        return {"categories": list(self.categories), **({} if self.other is None else {"other": self.other})}


class BooleanKind(BlockKind):
    """True or not: False and "no value" have no bit and are one value."""

    word = KindWord.BOOLEAN
    _no_value_is = "as false"

    def __post_init__(self) -> None:
        self._check_scheme(1, OneHot)

    @property
    def labels(self) -> tuple[str, ...]:
        return ("true",)

    @property
    def named_values(self) -> tuple[str, ...]:
        return ("true", "false")

    @property
    def estimated_values(self) -> tuple[str, ...]:
        return self.labels

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
    def from_table(cls, table: Mapping[str, Any]) -> BooleanKind:
        return cls(one_hot_params(1, mechanism_of_fields(table, 2)))


def check_names(names: Sequence[str], one: str, several: str) -> None:
    """Raise DefinitionError unless names are distinct, non-empty texts; `one` and `several` say what they name."""
    for name in names:
        if not isinstance(name, str) or not name:
            raise DefinitionError(f"{one} must be a non-empty string, got {name!r}")
        if any("\ud800" <= character <= "\udfff" for character in name):
            raise DefinitionError(f"{several} must be encodable as UTF-8, got {name!r}: remove lone surrogates")
    if len(set(names)) != len(names):
        repeated = sorted({name for name in names if names.count(name) > 1})
        raise DefinitionError(f"{several} must be distinct, got {', '.join(repeated)} more than once")


def name_of_rest(names: Sequence[str]) -> str | None:
    """Return the name that reads as that of all unlisted values; None without one.

    >>> name_of_rest(["linux", "Other"])
    'Other'
    """
    return next((name for name in names if name.casefold() in _NAMES_OF_REST), None)


def spelling_warnings(names: Sequence[str]) -> Iterator[str]:
    """Yield a warning for names that are not normalized, and one for two that differ in their spelling only.

    >>> list(spelling_warnings(["linux", "macos"]))
    []
    """
    unusual = next((name for name in names if name != normalize("NFC", name.strip())), None)
    if unusual is not None:
        yield (
            f"{unusual!a} is not normalized: it has white space around it, or is not in Unicode form NFC. Only a value with the same bytes "
            f"counts for it. Write {normalize('NFC', unusual.strip())!a} if the app records this"
        )
    by_spelling = dict[str, str]()
    for name in names:
        first = by_spelling.setdefault(normalize("NFC", name).casefold().strip().removesuffix("/"), name)
        if first != name:
            yield (
                f"{first!a} and {name!a} differ in their spelling only, and a value counts for the one that it equals exactly. Keep "
                "one of them, and normalize values before they are recorded"
            )
            return


def _check_number_of_categories(number: int) -> None:
    """Raise DefinitionError unless a categorical metric can have so many categories."""
    if not 2 <= number <= MAX_BITS:
        raise DefinitionError(
            f"a categorical metric needs 2 to {MAX_BITS} categories, got {number}: "
            f"use a boolean metric for one category, a string metric for more than {MAX_BITS}"
        )
