"""Page of one decoding without a browser: size, figures equal to those of the table and the CSV, provenance, residuals."""

from __future__ import annotations

import csv
import hashlib
import html
import io
import re
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from hubbub import Buckets, Estimand, Metric, Params, UnaryResponse
from hubbub.cli import main
from hubbub.summary import write_summary
from hubbub_decoder import Decoding, OutputError, Trends, decode, simulate, simulate_two_periods, write_report
from hubbub_decoder.documents.finding import Finding
from hubbub_decoder.documents.html import html_fragment
from hubbub_decoder.model.design_matrix import design_matrix
from hubbub_decoder.report.about import provenance_rows
from hubbub_decoder.report.decoding_page import MAX_ROWS, QUESTIONS, render_decoding
from hubbub_decoder.report.metric_page import PeriodRow, read_trends, render_metric
from hubbub_decoder.report.rendering import inline_scripts
from hubbub_decoder.results.decoding import summary_lines
from hubbub_decoder.results.residuals import bit_residuals
from hubbub_decoder.results.warnings import FAILURES
from tests.support.report_pages import DAYS, LOAD, NAMES, PAGE, PARAMS, SYSTEM, chart_data, count_pages

MAX_BYTES = 1_500_000


def cells_of(page: Path, section: str = "estimates") -> list[list[str]]:
    """Texts of the cells of the first table of a section, by row."""
    body = page.read_text().partition(f'id="{section}"')[2].partition("<tbody>")[2].partition("</tbody>")[0]
    return [
        [html.unescape(re.sub("<[^>]*>", "", cell)) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)]
        for row in re.findall(r"<tr[^>]*>(.*?)</tr>", body, re.DOTALL)
    ]


def printed(table: object) -> str:
    """Text of a table in a wide terminal."""
    console = Console(width=300, file=io.StringIO(), highlight=False)
    console.print(table)
    return re.sub(" +", " ", console.file.getvalue())  # type: ignore[attr-defined]


def test_page_of_1000_candidates_is_below_its_limit(pages: dict[str, Path]) -> None:
    assert len(NAMES) == 1_000
    assert len(chart_data(pages["string"])["estimates"]["labels"]) == 1_000
    assert pages["string"].stat().st_size < MAX_BYTES


def test_table_chart_and_csv_have_the_same_intervals(
    pages: dict[str, Path], decodings: list[Decoding], tmp_path: Path
) -> None:
    decodings[0].save(tmp_path / "estimates.csv")
    with (tmp_path / "estimates.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    chart, cells = chart_data(pages["string"])["estimates"], cells_of(pages["string"])
    assert len(rows) == len(cells) == 1_000
    for i, row in enumerate(rows):
        share, low, high = (float(row[name]) for name in ("share", "low", "high"))
        assert (chart["share"][i], chart["low"][i], chart["high"][i]) == pytest.approx((share, low, high), abs=1e-8)
        assert cells[i][1:3] == [f"{share:z.2%}", f"{low:z.2%} .. {high:z.2%}"]
        assert cells[i][-1] == ("yes" if row["detected"] == "True" else "no")


def test_page_shows_only_so_many_rows_and_all_detected(decodings: list[Decoding]) -> None:
    first = decodings[0]
    many = tuple(replace(first[-1], candidate=f"more-{i}", share=0.5) for i in range(MAX_ROWS))
    page = render_decoding(replace(first, estimates=(*many, *first.estimates)), inline_scripts())
    assert page.count("<tr data-i=") == MAX_ROWS
    assert page.count('data-detected="1"') == len(first.detected) > 0
    assert f"{MAX_ROWS:,} of {MAX_ROWS + 1_000:,} candidates" in page


def test_frequent_unlisted_strings_are_the_last_rows() -> None:
    counts = simulate(PAGE, {"search": 30_000, "mail": 30_000}, np.random.default_rng(1), no_value=40_000)
    decoding = decode(counts, ["search"])
    (found,) = decoding.unlisted_strings
    foot = render_decoding(decoding, inline_scripts()).partition("<tfoot>")[2].partition("</tfoot>")[0]
    cells = [re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", foot)]
    assert cells[:3] == [found.label, f"{found.share:z.2%}", f"{found.low:z.2%} .. {found.high:z.2%}"]
    assert cells[-1] == "no candidate"


def test_undetermined_estimates_are_shown_without_numbers(decodings: list[Decoding], tmp_path: Path) -> None:
    first = decodings[0]
    nan = float("nan")
    lost = replace(first[0], share=nan, low=nan, high=nan, std_error=nan, q_value=nan, detected=None)
    write_report(replace(first, estimates=(*first.estimates[1:], lost)), tmp_path / "page.html")
    cells, chart = cells_of(tmp_path / "page.html")[999], chart_data(tmp_path / "page.html")["estimates"]
    assert (cells[1:4], cells[-1]) == (["-", "-", "-"], "not tested")
    assert chart["share"][999] is chart["detected"][999] is None


def test_every_goodness_of_fit_test_has_a_question() -> None:
    assert QUESTIONS.keys() == FAILURES.keys()


def test_residuals_are_standard_normal_under_the_model(unseen_seed: int) -> None:
    """Variance of 512 residuals, of which 9 estimates take up some: within 5 standard errors of at most 1."""
    people = {"search": 30_000, "mail": 20_000}
    counts = simulate(PAGE, people, np.random.default_rng(unseen_seed), no_value=50_000)
    residuals = bit_residuals(counts, decode(counts, ["search", "mail"]))
    assert residuals is not None
    assert residuals.shape == (PARAMS.num_cohorts, PARAMS.num_bits)
    assert 0.9 - 5 * np.sqrt(2 / residuals.size) < np.mean(residuals**2) < 1 + 5 * np.sqrt(2 / residuals.size)


def test_residuals_show_a_damaged_bit_and_use_the_given_design() -> None:
    counts = simulate(PAGE, {"search": 50_000, "mail": 20_000}, np.random.default_rng(1), no_value=50_000)
    ones = counts.ones.copy()
    ones[3, 7] += 1_000
    damaged = replace(counts, ones=ones)
    decoding = decode(counts, ["search", "mail"])
    residuals = bit_residuals(damaged, decoding, design_matrix(["search", "mail"], PARAMS))
    assert residuals is not None
    assert divmod(int(np.argmax(np.abs(residuals))), PARAMS.num_bits) == (3, 7)
    other = bit_residuals(
        counts, decoding, replace(design_matrix(["mail", "search"], PARAMS), groups=(("search",), ("mail",)))
    )
    assert other is not None
    assert np.abs(other).max() > 15  # the bits of another candidate fit badly


def test_residuals_of_categories_are_left_out() -> None:
    counts = simulate(LOAD, {"5": 900}, np.random.default_rng(1))
    assert bit_residuals(counts, decode(counts)) is None


def test_provenance_names_inputs_by_digest_and_no_directory(tmp_path: Path, decodings: list[Decoding]) -> None:
    (tmp_path / "names.txt").write_bytes(b"a")
    rows = dict(provenance_rows(decodings[0], [], [tmp_path / "names.txt"], date(2026, 3, 4)))
    assert rows["Candidates"] == f"names.txt, SHA-256 {hashlib.sha256(b'a').hexdigest()}"
    assert rows["Made with"].endswith("on 2026-03-04 (UTC)")
    assert str(tmp_path) not in str(rows)


@pytest.mark.parametrize("name", ["out.xlsx", "out.htm", "out"])
def test_decode_refuses_other_suffixes_and_names_those_that_work(tmp_path: Path, name: str) -> None:
    write_summary(count_pages(DAYS[0], 0), tmp_path / "day.parquet")
    (tmp_path / "names.txt").write_text("search\n")
    arguments = ["decode", str(tmp_path / "day.parquet"), "--candidates", str(tmp_path / "names.txt"), "--out"]
    done = CliRunner().invoke(main, [*arguments, str(tmp_path / name)])
    assert done.exit_code != 0
    assert "must end in .csv, .json, .parquet or .html" in done.output
    assert not (tmp_path / name).exists()


def test_decode_writes_a_page_and_by_period_a_trend(tmp_path: Path) -> None:
    for seed, day in enumerate(DAYS):
        write_summary(count_pages(day, seed), tmp_path / f"{day}.parquet")
    (tmp_path / "names.txt").write_text("search\nmail\nabsent\n")
    files = [str(tmp_path / f"{day}.parquet") for day in DAYS]
    options = ["--candidates", str(tmp_path / "names.txt"), "--out"]
    for arguments, name in ((files[:1], "one.html"), ([*files, "--by", "period"], "trend.html")):
        done = CliRunner().invoke(main, ["decode", *arguments, *options, str(tmp_path / name)])
        assert done.exit_code == 0, done.output
    assert chart_data(tmp_path / "one.html")["residuals"]["cohorts"] == PARAMS.num_cohorts
    digest = hashlib.sha256((tmp_path / f"{DAYS[0]}.parquet").read_bytes()).hexdigest()
    assert digest in (tmp_path / "one.html").read_text()
    trend = chart_data(tmp_path / "trend.html")["trends"]
    assert (trend["periods"], trend["labels"][:2]) == ([*DAYS], ["search", "mail"])


def test_write_report_refuses_another_suffix(tmp_path: Path, decodings: list[Decoding]) -> None:
    with pytest.raises(OutputError, match=r"must end in \.html"):
        write_report(decodings[0], tmp_path / "page.csv")


def test_page_of_a_mean_has_its_interval_and_no_estimates(tmp_path: Path) -> None:
    age = Metric.ordinal(
        "age", Buckets((0, 100), estimate=Estimand.MEAN, default=0), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5)
    )
    counts = simulate(age, {"5": 3_000, "70": 2_000}, np.random.default_rng(3), periods=[DAYS[0]])
    decoding = decode(counts)
    write_report(decoding, tmp_path / "mean.html", counts)
    text = (tmp_path / "mean.html").read_text()
    assert next(iter(summary_lines(decoding))) in text
    assert "data-noun" not in text.partition("<script")[0]
    with_period = PeriodRow.from_decoding(decoding)
    page = render_metric(age, [with_period], [decoding.to_dict()], inline_scripts())
    assert 'id="trends"' not in page
    (tmp_path / "age.html").write_text(page)
    ((period, mean, interval),) = cells_of(tmp_path / "age.html", "means")
    assert (period, f"Mean: {mean} (95% interval {interval})" in printed(decoding)) == (DAYS[0], True)
    chart = chart_data(tmp_path / "age.html")["means"]
    assert decoding.numbers is not None
    assert (chart["periods"], chart["value"]) == ([DAYS[0]], [pytest.approx(decoding.numbers.mean.value)])
    assert (chart["unit"], chart["texts"]) == ("age", [[interval, mean, interval]])


def test_means_that_are_not_determined_are_shown_without_numbers(tmp_path: Path, trends: Trends) -> None:
    lost = trends.decodings[0].to_dict()
    lost["numbers"] = lost["numbers"] | {"mean": dict.fromkeys(lost["numbers"]["mean"])}
    (tmp_path / "page.html").write_text(render_metric(LOAD, [], [lost], inline_scripts()))
    assert cells_of(tmp_path / "page.html", "means") == [[DAYS[0], "-", "-", "-"]]
    assert 'data-chart="means"' not in (tmp_path / "page.html").read_text()


def test_quantiles_are_a_table_with_the_figures_of_the_terminal(pages: dict[str, Path]) -> None:
    decoding = decode(simulate(LOAD, {"5": 5_000, "70": 3_000}, np.random.default_rng(0)))
    lines = printed(decoding)
    rows = cells_of(pages["ordinal"], "totals")
    assert [row[0] for row in rows] == ["5%", "10%", "25%", "50%", "75%", "90%", "95%"]
    assert decoding.numbers is not None
    for (share, edges, value, _), quantile in zip(rows, decoding.numbers.quantiles, strict=True):
        assert f"{share} are below {edges} ({value})" in lines
        assert edges == f"{quantile.lowest:g} .. {quantile.highest:g}"
    assert "% are below" not in pages["ordinal"].read_text().partition("<script")[0]


def test_changes_have_the_figures_of_the_terminal(pages: dict[str, Path], trends: Trends) -> None:
    rows = cells_of(pages["trend"], "changes")
    assert trends.overall is not None
    comparisons = (trends.overall, *reversed(trends.comparisons))
    changes = [(comparison, change) for comparison in comparisons for change in comparison.detected]
    assert 0 < len(changes) < sum(map(len, comparisons))
    for (label, before, after, *figures), (comparison, change) in zip(rows, changes, strict=True):
        assert (label, before, after) == (change.candidate, *comparison.a.periods, *comparison.b.periods)
        assert f" {' '.join(figures)}" in printed(comparison)
        assert (f" {' '.join(figures)}" in printed(trends)) == (comparison is trends.overall)
    number = f"{len(trends.overall.detected)}; in 2 pairs of successive periods: {len(changes) - len(trends.overall.detected)}."
    assert number in printed(trends)
    assert number in pages["trend"].read_text()


def test_prose_has_code_in_place_of_backticks(pages: dict[str, Path]) -> None:
    for page in pages.values():
        shown = re.sub(r"<(script|style|pre).*?</\1>", "", page.read_text(), flags=re.DOTALL)
        assert not re.findall(r".{20}`.{20}", shown), page
    warned = replace(
        decode(simulate(LOAD, {"5": 100}, np.random.default_rng(0))),
        warnings=(Finding("kind", "Pass `hold` or <b>."),),
    )
    assert 'Pass <code class="word">hold</code> or &lt;b&gt;.' in render_decoding(warned, inline_scripts())
    assert "<code>hold</code>" in html_fragment(warned.document())


def test_charts_say_what_they_need(pages: dict[str, Path]) -> None:
    assert "This chart needs JavaScript. " in pages["string"].read_text()
    assert "This chart needs JavaScript and the file report.js, " in pages["metric"].read_text()


def test_noise_has_no_ranking_and_says_how_many_reports_a_detection_needs(pages: dict[str, Path]) -> None:
    """50 reports of three days: no candidate is detected, so no chart compares them, and tables are in the order of names."""
    for kind in ("noise", "noise-trend"):
        page = pages[kind].read_text()
        assert "may all be noise: there is no ranking and no chart" in page
        assert 'data-chart="' not in page.partition('id="totals"')[0].partition('id="periods"')[0]
        names = re.findall(r'<tr data-i="\d+">\s*<th scope="row"><bdi>([^<]*)</bdi>', page)
        sites = [name for name in names if name.startswith("site-")]
        assert len(sites) > 180
        assert sites == sorted(sites)
        assert "data-detected" not in page
    assert re.search(
        r"Detection limit: [\d.]+% .* A limit of [\d.]+% needs [\d,]+ reports\.</p>", pages["noise"].read_text()
    )
    assert (
        "no ranking" not in pages["string"].read_text() + pages["trend"].read_text() + pages["categories"].read_text()
    )


def test_a_row_with_the_largest_share_and_a_larger_q_value_is_explained() -> None:
    decoding = decode(count_pages(DAYS[0], 0), ["search", "mail", "absent"])
    said = (
        "has the largest share but not the smallest q value, because a q value says how surely a candidate is present"
    )
    for largest, other, is_said in ((1e-34, 1e-72, True), (1e-72, 1e-34, False), (1e-72, 1e-72, False)):
        q_values = {"search": largest, "mail": other}
        estimates = tuple(replace(e, q_value=q_values.get(e.candidate, e.q_value)) for e in decoding)
        page = render_decoding(replace(decoding, estimates=estimates), inline_scripts())
        assert (said in page) is is_said
        assert not is_said or f"<bdi>search</bdi> {said}" in page


def test_one_period_has_no_trend_and_no_chart_of_it() -> None:
    for metric, counts in (
        (PAGE, [count_pages(day, seed) for seed, day in enumerate(DAYS[:2])]),
        (LOAD, [simulate(LOAD, {"5": 500, "70": 300}, np.random.default_rng(1), periods=[day]) for day in DAYS[:2]]),
    ):
        decodings = [decode(summary, ["search"] if metric is PAGE else None) for summary in counts]
        rows = [PeriodRow.from_decoding(decoding) for decoding in decodings]
        documents = [decoding.to_dict() for decoding in decodings]
        one = render_metric(metric, rows[:1], documents[:1], inline_scripts())
        two = render_metric(metric, rows, documents, inline_scripts())
        assert ("data-chart=" in one, "data-chart=" in two) == (False, True)
        assert ("One day has no trend, so there is no chart." in one, "has no trend" in two) == (True, False)
        assert (">since" in one, ">since" in two) == (False, True)


def test_reports_of_a_period_are_active_installations() -> None:
    """Of several periods their mean, and nothing of a file without periods, whose reports may be several of a client."""
    shown = []
    choices: list[tuple[str, ...]] = [DAYS[:1], DAYS[:2], ()]
    for periods in choices:
        counts = simulate(PAGE, {"a": 3_000}, np.random.default_rng(1), periods=periods)
        page = render_decoding(decode(counts, ["a"]), inline_scripts())
        figure = re.search(r"<dt>Active installations</dt><dd>([^<]+)<small>([^<]+)<", page)
        shown.append(figure[1] if figure else None)
        assert figure is None or "a person may have several, and forged reports count" in figure[2]
    assert shown == ["3,000", "3,000 on average", None]


def test_each_surface_names_its_own_way_to_find_an_unlisted_string(tmp_path: Path) -> None:
    """A command has an option, Python has a method, and a file has neither; test_explore.py has the form of `hubbub explore`."""
    params = Params(num_bits=16, num_hashes=1, num_cohorts=16, prob_p=0.25, prob_q=0.75, prob_f=0)
    metric = Metric.string("page", params)
    counts = simulate(metric, {"the": 300_000, "a": 50_000}, np.random.default_rng(1), no_value=600_000)
    write_summary(counts, tmp_path / "page.parquet")
    (tmp_path / "names.txt").write_text("a\n")
    decoding = decode(counts, ["a"])
    command = ["decode", str(tmp_path / "page.parquet"), "--candidates", str(tmp_path / "names.txt")]
    ways = ("--more-candidates", "match_unlisted", "More strings")
    for shown, way in (
        (CliRunner().invoke(main, command).stdout, "--more-candidates"),
        (CliRunner().invoke(main, [*command, "--json"]).stdout, ""),
        (printed(decoding), "match_unlisted"),
        (decoding._repr_html_(), "match_unlisted"),
        (render_decoding(decoding, inline_scripts()), ""),
    ):
        text = re.sub(r"\s+", " ", shown)
        assert "To find out which word it is, compare a list of words" in text
        assert [named for named in ways if named in text] == [named for named in [way] if named]


@pytest.mark.parametrize("overlap", [0.0, 1.0])
@pytest.mark.slow
@pytest.mark.parametrize("metric", [SYSTEM, PAGE], ids=["categories", "strings"])
def test_interval_of_a_change_on_a_page_covers_the_change(metric: Metric, overlap: float, unseen_seed: int) -> None:
    """100 pairs of periods; less than 80 intervals that cover have a chance of 1e-6 at .93."""
    rng, number = np.random.default_rng(unseen_seed), 20_000
    first, second = ("linux", "macos") if metric is SYSTEM else ("a", "b")
    covered = 0
    for _ in range(100):
        moved = round(rng.uniform(0, 0.1) * number)
        people = {(first, first): number // 2, (first, second): moved, (second, second): number // 2 - moved}
        if overlap:
            pair = simulate_two_periods(metric, people, rng, periods=DAYS[:2])
        else:
            after = {first: number // 2, second: number // 2}
            pair = (
                simulate(metric, {first: number // 2 + moved, second: number // 2 - moved}, rng, periods=DAYS[:1]),
                simulate(metric, after, rng, periods=DAYS[1:2]),
            )
        names = None if metric is SYSTEM else ["a", "b", "c"]
        trends = read_trends([decode(sample, names).to_dict() for sample in pair], [1.0, 1.0])
        low, change, high = next(trend.change for trend in trends if trend.label == first)
        assert low < change < high
        covered += low <= -moved / number <= high
    assert covered >= 80
