"""A result of each class with rows."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from hubbub import Metric, Params, UnaryResponse
from hubbub.metrics.discovery import Discovery
from hubbub.summary import Reports
from hubbub_decoder import (
    associate,
    compare,
    decode,
    decode_each,
    discover,
    simulate,
    simulate_two_periods,
)
from hubbub_decoder.results.table_result import TableResult

NOISE: dict[str, Any] = {"prob_p": 0.1, "prob_q": 0.9, "prob_f": 0.25}
STRING = Metric.string("homepage", Params(num_bits=16, num_hashes=2, num_cohorts=16, **NOISE), period="week")
OS = Metric.categorical("os", ("linux", "macos"), UnaryResponse(**NOISE))
WORDS = Metric.string(
    "word",
    Params(num_bits=64, num_hashes=1, num_cohorts=64, prob_p=0.02, prob_q=0.98, prob_f=0.05),
    discover=Discovery(longest=2, step=1, alphabet="abcd", held_out=0.2),
)
WEEKS = ("2026-03-02", "2026-03-09")
NAMES = ["alpha", "beta", "gamma"]


@cache
def results() -> dict[str, TableResult[Any]]:
    """One result of each class, and decodings of few reports, which leave numbers undetermined."""
    rng = np.random.default_rng(3)
    people = {("alpha", "alpha"): 5000, ("alpha", "beta"): 2000, ("gamma", "gamma"): 500}
    pair = simulate_two_periods(STRING, people, rng, periods=WEEKS)
    parts = [OS, Metric.boolean("paid", UnaryResponse(**NOISE)), Metric.boolean("dark", UnaryResponse(**NOISE))]
    two = simulate(Metric.joint("two", parts[:2]), {("linux", "true"): 300, ("macos", None): 200}, rng, form=Reports)
    clients = {("linux", "true", "false"): 300, ("macos", "false", "true"): 200}
    three = simulate(Metric.joint("three", parts), clients, rng, form=Reports)
    return {
        "decoding": decode(pair[0], NAMES),
        "few reports": decode(simulate(STRING, {"alpha": 3}, rng), [*NAMES, *map(str, range(40))]),
        "categories": decode(simulate(OS, {"linux": 50}, rng)),
        "comparison": compare(*pair, NAMES),
        "trends": decode_each(pair, NAMES),
        "association": associate(two, {}),
        "three-way": associate(three, {}),
        "discoveries": discover(simulate(WORDS, {"ab": 30_000, "cd": 20_000}, rng), beam=20),
    }


KINDS = ("decoding", "few reports", "categories", "comparison", "trends", "association", "three-way", "discoveries")


@pytest.fixture(params=KINDS)
def result(request: pytest.FixtureRequest) -> TableResult[Any]:
    """Each result in turn; they are computed by the first test and not by the collection of the tests."""
    assert results().keys() == {*KINDS}
    return results()[request.param]
