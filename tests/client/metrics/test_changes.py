"""Changes between two definitions files: their kind, their fields, and the changes that are refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from hubbub import Buckets, Definitions, Discovery, Metric, Params, PeriodKind, UnaryResponse
from hubbub.cli.definition_lint import limit_problems
from hubbub.metrics.changes import compare_definitions

CHAINS: dict[str, Any] = {"prob_p": 0.25, "prob_q": 0.75}
SIZES: dict[str, Any] = {"num_bits": 128, "num_hashes": 2, "num_cohorts": 128}
REVIEW, NEW_REVIEW = "https://example.org/reviews/1", "https://example.org/reviews/2"

V1 = Metric.boolean(
    "dark", UnaryResponse(**CHAINS, prob_f=0.5), expires=date(2027, 1, 1), purpose="Theme", review=REVIEW
)
V2 = Metric.boolean(
    "dark", UnaryResponse(**CHAINS, prob_f=0.75), expires=date(2027, 1, 1), purpose="Theme", review=NEW_REVIEW
)
V3 = Metric.boolean(
    "dark", UnaryResponse(**CHAINS, prob_f=0.25), expires=date(2027, 1, 1), purpose="Theme", review=REVIEW + "3"
)
OTHER = Metric.boolean("other", UnaryResponse(**CHAINS, prob_f=0.5))


def compare(old: list[Metric], new: list[Metric]) -> tuple[list[tuple[str, str]], list[str]]:
    changes = compare_definitions(Definitions(old), Definitions(new))
    problems = [problem for change in changes for problem in change.problems()]
    return [(change.name, str(change.kind)) for change in changes], problems


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        ([V1], [V1], ["unchanged"]),
        ([V1], [V1, V2], ["unchanged", "new version"]),
        ([V1], [V2, V1], ["unchanged", "new version"]),
        ([V1, V2], [V2], ["removed", "unchanged"]),
        ([V1, V2], [V2, V3], ["removed", "unchanged", "new version"]),
        ([V1, V2], [V2, V1], ["unchanged", "unchanged", "current again"]),
        ([V1], [replace(V1, owner="you@example.org")], ["documentation"]),
        ([V1], [replace(V1, review=NEW_REVIEW)], ["documentation"]),
        ([V1], [replace(V1, expires=date(2026, 12, 1))], ["documentation"]),
    ],
)
def test_compare_accepts_new_versions_and_documentation(old: list[Metric], new: list[Metric], kinds: list[str]) -> None:
    assert compare(old, new) == ([("dark", kind) for kind in kinds], [])


def test_compare_lists_added_and_removed_metrics_in_file_order() -> None:
    assert compare([OTHER], [V1, V2]) == ([("other", "removed"), ("dark", "added"), ("dark", "added")], [])


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        ([V1], [V2], ["meaning changed"]),
        ([V1, V2], [V1], ["unchanged", "meaning changed"]),
        ([V1, V2], [V1, V3], ["unchanged", "meaning changed"]),
        ([V1], [V2, V3], ["meaning changed", "new version"]),
    ],
)
def test_compare_refuses_to_replace_the_current_version(old: list[Metric], new: list[Metric], kinds: list[str]) -> None:
    found, (problem,) = compare(old, new)
    assert found == [("dark", kind) for kind in kinds]
    assert problem.startswith("dark: review, prob_f changed without a new version: ")
    assert f"lacks the current version {old[-1].digest[:12]} of the old one" in problem
    assert f"Put its [[metric]] table back, above version {new[-1].digest[:12]}" in problem


@pytest.mark.parametrize(
    ("promise", "new"),
    [
        ("the digest", [V1, replace(V2, review=REVIEW)]),
        ("the digest", [V1, replace(V2, review="")]),
        ("purpose", [replace(V1, purpose="Advertising")]),
        ("purpose", [replace(V1, purpose="", review="")]),
        ("expires (later, 2028-01-01)", [replace(V1, expires=date(2028, 1, 1))]),
        ("expires (later, None)", [replace(V1, expires=None)]),
        ("the digest and purpose", [V1, replace(V2, review=REVIEW, purpose="Advertising")]),
    ],
)
def test_compare_refuses_changed_promises_without_a_new_review(promise: str, new: list[Metric]) -> None:
    problems = compare([V1], new)[1]
    found = "missing" if not new[-1].review else "the same"
    (problem,) = problems
    assert problem == (
        f"dark: {promise} changed, but review is {found}: {REVIEW} approved the old definition only. "
        "Set review to the address of this change's review"
    )
    assert compare([V1], [*new[:-1], replace(new[-1], review=NEW_REVIEW)])[1] == []
    assert compare([replace(V1, review="")], [replace(metric, review="") for metric in new])[1] == []


def test_compare_needs_no_review_for_a_first_purpose() -> None:
    assert compare([replace(V1, purpose="")], [V1]) == ([("dark", "documentation")], [])


@pytest.mark.parametrize(
    ("before", "after", "fields"),
    [
        (V1, replace(V1, period=PeriodKind.WEEK, hold=4), {"period": ("day", "week"), "hold": (None, 4)}),
        (
            Metric.boolean("m", UnaryResponse(**CHAINS, prob_f=0.5)),
            Metric.categorical("m", ("a", "b"), UnaryResponse(**CHAINS, prob_f=0.5)),
            {"kind": ("boolean", "categorical"), "num_bits": (1, 2), "categories": ([], ["a", "b"])},
        ),
        (
            Metric.categorical("m", ("a", "b"), UnaryResponse(**CHAINS, permanent_p=0.125, permanent_q=0.5), other="a"),
            Metric.categorical("m", ("b", "a"), UnaryResponse(**CHAINS, prob_f=0.5)),
            {
                "categories": (["a", "b"], ["b", "a"]),
                "other": ("a", None),
                "permanent_p": (0.125, None),
                "permanent_q": (0.5, None),
                "prob_f": (None, 0.5),
            },
        ),
        (
            Metric.ordinal("m", (0, 1, 2), UnaryResponse(**CHAINS, prob_f=0.5)),
            Metric.ordinal("m", Buckets((0, 1, 3), unit="s"), UnaryResponse(**CHAINS, prob_f=0.5)),
            {"buckets.edges": ([0.0, 1.0, 2.0], [0.0, 1.0, 3.0]), "buckets.unit": ("", "s")},
        ),
        (
            Metric.string("m", Params(**SIZES, **CHAINS, prob_f=0.5)),
            Metric.string("m", Params(**SIZES, **CHAINS, prob_f=0.5), discover=Discovery(longest=8)),
            {"discover.longest": (None, 8)},
        ),
        (
            Metric.joint("m", (OTHER, replace(OTHER, name="b"))),
            Metric.joint("m", (OTHER, Metric.boolean("b", UnaryResponse(**CHAINS, prob_f=0.75)))),
            {"parts[1].prob_f": (0.5, 0.75)},
        ),
    ],
)
def test_change_lists_every_field_that_differs(
    before: Metric, after: Metric, fields: dict[str, tuple[Any, Any]]
) -> None:
    (change,) = compare_definitions(Definitions([before]), Definitions([after]))
    assert change.kind == "meaning changed"
    assert {name: change.fields[name] for name in fields} == fields
    others = change.fields.keys() - fields.keys()
    assert all(name.startswith("discover.") for name in others)


def test_representatives_are_documentation() -> None:
    plain = Metric.ordinal("m", (0, 1, 2), UnaryResponse(**CHAINS, prob_f=0.5))
    moved = Metric.ordinal("m", Buckets((0, 1, 2), representatives=(0.25, 1.5)), UnaryResponse(**CHAINS, prob_f=0.5))
    (change,) = compare_definitions(Definitions([plain]), Definitions([moved]))
    assert change.kind == "documentation"
    assert change.fields == {"buckets.representatives": ([], [0.25, 1.5])}


@pytest.mark.parametrize(("limit", "text"), [(9.0, "9"), (None, "no limit")])
def test_a_limit_that_rises_is_refused(limit: float | None, text: str) -> None:
    """Between two files, and between two versions of one file."""
    low = replace(V1, lifetime_epsilon=4.0)
    high = replace(V2, lifetime_epsilon=limit)
    for old, new in (([low], [low, high]), ([low], [replace(low, lifetime_epsilon=limit)])):
        (problem,) = [problem for problem in compare(old, new)[1] if "lifetime_epsilon" in problem]
        assert problem.startswith(f"dark: lifetime_epsilon rises from 4 to {text}, but clients keep the lowest limit")
        assert "set lifetime_epsilon = 4, or give the metric another name" in problem
    assert not any("rises" in problem for problem in compare([high], [high, replace(V1, lifetime_epsilon=3.0)])[1])
    (problem,) = limit_problems([low, high, OTHER])
    shown = "not set" if limit is None else text
    assert f"lifetime_epsilon is {shown}, and an earlier version has 4" in problem
    assert problem.endswith("Set lifetime_epsilon = 4")
    assert list(limit_problems([high, low, OTHER])) == []
