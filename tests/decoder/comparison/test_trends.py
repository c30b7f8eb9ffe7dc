"""`decode_each`, and the commands compare and decode --by period."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from matplotlib.figure import Figure

from hubbub import Metric, Params, UnaryResponse
from hubbub.cli import main
from hubbub.errors import SummaryError
from hubbub.summary import BitCounts, write_summary
from hubbub_decoder import OutputError, Trends, compare, decode_each, simulate, simulate_two_periods
from hubbub_decoder.data.output_files import write_figure
from hubbub_decoder.documents.document import Sparkline
from hubbub_decoder.documents.terminal import sparkline
from tests.support.report_pages import chart_data, visible_page_text

WEEKS = ("2026-03-02", "2026-03-09")
METRIC = Metric.string(
    "homepage",
    Params(num_bits=16, num_hashes=1, num_cohorts=16, prob_p=0.05, prob_q=0.95, permanent_p=0.1, permanent_q=0.9),
    period="week",
)
SURVEY = Metric.categorical("os", ("linux", "macos"), UnaryResponse(prob_p=0.1, prob_q=0.9, prob_f=0.5), period="week")
NAMES = ["a", "b", "c"]


@pytest.fixture(scope="module")
def pair() -> tuple[BitCounts, BitCounts]:
    """Of 60,000 clients, 9,000 move from a to b."""
    people = {("a", "a"): 21_000, ("a", "b"): 9_000, ("b", "b"): 20_000, ("c", "c"): 10_000}
    return simulate_two_periods(METRIC, people, np.random.default_rng(5), periods=WEEKS)


@pytest.fixture(scope="module")
def trends(pair: tuple[BitCounts, BitCounts]) -> Trends:
    return decode_each(reversed(pair), NAMES)


@pytest.fixture
def files(pair: tuple[BitCounts, BitCounts], tmp_path: Path) -> list[str]:
    paths = [tmp_path / f"{week}.parquet" for week in WEEKS]
    for path, summary in zip(paths, pair, strict=True):
        write_summary(summary, path)
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    return [*map(str, paths), "--candidates", str(tmp_path / "names.txt")]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_periods_are_decoded_in_order_of_time(trends: Trends, pair: tuple[BitCounts, BitCounts]) -> None:
    assert trends.labels == WEEKS
    assert trends[WEEKS[0]]["a"].share == pytest.approx(0.5, abs=0.05)
    assert trends[WEEKS[1]]["a"].share == pytest.approx(0.35, abs=0.05)
    assert trends.comparisons[0]["a"].change == compare(*pair, NAMES)["a"].change
    assert trends.comparisons[0]["b"].detected
    assert trends.candidates[:2] in (("a", "b"), ("b", "a"))
    with pytest.raises(KeyError):
        trends["2026-03-16"]


def test_trends_have_a_row_for_each_period_and_candidate(trends: Trends, tmp_path: Path) -> None:
    trends.save(tmp_path / "trends.csv")
    with (tmp_path / "trends.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["period"], row["candidate"]) for row in rows] == [
        (week, name) for name in trends.candidates for week in WEEKS
    ]
    assert rows[0]["change"] == ""
    assert float(rows[1]["change"]) == trends.comparisons[0][rows[1]["candidate"]].change
    trends.save(tmp_path / "trends.json")
    document = json.loads((tmp_path / "trends.json").read_text())
    assert (document["by"], document["labels"]) == ("period", list(WEEKS))


def test_categories_have_trends_too() -> None:
    people = {("linux", "linux"): 5_000, ("linux", "macos"): 2_000, ("macos", "macos"): 3_000}
    pair = simulate_two_periods(SURVEY, people, np.random.default_rng(2), periods=WEEKS)
    trends = decode_each(pair)
    assert trends.comparisons[0]["macos"].change == pytest.approx(0.2, abs=0.12)
    assert trends.comparisons[0].totals == ()


def test_summaries_without_one_period_are_refused(pair: tuple[BitCounts, BitCounts]) -> None:
    first, second = pair
    with pytest.raises(SummaryError, match="a summary has 2 periods"):
        decode_each([first + second], NAMES)
    with pytest.raises(SummaryError, match="a summary has no period"):
        decode_each([BitCounts(METRIC, first.reports, first.ones)], NAMES)
    with pytest.raises(SummaryError, match="There is no summary"):
        decode_each([], NAMES)
    with pytest.raises(SummaryError, match="holds no report"):
        decode_each([first, BitCounts(METRIC, 0 * first.reports, 0 * first.ones, [WEEKS[1]])], NAMES)
    with pytest.raises(SummaryError, match="different definitions"):
        decode_each([first, BitCounts(SURVEY, [10], [[4, 5]], [WEEKS[1]])], NAMES)


def test_sparkline_has_a_block_for_each_share() -> None:
    assert sparkline(Sparkline((0.1, float("nan"), 0.0), (0.0, 0.1))) == "█ ▁"
    assert sparkline(Sparkline((0.0, -0.1), (-0.1, 0.0))) == "█▁"
    assert sparkline(Sparkline((0.0, 0.0), (0.0, 0.0))) == "▁▁"


def test_axis_of_a_trend_fits_its_intervals() -> None:
    """From 0, a change of five points that the test calls clear looked flat."""
    weeks = [
        simulate(SURVEY, {"linux": linux, "macos": 20_000 - linux}, np.random.default_rng(linux), periods=[week])
        for linux, week in zip((16_000, 15_000), WEEKS, strict=True)
    ]
    alone = decode_each(weeks, ["linux"])
    axes = alone.plot(Figure())
    bottom, top = axes.get_ylim()
    assert 0 < bottom < min(week["linux"].low for week in alone)
    assert max(week["linux"].high for week in alone) < top < 1
    assert axes.get_ylabel().endswith(", axis not from 0")
    both = decode_each(weeks).plot(Figure())
    assert both.get_ylim()[0] == 0
    assert both.get_ylabel().endswith("interval")
    (row,) = alone.document().table.rows
    assert isinstance(row.cells[1], Sparkline)
    blocks = sparkline(row.cells[1])
    assert ord(blocks[0]) - ord(blocks[1]) > 4


def test_plots_are_written_in_three_formats(trends: Trends, pair: tuple[BitCounts, BitCounts], tmp_path: Path) -> None:
    for result in (trends, compare(*pair, NAMES)):
        figure = Figure()
        result.plot(figure)
        for suffix, start in (("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")):
            write_figure(figure, tmp_path / f"plot.{suffix}")
            assert (tmp_path / f"plot.{suffix}").read_bytes().startswith(start)
    with pytest.raises(OutputError, match="must end in"):
        write_figure(figure, tmp_path / "plot.txt")


def test_compare_prints_changes_and_json(files: list[str], tmp_path: Path) -> None:
    printed = run("compare", *files)
    assert printed.exit_code == 0, printed.output
    assert "Changed: " in printed.stdout
    assert "Clients with the same value in both samples" in printed.stdout
    saved = run("compare", *files, "--json", "--out", str(tmp_path / "c.csv"), "--plot", str(tmp_path / "c.svg"))
    document = json.loads(saved.stdout)
    assert {change["candidate"] for change in document["changes"]} == {*NAMES}
    assert 0 <= document["overlap"]["low"] <= document["overlap"]["high"] <= 1
    assert (tmp_path / "c.svg").exists()
    assert (tmp_path / "c.csv").exists()
    assert (
        "Intervals assume that the two samples have different clients."
        in run("compare", *files, "--independent-clients").stdout
    )


def test_compare_writes_a_page_with_the_changes_of_its_table(files: list[str], tmp_path: Path) -> None:
    saved = run("compare", *files, "--json", "--out", str(tmp_path / "c.html"))
    page = (tmp_path / "c.html").read_text()
    changes = json.loads(saved.stdout)["changes"]
    shown = visible_page_text(tmp_path / "c.html")
    for change in changes:
        figures = [f"{change['share_a']:z.2%}", f"{change['share_b']:z.2%}", f"{100 * change['change']:+z.2f}"]
        assert " ".join((change["candidate"], *figures)) in shown
    assert ("no ranking" in page) is not any(change["detected"] for change in changes)
    assert chart_data(tmp_path / "c.html")["estimates"]["labels"]
    assert shown.count(", SHA-256 ") == 3  # two summaries and the candidates
    assert "is an input" in run("compare", *files, "--out", files[0]).output


def test_a_page_without_a_detected_change_has_no_ranking_and_no_chart(tmp_path: Path) -> None:
    """Of 40 reports a week, too few for any change."""
    names = [f"n{number:02}" for number in range(20)]
    (tmp_path / "names.txt").write_text("\n".join(names))
    for seed, week in enumerate(WEEKS):
        counts = simulate(METRIC, dict.fromkeys(names, 2), np.random.default_rng(seed), periods=[week])
        write_summary(counts, tmp_path / f"{week}.parquet")
    paths = [str(tmp_path / f"{week}.parquet") for week in WEEKS]
    saved = run("compare", *paths, "--candidates", str(tmp_path / "names.txt"), "--out", str(tmp_path / "c.html"))
    assert saved.exit_code == 0, saved.output
    page = (tmp_path / "c.html").read_text()
    assert "there is no ranking and no chart" in page
    assert 'data-chart="intervals"' not in page
    assert re.findall(r'<th scope="row"><bdi>([^<]*)</bdi>', page) == names


def test_decode_each_prints_trends_and_json(files: list[str], tmp_path: Path) -> None:
    printed = run(
        "decode", *files, "--by", "period", "--plot", str(tmp_path / "t.svg"), "--out", str(tmp_path / "t.csv")
    )
    assert printed.exit_code == 0, printed.output
    assert "2 periods, 2026-03-02 .. 2026-03-09" in printed.stdout
    assert (tmp_path / "t.svg").exists()
    document = json.loads(run("decode", *files, "--by", "period", "--json").stdout)
    assert len(document["decodings"]) == 2
    assert len(document["comparisons"]) == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--by", "period", "--method", "lasso"), "takes no"),
        (("--by", "period", "--plot", "t.txt"), "must end in .svg"),
        (("--by", "period", "--out", "t.txt"), "must end in .csv"),
    ],
)
def test_options_that_do_not_fit_are_refused(arguments: tuple[str, ...], problem: str, files: list[str]) -> None:
    result = run("decode", *files, *arguments)
    assert result.exit_code != 0
    assert problem in result.output
