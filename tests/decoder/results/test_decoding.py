"""A decoding: what it holds, how it is written, how it draws itself, and what it doubts."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from hubbub import Metric, Params, SummaryError
from hubbub.summary import BitCounts, PatternCounts
from hubbub.summary.plausibility import oddities
from hubbub_decoder import CandidateError, Decoding, Estimate, Mass, OutputError, decode
from hubbub_decoder.data.simulate import simulate_bit_counts, simulate_pattern_counts
from hubbub_decoder.estimators.fit_result import FitResult
from hubbub_decoder.inference.multiple_testing import q_values
from hubbub_decoder.results.build import build_decoding
from hubbub_decoder.results.table import Picture, conclusions

HOMEPAGE = Metric.string(
    "homepage", Params(num_bits=16, num_hashes=2, num_cohorts=8, prob_p=0.25, prob_q=0.75, prob_f=0.5)
)


def drawn(thing: object, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), no_color=True, highlight=False)
    console.print(thing)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture(scope="module")
def decoding() -> Decoding:
    population = {"a.example": 60_000, "b.example": 30_000, "nobody asked": 5000}
    counts = simulate_bit_counts(HOMEPAGE, population, np.random.default_rng(11), without_value=5000)
    return decode(counts, ["b.example", "a.example", "c.example", "[red]d[/]"])


def by_hand() -> Decoding:
    """Numbers chosen, so that the picture can be checked by eye."""
    rows = (
        Estimate(0.5, 0.02, 0.4608, 0.5392, "a.example", 1e-200, 1e-200, True, 0.452, 0.548, 0.49, 0.45, 0.53),
        Estimate(
            0.25, 0.02, 0.2108, 0.2892, "b.example", 1e-8, 1.5e-8, True, 0.202, 0.298, 0.24, 0.2, 0.28, ("b.test",)
        ),
        Estimate(-0.01, 0.02, -0.0492, 0.0292, "c.example", 0.7, 0.7, False, math.nan, math.nan, 0.0, 0.0, 0.01),
        Estimate(
            math.nan,
            math.nan,
            math.nan,
            math.nan,
            "d.example",
            math.nan,
            math.nan,
            False,
            math.nan,
            math.nan,
            math.nan,
            math.nan,
            math.nan,
        ),
    )
    return Decoding(
        metric=HOMEPAGE,
        num_reports=10_000,
        level=0.95,
        fdr=0.05,
        estimates=rows,
        explained=Mass(0.74, 0.03, 0.6812, 0.7988),
        unlisted=Mass(0.16, 0.04, 0.0816, 0.2384),
        without_value=Mass(0.1, 0.02, 0.0608, 0.1392),
        detectable=0.08,
        warnings=("something is odd",),
    )


def test_it_draws_what_was_found_what_was_not_and_how_many_reports_it_would_take() -> None:
    assert [line.rstrip() for line in drawn(by_hand(), 90).splitlines()] == [
        "homepage: 10,000 reports; epsilon 2.044 per report, 4.395 per value, 17.578 per enrollment",
        "(4 values), lifetime epsilon 39.551 (9 values)",
        "candidate            share      95% interval       q",
        "a.example           50.00%  45.20% .. 54.80%  <1e-99  ████████████████████░░|░",
        "b.example = b.test  25.00%  20.20% .. 29.80%   1e-08  █████████░░|░",
        "Intervals of what was found are wider, so that they hold although it was picked.",
        "candidates 74.0% (68.1% .. 79.9%), unlisted strings 16.0% (8.2% .. 23.8%), no value 10.0%",
        "(6.1% .. 13.9%)",
        "2 of 4 found (false discovery rate 5%); 2 not found.",
        "These reports reveal a share of 8.00% 9 times in 10; for 2% it would take 160,000 reports.",
        "Note: something is odd.",
    ]


def test_all_rows_are_drawn_when_asked_and_those_not_fitted_say_so() -> None:
    text = drawn(Picture(by_hand(), everything=True))
    assert "c.example" in text
    assert "not fitted" in text
    assert "-1.00%" in text  # not clipped


def test_names_are_drawn_as_they_are_whatever_markup_they_look_like(decoding: Decoding) -> None:
    assert "[red]d[/]" in drawn(Picture(decoding, everything=True))


@pytest.mark.parametrize("width", [50, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal_and_no_name_or_estimate_is_cut(width: int) -> None:
    text = drawn(Picture(by_hand(), everything=True), width)
    assert max(map(len, text.splitlines())) <= width
    assert all(f"{letter}.example" in text for letter in "abcd")
    assert "45.20% .. 54.80%" in text  # as widened: it was found
    assert "-4.92% .. 2.92%" in text


def test_forty_columns_show_every_number() -> None:
    text = drawn(Picture(by_hand(), everything=True), 40)
    assert max(map(len, text.splitlines())) <= 40
    assert all(
        told in text
        for told in ("<1e-99", "1e-08", "0.700", "45.20% ..", "54.80%", "-4.92% ..", "not fitted", "a.example")
    )


def test_what_a_candidate_holds_neither_floods_nor_commands_a_terminal() -> None:
    """A name of 200,000 characters took 9,100 lines, and ESC sequences reached the terminal."""
    first = by_hand().estimates[0]
    names = ("x" * 200_000, "\x1b[31mred\u202e")
    odd = replace(by_hand(), estimates=tuple(replace(first, candidate=name) for name in names))
    text = drawn(Picture(odd, everything=True))
    assert len(text.splitlines()) < 16
    assert "(200,000" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\x1b[31mred\\u202e" in text


def test_the_selected_interval_is_clipped_as_well() -> None:
    found, _, missed, _ = by_hand().estimates
    assert found.clipped_selected == (0.452, 0.548)
    assert replace(found, selected_low=-0.1).clipped_selected == (0, 0.548)
    assert all(map(math.isnan, missed.clipped_selected))


def test_it_is_a_short_collection_of_its_estimates_and_a_table_in_a_notebook(decoding: Decoding) -> None:
    assert repr(by_hand()) == "<Decoding of homepage: 10,000 reports, 2 of 4 candidates found>"
    assert list(decoding) == list(decoding.estimates)
    assert len(decoding) == 4
    assert "a.example" in decoding
    assert "z.example" not in decoding
    assert "b.test" in by_hand()
    html = replace(by_hand(), warnings=("<script>",))._repr_html_()
    assert "45.20% .. 54.80%" in html
    assert html.startswith("<pre")
    assert "<script>" not in html


def test_rows_come_largest_first_and_are_found_by_name(decoding: Decoding) -> None:
    shares = [e.share for e in decoding.estimates]
    assert shares == sorted(shares, reverse=True)
    assert decoding["b.example"].candidate == "b.example"
    with pytest.raises(KeyError):
        decoding["z.example"]


def test_listed_unlisted_and_no_value_are_all_the_reports(decoding: Decoding) -> None:
    total = decoding.explained.share + decoding.unlisted.share + decoding.without_value.share
    assert total == pytest.approx(1, abs=1e-12)
    assert decoding.explained.share == pytest.approx(sum(e.share for e in decoding.estimates))


def test_patterns_say_what_their_bit_counts_say_and_no_less_surely(unseen_seed: int) -> None:
    """Two likelihoods of one truth: 5 standard errors apart at most (alpha < 1e-6), the whole one not much the wider.

    Its standard error of a, tau**2 of 8 cohorts in both, was .94 times as large, the logarithm +- .029 (40 draws): 1.1 times is 5.5 of these away.
    """
    patterns = simulate_pattern_counts(HOMEPAGE, {"a": 60_000, "b": 40_000}, np.random.default_rng(unseen_seed))
    whole, marginal = decode(patterns, ["a", "b", "c"]), decode(patterns.bit_counts(), ["a", "b", "c"])
    for name in ("a", "b", "c"):
        assert abs(whole[name].share - marginal[name].share) < 5 * marginal[name].std_error
        assert whole[name].std_error < 1.1 * marginal[name].std_error


def test_a_handful_of_reports_is_said_to_be_too_few(unseen_seed: int) -> None:
    counts = simulate_bit_counts(HOMEPAGE, {"a": 3}, np.random.default_rng(unseen_seed))
    told = " ".join(conclusions(decode(counts, ["a", "b"])))
    assert "too few to reveal any share; for 1% it would take" in told
    assert "How many have any value at all is not determined." in told


@pytest.mark.parametrize(("error", "determined"), [(0.249, True), (0.251, False), (math.nan, False)])
def test_a_total_that_may_be_anything_is_not_determined(error: float, determined: bool) -> None:
    """Two standard errors each way are all there is from .25 on."""
    counts = BitCounts(HOMEPAGE, np.full(8, 100), np.full((8, 16), 40))
    one = np.array([0.1])
    totals, variances = np.array([0.5, -0.4, 0.9]), np.array([0.1, error, 0.1]) ** 2
    fit = FitResult(one, one, one, one, totals, variances, variances, null_error=0.1)
    unlisted = build_decoding(fit, [("a",)], counts, "reporters", 0.95, 0.05).unlisted
    assert math.isnan(unlisted.share) is math.isnan(unlisted.low) is not determined


def test_totals_that_so_many_candidates_leave_open_are_said_to_be_so(unseen_seed: int) -> None:
    """1,000 candidates to the 4 x 29 numbers of four cohorts: 20,000 reports may tell a total to a quarter, and then it is given; 100 tell none.

    Of 60 draws of the 100 the least error of a total was 1.8; the logarithms are seven of their standard deviations above that of 1/4.
    """
    params = Params(num_bits=8, num_hashes=2, num_cohorts=4, prob_p=0.25, prob_q=0.75, prob_f=0)
    names, rng = [f"{unseen_seed} {i}" for i in range(1000)], np.random.default_rng(unseen_seed)
    many, few = (simulate_pattern_counts(Metric.string("m", params), {names[0]: n}, rng) for n in (20_000, 100))
    for decoding in (decode(many, names), decode(few, names)):
        totals = (decoding.explained, decoding.unlisted, decoding.without_value)
        for total in totals:
            assert math.isnan(total.share) == math.isnan(total.std_error)
            assert not total.std_error > 0.25
        told = warned(decoding, f"do not determine which share {len(decoding):,} candidates have together")
        assert told == math.isnan(decoding.unlisted.share)
    assert all(math.isnan(total.share) for total in totals)
    assert told
    assert not warned(decode(many, names[:3]), "have together")


def test_a_summary_of_params_alone_decodes() -> None:
    params = HOMEPAGE.params
    assert decode(BitCounts(params, np.full(8, 100), np.full((8, 16), 40)), ["a"]).metric.name == "unnamed"


def test_csv_json_and_parquet_say_the_same(decoding: Decoding, tmp_path: Path) -> None:
    for suffix in ("csv", "json", "parquet"):
        decoding.save(tmp_path / f"out.{suffix}")
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()))
    told = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    table = pq.read_table(tmp_path / "out.parquet")
    for i, e in enumerate(decoding.estimates):
        assert float(rows[i]["share"]) == told["estimates"][i]["share"] == table["share"][i].as_py() == e.share
        assert rows[i]["candidate"] == told["estimates"][i]["candidate"] == table["candidate"][i].as_py() == e.candidate
        assert float(rows[i]["q_value"]) == e.q_value
    about = json.loads(table.schema.metadata[b"hubbub-decoding"])
    assert about["num_reports"] == told["num_reports"] == 100_000
    assert told["unlisted"]["low"] == decoding.unlisted.low


def test_what_was_not_fitted_is_null_in_json_and_empty_in_csv(tmp_path: Path) -> None:
    by_hand().save(tmp_path / "out.json")
    by_hand().save(tmp_path / "out.csv")
    assert json.loads((tmp_path / "out.json").read_text())["estimates"][3]["share"] is None
    assert (tmp_path / "out.csv").read_text().splitlines()[4] == "d.example,,,,,,,,,,,,False,"


@pytest.mark.parametrize("name", ["out.txt", "out", "out.xlsx"])
def test_an_unknown_suffix_is_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"must end in \.csv, \.json or \.parquet"):
        by_hand().save(tmp_path / name)
    assert not (tmp_path / name).exists()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"nowhere.out\.csv: cannot be written: there is no directory"):
        by_hand().save(tmp_path / "nowhere" / "out.csv")


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        (None, "give candidates"),
        ([], "there is no candidate"),
        ("a.example", "put the strings in a list"),
        ([1], "a candidate is a string, got 1"),
        (["\ud800"], "encodable as UTF-8"),
    ],
)
def test_candidates_that_cannot_be_tested_are_refused(candidates: list[str] | None, message: str) -> None:
    counts = simulate_bit_counts(HOMEPAGE, {"a": 100}, np.random.default_rng(0))
    with pytest.raises(CandidateError, match=message):
        decode(counts, candidates)


@pytest.mark.parametrize("settings", [{"level": 0.0}, {"level": 95.0}, {"fdr": 1.0}, {"level": "a"}])
def test_levels_outside_their_interval_are_refused(settings: dict[str, Any]) -> None:
    counts = simulate_bit_counts(HOMEPAGE, {"a": 100}, np.random.default_rng(0))
    with pytest.raises(SummaryError, match=r"must be a number in \(0, 1\), got"):
        decode(counts, ["a"], **settings)


def warned(decoding: Decoding, words: str) -> bool:
    return any(words in warning for warning in decoding.warnings)


def test_an_honest_decoding_has_no_doubts(decoding: Decoding) -> None:
    assert decoding.warnings == ()


def test_one_report_of_which_nothing_was_fitted_determines_nothing(unseen_seed: int) -> None:
    """It was printed as candidates 0.0 % (0.0 % .. 0.0 %), of a metric of 64 cohorts that "has one cohort only"."""
    metric = Metric.string("homepage", replace(HOMEPAGE.params, num_cohorts=64))
    decoding = decode(
        simulate_bit_counts(metric, {"v1": 1}, np.random.default_rng(unseen_seed)), [f"v{i}" for i in range(200)]
    )
    told = decoding.to_dict()
    for total in ("explained", "unlisted", "without_value"):
        assert set(told[total].values()) == {None}, total
    assert "How many have any value at all is not determined." in conclusions(decoding)
    assert warned(decoding, "a lasso chose 0 of them")
    assert not warned(decoding, "shares of the chosen")
    assert warned(decoding, "only 1 report in 64 cohorts")
    assert warned(decoding, "reports of more cohorts avoid it")


def test_after_a_lasso_totals_are_called_those_of_the_chosen() -> None:
    names = [f"v{i}" for i in range(500)]
    counts = simulate_bit_counts(HOMEPAGE, dict.fromkeys(names, 200), np.random.default_rng(0))
    decoding = decode(counts, names)
    fitted = sum(not math.isnan(e.share) for e in decoding.estimates)
    assert decoding.to_dict()["chosen"] == fitted < 500
    assert f"{fitted} chosen candidates " in " ".join(conclusions(decoding))
    assert "other candidates and unlisted strings" in " ".join(conclusions(decoding))
    assert decode(counts, names[:2]).to_dict()["chosen"] is None


@pytest.mark.parametrize(("cohorts", "doubted"), [(1, True), (4, True), (8, False)])
def test_few_cohorts_are_doubted_where_strings_are_unlisted(cohorts: int, doubted: bool) -> None:
    metric = Metric.string("x", replace(HOMEPAGE.params, num_bits=32, num_cohorts=cohorts))
    counts = simulate_bit_counts(metric, {"a": 50_000, "nobody asked": 50_000}, np.random.default_rng(0))
    assert warned(decode(counts, ["a"]), "hardly show how far unlisted strings scatter") == doubted


def test_nothing_found_among_many_values_says_what_to_compare() -> None:
    counts = simulate_bit_counts(HOMEPAGE, {"Example": 50_000, "Other": 40_000}, np.random.default_rng(0))
    assert warned(
        decode(counts, ["example", "other"]),
        "% carry a value that is not listed: compare hash scheme, numbering of cohorts",
    )
    assert not warned(decode(counts, ["Example", "other"]), "compare hash scheme")
    empty = simulate_bit_counts(HOMEPAGE, {}, np.random.default_rng(0), without_value=90_000)
    assert not warned(decode(empty, ["example", "other"]), "compare hash scheme")


def test_blanks_around_candidates_are_said() -> None:
    counts = simulate_bit_counts(HOMEPAGE, {"a": 90_000}, np.random.default_rng(0))
    assert warned(decode(counts, ["a", " a", "b\t"]), "2 candidates begin or end with a blank (such as ' a')")
    assert not warned(decode(counts, ["a", "a b"]), "blank")


def test_what_is_no_summary_is_refused_with_how_to_read_one() -> None:
    for given in ("homepage.parquet", None, 5):
        with pytest.raises(SummaryError, match=r"got \w+: hubbub.summary.read_collected\(path\)"):
            decode(given, ["a"])  # type: ignore[arg-type]  # that is what is tested


def test_few_reports_are_said() -> None:
    counts = simulate_bit_counts(HOMEPAGE, {"a": 100}, np.random.default_rng(0))
    assert warned(decode(counts, ["a"]), "only 100 reports in 8 cohorts")


def test_unequal_cohorts_are_said(decoding: Decoding) -> None:
    counts = simulate_bit_counts(HOMEPAGE, {"a": 100_000}, np.random.default_rng(0))
    thinned = BitCounts(HOMEPAGE, counts.reports // [2, 1, 1, 1, 1, 1, 1, 1], counts.ones // 2)
    assert warned(decode(thinned, ["a"]), "cohorts are unequal beyond chance")


def test_unequal_cohorts_of_few_reports_are_said_too() -> None:
    """25 reports a cohort, two cohorts none: too few for a test of fit, but not for the bound that holds at any number."""
    reports = np.array([0, 0, *[25] * 6])
    decoding = decode(BitCounts(HOMEPAGE, reports, np.tile(reports[:, None] // 2, 16)), ["a"])
    assert not any(test.name == "equal cohorts" for test in decoding.fit)
    assert warned(decoding, "cohorts are unequal beyond chance")


def test_what_a_test_of_fit_and_the_watch_both_see_is_said_once() -> None:
    """Nine reports in ten made with other chances: no mixture of numbers of ones, by either; unequal cohorts, by either."""
    noisier = Metric.string("homepage", replace(HOMEPAGE.params, prob_q=0.35))
    rng = np.random.default_rng(0)
    patterns = (
        simulate_pattern_counts(noisier, {"a": 90_000}, rng).counts
        + simulate_pattern_counts(HOMEPAGE, {"a": 10_000}, rng).counts
    )
    patterns[0] *= 2
    counts = PatternCounts(HOMEPAGE, patterns)
    assert {odd.kind for odd in oddities(HOMEPAGE.params, counts.bit_counts().outline())} == {"shape", "cohorts"}
    told = decode(counts, ["a"]).warnings
    assert sum("how many ones" in warning or "so many and so few ones" in warning for warning in told) == 1
    assert sum("unequal" in warning for warning in told) == 1


def test_repeated_candidates_are_tested_once_and_said() -> None:
    counts = simulate_bit_counts(HOMEPAGE, {"a": 9000}, np.random.default_rng(0))
    repeated = decode(counts, ["a", "b", "a", "a"])
    assert warned(repeated, "2 repetitions among the candidates left out")
    assert [e.candidate for e in repeated.estimates] == ["a", "b"]


def test_candidates_no_report_can_tell_apart_are_one_row_that_names_both() -> None:
    one_cohort = Params(num_bits=8, num_hashes=1, num_cohorts=1, prob_p=0.25, prob_q=0.75, prob_f=0)
    counts = simulate_bit_counts(Metric.string("x", one_cohort), {"v1": 9000}, np.random.default_rng(0))
    candidates = [f"v{i}" for i in range(12)]
    decoding = decode(counts, candidates)
    assert warned(decoding, "set the same bits as another in every cohort")
    named = [name for e in decoding.estimates for name in (e.candidate, *e.same_bits)]
    assert sorted(named) == sorted(candidates)
    assert "v1" in (decoding["v1"].candidate, *decoding["v1"].same_bits)


def test_a_selection_is_said_and_those_left_out_are_not_called_found() -> None:
    rng = np.random.default_rng(0)
    counts = simulate_bit_counts(HOMEPAGE, {"a": 60_000, "b": 40_000}, rng)
    decoding = decode(counts, ["a", "b", *(f"v{i}" for i in range(500))])
    assert warned(decoding, "502 candidates are more than these bit counts carry")
    assert warned(decoding, "Half of the cohorts chose")
    assert {e.candidate for e in decoding.detected} >= {"a", "b"}
    left_out = [e for e in decoding.estimates if math.isnan(e.share)]
    assert left_out
    assert not any(e.detected for e in left_out)
    fitted = [e for e in decoding.estimates if not math.isnan(e.share)]
    unknown = decoding.to_dict()["estimates"][-1]
    assert unknown.pop("detected") is False
    assert {name: value for name, value in unknown.items() if value is not None}.keys() == {"candidate", "same_bits"}
    assert [e.q_value for e in fitted] == pytest.approx(q_values(np.array([e.p_value for e in fitted])).tolist())


def test_with_one_cohort_a_selection_says_that_its_intervals_are_too_narrow() -> None:
    one_cohort = Params(num_bits=64, num_hashes=2, num_cohorts=1, prob_p=0.25, prob_q=0.75, prob_f=0)
    counts = simulate_bit_counts(Metric.string("x", one_cohort), {"a": 60_000}, np.random.default_rng(0))
    decoding = decode(counts, ["a", *(f"v{i}" for i in range(100))])
    assert warned(decoding, "of one cohort only")
    assert decoding["a"].detected


@pytest.mark.parametrize("scheme", ["google-md5", "murmur3-v1"])
def test_reports_hashed_otherwise_than_the_metric_says_do_not_pass_for_unlisted_strings(scheme: str) -> None:
    """One value of everybody, decoded under the other scheme: the bits scatter as one string, but it is all unlisted."""
    other = {"google-md5": "murmur3-v1", "murmur3-v1": "google-md5"}[scheme]
    sizes = {"num_bits": 32, "num_hashes": 2, "num_cohorts": 16, "prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.25}
    made = Metric.string("x", Params(**sizes, hash_scheme=scheme))  # type: ignore[arg-type]  # ints and floats by name
    said = Metric.string("x", Params(**sizes, hash_scheme=other))  # type: ignore[arg-type]
    counts = simulate_bit_counts(made, {"a": 100_000}, np.random.default_rng(0))
    decoding = decode(BitCounts(said, counts.reports, counts.ones), ["a", "b"])
    assert not decoding["a"].detected
    assert decoding.unlisted.low > 0.8


def test_wrong_probabilities_show_as_a_total_no_population_has() -> None:
    said = Metric.string("x", Params(num_bits=16, num_hashes=2, num_cohorts=8, prob_p=0.25, prob_q=0.5, prob_f=0.5))
    counts = simulate_bit_counts(HOMEPAGE, {"a": 100_000}, np.random.default_rng(0))
    wrong = decode(BitCounts(said, counts.reports, counts.ones), ["a", "b"])
    assert warned(
        wrong,
        "a frequent string may have no candidate, the parameters or the hash scheme may not be those of the reports",
    )
