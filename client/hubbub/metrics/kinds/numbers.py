"""Numbers: in buckets, or of which the mean alone is estimated."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hubbub.errors import DefinitionError, InvalidValueError
from hubbub.mechanisms.mechanism import Mechanism, mechanism_of_fields
from hubbub.metrics.buckets import BUCKET_FIELDS, Buckets, Several, format_number
from hubbub.metrics.hash_schemes import HashScheme, OneQuestion
from hubbub.metrics.kinds.kind import (
    BlockKind,
    BloomBits,
    ChangeWords,
    Fact,
    KindWord,
    Value,
    row_bits,
)
from hubbub.metrics.kinds.one_hot import OneHot
from hubbub.metrics.params import Params

MEAN_COHORTS = 16
"""Cohorts of a metric that estimates a mean: more hardly lower its variance."""

_REPORTED_NUMBER: Mapping[Several, str] = {
    Several.ONE: "one at random",
    Several.SUM: "the sum",
    Several.MAX: "the largest",
    Several.LAST: "the last",
}


class Threshold(OneQuestion):
    """The bit is one if the number reaches the client's threshold, which lies in the part of the range that the cohort stands for."""

    name = "threshold-v1"


@dataclass(frozen=True)
class NumberKind(BlockKind):
    """Numbers in declared buckets."""

    buckets: Buckets

    word = KindWord.ORDINAL
    required_fields = BUCKET_FIELDS[:1]
    optional_fields = BUCKET_FIELDS[1:]
    json_fields = ("buckets",)
    value_noun = "bucket"
    value_nouns = "buckets"

    def __post_init__(self) -> None:
        if self.buckets.is_mean != isinstance(self, MeanKind):
            raise DefinitionError(
                f"{type(self).__name__} does not estimate the {self.buckets.estimate}: use Metric.ordinal(...)"
            )
        self._check_scheme(len(self.buckets), _scheme_of(self.buckets))

    def check_part(self, name: str) -> None:
        raise DefinitionError(f"part {name} must not be an ordinal metric: declare its buckets as categories")

    @property
    def labels(self) -> tuple[str, ...]:
        return self.buckets.labels

    @property
    def has_no_value(self) -> bool:
        return self.buckets.default is None

    @property
    def accumulating(self) -> Buckets | None:
        return self.buckets if self.buckets.accumulates else None

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
    def from_dict(cls, fields: Mapping[str, Any]) -> BlockKind:
        if "buckets" not in fields:
            raise DefinitionError("an ordinal metric needs buckets, got none: pass Buckets((0, 10, 20))")
        buckets = Buckets.from_dict(fields["buckets"])
        return (MeanKind if buckets.is_mean else OrdinalKind)(Params.from_dict(fields), buckets)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> OrdinalKind | MeanKind:
        buckets = Buckets.from_dict(table)
        num_values = len(buckets) + (buckets.default is None)
        return ordinal_kind(buckets, mechanism_of_fields(table, num_values))

    def to_table(self) -> dict[str, Any]:
        fields = self.buckets.to_dict()
        return {name: fields[name] for name in BUCKET_FIELDS if fields.get(name) not in (None, "", [])}


class OrdinalKind(NumberKind):
    """The bucket of a number, to estimate the distribution of the numbers, its quantiles and its mean."""

    change = ChangeWords("your number stays in the same range", "it leaves this range", "it did", "buckets")

    def _range_fact(self) -> Fact:
        edges = list(map(format_number, self.buckets.edges))
        return Fact(
            "value",
            f"a number, reported as one of {len(self.buckets)} buckets with the edges",
            (*edges[:-1], f"{edges[-1]}{self._unit}"),
        )

    def warnings(self) -> Iterator[str]:
        edges = self.buckets.edges
        one = next((low for low, high in pairwise(edges) if high - low == 1), None)
        if one is None or self.buckets.representatives or not all(edge.is_integer() for edge in edges):
            return
        means = ", ".join(format_number((low + high - 1) / 2) for low, high in pairwise(edges))
        middle = format_number(one + 0.5)
        yield (
            f"the bucket of {format_number(one)} stands for {middle} in the mean, because `representatives` is not set. For whole numbers set "
            f"representatives = [{means}], and for others the middles of the buckets"
        )

    def true_bits(self, value: Any, cohort: int, threshold: float | None = None) -> BloomBits:
        number = self.buckets.default if value is None else self.buckets.number(value)
        return self.no_value if number is None else BloomBits(1 << self.buckets.index_of(number))


class MeanKind(NumberKind):
    """Whether a number reaches the client's threshold, to estimate the mean of the numbers alone.

    threshold of `true_bits` : `Secret.threshold` of the client. None is enough if the bit is the same for all thresholds of the cohort

    Source: Ding, Kulkarni, Yekhanin 2017 (1BitMean); `Buckets`.
    """

    has_shares = False
    has_threshold = True
    change = ChangeWords(
        "your number stays on the same side of a limit that this device chose at random",
        "it crosses this limit",
        "it did",
    )
    bounded_histories = "between histories that cross the client's threshold at the same times"

    def _range_fact(self) -> Fact:
        low, high = map(format_number, self.buckets.edges)
        return Fact("value", f"a number from {low} to {high}{self._unit}, of which only the mean is estimated")

    @property
    def distinct_values(self) -> float:
        return 2

    def true_bits(self, value: Any, cohort: int, threshold: float | None = None) -> BloomBits:
        number = self.buckets.number(self.buckets.default if value is None else value)
        fraction, m = self.buckets.fraction(number), self.params.num_cohorts
        if threshold is None and cohort < fraction * m < cohort + 1:
            raise InvalidValueError(
                "threshold is missing, and the bit of this number depends on it: use Encoder.bloom_bits"
            )
        return BloomBits(fraction >= ((cohort + 1) / m if threshold is None else threshold))

    @property
    def in_clear(self) -> str:
        """What the cohort says in clear: between which two fractions the threshold is."""
        return "roughly which limit your number is compared with"

    def representative_clients(self, values: Sequence[Any]) -> Iterator[tuple[int, float | None]]:
        """Yield the clients whose threshold is the fraction of a number: the others have a threshold between two of these, or above all."""
        numbers = (self.buckets.number(self.buckets.default if value is None else value) for value in values)
        for threshold in sorted({1.0, *map(self.buckets.fraction, numbers)} - {0.0}):
            yield math.ceil(threshold * self.num_cohorts) - 1, threshold


def ordinal_kind(buckets: Buckets, mechanism: Mechanism) -> OrdinalKind | MeanKind:
    """Return the kind of numbers in buckets: their distribution, or with `estimate = "mean"` their mean alone."""
    params = Params(
        num_bits=row_bits(len(buckets), mechanism, has_no_value=buckets.default is None),
        num_hashes=1,
        num_cohorts=MEAN_COHORTS if buckets.is_mean else 1,
        hash_scheme=_scheme_of(buckets).name,
        mechanism=mechanism,
    )
    return (MeanKind if buckets.is_mean else OrdinalKind)(params, buckets)


def _scheme_of(buckets: Buckets) -> type[HashScheme]:
    return Threshold if buckets.is_mean else OneHot
