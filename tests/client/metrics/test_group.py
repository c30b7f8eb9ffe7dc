"""A metric's public label: its rules, its digests, and what refuses it."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub import DefinitionError, Encoder, Metric, Secret, UnaryResponse, parse_definitions
from hubbub.metrics.definitions import Definitions
from hubbub.metrics.group import MAX_VALUES, Group
from hubbub.metrics.periods import Period
from hubbub.wire.batch import SINGLE_REPORT_BYTES, Batch
from tests.support.every_kind import METRICS, NOISE, VERSION

DARK = Metric.boolean("dark", UnaryResponse(**NOISE), group=VERSION)
DEFINITION = """
[[metric]]
name = "dark"
kind = "boolean"
description = "Dark theme"
owner = "a@example.org"
expires = 2027-01-01
prob_p = 0.25
prob_q = 0.75
prob_f = 0.5
group = {}
"""


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("Version", ("1.x", "other"), "name must be lower-case"),
        ("period", ("1.x", "other"), "not 'period'"),
        ("", ("1.x", "other"), "name must be"),
        ("v", ("other",), "2 to 16"),
        ("v", ("other", "other"), "2 to 16 different"),
        ("v", (*tuple(f"{n}.x" for n in range(MAX_VALUES)), "other"), "2 to 16"),
        ("v", ("1.x", "2.x"), "must have 'other'"),
        ("v", ("1 x", "other"), "got '1 x'"),
        ("v", ("-x", "other"), "got '-x'"),
        ("v", ("é", "other"), "got 'é'"),
        ("v", ("x" * 33, "other"), "at most 32"),
        ("v", (1, "other"), "got 1"),
        ("v", "other", "must be a list"),
    ],
)
def test_rules(name: str, values: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        Group(name, values)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('"version"', "must be a table such as"),
        ('{ name = "version" }', "must be a table such as"),
        ('{ name = "version", values = ["1.x", "other"], other = "x" }', "must be a table such as"),
        ('{ name = "version", values = ["1.x", "other"], value = "1.x" }', "a value belongs to reports"),
        ('{ name = "version", values = ["1.x"] }', "dark: group: values must be 2 to 16"),
    ],
)
def test_wrong_tables(table: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        parse_definitions(DEFINITION.format(table))


def test_a_definition_has_a_digest_for_each_value() -> None:
    definitions = parse_definitions(DEFINITION.format('{ name = "version", values = ["1.x", "2.x", "other"] }'))
    metric = definitions["dark"]
    assert metric.digest == DARK.digest
    collections = list(definitions.collections())
    assert [collection.title for collection in collections] == [f"dark (version {value})" for value in VERSION.values]
    assert list(definitions.versions()) == [metric]
    assert (
        len({metric.digest, replace(metric, group=None).digest, *(collection.digest for collection in collections)})
        == 5
    )
    for definition in (metric, *collections):
        assert definitions.version("dark", definition.digest) == (metric if definition is metric else None)
        assert Metric.from_dict(definition.to_dict()) == definition
        assert definition.in_group(None) == metric
    assert metric.in_group("2.x").in_group("1.x") == collections[0]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_without_a_group_counts_as_itself(metric: Metric) -> None:
    ungrouped = replace(metric, group=None)
    assert ungrouped.collections == (ungrouped,)
    assert "group" not in ungrouped.to_dict()
    with pytest.raises(DefinitionError, match=f"{metric.name} has no group"):
        ungrouped.in_group("1.x")
    assert list(Definitions([ungrouped]).collections()) == [ungrouped]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_kinds_that_divide_their_clients_refuse_it_with_the_reason(metric: Metric) -> None:
    refused = metric.kind.word == "joint" or metric.name in ("plugins", "words")
    if refused:
        with pytest.raises(DefinitionError, match=f"{metric.name}: .* takes no group: "):
            replace(metric, group=VERSION)
    else:
        assert replace(metric, group=VERSION).group == VERSION


def test_a_misspelled_value_names_a_near_one() -> None:
    with pytest.raises(DefinitionError, match=r"dark: version has no value '2x'. Did you mean '2.x'"):
        DARK.in_group("2x")


@given(st.text(), st.lists(st.from_regex(r"[0-9]{1,2}(\.[0-9])?(\.x)?", fullmatch=True), max_size=8, unique=True))
def test_every_label_has_a_value(label: str, values: list[str]) -> None:
    group = Group("version", (*values, "1.x", "other") if "1.x" not in values else (*values, "other"))
    value = group.value_of(label)
    assert value in group.values
    if label in group.values:
        assert value == label
    elif value != "other":
        prefix = value.removesuffix(".x")
        assert value.endswith(".x")
        assert label == prefix or label.startswith(f"{prefix}.")


def test_the_longest_family_wins() -> None:
    group = Group("version", ("1.x", "1.4.x", "other"))
    assert [group.value_of(label) for label in ("1.4.2", "1.40", "1", "11.0", "")] == [
        "1.4.x",
        "1.x",
        "1.x",
        "other",
        "other",
    ]


def test_the_longest_label_keeps_the_length_of_a_body() -> None:
    value, bits = "v" * 32, tuple(f"c{number}" for number in range(1024))
    metric = Metric.categorical("m" * 64, bits, UnaryResponse(**NOISE), group=Group("g", (value, "other")))
    report = Encoder(metric.in_group(value), Secret.generate()).encode("c0")
    batch = Batch.from_reports(metric.in_group(value), Period(date(2026, 11, 21), metric.period), [report])
    assert (batch.digest, batch.group) == (metric.digest, value)
    assert batch.collection_digest == metric.in_group(value).digest
    assert len(batch.to_json()) == SINGLE_REPORT_BYTES
    assert Batch.from_json(batch.to_json()) == batch


def test_reports_of_one_client_have_one_permanent_response_under_all_values() -> None:
    metric = Metric.boolean("dark", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), group=VERSION)
    secrets = [Secret.generate() for _ in range(64)]
    by_value = [
        [Encoder(definition, secret).encode(True).to_bytes() for secret in secrets]
        for definition in (metric, *metric.collections)
    ]
    assert all(reports == by_value[0] for reports in by_value)
    assert len(set(by_value[0])) == 2
