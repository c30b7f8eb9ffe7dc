"""Sets of items: each client is asked about one item, and reports whether its set has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hubbub.errors import DefinitionError, InvalidValueError
from hubbub.mechanisms.mechanism import Mechanism, mechanism_of_fields
from hubbub.metrics.hash_schemes import OneQuestion
from hubbub.metrics.kinds.kind import BlockKind, BloomBits, ChangeWords, Fact, KindWord, Value
from hubbub.metrics.kinds.one_hot import check_names, name_of_rest
from hubbub.metrics.params import Params
from hubbub.metrics.rules import MAX_CLIENT_COHORTS
from hubbub.text import with_article

MAX_ITEMS = MAX_CLIENT_COHORTS
SEPARATOR = ","
"""Between the items of a set on a command line and in a file of a population."""


class ItemOfCohort(OneQuestion):
    """The bit is one if the set has the item that the cohort stands for."""

    name = "set-v1"


@dataclass(frozen=True)
class SetKind(BlockKind):
    """Which of 2 to 256 items are used: the share of clients with each item.

    The cohort of a client is the item that it is asked about, drawn from the secret and the metric's name. Its one bit says whether the
    set has this item, so the whole epsilon is spent on one question. The sets of a period add up.
    """

    items: tuple[str, ...]

    word = KindWord.SET
    required_fields = ("items",)
    json_fields = ("items",)
    is_tested = True
    has_exclusive_values = False
    adds_up = True
    value_noun = "item"
    value_nouns = "items"
    change = ChangeWords(
        "your answer about the one item that this device is asked about does not change",
        "this answer changes",
        "it did",
        "answers",
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", tuple(self.items))
        _check_number_of_items(len(self.items))
        check_names(self.items, "an item", "items")
        separated = next((item for item in self.items if SEPARATOR in item), None)
        if separated is not None:
            raise DefinitionError(
                f"an item must not contain a comma, got {separated!r}: lists of items have commas between them"
            )
        self._check_scheme(1, ItemOfCohort)
        if self.params.num_cohorts != len(self.items):
            raise DefinitionError(
                f"a set metric of {len(self.items)} items needs num_cohorts = {len(self.items)}, got {self.params.num_cohorts}"
            )

    def check_part(self, name: str) -> None:
        raise DefinitionError(
            f"part {name} must not be a set: a client answers for one item, so use a boolean part for each item that matters"
        )

    def check_group(self) -> None:
        raise DefinitionError(
            "a set metric takes no group: its clients are divided among the items already. Use a boolean metric with a group for each item that matters"
        )

    def warnings(self) -> Iterator[str]:
        rest = name_of_rest(self.items)
        if rest is not None:
            yield (
                f"a set with something that is not an item is counted as invalid, whole; nothing is counted as {rest!r} by itself. Record "
                f"{rest!r} in place of what is not listed, or leave it out"
            )

    @property
    def named_values(self) -> tuple[str, ...]:
        return self.items

    @property
    def has_own_cohort(self) -> bool:
        return True

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.items)

    def require_collectable(self, name: str) -> None:
        self.params.mechanism.require_collectable(name)

    def true_bits(self, value: Any, cohort: int, threshold: float | None = None) -> BloomBits:
        if value is None:
            return self.no_value
        if isinstance(value, str | bytes) or not isinstance(value, Set | Sequence):
            raise InvalidValueError(
                f"a set metric accepts a set, list or tuple of str, or None, got {with_article(type(value).__name__)}"
            )
        if not all(isinstance(item, str) and item in self._known for item in value):
            raise InvalidValueError(
                f"the set has something that is none of the {len(self.items)} items: "
                "record known items only, or add a version of the metric with more `items`"
            )
        return BloomBits(self.items[cohort] in value)

    @property
    def in_clear(self) -> str:
        return f"which one of its {len(self.items)} items this device is asked about"

    def representative_clients(self, values: Sequence[Any]) -> Iterator[tuple[int, float | None]]:
        return ((cohort, None) for cohort in range(self.num_cohorts))

    def parse_value(self, text: str) -> Value:
        return tuple(text.split(SEPARATOR)) if text else ()

    def facts(self) -> Iterator[Fact]:
        number = len(self.items)
        yield Fact("value", f"which of {number} items; a client is asked about one of them, at random", self.items)
        yield Fact("several recordings", "all items of the period together")
        yield Fact("no recording", "none of the items")
        yield from self._bit_facts()

    def canonical(self) -> dict[str, Any]:
        return {**super().canonical(), "items": list(self.items)}

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "items": list(self.items)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> BlockKind:
        if "items" not in fields:
            raise DefinitionError("a set metric needs items, got none: pass the names of two or more")
        return cls(Params.from_dict(fields), tuple(fields["items"]))

    @classmethod
    def of_items(cls, items: Sequence[str], mechanism: Mechanism) -> SetKind:
        """Return the kind of sets of these items."""
        _check_number_of_items(len(items))
        params = Params(
            num_bits=1, num_hashes=1, num_cohorts=len(items), hash_scheme=ItemOfCohort.name, mechanism=mechanism
        )
        return cls(params, tuple(items))

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> SetKind:
        if not isinstance(table["items"], list):
            raise DefinitionError(f"items must be a list of strings, got {table['items']!r}")
        return cls.of_items(table["items"], mechanism_of_fields(table, 2))

    def to_table(self) -> dict[str, Any]:
        return {"items": list(self.items)}


def _check_number_of_items(number: int) -> None:
    if not 2 <= number <= MAX_ITEMS:
        raise DefinitionError(
            f"a set metric needs 2 to {MAX_ITEMS} items, got {number}: use a boolean metric for one item, "
            "several set metrics for more"
        )
