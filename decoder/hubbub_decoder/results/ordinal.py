"""`Numbers`: mean, quantiles and distribution function of an ordinal metric, and their lines and rows of text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, get_type_hints

import numpy as np

from hubbub.metrics.buckets import Buckets, format_number
from hubbub.metrics.kinds import NumberKind
from hubbub.metrics.metric import Metric
from hubbub.wire.json_values import from_json_value, json_value
from hubbub_decoder.estimators.ordinal import BucketShares, IntervalEstimate
from hubbub_decoder.result import Result

QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
_SIGNIFICANT_DIGITS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Mean(Result):
    """Mean of the numbers, cut to [e_0, e_k], of the reports with a value.

    lowest, highest  : lower end of the interval with every number at the lower edge of its bucket, and upper end with every number at
                       the upper edge. They cover the mean of the numbers themselves, wherever these are in their buckets
    value, std_error : with the bucket's representative, or its middle, for each number; far off if many numbers are elsewhere
    low, high        : confidence interval of that mean
    """

    lowest: float
    highest: float
    value: float
    std_error: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class Quantile(Result):
    """Number with a share `probability` of the values below it.

    lowest, highest  : edges of the buckets of `low` and `high`. They cover the quantile of the numbers themselves, cut to [e_0, e_k],
                       wherever these are in their buckets
    value, low, high : with values spread evenly within each bucket; `value` from the smoothed shares, within the interval
    """

    probability: float
    lowest: float
    highest: float
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class DistributionPoint(Result):
    """Share of the values below an edge; low, high : confidence interval, within [0, 1]."""

    edge: float
    share: float
    std_error: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class Bucket(Result):
    """Bucket low_edge <= v < high_edge.

    smoothed : share of all reports; neighbouring buckets have similar shares a priori. Biased, and without an interval. Those of all
               buckets are nonnegative, and add up to the listed total, cut to [0, 1]
    """

    label: str
    low_edge: float
    high_edge: float
    smoothed: float


@dataclass(frozen=True, slots=True)
class Numbers:
    """What the buckets of an ordinal metric tell about the numbers.

    All intervals are at `Decoding.confidence`, each for itself. Numbers of which the reports determine nothing are
    nan, and their intervals have every possible value. With estimate = "mean" there is the mean alone.

    Attributes
    ----------
    mean
        Mean of the numbers.
    quantiles
        Quantiles of the numbers.
    distribution
        Distribution function at the edges.
    buckets
        Smoothed share of each bucket.
    definition
        Edges, unit and representatives of the metric.
    """

    mean: Mean
    quantiles: tuple[Quantile, ...]
    distribution: tuple[DistributionPoint, ...]
    buckets: tuple[Bucket, ...]
    definition: Buckets

    def to_dict(self) -> dict[str, Any]:
        """Return the estimates as JSON values."""
        fields = ("mean", "quantiles", "distribution", "buckets")
        return {name: json_value(getattr(self, name)) for name in fields}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], metric: Metric) -> Numbers:
        """Return the numbers of the JSON values that `to_dict` returned; raises TypeError."""
        if not isinstance(metric.kind, NumberKind):
            raise TypeError(f"{metric.name} has no numbers")
        types = get_type_hints(cls)
        parts = {name: from_json_value(types[name], values[name]) for name in types if name != "definition"}
        return cls(definition=metric.kind.buckets, **parts)


def build_numbers(fit: BucketShares, level: float) -> Numbers:
    """Mean, quantiles and distribution function with intervals at `level`."""
    buckets = fit.buckets
    edges = buckets.edges
    points = [
        DistributionPoint(edge, ratio.value, ratio.std_error, ratio.low, ratio.high)
        for edge, ratio in zip(edges[1:-1], fit.distribution(level), strict=True)
    ]
    rows = zip(buckets.labels, pairwise(edges), fit.guess.tolist(), strict=True)
    return Numbers(
        mean=_mean(fit, level),
        quantiles=tuple(_quantile(fit, probability, level) for probability in QUANTILES),
        distribution=tuple(points),
        buckets=tuple(Bucket(label, low, high, share) for label, (low, high), share in rows),
        definition=buckets,
    )


def build_mean(mean: IntervalEstimate, definition: Buckets) -> Numbers:
    """Numbers of a metric with estimate = "mean": `lowest` and `highest` are the interval's ends, since no bucket hides the numbers."""
    return Numbers(Mean(mean.low, mean.high, mean.value, mean.std_error, mean.low, mean.high), (), (), (), definition)


def _mean(fit: BucketShares, level: float) -> Mean:
    middle, lower, upper = (
        fit.ratio(np.array(weights), level)
        for weights in (fit.buckets.centers, fit.buckets.edges[:-1], fit.buckets.edges[1:])
    )
    return Mean(lower.low, upper.high, middle.value, middle.std_error, middle.low, middle.high)


def _quantile(fit: BucketShares, probability: float, level: float) -> Quantile:
    value, low, high = fit.quantile(probability, level)
    value = min(max(value, low), high) if not math.isnan(value) else value  # smoothing may leave the interval
    return Quantile(probability, *_bucket_ends(fit.buckets, low, high), value, low, high)


def _bucket_ends(buckets: Buckets, low: float, high: float) -> tuple[float, float]:
    """Lower edge of the bucket of `low`, and upper edge of that of `high`; an edge is itself."""
    edges = np.array(buckets.edges)
    first = max(0, int(np.searchsorted(edges, low, side="right")) - 1)
    last = int(np.searchsorted(edges, high, side="left"))
    return float(edges[first]), float(edges[last])


def mean_lines(numbers: Numbers, confidence: float) -> Iterator[str]:
    """Yield the mean as lines of text."""
    mean, buckets = numbers.mean, numbers.definition
    suffix = f" {buckets.unit}" if buckets.unit else ""
    wide, value, narrow = number_texts(mean)
    if not numbers.buckets:
        lowest, highest = map(format_value, buckets.edges)
        yield (f"Mean: {value}{suffix} ({confidence:.0%} interval {narrow}), of numbers cut to {lowest} .. {highest}.")
        yield 'Reports of one bit have no distribution: for quantiles, remove estimate = "mean" and declare edges of buckets.'
        return
    if math.isnan(mean.value):
        yield "Mean and quantiles are not determined: these reports do not show that any of them has a value."
        return
    yield (
        f"Mean: {wide}{suffix} ({confidence:.0%} interval), wherever the numbers are in their buckets; "
        f"{value} if each is the {representative_name(buckets)} of its bucket (noise alone: {narrow})."
    )


def representative_name(buckets: Buckets) -> str:
    """Return the name of the number that stands for a bucket in the mean."""
    return "representative" if buckets.representatives else "middle"


def quantile_lines(numbers: Numbers, confidence: float) -> Iterator[str]:
    """Yield the quantiles as lines of text: the interval that holds wherever the numbers are, then the value for evenly spread numbers.

    The interval for evenly spread numbers is left out: it contains the noise alone, and the tail of a distribution is never spread evenly.
    """
    suffix = f" {numbers.definition.unit}" if numbers.definition.unit else ""
    rows = list(quantile_rows(numbers))
    if rows:
        yield (
            f"Quantiles ({confidence:.0%} interval wherever the numbers are in their buckets; in parentheses, a guess that spreads them evenly in "
            "each bucket, as tails are not):"
        )
    for share, edges, value, _ in rows:
        yield f"{share:>4} are below {edges}{suffix} ({value})"


def quantile_rows(numbers: Numbers) -> Iterator[tuple[str, str, str, str]]:
    """Yield share below, interval wherever the numbers are, value and interval with evenly spread numbers, as text; nothing if undetermined."""
    if math.isnan(numbers.mean.value):
        return
    for quantile in numbers.quantiles:
        yield f"{quantile.probability:.0%}", *number_texts(quantile)


def number_texts(number: Mean | Quantile) -> tuple[str, str, str]:
    """Return the interval wherever the numbers are in their buckets, the value and its interval as text; hyphens if undetermined."""
    if math.isnan(number.value):
        return "-", "-", "-"
    wide, narrow = (
        f"{format_value(low)} .. {format_value(high)}"
        for low, high in ((number.lowest, number.highest), (number.low, number.high))
    )
    return wide, format_value(number.value), narrow


def format_value(number: float) -> str:
    """Four significant digits; nan is a hyphen."""
    return "-" if math.isnan(number) else format_number(float(f"{number:.{_SIGNIFICANT_DIGITS}g}"))
