"""Joint metrics: two or three parts whose bits are reported together.

The report of a joint metric is the bits of its parts, one part after the other, under one cohort. Each part has its own mechanism
(`Params.mechanism`), its own value and its own permanent response. Given the values and the cohort the parts are independent.
Source: Fanti, Pihur, Erlingsson 2016 (arXiv 1503.01214), sec. 3; docs/how-to/association.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hubbub.errors import DefinitionError, HubbubError, InvalidValueError
from hubbub.metrics.kinds.kind import (
    DIGEST_BYTES,
    KINDS,
    BlockKind,
    BloomBits,
    ChangeWords,
    Fact,
    JointValue,
    Kind,
    KindWord,
    Value,
    kind_from_dict,
    kind_from_table,
    kind_word,
)
from hubbub.metrics.params import MAX_BITS
from hubbub.metrics.rules import check_metric_name
from hubbub.text import with_article

MIN_PARTS, MAX_PARTS = 2, 3


@dataclass(frozen=True)
class JointKind(Kind):
    """Values of two or three parts, reported together: string, categorical or boolean, each by its name.

    parts : kind of each part by its name, in the order of their bits
    """

    parts: Mapping[str, BlockKind]

    word = KindWord.JOINT
    required_fields = ("part",)
    json_fields = ("parts",)
    change = ChangeWords("none of your answers changes", "one of your answers changes", "one changed")

    def __post_init__(self) -> None:
        if not MIN_PARTS <= len(self.parts) <= MAX_PARTS:
            raise DefinitionError(f"a joint metric must have {MIN_PARTS} or {MAX_PARTS} parts, got {len(self.parts)}")
        for name, part in self.parts.items():
            check_metric_name(name)
            if not isinstance(part, BlockKind):
                raise DefinitionError("a part of a joint metric must not be joint itself: list its parts instead")
            part.check_part(name)
        cohorts = {part.num_cohorts for part in self.parts.values() if part.num_strings}
        if len(cohorts) > 1:
            raise DefinitionError(
                "the string parts of a joint metric must have one num_cohorts, "
                f"got {' and '.join(map(str, sorted(cohorts)))}: a report has one cohort"
            )
        if len({block.mechanism.has_permanent_noise for block in self.blocks}) > 1:
            raise DefinitionError(
                "either all parts of a joint metric or none must have a permanent response, got some with prob_f = 0: "
                "the price of a value and the price of a report would be mixed"
            )
        if self.num_bits > MAX_BITS:
            raise DefinitionError(
                f"the parts of a joint metric must have at most {MAX_BITS} bits together, got {self.num_bits}"
            )

    @property
    def components(self) -> Mapping[str, BlockKind]:
        return self.parts

    def __hash__(self) -> int:
        return hash(tuple(self.parts.items()))

    @property
    def num_strings(self) -> int:
        return sum(part.num_strings for part in self.parts.values())

    @property
    def distinct_values(self) -> float:
        return math.prod(part.distinct_values for part in self.parts.values())

    def check_group(self) -> None:
        raise DefinitionError(
            "a joint metric takes no group: make the label a categorical part, which answers the same question without sending it in clear"
        )

    def warnings(self) -> Iterator[str]:
        for name, part in self.parts.items():
            yield from (f"part {name}: {text}" for text in part.warnings())

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
    def fields_of_table(cls, table: Mapping[str, Any]) -> tuple[str, ...]:
        return cls.required_fields

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> JointKind:
        tables = table["part"]
        if not isinstance(tables, list) or not all(isinstance(part, dict) for part in tables):
            raise DefinitionError(f"part must be [[metric.part]] tables, got {tables!r}")
        return cls.of_pairs([(part.get("name"), _kind_of_part(part)) for part in tables])

    @classmethod
    def of_pairs(cls, parts: Iterable[tuple[str, Any]]) -> JointKind:
        """Return the joint kind of (name, kind) pairs. Raises DefinitionError if two have one name."""
        pairs = tuple(parts)
        if len(dict(pairs)) != len(pairs):
            raise DefinitionError(f"the parts must have distinct names, got {', '.join(name for name, _ in pairs)}")
        return cls(dict(pairs))


def _kind_of_part(table: Mapping[str, Any]) -> Kind:
    """Return the kind of a [[metric.part]] table."""
    try:
        for field in ("name", "kind"):
            if field not in table:
                raise DefinitionError(f"{field} is missing: every part needs name and kind")
        check_metric_name(table["name"])
        word = kind_word(table["kind"])
        if word is KindWord.JOINT:
            raise DefinitionError("a part must not be joint itself: list its parts instead")
        known = sorted({"name", "kind", *KINDS[word].fields_of_table(table)})
        unknown = next((field for field in table if field not in known), None)
        if unknown is not None:
            raise DefinitionError(f"unknown key {unknown!r}: {with_article(word)} part has {', '.join(known)}")
        return kind_from_table(table)
    except HubbubError as problem:
        raise DefinitionError(f"part {table.get('name', 'without a name')}: {problem}") from None
