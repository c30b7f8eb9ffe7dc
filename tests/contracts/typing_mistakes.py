"""Wrong uses of the public API, never run: mypy and pyright must refuse each marked line.

`make types` fails if mypy accepts one, because strict mode reports a `type: ignore` that ignores nothing; test_pyright.py if pyright does.
"""

from __future__ import annotations

from typing import TypedDict, Unpack

import numpy as np

from hubbub import Client, Metric, Params, SubsetSelection, UnaryResponse
from hubbub.summary import BitCounts, Reports
from hubbub.typing import MetricFields
from hubbub_decoder import decode, simulate

RESPONSE = UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5)
METRIC = Metric.boolean("dark", RESPONSE)
PARAMS = Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0.5)


def app_metric(name: str, **fields: Unpack[MetricFields]) -> Metric:
    """A function of an app that passes the fields on: this is right."""
    return Metric.boolean(name, RESPONSE, **fields)


class Crash(TypedDict):
    """Values of a joint metric: type checkers take a TypedDict for a mapping to `object` alone."""

    reason: str
    is_beta: bool


def record_crash(client: Client, crash: Crash) -> None:
    """This is right."""
    client.record("crash", crash)
    client.subject("u").record("crash", crash)
    client.record("crash", {"reason": "memory", "is_beta": None})
    client.record("crash", ("memory", True))


def record_mistakes(client: Client) -> None:
    """Values of no kind."""
    client.record("crash", {1: "memory"})  # type: ignore[dict-item]
    client.record("crash", (object(), True))  # type: ignore[arg-type]
    client.record("crash", object())  # type: ignore[arg-type]
    client.record("crash", Crash(reason="memory", is_beta=1))  # type: ignore[typeddict-item]


def mistakes(counts: BitCounts) -> None:
    """Wrong uses; the function is never called, because pytest imports this file."""
    Metric.boolean("dark", RESPONSE, perod="week")  # type: ignore[call-arg]
    Metric.boolean("dark", RESPONSE, period="fortnight")  # type: ignore[arg-type]
    Metric.boolean("dark", RESPONSE, hold="7")  # type: ignore[arg-type]
    Metric.boolean("dark", RESPONSE, other="a")  # type: ignore[call-arg]
    Metric.boolean("dark", prob_p=0.25, prob_q=0.75)  # type: ignore[call-arg]
    Metric.boolean("dark", "unary")  # type: ignore[arg-type]
    Metric.categorical("os", ("linux", "mac"), RESPONSE, expires="2027-01-01")  # type: ignore[arg-type]
    Metric.categorical("os", ("linux", "mac"), SubsetSelection(num_values=3, prob_q=0.5))  # type: ignore[call-arg]
    Metric.categorical("os", RESPONSE, ("linux", "mac"))  # type: ignore[arg-type]
    Metric.ordinal("delay", (0, 10), RESPONSE, unit="ms")  # type: ignore[call-arg]
    Metric.set("plugins", ("vim", "preview"), RESPONSE, group="version")  # type: ignore[arg-type]
    Metric.string("page", RESPONSE)  # type: ignore[arg-type]
    Metric.string("page", PARAMS, owners="you@example.org")  # type: ignore[call-arg]
    Metric.joint("both", RESPONSE)  # type: ignore[arg-type]
    app_metric("dark", perod="week")  # type: ignore[call-arg]
    UnaryResponse(prob_p=0.25, prob_q=0.75, prob_r=0.5)  # type: ignore[call-arg]
    Client("metrics.toml", "state", "https://telemetry.example.org", polcy=None)  # type: ignore[call-arg]
    Client("metrics.toml", "state", "https://telemetry.example.org", durability="disk")  # type: ignore[arg-type]
    decode(counts, confidense=0.9)  # type: ignore[call-arg]
    decode(counts, method="ridge")  # type: ignore[arg-type]
    decode(counts, weights=3)  # type: ignore[arg-type]
    decode(METRIC)  # type: ignore[arg-type]
    simulate(METRIC, {"true": 9}, np.random.default_rng(), form=Reports).ones  # type: ignore[attr-defined]  # noqa: B018
    simulate(METRIC, {"true": 9}, np.random.default_rng(), form="reports")  # type: ignore[call-overload]
    simulate(METRIC, {"true": 9}, 7)  # type: ignore[call-overload]
