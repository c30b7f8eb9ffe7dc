"""All result classes: a repr of one short line, files that `load` reads again, and errors of plots with nothing to draw."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import hubbub_decoder
from hubbub import Discovery, HubbubError, Metric, ParameterError, Params, UnaryResponse
from hubbub.summary import BitCounts, Reports
from hubbub_decoder import (
    Association,
    Comparison,
    Decoding,
    Discoveries,
    Options,
    OutputError,
    Trends,
    Wishes,
    associate,
    audit_metric,
    compare,
    decode,
    decode_each,
    discover,
    plan,
    simulate,
)
from hubbub_decoder.plots import plot_numbers, plot_residuals
from hubbub_decoder.results.loadable import Loadable
from hubbub_decoder.results.table_result import TableResult
from tests.support.every_kind import METRICS

NOISE: dict[str, Any] = {"prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.25}
WORDS = Metric.string("words", Params(num_bits=16, num_hashes=1, num_cohorts=16, **NOISE))
PREFIXES = Metric.string(
    "found",
    Params(num_bits=32, num_hashes=1, num_cohorts=128, prob_p=0.1, prob_q=0.9, prob_f=0),
    discover=Discovery(longest=3, alphabet="ab"),
)
NAMES = ["a", "b", "a name that is long " * 20, "line\nbreak"]
MOST_LETTERS = 160
WITHOUT_LOAD = {Association: "its file has the table, but not the covariances that its plot and its cells are made of"}


def counts(day: str, share: float = 0.5) -> BitCounts:
    values = {"a": int(40_000 * share), "b": 20_000, NAMES[2]: 10_000, NAMES[3]: 10_000}
    return simulate(WORDS, values, np.random.default_rng(1), periods=[day])


@cache
def results() -> Mapping[str, object]:
    """An object of each exported result class, of the parts of these results too."""
    rng = np.random.default_rng(2)
    days = [counts("2026-03-02"), counts("2026-03-03", 0.2)]
    trends = decode_each(days, NAMES)
    pair = Metric.joint(
        "pair", (Metric.boolean("x", UnaryResponse(**NOISE)), Metric.boolean("y", UnaryResponse(**NOISE)))
    )
    population = {("true", "true"): 4000, ("false", "false"): 4000}
    joint = associate(simulate(pair, population, rng, form=Reports))
    planned = plan(Wishes(epsilon=2, num_reports=100_000, num_candidates=100))
    found = discover(simulate(PREFIXES, {"ab": 60_000, "bba": 40_000}, rng))
    unlisted = decode(simulate(replace(WORDS, name="w"), {"a": 90_000, "b": 60_000}, rng), ["a"])
    parts = [
        *(trends, trends[0], trends.comparisons[0], trends.comparisons[0][0], trends.comparisons[0].overlap),
        *(joint, joint[0], joint[0].given[0], planned, planned.description, planned.wishes, Options(), found, unlisted),
        *(unlisted[0], unlisted.unlisted, unlisted.diagnose(), *unlisted.fit_tests[:1], *unlisted.unlisted_strings[:1]),
        *(*trends[0].warnings[:1], *unlisted.warnings[:1], audit_metric(pair.components[0], trials=4000)),
    ]
    return {type(part).__name__: part for part in parts}


EXPORTED = [name for name in hubbub_decoder.__all__ if is_dataclass(getattr(hubbub_decoder, name))]


@pytest.mark.parametrize("name", EXPORTED)
def test_repr_is_one_short_line(name: str) -> None:
    result = results()[name]
    for part in (result, *(result if isinstance(result, TableResult) else ())):
        shown, word = repr(part), type(part).__name__
        assert "\n" not in shown
        assert len(shown) <= MOST_LETTERS, shown
        assert shown.startswith((f"<{word}", f"{word}("))


def classes(base: type) -> set[type[Any]]:
    return {cls for name in EXPORTED if issubclass(cls := getattr(hubbub_decoder, name), base)}


def test_every_table_can_be_loaded_or_says_why_not() -> None:
    assert classes(TableResult) - classes(Loadable) == WITHOUT_LOAD.keys()


@pytest.mark.parametrize("name", sorted(cls.__name__ for cls in classes(Loadable)))
def test_loaded_result_is_equal_to_the_saved_one(name: str, tmp_path: Path) -> None:
    saved: Any = results()[name]
    saved.save(tmp_path / "result.json")
    loaded = type(saved).load(tmp_path / "result.json")
    assert loaded == saved
    assert loaded.to_dict() == saved.to_dict()
    assert loaded.document() == saved.document()
    assert repr(loaded) == repr(saved)


@pytest.mark.parametrize("name", sorted(cls.__name__ for cls in classes(Loadable)))
@pytest.mark.parametrize("text", ["", "{}", "[]", "no JSON", '{"metric": 3}'])
def test_another_file_is_refused(name: str, text: str, tmp_path: Path) -> None:
    result = getattr(hubbub_decoder, name)
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(OutputError, match=rf"other.json is no file of {name}.*{name}\.save"):
        result.load(tmp_path / "other.json")
    with pytest.raises(OutputError, match="cannot be read: No such file"):
        result.load(tmp_path / "missing.json")


def test_file_of_another_result_is_refused(tmp_path: Path) -> None:
    trends = results()["Trends"]
    assert isinstance(trends, Trends)
    trends.save(tmp_path / "trends.json")
    for other in (Decoding, Comparison, Discoveries):
        with pytest.raises(OutputError, match=f"is no file of {other.__name__}"):
            other.load(tmp_path / "trends.json")


def test_a_saved_search_that_found_nothing_is_loaded(tmp_path: Path) -> None:
    nothing = Discoveries(None, ("aba",))
    nothing.save(tmp_path / "nothing.json")
    assert Discoveries.load(tmp_path / "nothing.json") == nothing
    assert json.loads((tmp_path / "nothing.json").read_text())["truncated"] == ["aba"]


def empty_results() -> list[TableResult[Any]]:
    """Results whose reports determine nothing."""
    trends = results()["Trends"]
    assert isinstance(trends, Trends)
    decoding = replace(trends[0], estimates=tuple(replace(estimate, share=math.nan) for estimate in trends[0]))
    changes = tuple(replace(change, change=math.nan) for change in trends.comparisons[0])
    comparison = replace(trends.comparisons[0], changes=changes)
    unknown = tuple(replace(estimate, share=math.nan, low=math.nan, high=math.nan) for estimate in trends[0])
    lines = replace(trends, decodings=(replace(trends[0], estimates=unknown),), comparisons=(), overall=None)
    mean = next(metric for metric in METRICS if not metric.kind.has_shares)
    of_mean = decode(simulate(mean, {"1": 3000}, np.random.default_rng(1)))
    return [decoding, comparison, lines, of_mean, Discoveries(None)]


@pytest.mark.parametrize("i", range(5))
def test_plot_with_nothing_to_draw_says_what_to_do(i: int) -> None:
    with pytest.raises(HubbubError, match=r"nothing to draw: |no share to draw: ") as refused:
        empty_results()[i].plot(Figure())
    assert isinstance(refused.value, ValueError)


@pytest.mark.parametrize("name", sorted(cls.__name__ for cls in classes(TableResult)))
def test_plot_of_no_rows_is_refused(name: str) -> None:
    result: Any = results()[name]
    with pytest.raises(ParameterError, match="top must be an integer >= 1"):
        result.plot(Figure(), top=0)


def test_plots_of_another_kind_are_refused() -> None:
    decoding = results()["Decoding"]
    assert isinstance(decoding, Decoding)
    with pytest.raises(HubbubError, match="use decoding"):
        plot_numbers(decoding)
    dark = next(metric for metric in METRICS if metric.name == "dark")
    summary = simulate(dark, {"true": 100, "false": 100}, np.random.default_rng(1))
    with pytest.raises(HubbubError, match=r"Read decoding.diagnose\(\)"):
        plot_residuals(summary, decode(summary))


def test_axis_of_trends_names_the_period() -> None:
    trends = results()["Trends"]
    assert isinstance(trends, Trends)
    assert trends.plot(Figure()).get_xlabel() == "day"


def test_comparison_has_both_decodings() -> None:
    first, second = counts("2026-03-02"), counts("2026-03-03", 0.2)
    changes = compare(first, second, NAMES)
    assert Comparison.from_dict(changes.to_dict()).a.estimates == changes.a.estimates


def test_diagnosis_has_the_residuals_of_a_string_metric() -> None:
    decoding = decode(counts("2026-03-02"), NAMES)
    residuals = decoding.diagnose().residuals
    assert residuals is not None
    assert residuals.number == 16 * 16
    assert 0.7 < residuals.root_mean_square < 1.3
    assert str(residuals) in str(decoding.diagnose())
    good = counts("2026-03-02")
    ones = good.ones.copy()
    ones[3, 5] += 500
    found = decode(BitCounts(WORDS, good.reports, ones), NAMES).diagnose().residuals
    assert found is not None
    assert (found.largest[0].cohort, found.largest[0].bit) == (3, 5)
    assert found.largest[0].residual > 5


@pytest.mark.parametrize("number", [2, 5, 40])
def test_a_lasso_of_few_candidates_warns_of_nothing(number: int) -> None:
    """Warnings are errors in tests."""
    names = [f"v{i}" for i in range(number)]
    decoding = decode(simulate(WORDS, {"v0": 30_000, "v1": 20_000}, np.random.default_rng(3)), names, method="lasso")
    assert decoding["v0"].detected
