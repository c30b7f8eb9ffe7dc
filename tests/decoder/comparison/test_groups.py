"""Shares by the values of a group: each is that of its own counts, their sum is the metric, and differences have valid intervals."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure
from scipy.stats import binom

from hubbub import Metric, ParameterError, Params, SummaryError
from hubbub.cli import main
from hubbub.metrics.group import Group
from hubbub.summary import BitCounts, read_collected, write_summary
from hubbub_decoder import Trends, compare, decode, decode_each, simulate, simulate_two_periods
from hubbub_decoder.model.evidence import combine
from hubbub_decoder.report.write import write_comparison_report, write_trend_report
from tests.support.every_kind import METRICS, VERSION
from tests.support.report_pages import visible_page_text

NAMES = ["a", "b", "c"]
PARAMS = Params(num_bits=32, num_hashes=1, num_cohorts=8, prob_p=0.1, prob_q=0.9, prob_f=0.25)
PAGE = Metric.string("page", PARAMS, period="week", group=Group("arm", ("old", "new", "other")))
DAYS = ("2026-03-02", "2026-03-09")
GROUPABLE = [
    replace(metric, group=VERSION)
    for metric in METRICS
    if metric.name in ("homepage", "browser", "dark", "delay", "theme")
]


def of_arm(value: str, population: dict[str, int], seed: int, day: str = DAYS[0]) -> BitCounts:
    return simulate(PAGE.in_group(value), population, np.random.default_rng(seed), periods=[day]).bit_counts()


@pytest.fixture(scope="module")
def arms() -> list[BitCounts]:
    return [
        of_arm("new", {"a": 3000, "b": 6000, "c": 1000}, 2),
        of_arm("old", {"a": 6000, "b": 3000, "c": 1000}, 1),
        of_arm("other", {"a": 0}, 3),
    ]


@pytest.fixture(scope="module")
def trends(arms: list[BitCounts]) -> Trends:
    return decode_each(arms, NAMES, by="arm")


@pytest.mark.parametrize("metric", GROUPABLE, ids=lambda metric: metric.name)
def test_the_sum_over_all_values_is_the_metric(metric: Metric, unseen_seed: int) -> None:
    rng = np.random.default_rng(unseen_seed)
    values = list(metric.kind.named_values) or ["u", "v"]
    if metric.name == "dark":
        values = ["true", "false"]
    whole = None
    parts = []
    for value in VERSION.values:
        population = {name: int(rng.integers(0, 200)) for name in values}
        parts.append(simulate(metric.in_group(value), population, rng, periods=[DAYS[0]]))
        ungrouped = replace(parts[-1], metric=metric)
        whole = ungrouped if whole is None else whole + ungrouped
    for order in ([0, 1, 2], [2, 0, 1]):
        assert combine([parts[i] for i in order]) == whole
    for part, value in zip(parts, VERSION.values, strict=True):
        assert combine([part, part]).metric == metric.in_group(value)
    assert whole is not None
    with pytest.raises(SummaryError, match="would count twice"):
        combine([whole, parts[0]])


def test_values_are_decoded_in_the_order_of_the_definition(trends: Trends, arms: list[BitCounts]) -> None:
    assert (trends.by, trends.labels, trends.metric) == ("arm", ("old", "new"), PAGE)
    for label, arm in (("old", arms[1]), ("new", arms[0])):
        alone = decode(arm, NAMES)
        assert [estimate.share for estimate in trends[label]] == [estimate.share for estimate in alone]
    (change,) = trends.comparisons
    assert change.to_dict()["changes"] == compare(arms[1], arms[0], NAMES).to_dict()["changes"]
    assert change["a"].detected
    assert change.overlap.estimate == 0
    assert change.metric == PAGE
    assert Trends.from_dict(json.loads(json.dumps(trends.to_dict()))) == trends


def test_periods_of_one_value_are_periods(arms: list[BitCounts]) -> None:
    found = decode_each([arms[0], of_arm("new", {"a": 500, "b": 500}, 4, DAYS[1])], NAMES)
    assert (found.by, found.labels, found.metric.title) == ("period", DAYS, "page (arm new)")


def test_files_and_pages_name_the_values(trends: Trends, tmp_path: Path) -> None:
    trends.save(tmp_path / "arms.csv")
    rows = list(csv.DictReader((tmp_path / "arms.csv").read_text().splitlines()))
    assert [(row["group"], row["candidate"]) for row in rows[:2]] == [
        ("old", trends.candidates[0]),
        ("new", trends.candidates[0]),
    ]
    assert list(trends.to_pandas()["group"].unique()) == ["old", "new"]
    write_trend_report(trends, tmp_path / "arms.html")
    page = (tmp_path / "arms.html").read_text()
    shown = visible_page_text(tmp_path / "arms.html")
    for text in (
        "Shares by arm",
        "2 arms: old, new",
        "Changes between arms",
        "1 pair of neighbouring arms",
        '"by":"arm"',
    ):
        assert text in page, text
    assert all(f"{estimate.share:.2%}" in shown for arm in trends for estimate in arm)
    assert "period" not in shown.partition("Privacy")[0]
    assert [line.get_text() for line in trends.plot(Figure()).get_xticklabels()] == ["old", "new"]
    write_comparison_report(trends.comparisons[0], tmp_path / "change.html")
    assert "Change from arm old, week of 2026-03-02 to arm new, week of 2026-03-02" in visible_page_text(
        tmp_path / "change.html"
    )
    assert "page; a: arm old, 2026-03-02, 10,000 reports; b: arm new" in str(trends.comparisons[0].document().headline)


def test_terminal_has_the_shares_of_each_value_and_the_changes_between_neighbours(
    arms: list[BitCounts], tmp_path: Path
) -> None:
    """Nothing is said of the first and the last value, because the values have no order."""
    three = decode_each([*arms, of_arm("other", {"a": 2000, "b": 3000, "c": 5000}, 4)], NAMES, by="arm")
    document = three.document(everything=True)
    assert [row.cells[:3] for row in document.table.rows] == [
        (name, label, decoding[name].share)
        for name in three.candidates
        for label, decoding in zip(three.labels, three.decodings, strict=True)
    ]
    changes = [(row.cells[0], *row.cells[4:7]) for row in document.table.rows if row.cells[1] != "old"]
    assert changes == [
        (name, found.change, (found.low, found.high), found.q_value)
        for name in three.candidates
        for found in (comparison[name] for comparison in three.comparisons)
    ]
    said = " ".join(document.lines)
    assert "in 2 pairs of neighbouring arms" in said
    assert "from old to other" not in f"{said} {document.headline}".lower()
    assert "from old to other" not in str(document).lower()
    write_trend_report(three, tmp_path / "arms.html")
    assert "from old to other" not in visible_page_text(tmp_path / "arms.html").lower()


def test_command(arms: list[BitCounts], tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.parquet" for number in range(3)]
    for path, arm in zip(paths, arms, strict=True):
        write_summary(arm, path)
        assert read_collected(path) == arm
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    files = [*map(str, paths), "--candidates", str(tmp_path / "names.txt")]
    ran = CliRunner().invoke(main, ["decode", *files, "--by", "arm", "--json"], catch_exceptions=False)
    assert json.loads(ran.stdout)["labels"] == ["old", "new"]
    shown = CliRunner().invoke(main, ["decode", *files, "--by", "arm", "--plot", str(tmp_path / "arms.svg")])
    assert "page: 2 arms, old, new, 20,000 reports" in " ".join(shown.stdout.split())
    assert (tmp_path / "arms.svg").is_file()
    words = [line.split() for line in shown.stdout.splitlines()]
    assert {("a", "old"), ("a", "new"), ("b", "old"), ("b", "new")} <= {tuple(line[:2]) for line in words}
    whole = json.loads(CliRunner().invoke(main, ["decode", *files, "--json"], catch_exceptions=False).stdout)
    assert whole["metric"]["digest"] == PAGE.digest
    assert not [warning for warning in whole["warnings"] if warning["kind"] == "repeated_inputs"]
    wrong = CliRunner().invoke(main, ["decode", *files, "--by", "version"])
    assert (wrong.exit_code, "page has the group 'arm'" in wrong.stderr) == (2, True)


@pytest.mark.parametrize(
    ("summaries", "message"),
    [
        (lambda arms: [arms[0] + arms[1]], "adds up all values of arm"),
        (lambda _: [{"a": 3000}], "summary must be BitCounts"),
        (
            lambda arms: [arms[0], replace(arms[1], metric=replace(PAGE, hold=2).in_group("old"))],
            "different definitions",
        ),
        (lambda arms: [arms[2]], "no summary with reports"),
        (lambda _: [], "no summary with reports"),
    ],
)
def test_counts_that_cannot_be_divided(
    summaries: Callable[[list[BitCounts]], list[BitCounts]], message: str, arms: list[BitCounts]
) -> None:
    with pytest.raises(SummaryError, match=message):
        decode_each(summaries(arms), NAMES, by="arm")


@pytest.mark.parametrize(
    ("by", "group"), [("version", PAGE.group), ("Arm", PAGE.group), ("", PAGE.group), (None, PAGE.group), ("arm", None)]
)
def test_by_is_period_or_the_name_of_the_group(by: Any, group: Group | None, arms: list[BitCounts]) -> None:
    has = "the group 'arm'" if group else "no group"
    with pytest.raises(ParameterError, match=f"^by must be .* got {by!r}: page has {has}$"):
        decode_each([replace(arms[0], metric=replace(PAGE, group=group))], NAMES, by=by)


def test_one_value_is_not_compared_with_all(arms: list[BitCounts]) -> None:
    for pair in ((arms[0], arms[0] + arms[1]), (arms[0] + arms[1], arms[1])):
        with pytest.raises(SummaryError, match="those of the other count in both"):
            compare(*pair, NAMES)
    later = of_arm("new", {"a": 500, "b": 500}, 4, DAYS[1])
    assert compare(arms[0] + arms[1], later, NAMES).metric == PAGE


def clients_that_move(rng: np.random.Generator, sizes: Sequence[int]) -> tuple[BitCounts, BitCounts]:
    """Counts of both arms over two weeks: of clients that stay in an arm, and of those that move to the other after the first week."""
    pairs = []
    for size in sizes:
        population = {(name, name): size // 4 for name in ("a", "b", "c", "d")}
        pairs.append(simulate_two_periods(replace(PAGE, group=None), population, rng, periods=DAYS))
    (old_first, old_second), (new_first, new_second), (moved_first, moved_second) = pairs
    old, new = old_first + old_second + moved_first, new_first + new_second + moved_second
    return replace(old, metric=PAGE.in_group("old")), replace(new, metric=PAGE.in_group("new"))


@pytest.mark.slow
def test_intervals_cover_the_difference_of_clients_that_move(unseen_seed: int) -> None:
    """No share differs. An interval that forgot the clients of both arms would still hold 0 often enough: it must not be too narrow."""
    rng, runs, sizes = np.random.default_rng(unseen_seed), 50, (2000, 2000, 4000)
    covered = np.array(
        [
            [change.low <= 0 <= change.high for change in compare(*clients_that_move(rng, sizes), NAMES).changes]
            for _ in range(runs)
        ]
    )
    assert covered.sum(axis=0).min() >= binom.ppf(1e-4, runs, 0.95), covered.mean(axis=0)
