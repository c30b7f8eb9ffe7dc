"""Equality of results: two results with the same numbers are equal, also where a number is undetermined (nan)."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

import hubbub_decoder
from hubbub import Metric, Params
from hubbub_decoder import Estimate, decode
from hubbub_decoder.simulation import simulate


def dataclasses_in(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type) and is_dataclass(annotation):
        yield annotation
    for argument in get_args(annotation):
        yield from dataclasses_in(argument)


def result_classes() -> list[Any]:
    """Public result classes and those of their fields that compare by value and have numbers; plans, audits and options have no undetermined ones."""
    left: list[Any] = [cls for name in hubbub_decoder.__all__ for cls in dataclasses_in(getattr(hubbub_decoder, name))]
    found: dict[Any, None] = {}
    while left:
        cls = left.pop()
        if cls not in found and re.match(r"hubbub_decoder\.(?!planning|audit|options)", cls.__module__):
            found[cls] = None
            left += [part for annotation in get_type_hints(cls).values() for part in dataclasses_in(annotation)]
    return [cls for cls in found if cls.__eq__ is not object.__eq__ and float in get_type_hints(cls).values()]


def undetermined(cls: type) -> Any:
    """Result of which every number is nan, each an object of its own, and every other field is None."""
    result: Any = object.__new__(cls)
    annotations = get_type_hints(cls)
    for field in fields(cls):
        object.__setattr__(result, field.name, float("nan") if annotations[field.name] is float else None)
    return result


def test_result_classes_are_found() -> None:
    """The search through annotations reaches the rows of every kind of result."""
    names = {cls.__name__ for cls in result_classes()}
    assert {"Decoding", "Estimate", "ShareEstimate", "UnlistedString", "Change", "Overlap", "Cell", "Mean"} <= names


@pytest.mark.parametrize("cls", result_classes())
def test_undetermined_results_are_equal(cls: type) -> None:
    """With the same hash; a number in place of nan makes them unequal."""
    one, two = undetermined(cls), undetermined(cls)
    assert one == two
    assert hash(one) == hash(two)
    number = next(field.name for field in fields(cls) if get_type_hints(cls)[field.name] is float)
    object.__setattr__(two, number, 0.5)
    assert one != two
    assert one != object()


def test_equal_decodings_are_equal() -> None:
    """Of a string metric with undetermined totals, decoded twice, and after pickling; with another confidence they differ."""
    metric = Metric.string("x", Params(num_bits=8, num_hashes=2, num_cohorts=2, prob_p=0.25, prob_q=0.75, prob_f=0))
    counts = simulate(metric, {"a": 400, "b": 200}, np.random.default_rng(1))
    one, two = (decode(counts, [*"abcdefghij"]) for _ in range(2))
    assert any(np.isnan(estimate.selection_adjusted_low) for estimate in one)
    assert one == two == pickle.loads(pickle.dumps(one))  # noqa: S301, our own bytes
    assert hash(one) == hash(two)
    assert one != decode(counts, [*"abcdefghij"], confidence=0.9)


def test_estimate_is_unequal_to_its_first_fields() -> None:
    """A result of another class with equal numbers is unequal, as dataclasses are."""
    estimate = Estimate(candidate="a", share=0.1, std_error=0.2, low=0.3, high=0.4)
    assert estimate == replace(estimate)
    assert estimate != estimate.interval
