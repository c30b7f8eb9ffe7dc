"""Buckets of an ordinal metric: edges, labels, numbers of several recordings, digest."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hubbub import Buckets, DefinitionError, InvalidValueError, Metric, UnaryResponse, parse_definitions
from hubbub.encoding.bloom import bloom_bits
from hubbub.metrics.buckets import finite_number
from hubbub.metrics.kinds import OrdinalKind
from tests.support.every_kind import buckets_of

NOISE: dict[str, Any] = {"prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.5}
METRIC = Metric.ordinal("delay", (0, 10, 20, 50), UnaryResponse(**NOISE))
TABLE = """
[[metric]]
name = "delay"
kind = "ordinal"
edges = [0, 10, 20.5, 50]
several = "sum"
unit = "min"
representatives = [4, 15, 30]
default = 0
prob_p = 0.25
prob_q = 0.75
prob_f = 0.5
description = "Minutes of delay."
owner = "you@example.org"
expires = 2099-01-01
"""


def test_parses_an_ordinal_metric() -> None:
    metric = parse_definitions(TABLE)["delay"]
    assert buckets_of(metric) == Buckets((0, 10, 20.5, 50), "sum", "min", (4, 15, 30), 0)  # type: ignore[arg-type]
    assert metric.kind.labels == ("below 10", "10 to 20.5", "20.5 or more")
    assert metric.num_bits == 3
    assert Metric.from_dict(metric.to_dict()) == metric


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[0, 10, 20.5, 50]", "[0, 10]", "edges must be 3 to 1025 numbers, got 2: k buckets have k + 1 edges"),
        ("[0, 10, 20.5, 50]", "[0, 10, 10, 50]", "edges must increase, got 10 before 10: sort them"),
        ("[0, 10, 20.5, 50]", "[0, 10, 20.5, inf]", "edges must be finite numbers, got inf: leave it out"),
        ("[0, 10, 20.5, 50]", "[0, true, 20.5, 50]", "edges must be finite numbers, got True"),
        ("[0, 10, 20.5, 50]", "'0, 10'", "edges must be a list of numbers, got '0, 10'"),
        ("edges = [0, 10, 20.5, 50]\n", "", "edges is missing: an ordinal metric needs edges"),
        ('"sum"', '"mean"', "several must be one of one, sum, max, last, got 'mean'"),
        ('"min"', "3", "unit must be a text such as 'ms', got 3"),
        ("[4, 15, 30]", "[4, 15]", "representatives must be one number for each of the 3 buckets, got 2"),
        (
            "[4, 15, 30]",
            "[4, 21, 30]",
            "a representative must be within the edges of its bucket, got 21 for 10 to 20.5",
        ),
        ("default = 0", "default = nan", "default must be finite numbers, got nan"),
        ("default = 0", "defaults = 0", "unknown key 'defaults': did you mean default? An ordinal metric has"),
    ],
)
def test_rejects_invalid_buckets_with_name_value_and_rule(old: str, new: str, message: str) -> None:
    assert old in TABLE
    with pytest.raises(DefinitionError) as caught:
        parse_definitions(TABLE.replace(old, new))
    assert message in str(caught.value)
    assert str(caught.value).startswith("delay: ")


@pytest.mark.parametrize("edges", [(), (0,), (0, 10)])
def test_rejects_fewer_than_two_buckets(edges: tuple[float, ...]) -> None:
    with pytest.raises(DefinitionError, match=f"edges must be 3 to 1025 numbers, got {len(edges)}"):
        Buckets(edges)


def test_rejects_parameters_of_other_buckets() -> None:
    with pytest.raises(DefinitionError, match="an ordinal metric needs one-hot parameters of 4 bits"):
        OrdinalKind(METRIC.params, Buckets((0, 1, 2, 3, 4)))


@pytest.mark.parametrize(
    ("value", "bucket"),
    [
        *(
            (0, 0),
            (-1e300, 0),
            (9.999, 0),
            (10, 1),
            (Decimal(10), 1),
            (Fraction(61, 3), 2),
            (49, 2),
            (50, 2),
            (1e300, 2),
        ),
        *((10**400, 2), (-(10**400), 0), (Decimal("1e999"), 2), (Fraction(10**400), 2)),
    ],
)
def test_a_number_sets_the_bit_of_its_bucket(value: Any, bucket: int) -> None:
    assert bloom_bits(METRIC, value, cohort=0) == 1 << bucket


@pytest.mark.parametrize(
    "value",
    [True, "10", b"1", math.nan, math.inf, -math.inf, Decimal("NaN"), Decimal("sNaN"), Decimal("-inf"), 1j, [1]],
)
def test_rejects_what_is_no_finite_number_without_repeating_it(value: Any) -> None:
    with pytest.raises(InvalidValueError) as caught:
        bloom_bits(METRIC, value, cohort=0)
    assert "delay: an ordinal metric accepts a finite number or None, got" in str(caught.value)
    assert "10" not in str(caught.value)


def test_a_period_without_recording_reports_no_value_or_the_default() -> None:
    assert bloom_bits(METRIC, None, cohort=0) == 0
    counter = Metric.ordinal("clicks", Buckets((0, 1, 5, 10), default=0), UnaryResponse(**NOISE))
    assert bloom_bits(counter, None, cohort=0) == 1
    assert (METRIC.kind.distinct_values, counter.kind.distinct_values) == (4, 3)


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=9, unique=True),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_every_number_has_the_bucket_that_its_label_names(edges: list[float], number: float) -> None:
    buckets = Buckets(tuple(sorted(edge + 0.0 for edge in edges)))
    position = buckets.index_of(number)
    inner = buckets.edges[1:-1]
    assert position == 0 or inner[position - 1] <= number
    assert position == len(inner) or number < inner[position]
    assert len(set(buckets.labels)) == len(buckets)


@pytest.mark.parametrize(("several", "expected"), [("sum", 5.0), ("max", 4.0), ("last", -1.0)])
def test_numbers_of_a_period_are_combined(several: Any, expected: float) -> None:
    buckets, number = Buckets((0, 1, 2), several), None
    for recorded in (2.0, 4.0, -1.0):
        number = buckets.combine(number, recorded)
    assert number == expected


def test_a_sum_saturates() -> None:
    buckets, largest = Buckets((0, 1, 2), "sum"), sys.float_info.max  # type: ignore[arg-type]
    assert buckets.combine(largest, largest) == largest
    assert buckets.combine(-largest, -largest) == -largest


def test_digest_covers_what_the_bits_depend_on() -> None:
    same = replace(buckets_of(METRIC), representatives=(1, 11, 21))
    changed = [
        replace(buckets_of(METRIC), edges=(0, 10, 20, 51)),
        replace(buckets_of(METRIC), several="sum"),  # type: ignore[arg-type]
        replace(buckets_of(METRIC), default=0),
        replace(buckets_of(METRIC), unit="ms"),
    ]
    digests = [replace(METRIC, kind=OrdinalKind(METRIC.params, buckets)).digest for buckets in changed]
    assert replace(METRIC, kind=OrdinalKind(METRIC.params, same)).digest == METRIC.digest
    assert len({METRIC.digest, *digests}) == 5


@given(st.one_of(st.integers(), st.floats(), st.decimals(), st.fractions()))
@example(Decimal("sNaN"))
@example(10**400)
def test_a_recorded_number_is_the_nearest_double(value: Any) -> None:
    number = finite_number(value)
    is_finite = (
        value.is_finite() if isinstance(value, Decimal) else isinstance(value, int | Fraction) or math.isfinite(value)
    )
    if is_finite:
        assert number is not None
        nearest = min(max(Fraction(value), Fraction(-sys.float_info.max)), Fraction(sys.float_info.max))
        assert number == float(nearest)
    else:
        assert number is None
