"""A number out of range is a ParameterError in every public function: "NAME must be RULE, got VALUE: NEXT STEP"."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import hubbub
import hubbub.privacy
import hubbub_decoder
import hubbub_decoder.plots
from hubbub import (
    Discovery,
    Group,
    Limits,
    Metric,
    ParameterError,
    Params,
    Policy,
    PrivSet,
    SubsetSelection,
    UnaryResponse,
)
from hubbub.summary import BitCounts, Reports
from hubbub_decoder import Decoding, Overlap, Wishes
from tests.contracts.test_public_signatures import of_function, public_things

BAD: tuple[Any, ...] = (0, -1, 1.5, math.nan, math.inf, "x", True)
SURVEY = Metric.boolean("survey", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
IN_RANGE = "every argument is in range"
WORDS = Metric.string(
    "words",
    Params(num_bits=32, num_hashes=1, num_cohorts=128, prob_p=0.25, prob_q=0.75, prob_f=0),
    discover=Discovery(longest=3, alphabet="ab", step=2),
)
BOTH = Metric.joint("both", (SURVEY, Metric.boolean("dark", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))))
COUNTS = [BitCounts(SURVEY, [1000], [[ones]]) for ones in (400, 450)]
NOISE = {"prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.0}


def reports_of(metric: Metric) -> Reports:
    rng = np.random.default_rng(1)
    rows = np.packbits(rng.random((400, metric.num_bits)) < 0.5, axis=1, bitorder="little")
    return Reports(metric, rng.integers(metric.num_cohorts, size=400), rows)


@cache
def decoding() -> Decoding:
    return hubbub_decoder.decode(COUNTS[0])


def one_week(**options: Any) -> object:
    return hubbub_decoder.decode_each([BitCounts(SURVEY, [1000], [[400]], ["2026-03-01"])], **options)


def one_arm(**options: Any) -> object:
    arm = replace(SURVEY, group=Group("arm", ("a", "other"))).in_group("a")
    return hubbub_decoder.decode_each([BitCounts(arm, [1000], [[400]], ["2026-03-01"])], by="arm", **options)


def simulated(**options: Any) -> object:
    return list(hubbub_decoder.simulate_reports(SURVEY, {"true": 5}, np.random.default_rng(1), **options))


CALLS: dict[str, tuple[Callable[..., object], dict[str, Any]]] = {
    "hubbub.privacy.shuffle_amplification": (
        hubbub.privacy.shuffle_amplification,
        {"epsilon": 1.0, "num_reports": 100, "delta": 1e-9},
    ),
    "hubbub.privacy.central_epsilon": (
        lambda **options: hubbub.privacy.central_epsilon(SURVEY, **options),
        {"num_reports": 100, "delta": 1e-9, "periods": 1, "hold": 1},
    ),
    "hubbub.privacy.compose": (lambda **options: hubbub.privacy.compose([1.0], **options), {"delta": 0.0}),
    "hubbub.privacy.effective_group_size": (
        lambda **options: hubbub.privacy.effective_group_size(SURVEY, **options),
        {"num_reports": 1},
    ),
    "hubbub.privacy.epsilon": (lambda **options: hubbub.privacy.epsilon(SURVEY, **options), {"num_reports": 1}),
    "hubbub.privacy.group_privacy": (hubbub.privacy.group_privacy, {"epsilon": 1.0, "size": 2}),
    "hubbub.privacy.guarantee_of_days": (
        lambda **options: hubbub.privacy.guarantee_of_days(SURVEY, hubbub.Policy(), **options),
        {"num_days": 30},
    ),
    "hubbub.privacy.published_guarantee": (
        lambda **options: hubbub.privacy.published_guarantee(SURVEY, ["2026-11-29"], **options),
        {"num_clients": 100},
    ),
    "hubbub.privacy.match_probability_bound": (
        lambda **options: hubbub.privacy.match_probability_bound(SURVEY, **options),
        {"group_size": 2, "num_reports": 1},
    ),
    "hubbub_decoder.associate": (
        lambda **options: hubbub_decoder.associate(reports_of(BOTH), **options),
        {"confidence": 0.95},
    ),
    "hubbub_decoder.audit_client": (
        lambda **options: hubbub_decoder.audit_client(never_called, [True, False], **options),
        {"claim": 1.0, "num_reports": 1, "hold": None, "trials": 4000, "confidence": 0.99, "seed": 1},
    ),
    "hubbub_decoder.audit_metric": (
        lambda **options: hubbub_decoder.audit_metric(SURVEY, client=never_called, **options),
        {"num_reports": 1, "claim": 1.0, "trials": 4000, "confidence": 0.99, "seed": 1},
    ),
    "hubbub_decoder.compare": (
        lambda **options: hubbub_decoder.compare(COUNTS[0], COUNTS[1], **options),
        {"confidence": 0.95, "fdr": 0.05, "overlap": None},
    ),
    "hubbub_decoder.decode": (
        lambda **options: hubbub_decoder.decode(COUNTS[0], **options),
        {"confidence": 0.95, "fdr": 0.05, "fabricated": 0.0},
    ),
    "hubbub_decoder.decode_each": (one_week, {"confidence": 0.95, "fdr": 0.05}),
    "hubbub_decoder.describe": (
        lambda **options: hubbub_decoder.describe(WORDS, **options),
        {"num_reports": 100_000, "share": None, "num_candidates": 10, "periods": 1},
    ),
    "hubbub_decoder.discover": (
        lambda **options: hubbub_decoder.discover(reports_of(WORDS), **options),
        {"confidence": 0.95, "fdr": 0.05, "beam": 10, "max_candidates": 10},
    ),
    "hubbub_decoder.simulate": (
        lambda **options: hubbub_decoder.simulate(SURVEY, {"true": 5}, np.random.default_rng(1), **options),
        {"no_value": 0},
    ),
    "hubbub_decoder.simulate_reports": (simulated, {"no_value": 0}),
    "hubbub_decoder.plots.plot_epsilon": (
        lambda **options: hubbub_decoder.plots.plot_epsilon(SURVEY, ax=Figure().add_subplot(), **options),
        {"periods": 10},
    ),
    "hubbub_decoder.Decoding.document": (lambda **options: decoding().document(**options), {"top": 1}),
    "hubbub_decoder.Decoding.plot": (lambda **options: decoding().plot(Figure(), **options), {"top": 1}),
    "hubbub_decoder.Overlap.known": (Overlap.known, {"share": 0.5}),
    "hubbub_decoder.Wishes": (
        Wishes,
        {
            "num_candidates": 10,
            "epsilon": 1.0,
            "longitudinal": 8.0,
            "num_reports": 1000,
            "share": 0.1,
            "periods": 1,
            "values": 1,
            "hold": None,
            "longitudinal_periods": None,
            "central": 1.0,
            "bits": 64,
            "longest": None,
        },
    ),
    "hubbub.Discovery": (Discovery, {"longest": 8, "step": 2, "first": 2, "held_out": 0.1}),
    "hubbub.Limits": (Limits, {"max_reports": 10, "max_bytes": 1000}),
    "hubbub.Metric": (lambda **options: Metric("survey", SURVEY.kind, **options), {"hold": 1}),
    "hubbub.Params": (Params, {"num_bits": 32, "num_hashes": 2, "num_cohorts": 4} | NOISE),
    "hubbub.Policy": (
        Policy,
        {"epsilon_report": 1.0, "epsilon_enrollment": 2.0, "epsilon_metric": 3.0, "epsilon_total": 4.0},
    ),
    "hubbub.PrivSet": (PrivSet, {"num_values": 6, "max_items": 2, "num_ones": 1, "prob_hit": 0.75}),
    "hubbub.SubsetSelection": (SubsetSelection, {"num_values": 4, "num_ones": 1, "prob_q": 0.5, "permanent_q": 0.75}),
    "hubbub.UnaryResponse": (UnaryResponse, NOISE),
}
"""Public functions and constructors that take numbers, each with valid ones."""


def never_called(values: object, seed: int, clients: int) -> Any:
    raise ParameterError(IN_RANGE)


def test_every_public_function_with_numbers_is_called() -> None:
    numbers = {"int", "float", "int | None", "float | None"}
    missing = {
        f"{annotation.where}: {annotation.name}"
        for name, thing in public_things()
        if inspect.isfunction(thing)
        for annotation in of_function(name, thing)
        if annotation.text in numbers
        and annotation.name != "return"
        and annotation.name not in CALLS.get(name, (None, {}))[1]
    }
    assert not missing


CASES = [(name, parameter, value) for name, (_, valid) in CALLS.items() for parameter in valid for value in BAD]


@pytest.mark.parametrize(("name", "parameter", "value"), CASES)
def test_number_out_of_range_is_a_parameter_error(name: str, parameter: str, value: object) -> None:
    call, valid = CALLS[name]
    message = f"{parameter} must be RULE, got VALUE: NEXT STEP"
    try:
        call(**valid | {parameter: value})
    except ParameterError as problem:
        message = str(problem)
    assert re.search(rf"{parameter}\b.* must be .*, got .*: .", message) or IN_RANGE in message


@pytest.mark.parametrize("name", CALLS)
def test_text_is_no_number(name: str) -> None:
    call, valid = CALLS[name]
    for parameter in valid:
        with pytest.raises(ParameterError, match=rf"{parameter} must be"):
            call(**valid | {parameter: "x"})
