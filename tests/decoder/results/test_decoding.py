"""`Decoding`: contents, output files, table and warnings."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from hubbub import Metric, ParameterError, Params, SummaryError
from hubbub.mechanisms.unary import UnaryResponse
from hubbub.summary import BitCounts, PatternCounts
from hubbub.summary.plausibility import find_implausible
from hubbub_decoder import CandidateError, Decoding, Estimate, Finding, OutputError, Severity, ShareEstimate, decode
from hubbub_decoder.data.populations import distribution_shares, draw_population
from hubbub_decoder.documents.terminal import TerminalDocument
from hubbub_decoder.estimators import message_passing
from hubbub_decoder.estimators.fit_result import FitResult, Nuisance
from hubbub_decoder.inference.error_law import ErrorCumulants
from hubbub_decoder.inference.multiple_testing import CandidateTests, q_values
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.options import Options
from hubbub_decoder.report.decoding_page import render_decoding
from hubbub_decoder.report.rendering import inline_scripts
from hubbub_decoder.results.build import build_decoding
from hubbub_decoder.results.decoding import summary_lines
from hubbub_decoder.results.warnings import MIN_REPORTS_PER_COHORT, impossible_totals
from hubbub_decoder.simulation import simulate

HOMEPAGE = Metric.string(
    "homepage", Params(num_bits=16, num_hashes=2, num_cohorts=8, prob_p=0.25, prob_q=0.75, prob_f=0.5)
)


def whole(decoding: Decoding) -> TerminalDocument:
    return TerminalDocument(decoding.document(everything=True))


def rendered(thing: object, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), no_color=True, highlight=False)
    console.print(thing)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture(scope="module")
def decoding() -> Decoding:
    population = {"a.example": 60_000, "b.example": 30_000, "unlisted": 5000}
    counts = simulate(HOMEPAGE, population, np.random.default_rng(11), no_value=5000)
    return decode(counts, ["b.example", "a.example", "c.example", "[red]d[/]"])


def by_hand() -> Decoding:
    """A decoding with round numbers, so that the table can be checked by eye."""
    rows = (
        Estimate(
            candidate="a.example",
            share=0.5,
            std_error=0.02,
            low=0.4608,
            high=0.5392,
            p_value=1e-200,
            q_value=1e-200,
            detected=True,
            selection_adjusted_low=0.452,
            selection_adjusted_high=0.548,
            posterior_median=0.49,
            credible_low=0.45,
            credible_high=0.53,
        ),
        Estimate(
            candidate="b.example",
            share=0.25,
            std_error=0.02,
            low=0.2108,
            high=0.2892,
            p_value=1e-8,
            q_value=1.5e-8,
            detected=True,
            selection_adjusted_low=0.202,
            selection_adjusted_high=0.298,
            posterior_median=0.24,
            credible_low=0.2,
            credible_high=0.28,
            indistinguishable_from=("b.test",),
        ),
        Estimate(
            candidate="c.example",
            share=-0.01,
            std_error=0.02,
            low=-0.0492,
            high=0.0292,
            p_value=0.7,
            q_value=0.7,
            detected=False,
            posterior_median=0.0,
            credible_low=0.0,
            credible_high=0.01,
        ),
        Estimate(candidate="d.example", share=math.nan, std_error=math.nan, low=math.nan, high=math.nan),
    )
    return Decoding(
        metric=HOMEPAGE,
        num_reports=10_000,
        confidence=0.95,
        fdr=0.05,
        estimates=rows,
        listed_total=ShareEstimate(0.74, 0.03, 0.6812, 0.7988),
        unlisted=ShareEstimate(0.16, 0.04, 0.0816, 0.2384),
        no_value=ShareEstimate(0.1, 0.02, 0.0608, 0.1392),
        detection_limit=0.08,
        warnings=(Finding("failed_fit_test", "Something is implausible."),),
    )


def test_table_shows_detected_candidates_totals_detection_limit_and_warnings() -> None:
    assert [line.rstrip() for line in rendered(by_hand(), 90).splitlines()] == [
        "homepage: 10,000 reports; no epsilon whatever is recorded; epsilon 2.044 per report, 4.395",
        "per value, 17.578 per enrollment (4 values), lifetime epsilon 39.551 (9 values);",
        'enrollment and lifetime: between histories whose values, "no value" among them, change,',
        "and return to earlier values, at the same times; for the operator, if the app runs in the",
        "same periods",
        "candidate            share      95% interval  q value",
        "a.example           50.00%  46.08% .. 53.92%   <1e-99  █████████████████████░|░",
        "b.example = b.test  25.00%  21.08% .. 28.92%    1e-08  █████████░░|░",
        "Total shares: candidates 74.0% (68.1% .. 79.9%), unlisted strings 16.0% (8.2% .. 23.8%),",
        "no value 10.0% (6.1% .. 13.9%).",
        "Detected: 2 of 4 (false discovery rate 5%); 1 not detected, 1 not tested.",
        "Detection limit: 8.00% (a candidate with this share is detected with probability 0.9). A",
        "limit of 2% needs 160,000 reports.",
        "Warning: Something is implausible.",
    ]


def test_wide_table_shows_adjusted_intervals_of_detected_candidates() -> None:
    lines = [line.rstrip() for line in rendered(whole(by_hand()), 110).splitlines()]
    assert lines[4] == "candidate            share      95% interval  selection-adjusted  q value"
    assert lines[5].startswith("a.example           50.00%  46.08% .. 53.92%    45.20% .. 54.80%   <1e-99  ███")
    assert lines[7].startswith("c.example           -1.00%   -4.92% .. 2.92%                        0.700")


def test_table_of_everything_shows_rows_that_were_not_estimated() -> None:
    text = rendered(whole(by_hand()))
    assert "c.example" in text
    assert "not estimated" in text
    assert "-1.00%" in text  # not clipped


def test_table_escapes_markup_in_candidates(decoding: Decoding) -> None:
    assert "[red]d[/]" in rendered(whole(decoding))


@pytest.mark.parametrize("width", [50, 60, 80, 120])
def test_table_fits_the_terminal_without_cutting_names_or_estimates(width: int) -> None:
    text = rendered(whole(by_hand()), width)
    assert max(map(len, text.splitlines())) <= width
    assert all(f"{letter}.example" in text for letter in "abcd")
    assert "46.08% .. 53.92%" in text
    assert ("45.20% .. 54.80%" in text) == (width > 90)  # adjusted for selection
    assert "-4.92% .. 2.92%" in text


def test_table_of_forty_columns_shows_every_number() -> None:
    text = rendered(whole(by_hand()), 40)
    assert max(map(len, text.splitlines())) <= 40
    assert all(
        cell in text
        for cell in ("<1e-99", "1e-08", "0.700", "46.08% ..", "53.92%", "-4.92% ..", "not estimated", "a.example")
    )


def test_table_shortens_long_candidates_and_escapes_control_characters() -> None:
    """Regression: 200,000 characters took 9,100 lines, and ESC sequences reached the terminal."""
    first = by_hand().estimates[0]
    names = ("x" * 200_000, "\x1b[31mred\u202e")
    hostile = replace(by_hand(), estimates=tuple(replace(first, candidate=name) for name in names))
    text = rendered(whole(hostile))
    assert len(text.splitlines()) < 20
    assert "(200,000" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\x1b[31mred\\u202e" in text


def test_selection_adjusted_interval_is_clipped_at_zero() -> None:
    detected, _, undetected, _ = by_hand().estimates
    assert detected.selection_adjusted_interval == (0.452, 0.548)
    assert replace(detected, selection_adjusted_low=-0.1).selection_adjusted_interval == (0, 0.548)
    assert all(map(math.isnan, undetected.selection_adjusted_interval))


def test_decoding_is_a_collection_of_estimates_with_repr_and_html(decoding: Decoding) -> None:
    assert repr(by_hand()) == "<Decoding of homepage: 10,000 reports, 2 of 4 candidates detected>"
    assert list(decoding) == list(decoding.estimates)
    assert len(decoding) == 4
    assert "a.example" in decoding
    assert "z.example" not in decoding
    assert "b.test" in by_hand()
    html = replace(by_hand(), warnings=(Finding("<script>", "<script>", "<script>"),))._repr_html_()
    assert "45.20% .. 54.80%" in html
    assert html.startswith("<div")
    assert "<script>" not in html


def test_estimates_are_sorted_by_share_and_indexed_by_candidate(decoding: Decoding) -> None:
    shares = [e.share for e in decoding.estimates]
    assert shares == sorted(shares, reverse=True)
    assert decoding["b.example"].candidate == "b.example"
    with pytest.raises(KeyError):
        decoding["z.example"]


def test_decoding_is_a_sequence_of_estimates() -> None:
    decoding = by_hand()
    assert decoding[0] == decoding.estimates[0] == decoding["a.example"]
    assert decoding[-1].candidate == "d.example"
    assert decoding[np.int64(1)].candidate == "b.example"
    assert decoding[:2] == decoding.estimates[:2]
    assert [e.candidate for e in decoding[::-2]] == ["d.example", "b.example"]
    assert decoding[10:] == ()
    assert [e.candidate for e in reversed(decoding)] == [e.candidate for e in decoding][::-1]
    assert decoding[1] in decoding
    assert replace(decoding[1], share=0.3) not in decoding
    with pytest.raises(IndexError):
        decoding[4]
    with pytest.raises(KeyError, match="0"):
        decoding["0"]
    with pytest.raises(TypeError):
        decoding[1.5]  # type: ignore[call-overload]  # an invalid type is tested


def test_listed_unlisted_and_no_value_sum_to_one(decoding: Decoding) -> None:
    total = decoding.listed_total.share + decoding.unlisted.share + decoding.no_value.share
    assert total == pytest.approx(1, abs=1e-12)
    assert decoding.listed_total.share == pytest.approx(sum(e.share for e in decoding.estimates))


def test_pattern_counts_and_bit_counts_agree_and_patterns_have_no_larger_error(unseen_seed: int) -> None:
    """Estimates differ by at most 5 standard errors (alpha < 1e-6); standard errors by at most a factor 1.1.

    The ratio of the standard errors of a was .94, its logarithm +- .029 (40 draws). 1.1 is 5.5 of these away.
    """
    patterns = simulate(HOMEPAGE, {"a": 60_000, "b": 40_000}, np.random.default_rng(unseen_seed), form=PatternCounts)
    whole, marginal = decode(patterns, ["a", "b", "c"]), decode(patterns.bit_counts(), ["a", "b", "c"])
    for name in ("a", "b", "c"):
        assert abs(whole[name].share - marginal[name].share) < 5 * marginal[name].std_error
        assert whole[name].std_error < 1.1 * marginal[name].std_error


def test_summary_lines_name_reports_needed_when_nothing_is_detectable(unseen_seed: int) -> None:
    counts = simulate(HOMEPAGE, {"a": 3}, np.random.default_rng(unseen_seed))
    text = " ".join(summary_lines(decode(counts, ["a", "b"])))
    assert "so no candidate can be detected. A limit of 1% needs" in text
    assert "Total shares are not determined." in text


@pytest.mark.parametrize("num_reports", [1_000_000, 20_000_000])
def test_promises_no_lower_limit_that_unlisted_strings_prevent(unseen_seed: int, num_reports: int) -> None:
    """All 100 equally frequent values are unlisted: the limit is 1.0 % of a million reports, and .8 % of 20 million."""
    params = Params(num_bits=64, num_hashes=1, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0.25)
    shares = distribution_shares("uniform", 100)
    rng = np.random.default_rng(unseen_seed)
    counts = simulate(Metric.string("m", params), draw_population(shares, num_reports, rng), rng)
    absent = decode(counts, [f"w{i}" for i in range(200)])
    text = " ".join(summary_lines(absent))
    assert re.search(r"More reports do not lower this limit below 0\.\d\d%: unlisted strings cause it", text)
    assert "needs" not in text
    assert 0.7 * absent.detection_limit < absent.lowest_detection_limit <= absent.detection_limit
    listed = decode(counts, [*shares, "w1"])
    assert "More reports" not in " ".join(summary_lines(listed))


def test_warns_about_a_list_without_the_reported_strings(unseen_seed: int) -> None:
    """Three strings with all reports, and a list of 3 absent ones."""
    rng = np.random.default_rng(unseen_seed)
    counts = simulate(HOMEPAGE, {f"{unseen_seed} {i}": 50_000 for i in range(3)}, rng)
    wrong = decode(counts, ["a", "b", "c"])
    assert [warning.kind for warning in wrong.warnings].count("nothing_detected") == 1
    assert warned(wrong, "The frequent strings may be missing from the list, or the candidates")


def test_table_and_json_have_text_and_remedy_of_a_warning() -> None:
    for remedy, line in (("Decode 240.", "Warning: Too few. Decode 240."), ("", "Warning: Too few.")):
        decoding = replace(by_hand(), warnings=(Finding("few_reports", "Too few.", remedy),))
        assert decoding.to_dict()["warnings"] == [
            {"kind": "few_reports", "text": "Too few.", "remedy": remedy, "severity": "warning"}
        ]
        assert rendered(decoding).splitlines()[-1] == line


@pytest.mark.parametrize("severity", Severity)
def test_every_surface_has_the_severity_of_a_finding_in_words(severity: Severity) -> None:
    decoding = replace(by_hand(), warnings=(Finding("kind", "What was found.", "What to do.", severity),))
    line = f"{severity.value.capitalize()}: What was found. What to do."
    assert decoding.to_dict()["warnings"][0]["severity"] == severity.value
    assert line in rendered(decoding).splitlines()
    assert line in str(decoding.diagnose()).splitlines()
    assert f">{line}</p>" in decoding._repr_html_()
    page = render_decoding(decoding, inline_scripts())
    assert (
        f'<p class="note {severity}"><strong>{line.partition(":")[0]}:</strong> What was found. What to do.</p>' in page
    )


def test_diagnosis_stops_at_a_problem() -> None:
    found = {
        severity: replace(by_hand(), warnings=(Finding("kind", "It.", severity=severity),)).diagnose().verdict
        for severity in Severity
    }
    assert [severity for severity, verdict in found.items() if "Do not use the estimates" in verdict] == [
        Severity.PROBLEM
    ]


@pytest.mark.parametrize(("error", "determined"), [(0.249, True), (0.251, False), (math.nan, False)])
def test_total_with_standard_error_above_a_quarter_is_undetermined(error: float, determined: bool) -> None:
    """From a standard error of .25, the interval is as wide as [0, 1]."""
    counts = BitCounts(HOMEPAGE, np.full(8, 100), np.full((8, 16), 40))
    one = np.array([0.1])
    totals, variances = np.array([0.5, -0.4, 0.9]), np.array([0.1, error, 0.1]) ** 2
    tests, noise = CandidateTests(None, one, np.zeros(1, bool)), ErrorCumulants.zero(1)
    fit = FitResult(
        one, one, one, totals, variances, variances, 0.1, tests, noise, Nuisance(np.empty(0), math.nan, math.nan)
    )
    unlisted = build_decoding(fit, [("a",)], Evidence(counts), Options()).unlisted
    assert math.isnan(unlisted.share) is math.isnan(unlisted.low) is not determined


def test_warns_about_undetermined_totals_of_many_candidates(unseen_seed: int) -> None:
    """1,000 candidates, 4 x 29 observations: 20,000 reports may determine the listed total to .25, 100 reports never do."""
    params = Params(num_bits=8, num_hashes=2, num_cohorts=4, prob_p=0.25, prob_q=0.75, prob_f=0)
    names, rng = [f"{unseen_seed} {i}" for i in range(1000)], np.random.default_rng(unseen_seed)
    many, few = (simulate(Metric.string("m", params), {names[0]: n}, rng, form=PatternCounts) for n in (20_000, 100))
    for decoding in (decode(many, names), decode(few, names)):
        totals = (decoding.listed_total, decoding.unlisted, decoding.no_value)
        for total in totals:
            assert math.isnan(total.share) == math.isnan(total.std_error)
            assert not total.std_error > 0.25
        warning = f"The listed total of {len(decoding):,} candidates and the unlisted share cannot be separated"
        assert warned(decoding, warning) == math.isnan(decoding.unlisted.share)
    assert math.isnan(decoding.listed_total.share)
    assert math.isnan(decoding.unlisted.share)
    assert not warned(decode(many, names[:3]), "cannot be separated")


@pytest.mark.parametrize(
    ("form", "shape", "number", "reports", "enough"),
    [
        (BitCounts, (8, 1, 4), 100, 3_000, False),
        (PatternCounts, (8, 1, 4), 200, 30_000, False),
        (BitCounts, (10, 2, 3), 400, 100_000_000, False),
        (PatternCounts, (8, 2, 32), 100, 400, True),
        (BitCounts, (16, 1, 32), 300, 1_000, True),
    ],
)
def test_advises_more_reports_only_where_they_determine_the_totals(
    form: type[BitCounts | PatternCounts],
    shape: tuple[int, int, int],
    number: int,
    reports: int,
    enough: bool,
    unseen_seed: int,
) -> None:
    """Null totals, decoded again with 100 times the reports: null again exactly where the warning says so."""
    k, h, m = shape
    params = Params(num_bits=k, num_hashes=h, num_cohorts=m, prob_p=0.25, prob_q=0.75, prob_f=0)
    shares = 1 / np.arange(1, number + 1)
    names, rng = [f"{unseen_seed} {i}" for i in range(number)], np.random.default_rng(unseen_seed)
    few, many = (
        decode(simulate(Metric.string("m", params), dict(zip(names, drawn, strict=True)), rng, form=form), names)
        for drawn in (rng.multinomial(n, shares / shares.sum()).tolist() for n in (reports, 100 * reports))
    )
    assert math.isnan(few.listed_total.share)
    assert warned(few, "decode more reports") is enough
    assert warned(few, "More reports do not change this") is not enough
    assert math.isnan(many.listed_total.share) is not enough


def test_warns_if_no_candidate_was_subtracted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too few cohorts for so many candidates, or an iteration that does not settle: all other strings are noise, for any number of reports."""
    shares = 1 / np.arange(1, 201)
    names = [str(i) for i in range(200)]

    def decoded(cohorts: int, reports: int) -> Decoding:
        """Decode reports of this many of 16 cohorts."""
        params = Params(num_bits=32, num_hashes=1, num_cohorts=16, prob_p=0.25, prob_q=0.75, prob_f=0)
        counts = np.round(reports * shares / shares.sum()).astype(int).tolist()
        population = dict(zip(names, counts, strict=True))
        counts = simulate(Metric.string("m", params), population, np.random.default_rng(1))
        used = np.arange(16) < cohorts
        return decode(BitCounts(counts.metric, counts.reports * used, counts.ones * used[:, None]), names)

    assert not warned(decoded(8, 1_000_000), "as noise")
    assert warned(decoded(4, 1_000_000), "4 cohorts are too few to subtract 200 candidates from each other")
    assert not warned(decoded(4, 2_000), "as noise")  # most of the variance is noise of the reports
    monkeypatch.setattr(message_passing, "_DAMPING", ((0.7, 2),))
    assert warned(decoded(8, 1_000_000), "The estimation of 200 candidates did not settle")


def test_posterior_shares_of_two_cohorts_are_closer_to_the_truth_than_zeros(unseen_seed: int) -> None:
    """32 of 126 candidates have 2 %, and an unlisted string with 25 % adds its share to those that have its bits in one cohort."""
    params = Params(num_bits=10, num_hashes=3, num_cohorts=2, prob_p=0.1, prob_q=0.9, prob_f=0)
    rng, distances = np.random.default_rng(unseen_seed), []
    for run in range(12):
        names = [f"{unseen_seed} {run} {i}" for i in range(126)]
        population = dict.fromkeys(names[:32], 270) | {"heavy": 3_400} | {f"u{i}": 4 for i in range(300)}
        decoding = decode(simulate(Metric.string("m", params), population, rng, form=PatternCounts), names)
        if math.isnan(decoding.listed_total.share):
            continue
        truth = np.array(
            [sum(population.get(s, 0) for s in (e.candidate, *e.indistinguishable_from)) for e in decoding]
        )
        truth = truth / decoding.num_reports
        medians, means = (
            np.array([getattr(e, name) for e in decoding]) for name in ("posterior_median", "posterior_mean")
        )
        distances.append([np.abs(shares - truth).sum() for shares in (0 * truth, medians, means)])
    zeros, of_medians, of_means = np.mean(distances, axis=0)
    assert len(distances) > 3
    assert max(of_medians, of_means) < zeros


def test_decodes_a_summary_without_a_metric_name() -> None:
    params = HOMEPAGE.params
    assert decode(BitCounts(params, np.full(8, 100), np.full((8, 16), 40)), ["a"]).metric.name == "unnamed"


def test_csv_json_and_parquet_hold_the_same_estimates(decoding: Decoding, tmp_path: Path) -> None:
    for suffix in ("csv", "json", "parquet"):
        decoding.save(tmp_path / f"out.{suffix}")
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()))
    document = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    table = pq.read_table(tmp_path / "out.parquet")
    for i, e in enumerate(decoding.estimates):
        assert float(rows[i]["share"]) == document["estimates"][i]["share"] == table["share"][i].as_py() == e.share
        assert (
            rows[i]["candidate"]
            == document["estimates"][i]["candidate"]
            == table["candidate"][i].as_py()
            == e.candidate
        )
        assert float(rows[i]["q_value"]) == e.q_value
    about = json.loads(table.schema.metadata[b"hubbub-decoding"])
    assert about["num_reports"] == document["num_reports"] == 100_000
    assert document["unlisted"]["low"] == decoding.unlisted.low


def test_missing_estimates_are_null_in_json_and_empty_in_csv(tmp_path: Path) -> None:
    by_hand().save(tmp_path / "out.json")
    by_hand().save(tmp_path / "out.csv")
    assert json.loads((tmp_path / "out.json").read_text())["estimates"][3]["share"] is None
    assert (tmp_path / "out.csv").read_text().splitlines()[4] == "d.example,,,,,,,,,,,,,,,,,"


def test_csv_has_indistinguishable_candidates_as_a_json_list(tmp_path: Path) -> None:
    """With spaces, commas, quotes and line breaks inside."""
    others = ("b test", 'x, "y"', "", "line\nbreak", "Zürich")
    decoding = by_hand()
    grouped = replace(decoding, estimates=(replace(decoding[0], indistinguishable_from=others), decoding[1]))
    grouped.save(tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        cells = [row["indistinguishable_from"] for row in csv.DictReader(file)]
    assert tuple(json.loads(cells[0])) == others
    assert json.loads(cells[1]) == ["b.test"]
    assert "Zürich" in (tmp_path / "out.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["out.txt", "out", "out.xlsx"])
def test_rejects_unknown_suffix_before_writing(name: str, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"must end in \.csv, \.json or \.parquet"):
        by_hand().save(tmp_path / name)
    assert not (tmp_path / name).exists()


def test_rejects_missing_directory_by_name(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"nowhere.out\.csv cannot be written: there is no directory"):
        by_hand().save(tmp_path / "nowhere" / "out.csv")


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        (None, "Pass candidates"),
        ([], "There is no candidate"),
        ("a.example", "Pass the strings as a list"),
        ([1], r"candidates\[0\] must be a string, got int 1"),
        (["\ud800"], "encodable as UTF-8"),
    ],
)
def test_rejects_invalid_candidates(candidates: list[str] | None, message: str) -> None:
    counts = simulate(HOMEPAGE, {"a": 100}, np.random.default_rng(0))
    with pytest.raises(CandidateError, match=message):
        decode(counts, candidates)


def test_rejects_an_unknown_method() -> None:
    counts = simulate(HOMEPAGE, {"a": 100}, np.random.default_rng(0))
    with pytest.raises(ParameterError, match='method must be "auto" or "lasso", got \'ridge\''):
        decode(counts, ["a"], method="ridge")  # type: ignore[arg-type]


def warned(decoding: Decoding, words: str) -> bool:
    return any(words in str(warning) for warning in decoding.warnings)


def test_genuine_reports_give_no_warnings(decoding: Decoding) -> None:
    assert decoding.warnings == ()


def test_one_report_determines_no_totals(unseen_seed: int) -> None:
    """Regression: the totals were shown as 0.0 % (0.0 % .. 0.0 %)."""
    metric = Metric.string("homepage", replace(HOMEPAGE.params, num_cohorts=64))
    decoding = decode(simulate(metric, {"v1": 1}, np.random.default_rng(unseen_seed)), [f"v{i}" for i in range(200)])
    document = decoding.to_dict()
    for total in ("listed_total", "unlisted", "no_value"):
        assert set(document[total].values()) == {None}, total
    assert "Total shares are not determined." in summary_lines(decoding)
    assert warned(decoding, "Only 1 report in 64 cohorts")


def test_totals_after_screening_are_those_of_the_kept_candidates() -> None:
    names = [f"v{i}" for i in range(500)]
    counts = simulate(HOMEPAGE, dict.fromkeys(names, 200), np.random.default_rng(0))
    decoding = decode(counts, names, method="lasso")
    fitted = sum(not math.isnan(e.share) for e in decoding.estimates)
    assert decoding.to_dict()["num_kept"] == fitted < 500
    assert f"{fitted} kept candidates " in " ".join(summary_lines(decoding))
    assert "other candidates and unlisted strings" in " ".join(summary_lines(decoding))
    assert decode(counts, names[:2]).to_dict()["num_kept"] is None


@pytest.mark.parametrize(("cohorts", "expected"), [(1, True), (4, True), (8, False)])
def test_warns_about_few_cohorts_with_unlisted_strings(cohorts: int, expected: bool) -> None:
    metric = Metric.string("x", replace(HOMEPAGE.params, num_bits=32, num_cohorts=cohorts))
    counts = simulate(metric, {"a": 50_000, "unlisted": 50_000}, np.random.default_rng(0))
    assert warned(decode(counts, ["a"]), "The variance caused by unlisted strings is poorly estimated") == expected


def test_warns_when_nothing_is_detected_among_many_values() -> None:
    counts = simulate(HOMEPAGE, {"Example": 50_000, "Other": 40_000}, np.random.default_rng(0))
    assert warned(
        decode(counts, ["example", "other"]),
        "% of the reports carry an unlisted string.",
    )
    assert not warned(decode(counts, ["Example", "other"]), "Compare hash scheme")
    empty = simulate(HOMEPAGE, {}, np.random.default_rng(0), no_value=90_000)
    assert not warned(decode(empty, ["example", "other"]), "Compare hash scheme")


def test_warns_about_white_space_around_candidates() -> None:
    counts = simulate(HOMEPAGE, {"a": 90_000}, np.random.default_rng(0))
    assert warned(decode(counts, ["a", " a", "b\t"]), "2 candidates begin or end with white space (such as ' a')")
    assert not warned(decode(counts, ["a", "a b"]), "white space")


def test_rejects_other_types_than_summaries_and_names_read_collected() -> None:
    for given in ("homepage.parquet", None, 5):
        with pytest.raises(SummaryError, match=r"got \w+: hubbub.summary.read_collected\(path\)"):
            decode(given, ["a"])  # type: ignore[arg-type]  # an invalid type is tested


def test_warns_about_few_reports() -> None:
    counts = simulate(HOMEPAGE, {"a": 100}, np.random.default_rng(0))
    assert warned(decode(counts, ["a"]), "Only 100 reports in 8 cohorts")


def test_warns_about_unequal_cohorts(decoding: Decoding) -> None:
    counts = simulate(HOMEPAGE, {"a": 100_000}, np.random.default_rng(0))
    thinned = BitCounts(HOMEPAGE, counts.reports // [2, 1, 1, 1, 1, 1, 1, 1], counts.ones // 2)
    assert warned(decode(thinned, ["a"]), "cohorts differ in size by more than chance")


def test_warns_about_unequal_cohorts_of_few_reports() -> None:
    """25 reports per cohort, two empty cohorts: too few for a goodness-of-fit test, enough for the exact bound."""
    reports = np.array([0, 0, *[25] * 6])
    decoding = decode(BitCounts(HOMEPAGE, reports, np.tile(reports[:, None] // 2, 16)), ["a"])
    assert not any(test.name == "equal_cohorts" for test in decoding.fit_tests)
    assert warned(decoding, "Cohort sizes differ more than by chance")


def test_fit_test_and_plausibility_check_warn_once() -> None:
    """Nine of ten reports have other probabilities: both checks reject the numbers of ones and the cohort sizes."""
    noisier = Metric.string(
        "homepage",
        replace(
            HOMEPAGE.params, mechanism=UnaryResponse.of_fields({**HOMEPAGE.params.mechanism.fields, "prob_q": 0.35})
        ),
    )
    rng = np.random.default_rng(0)
    patterns = (
        simulate(noisier, {"a": 90_000}, rng, form=PatternCounts).counts
        + simulate(HOMEPAGE, {"a": 10_000}, rng, form=PatternCounts).counts
    )
    patterns[0] *= 2
    counts = PatternCounts(HOMEPAGE, patterns)
    assert {found.kind for found in find_implausible(HOMEPAGE.blocks, counts.bit_counts().count_profile())} == {
        "shape",
        "cohorts",
    }
    warnings = [str(warning) for warning in decode(counts, ["a"]).warnings]
    assert sum("how many ones" in warning or "numbers of ones" in warning for warning in warnings) == 1
    assert sum("cohorts are unequal" in warning or "differ in size" in warning for warning in warnings) == 1


def test_repeated_candidates_are_tested_once_with_a_warning() -> None:
    counts = simulate(HOMEPAGE, {"a": 9000}, np.random.default_rng(0))
    repeated = decode(counts, ["a", "b", "a", "a"])
    assert warned(repeated, "2 candidates repeated an earlier one and were ignored")
    assert [e.candidate for e in repeated.estimates] == ["a", "b"]


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("Name", True),
        ("value,count", True),
        ('"candidate"', True),
        ("rank\tvalue", True),
        ("named", False),
        ("a", False),
    ],
)
def test_warns_about_a_header_line_among_the_candidates(first: str, expected: bool) -> None:
    counts = simulate(HOMEPAGE, {"a": 9000}, np.random.default_rng(0))
    decoding = decode(counts, [first, *({"a", "b"} - {first})])
    assert warned(decoding, "looks like the header line of a file") == expected
    assert first in decoding


@pytest.mark.parametrize(
    ("candidates", "warning"),
    [
        (["a\rb\rc"], "1 candidate contains a tab or a line break (such as 'a\\rb\\rc')"),
        (["a\t5", "b\t3", "c"], "2 candidates contain a tab or a line break (such as 'a\\t5')"),
        (['"a"', '"b"'], "All 2 candidates are in quotation marks (such as '\"a\"')"),
    ],
)
def test_warns_about_candidates_of_another_file_format(candidates: list[str], warning: str) -> None:
    counts = simulate(HOMEPAGE, {"a": 9000}, np.random.default_rng(0))
    assert warned(decode(counts, candidates), warning)
    others = decode(counts, ['"a"', "b,c", "d e"])
    assert not warned(others, "tab or a line break")
    assert not warned(others, "in quotation marks")


def test_does_not_take_a_detected_candidate_for_a_header() -> None:
    counts = simulate(HOMEPAGE, {"name": 9000}, np.random.default_rng(0))
    assert not warned(decode(counts, ["name", "a"]), "looks like the header line")


def test_decoding_has_the_target_of_its_intervals() -> None:
    counts = simulate(HOMEPAGE, {"a": 6000, "b": 3000}, np.random.default_rng(0))
    reporters, population = decode(counts, ["a", "b"]), decode(counts, ["a", "b"], target="population")
    assert (reporters.to_dict()["target"], population.to_dict()["target"]) == ("reporters", "population")
    assert population["a"].std_error > reporters["a"].std_error
    assert "Intervals are for the population" in rendered(population)
    assert "Intervals are for the population" not in rendered(reporters)


def test_indistinguishable_candidates_share_one_row() -> None:
    one_cohort = Params(num_bits=8, num_hashes=1, num_cohorts=1, prob_p=0.25, prob_q=0.75, prob_f=0)
    counts = simulate(Metric.string("x", one_cohort), {"v1": 9000}, np.random.default_rng(0))
    candidates = [f"v{i}" for i in range(12)]
    decoding = decode(counts, candidates)
    assert warned(decoding, "set the same bits as another one in every cohort")
    named = [name for e in decoding.estimates for name in (e.candidate, *e.indistinguishable_from)]
    assert sorted(named) == sorted(candidates)
    assert "v1" in (decoding["v1"].candidate, *decoding["v1"].indistinguishable_from)


def test_screening_warns_and_screened_out_candidates_are_not_tested() -> None:
    rng = np.random.default_rng(0)
    counts = simulate(HOMEPAGE, {"a": 60_000, "b": 40_000}, rng)
    decoding = decode(counts, ["a", "b", *(f"v{i}" for i in range(500))], method="lasso")
    assert warned(decoding, "of 502 candidates were left out")
    assert warned(decoding, "Up to 100,000 candidates of bit counts are all estimated")
    assert warned(decoding, "A lasso on half of the cohorts kept")
    assert {e.candidate for e in decoding.detected} >= {"a", "b"}
    left_out = [e for e in decoding.estimates if math.isnan(e.share)]
    assert left_out
    assert not any(e.detected for e in left_out)
    fitted = [e for e in decoding.estimates if not math.isnan(e.share)]
    unknown = decoding.to_dict()["estimates"][-1]
    assert unknown.pop("detected") is None
    assert {name: value for name, value in unknown.items() if value is not None}.keys() == {
        "candidate",
        "indistinguishable_from",
    }
    assert [e.q_value for e in fitted] == pytest.approx(q_values(np.array([e.p_value for e in fitted]), 0.05).tolist())


def test_screening_with_one_cohort_warns_about_narrow_intervals() -> None:
    one_cohort = Params(num_bits=64, num_hashes=2, num_cohorts=1, prob_p=0.25, prob_q=0.75, prob_f=0)
    counts = simulate(Metric.string("x", one_cohort), {"a": 60_000}, np.random.default_rng(0))
    few, many = (decode(counts, ["a", *(f"v{i}" for i in range(number))], method="lasso") for number in (50, 100))
    assert warned(few, "There is only one cohort")
    assert few["a"].detected
    # one of 2,016 random strings has its bits, which is too many for 101 candidates and a rate of .05
    assert not many["a"].detected
    assert math.isinf(many.detection_limit)


@pytest.mark.parametrize("scheme", ["google-md5", "murmur3-v1"])
def test_reports_of_another_hash_scheme_count_as_unlisted(scheme: str) -> None:
    """All reports carry one value and are decoded under the other hash scheme: no detection, unlisted share near 1."""
    other = {"google-md5": "murmur3-v1", "murmur3-v1": "google-md5"}[scheme]
    sizes = {"num_bits": 32, "num_hashes": 2, "num_cohorts": 16, "prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.25}
    made = Metric.string("x", Params(**sizes, hash_scheme=scheme))  # type: ignore[arg-type]  # ints and floats by name
    declared = Metric.string("x", Params(**sizes, hash_scheme=other))  # type: ignore[arg-type]
    counts = simulate(made, {"a": 100_000}, np.random.default_rng(0))
    decoding = decode(BitCounts(declared, counts.reports, counts.ones), ["a", "b"])
    assert not decoding["a"].detected
    assert decoding.unlisted.low > 0.8


def test_warns_about_impossible_totals_under_wrong_probabilities() -> None:
    declared = Metric.string("x", Params(num_bits=16, num_hashes=2, num_cohorts=8, prob_p=0.25, prob_q=0.5, prob_f=0.5))
    counts = simulate(HOMEPAGE, {"a": 100_000}, np.random.default_rng(0))
    wrong = decode(BitCounts(declared, counts.reports, counts.ones), ["a", "b"])
    assert warned(
        wrong,
        "A frequent string may be missing from the candidates, the parameters or hash scheme may differ from the clients'",
    )


@pytest.mark.parametrize(
    ("share", "impossible"),
    [(1.258, "above 100%"), (1.15, None), (1.0, None), (0.5, None), (-0.15, None), (-0.258, "below 0")],
)
@pytest.mark.parametrize("total", ["listed_total", "no_value", "unlisted"])
def test_warns_about_totals_outside_0_and_100_percent(total: str, share: float, impossible: str | None) -> None:
    """With a standard error of .04: outside by more than four of them."""
    reports = MIN_REPORTS_PER_COHORT * HOMEPAGE.params.num_cohorts
    estimate = ShareEstimate(share, 0.04, share - 0.08, share + 0.08)
    decoding = replace(by_hand(), metric=HOMEPAGE, num_reports=reports, **{total: estimate})  # type: ignore[arg-type]
    found = list(impossible_totals(decoding))
    assert [
        f"{share:.1%}, which is {impossible} by more than 4 standard errors" in warning.text for warning in found
    ] == ([True] if impossible else [])


@pytest.mark.parametrize(("num_cohorts", "few"), [(4, True), (64, False)])
def test_screening_does_not_call_intervals_of_few_cohorts_valid(unseen_seed: int, num_cohorts: int, few: bool) -> None:
    metric = Metric.string("m", replace(HOMEPAGE.params, num_cohorts=num_cohorts))
    people = {f"{unseen_seed} {i}": 20_000 for i in range(10)}
    counts = simulate(metric, people, np.random.default_rng(unseen_seed))
    decoding = decode(counts, [*list(people)[:5], *(f"absent {i}" for i in range(33 * num_cohorts))], method="lasso")
    assert warned(decoding, "A lasso on half of the cohorts kept")
    assert warned(decoding, "intervals stay valid but are wider") != few


def test_table_shows_no_negative_zero() -> None:
    decoding = by_hand()
    first = decoding.estimates[0]
    decoding = replace(decoding, estimates=(replace(first, share=-1e-6, low=-1e-6, selection_adjusted_low=-1e-6),))
    assert "-0.00%" not in rendered(whole(decoding))
