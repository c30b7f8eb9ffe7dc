"""Sets of items: a client reports whether its set has the one item that it is asked about, or its whole set in one row."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

from hubbub.errors import DefinitionError, InvalidValueError, ParameterError
from hubbub.hashing import murmur3_v1
from hubbub.mechanisms.mechanism import Mechanism, mechanism_class, mechanism_of_fields
from hubbub.mechanisms.privset import HASHED_SCHEME, ITEM_SCHEME, PrivSet
from hubbub.metrics.hash_schemes import HashScheme, OneQuestion
from hubbub.metrics.kinds.kind import BlockKind, BloomBits, ChangeWords, Fact, KindWord, Value
from hubbub.metrics.kinds.one_hot import check_names, name_of_rest, spelling_warnings
from hubbub.metrics.kinds.strings import utf8
from hubbub.metrics.params import MAX_BITS, Params
from hubbub.metrics.rules import MAX_CLIENT_COHORTS
from hubbub.text import with_article

MAX_ITEMS = MAX_CLIENT_COHORTS
"""Largest number of items of which each client is asked about one."""
MIN_HASHED_BITS = 8
"""Smallest number of bits of a set whose items are hashed."""
HASHED_FIELDS = ("num_bits", "num_cohorts")
"""Fields of a definition that names no items."""
SEPARATOR = ","
"""Between the items of a set on a command line and in a file of a population."""


class ItemOfCohort(OneQuestion):
    """The bit is one if the set has the item that the cohort stands for."""

    name = "set-v1"


class BitOfItem(HashScheme):
    """Bit i is one if the set has the item i; the last bits are blank."""

    name = ITEM_SCHEME
    has_varying_ones = True

    @classmethod
    def check_sizes(cls, num_bits: int, num_hashes: int, num_cohorts: int) -> None:
        if num_hashes != 1 or num_cohorts != 1:
            raise ParameterError(
                f"{cls.name} needs num_hashes = 1 and num_cohorts = 1, got {num_hashes} and {num_cohorts}: "
                "an item is one bit, the same in every client"
            )


class BitOfHash(HashScheme):
    """Bit i is one if the set has an item whose hash in the cohort is i (`murmur3_v1`, one hash); the last bits are blank."""

    name = HASHED_SCHEME
    has_varying_ones = True

    @classmethod
    def check_sizes(cls, num_bits: int, num_hashes: int, num_cohorts: int) -> None:
        if num_hashes != 1:
            raise ParameterError(f"{cls.name} needs num_hashes = 1, got {num_hashes}: an item is one bit of its cohort")
        if num_bits < MIN_HASHED_BITS:
            raise ParameterError(
                f"{cls.name} needs num_bits of {MIN_HASHED_BITS} or more, got {num_bits}: name the items instead"
            )


@dataclass(frozen=True)
class SetKind(BlockKind):
    """Which items are used: the share of clients with each item. The sets of a period add up."""

    items: tuple[str, ...]

    word = KindWord.SET
    optional_fields = ("items", "num_bits", "num_cohorts")
    json_fields = ("items",)
    is_tested = True
    has_exclusive_values = False
    adds_up = True
    value_noun = "item"
    value_nouns = "items"
    _what: ClassVar[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", tuple(self.items))
        check_names(self.items, "an item", "items")
        separated = next((item for item in self.items if SEPARATOR in item), None)
        if separated is not None:
            raise DefinitionError(
                f"an item must not contain a comma, got {separated!r}: lists of items have commas between them"
            )

    def check_part(self, name: str) -> None:
        raise DefinitionError(
            f"part {name} must not be a set: {self._what}, so use a boolean part for each item that matters"
        )

    def warnings(self) -> Iterator[str]:
        rest = name_of_rest(self.items)
        if rest is not None:
            yield (
                f"a set with something that is not an item is counted as invalid, whole; nothing is counted as {rest!r} by itself. Record "
                f"{rest!r} in place of what is not listed, or leave it out"
            )
        yield from spelling_warnings(self.items)

    @property
    def named_values(self) -> tuple[str, ...]:
        return self.items

    @cached_property
    def _bit_of(self) -> Mapping[str, int]:
        return {item: bit for bit, item in enumerate(self.items)}

    def true_bits(self, value: Any, cohort: int, threshold: float | None = None) -> BloomBits:
        if value is None:
            return self.no_value
        if isinstance(value, str | bytes) or not isinstance(value, Set | Sequence):
            raise InvalidValueError(
                f"a set metric accepts a set, list or tuple of str, or None, got {with_article(type(value).__name__)}"
            )
        return self._bits_of(value, cohort)

    def _check_items(self, value: Set[str] | Sequence[str]) -> None:
        """Raise InvalidValueError for a set with anything but items."""
        if not all(isinstance(item, str) and item in self._bit_of for item in value):
            raise InvalidValueError(
                f"the set has something that is none of the {len(self.items)} items: "
                "record known items only, or add a version of the metric with more `items`"
            )

    @abstractmethod
    def _bits_of(self, value: Set[str] | Sequence[str], cohort: int) -> BloomBits:
        """Return the true bits of a set; raises InvalidValueError if it has anything but items."""

    def parse_value(self, text: str) -> Value:
        return tuple(text.split(SEPARATOR)) if text else ()

    def facts(self) -> Iterator[Fact]:
        yield self._value_fact()
        yield Fact("several recordings", "all items of the period together")
        yield Fact("no recording", "none of the items")
        yield from self._bit_facts()

    def _value_fact(self) -> Fact:
        return Fact("value", f"which of {len(self.items)} items; {self._what}", self.items)

    def canonical(self) -> dict[str, Any]:
        return {**super().canonical(), "items": list(self.items)}

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "items": list(self.items)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> BlockKind:
        if "items" not in fields:
            raise DefinitionError("a set metric needs items, got none: pass the names of two or more")
        params, items = Params.from_dict(fields), tuple(fields["items"])
        if params.scheme is BitOfHash:
            return HashedSetKind(params, items)
        return (WholeSetKind if params.scheme is BitOfItem else AskedItemKind)(params, items)

    @classmethod
    def of_items(cls, items: Sequence[str], mechanism: Mechanism) -> SetKind:
        """Return the kind of sets of these items."""
        if isinstance(mechanism, PrivSet):
            _check_whole_set(len(items), mechanism.max_items)
            params = Params(
                num_bits=len(items) + mechanism.max_items,
                num_hashes=1,
                num_cohorts=1,
                hash_scheme=BitOfItem.name,
                mechanism=mechanism,
            )
            return WholeSetKind(params, tuple(items))
        _check_number_of_questions(len(items))
        params = Params(
            num_bits=1, num_hashes=1, num_cohorts=len(items), hash_scheme=ItemOfCohort.name, mechanism=mechanism
        )
        return AskedItemKind(params, tuple(items))

    @classmethod
    def of_hashes(cls, mechanism: Mechanism, num_cohorts: int) -> SetKind:
        """Return the kind of sets of any strings."""
        if not isinstance(mechanism, PrivSet):
            raise DefinitionError(
                f"a set metric without items needs the mechanism {PrivSet.word}, got {mechanism.word}: a client can only be asked about a named item"
            )
        params = Params(
            num_bits=mechanism.num_values,
            num_hashes=1,
            num_cohorts=num_cohorts,
            hash_scheme=BitOfHash.name,
            mechanism=mechanism,
        )
        return HashedSetKind(params)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> SetKind:
        if "items" not in table:
            return cls._hashed_from_table(table)
        given = next((name for name in HASHED_FIELDS if name in table), None)
        if given is not None:
            raise DefinitionError(
                f"{given} was given together with items: a set metric names its items, or has {' and '.join(HASHED_FIELDS)} for any strings"
            )
        items = table["items"]
        if not isinstance(items, list):
            raise DefinitionError(f"items must be a list of strings, got {items!r}")
        if mechanism_class(table) is not PrivSet:
            return cls.of_items(items, mechanism_of_fields(table, 2))
        most = table.get("max_items")
        if isinstance(most, int):
            _check_whole_set(len(items), most)
        return cls.of_items(
            items, mechanism_of_fields(table, len(items) + most if isinstance(most, int) else len(items))
        )

    @classmethod
    def _hashed_from_table(cls, table: Mapping[str, Any]) -> SetKind:
        missing = next((name for name in HASHED_FIELDS if name not in table), None)
        if missing is not None or mechanism_class(table) is not PrivSet:
            raise DefinitionError(
                f'items is missing: a set metric names its items, or has mechanism = "{PrivSet.word}", {" and ".join(HASHED_FIELDS)} for any strings'
            )
        return cls.of_hashes(mechanism_of_fields(table, table["num_bits"]), table["num_cohorts"])

    def to_table(self) -> dict[str, Any]:
        return {"items": list(self.items)}


class AskedItemKind(SetKind):
    """One of 2 to 256 items for each client.

    The cohort of a client is the item that it is asked about, drawn from the secret and the metric's name. Its one bit says whether the
    set has this item, so the whole epsilon is spent on one question.
    """

    change = ChangeWords(
        "your answer about the one item that this device is asked about does not change",
        "this answer changes",
        "it did",
        "answers",
    )
    _what = "a client is asked about one of them, at random"

    def __post_init__(self) -> None:
        _check_number_of_questions(len(self.items))
        super().__post_init__()
        self._check_scheme(1, ItemOfCohort)
        if self.params.num_cohorts != len(self.items):
            raise DefinitionError(
                f"a set metric of {len(self.items)} items needs num_cohorts = {len(self.items)}, got {self.params.num_cohorts}"
            )

    def check_group(self) -> None:
        raise DefinitionError(
            "a set metric takes no group: its clients are divided among the items already. Use a boolean metric with a group for each item "
            'that matters, or `mechanism = "privset"`'
        )

    @property
    def has_own_cohort(self) -> bool:
        return True

    @property
    def in_clear(self) -> str:
        return f"which one of its {len(self.items)} items this device is asked about"

    def representative_clients(self, values: Sequence[Any]) -> Iterator[tuple[int, float | None]]:
        return ((cohort, None) for cohort in range(self.num_cohorts))

    def require_collectable(self, name: str) -> None:
        self.params.mechanism.require_collectable(name)

    def _bits_of(self, value: Set[str] | Sequence[str], cohort: int) -> BloomBits:
        self._check_items(value)
        return BloomBits(self.items[cohort] in value)


class RowKind(SetKind):
    """Sets that a report states in one row (`PrivSet`), with m blank bits.

    A client whose set has more than m bits reports a random m of them.
    """

    change = ChangeWords("your set does not change", "your set changes", "it changed", "sets")

    def __post_init__(self) -> None:
        mechanism = self.params.mechanism
        if not isinstance(mechanism, PrivSet):
            raise DefinitionError(
                f"{self.params.hash_scheme} needs the mechanism {PrivSet.word}, got {mechanism.word}: without blanks the number of items would show"
            )

    @property
    def mechanism(self) -> PrivSet:
        """The mechanism of the row."""
        return cast("PrivSet", self.params.mechanism)  # checked above

    def facts(self) -> Iterator[Fact]:
        yield from super().facts()
        most = self.mechanism.max_items
        yield Fact(
            "largest set",
            f"{most} items; of a larger one, {most} of its items at random, so that shares become smaller",
        )


class WholeSetKind(RowKind):
    """The whole set in one row: a bit for each item, and m blank ones."""

    _what = "a client reports all of them in one row"

    def __post_init__(self) -> None:
        SetKind.__post_init__(self)
        super().__post_init__()
        self._check_scheme(len(self.items) + self.mechanism.max_items, BitOfItem)

    @property
    def distinct_values(self) -> float:
        return 2.0 ** len(self.items)

    def _bits_of(self, value: Set[str] | Sequence[str], cohort: int) -> BloomBits:
        self._check_items(value)
        return BloomBits(sum(1 << self._bit_of[item] for item in set(value)))


@dataclass(frozen=True)
class HashedSetKind(RowKind):
    """Any set of strings in one row: a bit for the items with the same hash in the client's cohort, and m blank ones.

    The definition names no items: the analyst lists candidates. A client's items with the same hash are one bit.
    """

    items: tuple[str, ...] = ()

    needs_candidates = True
    _what = "a client reports the hashes of all of them in one row"

    def __post_init__(self) -> None:
        if self.params.scheme is not BitOfHash or self.items:
            raise DefinitionError(
                f"a set metric without items needs {BitOfHash.name} parameters, got {self.params.hash_scheme} and {len(self.items)} items: "
                "pass the items as candidates to the decoder"
            )
        super().__post_init__()

    @property
    def distinct_values(self) -> float:
        return math.inf

    def _bits_of(self, value: Set[str] | Sequence[str], cohort: int) -> BloomBits:
        bits = 0
        for item in value:
            text = utf8(item) if isinstance(item, str) else None
            if text is None:
                raise InvalidValueError(
                    "the set has something that is not a str, or cannot be encoded as UTF-8: record strings only"
                )
            (bit,) = murmur3_v1.bit_positions(text, cohort, self.mechanism.num_items, 1)
            bits |= 1 << bit
        return BloomBits(bits)

    def warnings(self) -> Iterator[str]:
        yield from ()

    def _value_fact(self) -> Fact:
        return Fact("value", f"sets of any strings; {self._what}")

    def to_table(self) -> dict[str, Any]:
        return {name: getattr(self.params, name) for name in HASHED_FIELDS}


def _check_number_of_questions(number: int) -> None:
    if not 2 <= number <= MAX_ITEMS:
        raise DefinitionError(
            f"a set metric needs 2 to {MAX_ITEMS} items, got {number}: use a boolean metric for one item, "
            f'`mechanism = "{PrivSet.word}"` for more'
        )


def _check_whole_set(number: int, most: int) -> None:
    if number < 2 or number + most > MAX_BITS:
        raise DefinitionError(
            f"a set metric with {PrivSet.word} needs 2 items or more, and at most {MAX_BITS} with max_items, got {number} and {most}: "
            + (
                "use a boolean metric for one item"
                if number < 2
                else "leave out rare items, or replace `items` with `num_bits` and `num_cohorts` (`hubbub plan` prints both) and pass the list as candidates when you decode"
            )
        )
    if most > number:
        raise DefinitionError(f"max_items must be at most the number of items, got {most} of {number}: no set has more")
