"""Parameters and rules of joint metrics: two or three parts whose bits are reported together.

The report of a joint metric is the bits of its parts, one part after the other, under one cohort. Each part has its own mechanism
(`Params.mechanism`), its own value and its own permanent response. Given the values and the cohort the parts' bits are independent.
Source: Fanti, Pihur, Erlingsson 2016 (arXiv 1503.01214), sec. 3; docs/how-to/association.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hubbub.errors import DefinitionError, InvalidValueError, ParameterError
from hubbub.mechanisms.unary import UnaryResponse
from hubbub.metrics.kinds.kind import (
    DIGEST_BYTES,
    BloomBits,
    Change,
    Fact,
    JointValue,
    Kind,
    KindWord,
    Value,
    kind_from_dict,
)
from hubbub.metrics.kinds.numbers import NumberKind
from hubbub.metrics.kinds.strings import StringKind
from hubbub.metrics.params import MAX_BITS, Params
from hubbub.metrics.rules import check_metric_name

MIN_PARTS, MAX_PARTS = 2, 3


class JointParams(Params):
    """Shape of the reports of a joint metric.

    parts       : parameters of each part, in the order of their bits
    num_bits    : sum of the parts' bits, at most 1024
    num_hashes  : sum of the parts' hashes: the most true bits of a value
    num_cohorts : of the string parts; 1 if there are none

    Each part has its own mechanism: `mechanism` raises ParameterError here.

    >>> one = Params.one_hot(1, prob_p=0.25, prob_q=0.75, prob_f=0.5)
    >>> joint = JointParams((Params.one_hot(4, prob_p=0.25, prob_q=0.75, prob_f=0.5), one))
    >>> joint.num_bits, joint.num_cohorts, joint.offsets
    (5, 1, (0, 4))
    """

    __slots__ = ("_parts",)
    _parts: tuple[Params, ...]

    def __init__(self, parts: Sequence[Params]) -> None:
        parts = tuple(parts)
        if not MIN_PARTS <= len(parts) <= MAX_PARTS:
            raise ParameterError(f"a joint metric must have {MIN_PARTS} or {MAX_PARTS} parts, got {len(parts)}")
        if any(isinstance(part, JointParams) for part in parts):
            raise ParameterError("a part of a joint metric must not be joint itself: list its parts instead")
        cohorts = {part.num_cohorts for part in parts if part.hash_scheme != "one-hot"} or {1}
        if len(cohorts) > 1:
            raise ParameterError(
                f"the string parts of a joint metric must have one num_cohorts, got {_listed(cohorts)}: a report has one cohort"
            )
        if len({part.has_permanent_noise for part in parts}) > 1:
            raise ParameterError(
                "either all parts of a joint metric or none must have a permanent response, got some with prob_f = 0: "
                "the price of a value and the price of a report would be mixed"
            )
        bits = sum(part.num_bits for part in parts)
        if bits > MAX_BITS:
            raise ParameterError(f"the parts of a joint metric must have at most {MAX_BITS} bits together, got {bits}")
        set_field = object.__setattr__
        set_field(self, "_parts", parts)
        set_field(self, "num_bits", bits)
        set_field(self, "num_hashes", sum(part.num_hashes for part in parts))
        set_field(self, "num_cohorts", cohorts.pop())
        set_field(self, "hash_scheme", "joint")

    @property
    def parts(self) -> tuple[Params, ...]:
        """Parameters of each part, in the order of their bits."""
        return self._parts

    @property
    def offsets(self) -> tuple[int, ...]:
        """Position of the first bit of each part."""
        return tuple(sum(part.num_bits for part in self._parts[:index]) for index in range(len(self._parts)))

    @property
    def mechanism(self) -> UnaryResponse:
        """Raise ParameterError: each part has its own mechanism."""
        raise ParameterError(
            "the mechanism of a joint metric differs between its parts, so the metric has none of its own: "
            "use metric.parts, or read joint reports with `hubbub associate`"
        )

    def __eq__(self, other: object) -> bool:
        return self._parts == other._parts if isinstance(other, JointParams) else NotImplemented

    def __hash__(self) -> int:
        return hash((JointParams, self._parts))

    def __repr__(self) -> str:
        return f"JointParams({self._parts!r})"

    def __reduce__(self) -> tuple[type[JointParams], tuple[tuple[Params, ...]]]:
        return JointParams, (self._parts,)


def _listed(numbers: set[int]) -> str:
    return " and ".join(str(number) for number in sorted(numbers))


@dataclass(frozen=True)
class JointKind(Kind):
    """Values of two or three parts, reported together: string, categorical or boolean, each by its name.

    parts : kind of each part by its name, in the order of their bits
    """

    params: Params = field(init=False)
    parts: Mapping[str, Kind]

    word = KindWord.JOINT
    required_fields = ("part",)
    change = Change("none of your answers changes", "one of your answers changes", "one changed")

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
