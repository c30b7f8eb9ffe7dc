"""Options are checked in one place: each function that takes them refuses the same values with the same words."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from inspect import cleandoc
from typing import Any

import numpy as np
import pytest
from numpydoc.docscrape import NumpyDocString

from hubbub import Metric, Params, UnaryResponse
from hubbub.errors import ParameterError
from hubbub.metrics.discovery import Discovery
from hubbub.summary import BitCounts, Reports
from hubbub_decoder import associate, compare, decode, decode_each
from hubbub_decoder.discovery.discover import discover
from hubbub_decoder.options import Options, StringOptions
from tests.contracts.test_public_signatures import of_function
from tests.support.every_kind import METRICS

CHANCES = {"prob_p": 0.2, "prob_q": 0.7, "prob_f": 0.3}
OS = Metric.categorical("os", ("linux", "macos"), UnaryResponse(**CHANCES))
PARTS = tuple(Metric.boolean(name, UnaryResponse(**CHANCES)) for name in ("paid", "dark", "beta"))
WORDS = Metric.string(
    "words",
    Params(num_bits=16, num_hashes=2, num_cohorts=64, prob_p=0.2, prob_q=0.7, prob_f=0.3),
    discover=Discovery(longest=4, step=2, held_out=0.4),
)


def counts(*ones: int, periods: tuple[str, ...] = ()) -> BitCounts:
    return BitCounts(OS, [1000], [ones], periods)


def joint_reports(number: int) -> Reports:
    return Reports(Metric.joint("user", PARTS[:number]), np.zeros(200, np.uint16), np.zeros((200, 1), np.uint8))


FUNCTIONS: dict[Callable[..., Any], tuple[Any, ...]] = {
    decode: (counts(400, 500),),
    compare: (counts(400, 500), counts(410, 500)),
    decode_each: ([counts(400, 500, periods=("2026-03-02",))],),
    associate: (joint_reports(2),),
    discover: (BitCounts.empty(WORDS),),
}
STRINGS_ONLY: dict[str, Any] = {"method": "lasso", "weights": {"linux": 1}}


def parameters_of(function: Callable[..., Any]) -> set[str]:
    """Parameters of a function, with the keywords of `**options`."""
    return {annotation.name for annotation in of_function("", function)}


BAD: dict[str, tuple[Any, ...]] = {
    "confidence": (0, 1, 95, -0.1, float("nan"), "high", None),
    "fdr": (0, 1, 5, float("nan"), "low", None),
    "target": ("clients", None, 1),
    "same_clients": ("no", 3, 0.0),
    "fabricated": (1, -0.1, float("nan"), "some", None),
}
CASES = [
    (function, name, value)
    for function in FUNCTIONS
    for name, values in BAD.items()
    for value in values
    if name in parameters_of(function)
]


def test_cases_cover_every_option() -> None:
    assert {field.name for field in fields(Options)} == set(BAD)


@pytest.mark.parametrize(
    ("function", "name", "value"), CASES, ids=lambda value: getattr(value, "__name__", repr(value))
)
def test_value_out_of_range_is_refused(function: Callable[..., Any], name: str, value: object) -> None:
    with pytest.raises(ParameterError, match=rf"^{name} must be .*, got {re.escape(repr(value))}(: .*)?$"):
        function(*FUNCTIONS[function], **{name: value})


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("name", [*BAD, *STRINGS_ONLY, "confidense"])
def test_option_that_a_function_does_not_take_is_refused(function: Callable[..., Any], name: str) -> None:
    """A TypedDict of keywords is checked by mypy alone: Python passes any keyword on."""
    if name not in parameters_of(function):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            function(*FUNCTIONS[function], **{name: getattr(Options(), name, 1)})


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
@pytest.mark.parametrize("name", STRINGS_ONLY)
def test_options_of_strings_are_refused_for_every_other_kind(metric: Metric, name: str) -> None:
    """Without candidates, they would be ignored."""
    options = StringOptions(**{name: STRINGS_ONLY[name]})
    if metric.kind.needs_candidates:
        options.check_metric(metric)
    else:
        with pytest.raises(
            ParameterError,
            match=f"^{metric.name}: {name} is for the candidates of a string metric, .* Leave out {name} ",
        ):
            options.check_metric(metric)


@pytest.mark.parametrize("name", STRINGS_ONLY)
def test_decode_refuses_options_of_strings_for_categories(name: str) -> None:
    with pytest.raises(ParameterError, match=f"^os: {name} is for the candidates of a string metric"):
        decode(counts(400, 500), **{name: STRINGS_ONLY[name]})


def test_every_option_is_described_once() -> None:
    for function in FUNCTIONS:
        described = NumpyDocString(cleandoc(function.__doc__ or ""))["Parameters"]
        keywords = next(entry for entry in described if entry.name == "**options")
        unpacked = parameters_of(function) - {*function.__annotations__}
        assert set(re.findall("`([a-z_]+)`", " ".join(keywords.desc))) == unpacked
        assert not unpacked & {entry.name for entry in described}
