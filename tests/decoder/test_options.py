"""Options are checked in one place: each function that takes them refuses the same values with the same words."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from inspect import signature
from typing import Any

import numpy as np
import pytest

from hubbub import Metric, Params
from hubbub.errors import ParameterError
from hubbub.metrics.discovery import Discovery
from hubbub.summary import BitCounts, Reports
from hubbub_decoder import associate, compare, decode, decode_each
from hubbub_decoder.discovery.discover import discover
from hubbub_decoder.options import Options

CHANCES = {"prob_p": 0.2, "prob_q": 0.7, "prob_f": 0.3}
OS = Metric.categorical("os", ("linux", "macos"), **CHANCES)
PARTS = tuple(Metric.boolean(name, **CHANCES) for name in ("paid", "dark", "beta"))
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
    if name in signature(function).parameters
]


def test_cases_cover_every_option() -> None:
    assert {field.name for field in fields(Options)} == set(BAD)


@pytest.mark.parametrize(
    ("function", "name", "value"), CASES, ids=lambda value: getattr(value, "__name__", repr(value))
)
def test_value_out_of_range_is_refused(function: Callable[..., Any], name: str, value: object) -> None:
    with pytest.raises(ParameterError, match=rf"^{name} must be .*, got {re.escape(repr(value))}(: .*)?$"):
        function(*FUNCTIONS[function], **{name: value})
