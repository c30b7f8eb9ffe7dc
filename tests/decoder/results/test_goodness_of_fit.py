"""Goodness of fit: silent whatever strings are reported, loud where parameters, hash or reports are not what they say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from hubbub import Metric, Params
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub_decoder import decode
from hubbub_decoder.data.simulate import simulate_reports
from hubbub_decoder.estimators.pattern_counts import FilterTable
from hubbub_decoder.results.estimates import FitTest
from hubbub_decoder.results.goodness_of_fit import _lack_of_fit, goodness_of_fit

ALPHA = 1e-6


def string_params(
    k: int = 8, h: int = 2, m: int = 64, p: float = 0.225, q: float = 0.775, f: float = 0.0, scheme: str = "murmur3-v1"
) -> Params:
    return Params(num_bits=k, num_hashes=h, num_cohorts=m, prob_p=p, prob_q=q, prob_f=f, hash_scheme=scheme)


def reported(params: Params, seed: int, num_reports: int = 60_000, without_value: int = 6_000) -> Reports:
    """One string of a quarter, and 40 others; none of them on any list."""
    rng = np.random.default_rng(seed)
    rest = (num_reports - without_value) * 3 // 4
    people = {f"{seed}-{i}": rest // 40 for i in range(40)} | {f"{seed}-heavy": num_reports - without_value - rest}
    chunks = list(simulate_reports(Metric.string("x", params), people, rng, without_value=without_value))
    return Reports(params, *(np.concatenate(parts) for parts in zip(*chunks, strict=True)))


def told(params: Params, reports: Reports) -> Reports:
    """Say of reports that they were made under other parameters."""
    return Reports(params, reports.cohorts, reports.rows)


def collected(reports: Reports) -> PatternCounts | Reports:
    return reports.pattern_counts() if reports.metric.params.num_bits <= 10 else reports


def alarms(tests: tuple[FitTest, ...]) -> set[str]:
    return {test.name for test in tests if test.p_value < ALPHA}


def test_counts_that_some_shares_give_exactly_have_no_lack_of_fit() -> None:
    """8 bits, two hashes: 256 patterns less 29 filters are 227 degrees of freedom; one report more than expected is 1 / expected."""
    table = FilterTable.from_params(string_params(p=0.25, q=0.75))
    expected = (
        4.0**8 * 1000 * table.pattern_probabilities @ np.linspace(0, 1, 29)
    )  # whole numbers, since chances are multiples of 4**-8
    shares = np.rint(expected).astype(np.int64)
    statistic, freedom = _lack_of_fit(shares, table.pattern_probabilities) or (np.nan, 0)
    assert freedom == 227
    assert statistic == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("scheme", ["murmur3-v1", "google-md5"])
@pytest.mark.parametrize(("k", "f"), [(8, 0.0), (8, 0.45), (24, 0.0)])
def test_honest_reports_of_unlisted_strings_alarm_nobody(scheme: str, k: int, f: float, unseen_seed: int) -> None:
    """20 populations: no p-value below 1e-6 of any test, and those that are not a worst of many are uniform (Kolmogorov, alpha = 1e-6).

    Some 150 p-values: chance of an alarm 1.5e-4 by what the tests promise; two are a fault.
    """
    params = string_params(k, f=f, scheme=scheme)
    p_values: dict[str, list[float]] = {}
    for run in range(20):
        reports = reported(params, (unseen_seed + run) % (1 << 62), num_reports=20_000, without_value=2_000)
        for test in goodness_of_fit(collected(reports)):
            p_values.setdefault(test.name, []).append(test.p_value)
    assert sum(value < ALPHA for values in p_values.values() for value in values) < 2
    for name, values in p_values.items():
        if name in ("patterns", "number of ones", "ones by cohort", "equal cohorts", "coincident hashes"):
            assert stats.kstest(values, "uniform").pvalue > ALPHA, name
    assert "number of ones" in p_values
    assert ("coincident hashes" in p_values) == (scheme == "google-md5")


def test_a_number_of_ones_that_came_too_rarely_is_no_coincident_hash() -> None:
    """Regression: 1 report without a one where 5 were expected weighed five times as much, and p was 6e-7."""
    params = string_params(24, scheme="google-md5")
    honest = reported(params, 50_000_001_591_719, num_reports=20_000, without_value=2_000)
    (p_value,) = (test.p_value for test in goodness_of_fit(honest) if test.name == "coincident hashes")
    assert p_value > 0.01


def test_who_has_a_value_is_chance_too(unseen_seed: int) -> None:
    """Half of the reports have none, 4 hashes, little noise: the ones of a report vary nine times as much as their noise.

    25 p-values, alpha = 1e-6 over all of them.
    """
    params = string_params(k=24, h=4, p=0.05, q=0.95)
    for run in range(5):
        reports = reported(params, (unseen_seed + run) % (1 << 62), num_reports=20_000, without_value=10_000)
        assert min(test.p_value for test in goodness_of_fit(reports)) > ALPHA / 25


@pytest.mark.parametrize(
    ("true", "claimed", "alarm"),
    [
        (string_params(), string_params(f=0.1), "number of ones"),
        (string_params(f=0.1), string_params(), "patterns"),
        (string_params(h=3), string_params(), "patterns"),
        (string_params(scheme="google-md5"), string_params(), "number of ones"),
        (string_params(), string_params(scheme="google-md5"), "coincident hashes"),
        (string_params(k=24), string_params(k=24, q=0.74), "share with a value"),
        (string_params(k=24, p=0.25, q=0.75), string_params(k=24, p=0.2, q=0.75), "share with a value"),
    ],
    ids=["f too large", "f too small", "h", "md5 told murmur", "murmur told md5", "q", "p"],
)
def test_wrong_parameters_and_another_hash_are_seen(
    true: Params, claimed: Params, alarm: str, unseen_seed: int
) -> None:
    """500,000 reports: p < 1e-24 in each of 150 draws of the least telling, six of their standard deviations or more from 1e-6."""
    reports = told(claimed, reported(true, unseen_seed % (1 << 62), num_reports=500_000))
    assert alarm in alarms(goodness_of_fit(collected(reports)))


@pytest.mark.parametrize("k", [8, 24])
@pytest.mark.parametrize("one_cohort", [False, True])
def test_reports_that_are_made_up_are_seen(k: int, one_cohort: bool, unseen_seed: int) -> None:
    """Half a per cent of all-ones reports, all in cohort 0 or five in every cohort: alike everywhere, they set no cohort apart."""
    honest = reported(string_params(k), unseen_seed % (1 << 62))
    cohorts, rows = honest.cohorts.copy(), honest.rows.copy()
    order = np.random.default_rng(unseen_seed).permutation(len(rows))
    if one_cohort:
        made_up = order[:320]
        cohorts[made_up] = 0
    else:
        made_up = np.concatenate([order[cohorts[order] == cohort][:5] for cohort in range(64)])
    rows[made_up] = 255
    found = alarms(goodness_of_fit(collected(Reports(honest.metric, cohorts, rows))))
    assert "number of ones" in found
    assert ("ones by cohort" in found) == one_cohort
    assert "number of ones" in alarms(goodness_of_fit(Reports(honest.metric, cohorts, rows).bit_counts()))


def test_half_of_the_bits_never_set_is_seen_in_bit_counts_alone(unseen_seed: int) -> None:
    """The clients have 8 bits, the definition says 16: the upper byte is noise without a true one."""
    eight = reported(string_params(8), unseen_seed % (1 << 62))
    noise = np.random.default_rng(unseen_seed).random((len(eight.rows), 8)) < 0.225
    rows = np.column_stack([eight.rows[:, 0], np.packbits(noise, axis=1, bitorder="little")[:, 0]])
    counts = Reports(string_params(16), eight.cohorts, rows).bit_counts()
    assert "even bits" in alarms(goodness_of_fit(counts))


def test_a_cohort_that_many_are_stuck_in_is_seen(unseen_seed: int) -> None:
    reports = reported(string_params(), unseen_seed % (1 << 62))
    cohorts = reports.cohorts.copy()
    cohorts[:600] = 5
    assert alarms(goodness_of_fit(Reports(reports.metric, cohorts, reports.rows).bit_counts())) == {"equal cohorts"}


def test_the_same_people_reporting_again_alarm_nobody(unseen_seed: int) -> None:
    """30,000 people, 8 periods: cohort and permanent noise stay. Told as one period, it is 8 times the reports there are.

    Then equal cohorts are a chi-squared of 63 degrees of freedom, 8 times: below its 1e-6 once in 2e9 runs.
    """
    params = string_params(32, m=64, p=0.25, q=0.75, f=0.5)
    once = reported(
        replace(params, prob_p=0, prob_q=1), unseen_seed % (1 << 62), num_reports=30_000, without_value=3_000
    )
    permanent = np.unpackbits(once.rows, axis=1, bitorder="little").astype(bool)
    rng = np.random.default_rng(unseen_seed)
    noise = [rng.random(permanent.shape) < np.where(permanent, 0.75, 0.25) for _ in range(8)]
    rows = np.concatenate([np.packbits(bits, axis=1, bitorder="little") for bits in noise])
    cohorts, days = np.tile(once.cohorts, 8), tuple(f"2024-06-0{day}" for day in range(1, 9))
    assert alarms(goodness_of_fit(Reports(params, cohorts, rows, days))) == set()
    assert "equal cohorts" in alarms(goodness_of_fit(Reports(params, cohorts, rows)))


def test_a_decoding_says_what_does_not_fit_and_what_to_do(unseen_seed: int) -> None:
    reports = reported(string_params(h=3), unseen_seed % (1 << 62))
    decoding = decode(told(string_params(), reports), ["a", "b"])
    assert {"patterns", "number of ones", "equal cohorts"} <= {test.name for test in decoding.fit}
    assert any("no strings in any shares" in warning and "compare num_bits" in warning for warning in decoding.warnings)
    by_name = {test["name"]: test for test in decoding.to_dict()["fit"]}
    assert by_name["patterns"]["p_value"] < ALPHA
    assert by_name["patterns"]["degrees_of_freedom"] > 200  # 227 but for patterns too rare to stand alone


def test_few_reports_and_one_bit_a_category_are_tested_only_as_far_as_they_go() -> None:
    few = BitCounts(string_params(), np.ones(64, int), np.zeros((64, 8), int))
    assert goodness_of_fit(few) == ()
    for patterns in (np.zeros((64, 256), int), np.eye(64, 256, dtype=int)):  # no report at all; one a cohort
        assert alarms(goodness_of_fit(PatternCounts(string_params(), patterns))) == set()
    survey = Metric.boolean("from_jfk", prob_p=0, prob_q=1, prob_f=0.5)
    assert alarms(goodness_of_fit(BitCounts(survey, [1000], [[400]]))) == set()
    categories = Metric.categorical("os", ("linux", "macos", "windows"), prob_p=0.25, prob_q=0.75, prob_f=0)
    counts = BitCounts(categories, [100_000], [[75_000, 75_000, 75_000]])  # everybody has all three
    assert alarms(goodness_of_fit(counts)) == {"share with a value"}
