"""Kinds as JSON values and as tables of definitions: both round trips, and damage in any field of any kind."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from hubbub import Buckets, DefinitionError, Discovery, HubbubError, Metric, Params, UnaryResponse
from hubbub.metrics.kinds import KINDS, kind_from_dict
from tests.support.every_kind import METRICS

WRONG_VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    3,
    10**400,
    0.5,
    float("nan"),
    float("inf"),
    "",
    "a",
    "\ud800",
    "1/2",
    [],
    [0],
    [None],
    {},
    {"a": 1},
)
DAMAGES = 4_000
COINS = UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5)
STRINGS = Params(num_bits=64, num_hashes=1, num_cohorts=128, prob_p=0.25, prob_q=0.75, prob_f=0.5)


def damaged(fields: Any, rng: random.Random) -> Any:
    """JSON values with one entry, at a random depth, deleted, replaced or added."""
    containers = [fields]
    for container in containers:
        containers.extend(
            child
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, dict | list) and child
        )
    place = rng.choice(containers)
    key = rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place))
    match rng.randrange(3):
        case 0:
            del place[key]
        case 1:
            place[key] = rng.choice(WRONG_VALUES)
        case _ if isinstance(place, dict):
            place[rng.choice(("discover", "categories", "other", "buckets", "parts", "kind", "x"))] = rng.choice(
                WRONG_VALUES
            )
        case _:
            place.append(rng.choice(WRONG_VALUES))
    return fields


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_damaged_definitions_raise_errors_of_this_package_alone(metric: Metric, unseen_seed: int) -> None:
    rng = random.Random(unseen_seed)  # noqa: S311  (which damage)
    original = json.dumps(metric.to_dict())
    refused = 0
    for _ in range(DAMAGES):
        fields = damaged(json.loads(original), rng)
        try:
            read = Metric.from_dict(fields)
        except HubbubError:
            refused += 1
        else:
            assert read.digest == metric.digest, fields
    assert refused > DAMAGES / 4


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_kinds_round_trip_through_json_values(metric: Metric) -> None:
    fields = {**metric.kind.to_dict(), "kind": metric.kind.word}
    assert kind_from_dict(json.loads(json.dumps(fields))) == metric.kind


@pytest.mark.parametrize(
    "metric", [metric for metric in METRICS if len(metric.blocks) == 1], ids=lambda metric: metric.name
)
def test_kinds_round_trip_through_tables_of_definitions(metric: Metric) -> None:
    kind, table, mechanism = metric.kind, metric.kind.to_table(), metric.params.mechanism
    assert set(kind.required_fields) <= set(table) <= {*kind.required_fields, *kind.optional_fields}
    assert KINDS[kind.word].from_table({**table, **mechanism.word_field, **mechanism.fields}) == kind


OWN_FIELDS = {
    "discover": "string",
    "categories": "categorical",
    "other": "categorical",
    "buckets": "ordinal",
    "parts": "joint",
}


@pytest.mark.parametrize("field", OWN_FIELDS)
@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_field_of_another_kind_is_refused(metric: Metric, field: str) -> None:
    """It would be lost: the digest does not cover it."""
    if metric.kind.word == OWN_FIELDS[field]:
        return
    with pytest.raises(
        DefinitionError, match=f"only an? {OWN_FIELDS[field]} metric has {field}, got an? {metric.kind} one"
    ):
        Metric.from_dict(metric.to_dict() | {field: ["x"]})


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        (Metric.categorical("os", ("linux", "Other"), COINS), "`other` is not set"),
        (Metric.categorical("os", ("linux", "Other"), COINS, other="linux"), None),
        (Metric.categorical("os", ("linux", "macos"), COINS), None),
        (
            Metric.categorical("os", ("Linux", "macos", "linux"), COINS),
            "'Linux' and 'linux' differ in their spelling only",
        ),
        (Metric.categorical("page", ("/docs", "/docs/"), COINS), "'/docs' and '/docs/' differ in their spelling only"),
        (Metric.categorical("page", ("/", "/docs"), COINS), None),
        (Metric.categorical("os", ("linux ", "macos"), COINS), "'linux ' is not normalized"),
        (Metric.categorical("drink", ("cafe\u0301", "tea"), COINS), "Write 'caf\\xe9'"),
        (Metric.categorical("drink", ("caf\u00e9", "tea"), COINS), None),
        (Metric.set("plugins", ("vim", "Vim"), COINS), "'vim' and 'Vim' differ in their spelling only"),
        (Metric.set("plugins", ("vim", "other"), COINS), "nothing is counted as 'other' by itself"),
        (Metric.set("plugins", ("vim", "git"), COINS), None),
        (Metric.ordinal("errors", Buckets((0, 1, 2, 5, 10)), COINS), "representatives = [0, 1, 3, 7]"),
        (Metric.ordinal("errors", Buckets((0, 1, 5), representatives=(0, 2.5)), COINS), None),
        (Metric.ordinal("hours", Buckets((0, 0.5, 1, 2)), COINS), None),
        (Metric.ordinal("time", Buckets((0, 50, 100)), COINS), None),
        (Metric.string("page", STRINGS), None),
        (Metric.string("page", replace(STRINGS, num_cohorts=2)), "num_cohorts = 2"),
        (Metric.string("page", STRINGS, discover=Discovery(longest=4)), None),
    ],
)
def test_warnings_name_what_the_author_perhaps_does_not_mean(metric: Metric, words: str | None) -> None:
    found = list(metric.kind.warnings())
    assert len(found) == (words is not None)
    assert words is None or words in found[0]


def test_joint_kind_warns_of_its_parts() -> None:
    rest = Metric.categorical("os", ("linux", "other"), COINS)
    joint = Metric.joint("both", (rest, Metric.boolean("dark", COINS)))
    assert list(joint.kind.warnings()) == [f"part os: {text}" for text in rest.kind.warnings()]
