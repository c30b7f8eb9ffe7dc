"""Goodness-of-fit tests: no alarm for genuine reports of any strings, alarms for wrong parameters and fabricated reports."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from hubbub import Metric, Params
from hubbub.mechanisms.unary import UnaryResponse
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub_decoder import decode
from hubbub_decoder.inference.goodness_of_fit import (
    FitTest,
    mixture_chi_squared,
    run_fit_tests,
)
from hubbub_decoder.model.pattern_likelihood import FilterTable
from hubbub_decoder.simulation import simulate_reports

ALPHA = 1e-6


def string_params(
    k: int = 8, h: int = 2, m: int = 64, p: float = 0.225, q: float = 0.775, f: float = 0.0, scheme: str = "murmur3-v1"
) -> Params:
    return Params(num_bits=k, num_hashes=h, num_cohorts=m, prob_p=p, prob_q=q, prob_f=f, hash_scheme=scheme)


def reported(params: Params, seed: int, num_reports: int = 60_000, no_value: int = 6_000) -> Reports:
    """Simulated reports of one string with a quarter of the reports and of 40 others."""
    rng = np.random.default_rng(seed)
    rest = (num_reports - no_value) * 3 // 4
    population = {f"{seed}-{i}": rest // 40 for i in range(40)} | {f"{seed}-heavy": num_reports - no_value - rest}
    chunks = list(simulate_reports(Metric.string("x", params), population, rng, no_value=no_value))
    return Reports(params, *(np.concatenate(parts) for parts in zip(*chunks, strict=True)))


def relabeled(params: Params, reports: Reports) -> Reports:
    """The same reports with other declared parameters."""
    return Reports(params, reports.cohorts, reports.rows)


def collected(reports: Reports) -> PatternCounts | Reports:
    return reports.pattern_counts() if reports.metric.num_bits <= 10 else reports


def alarms(tests: tuple[FitTest, ...]) -> set[str]:
    return {test.name for test in tests if test.p_value < ALPHA}


def test_exact_mixture_has_chi_squared_zero() -> None:
    """8 bits, two hashes: 256 patterns minus 29 filters are 227 degrees of freedom."""
    table = FilterTable.from_params(string_params(p=0.25, q=0.75))
    # integers, because the probabilities are multiples of 4**-8
    expected = 4.0**8 * 1000 * table.mixture(np.linspace(0, 1, 29))
    shares = np.rint(expected).astype(np.int64)
    statistic, freedom = mixture_chi_squared(shares, table) or (np.nan, 0)
    assert freedom == 227
    assert statistic == pytest.approx(0, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["murmur3-v1", "google-md5"])
@pytest.mark.parametrize(("k", "f"), [(8, 0.0), (8, 0.45), (24, 0.0)])
def test_genuine_reports_raise_no_alarm(scheme: str, k: int, f: float, unseen_seed: int) -> None:
    """20 populations: fewer than two p-values below 1e-6; p-values of single tests are uniform (Kolmogorov, alpha = 1e-6).

    About 150 p-values: one alarm has probability 1.5e-4 under the null hypothesis, two indicate an error.
    """
    params = string_params(k, f=f, scheme=scheme)
    p_values: dict[str, list[float]] = {}
    for run in range(20):
        reports = reported(params, (unseen_seed + run) % (1 << 62), num_reports=20_000, no_value=2_000)
        for test in run_fit_tests(collected(reports)):
            p_values.setdefault(test.name, []).append(test.p_value)
    assert sum(value < ALPHA for values in p_values.values() for value in values) < 2
    for name, values in p_values.items():
        if name in ("patterns", "number_of_ones", "ones_by_cohort", "equal_cohorts", "coincident_hashes"):
            assert stats.kstest(values, "uniform").pvalue > ALPHA, name
    assert "number_of_ones" in p_values
    assert ("coincident_hashes" in p_values) == (scheme == "google-md5")


def test_rare_number_of_ones_does_not_fail_the_coincident_hash_test() -> None:
    """Regression: 1 report without ones, where 5 were expected, had five times the weight and gave p = 6e-7."""
    params = string_params(24, scheme="google-md5")
    genuine = reported(params, 50_000_001_591_719, num_reports=20_000, no_value=2_000)
    (p_value,) = (test.p_value for test in run_fit_tests(genuine) if test.name == "coincident_hashes")
    assert p_value > 0.01


def test_total_ones_tests_include_the_variance_of_the_share_with_a_value(unseen_seed: int) -> None:
    """Half of the reports have no value, 4 hashes, little noise: the variance of the number of ones is nine times that of the noise.

    25 p-values, alpha = 1e-6 over all of them.
    """
    params = string_params(k=24, h=4, p=0.05, q=0.95)
    for run in range(5):
        reports = reported(params, (unseen_seed + run) % (1 << 62), num_reports=20_000, no_value=10_000)
        assert min(test.p_value for test in run_fit_tests(reports)) > ALPHA / 25


@pytest.mark.parametrize(
    ("true", "claimed", "alarm"),
    [
        (string_params(), string_params(f=0.1), "number_of_ones"),
        (string_params(f=0.1), string_params(), "patterns"),
        (string_params(h=3), string_params(), "patterns"),
        (string_params(scheme="google-md5"), string_params(), "number_of_ones"),
        (string_params(), string_params(scheme="google-md5"), "coincident_hashes"),
        (string_params(k=24), string_params(k=24, q=0.74), "share_with_value"),
        (string_params(k=24, p=0.25, q=0.75), string_params(k=24, p=0.2, q=0.75), "share_with_value"),
    ],
    ids=["f too large", "f too small", "h", "md5 declared murmur", "murmur declared md5", "q", "p"],
)
def test_detects_wrong_parameters_and_another_hash_scheme(
    true: Params, claimed: Params, alarm: str, unseen_seed: int
) -> None:
    """500,000 reports: p < 1e-24 in each of 150 draws of the weakest case, at least six standard deviations below 1e-6."""
    reports = relabeled(claimed, reported(true, unseen_seed % (1 << 62), num_reports=500_000))
    assert alarm in alarms(run_fit_tests(collected(reports)))


@pytest.mark.parametrize("k", [8, 24])
@pytest.mark.parametrize("one_cohort", [False, True])
def test_detects_fabricated_reports(k: int, one_cohort: bool, unseen_seed: int) -> None:
    """0.5 % of the reports are all ones, all in cohort 0 or five in every cohort; the cohort test fails in the first case only."""
    genuine = reported(string_params(k), unseen_seed % (1 << 62))
    cohorts, rows = genuine.cohorts.copy(), genuine.rows.copy()
    order = np.random.default_rng(unseen_seed).permutation(len(rows))
    if one_cohort:
        fabricated = order[:320]
        cohorts[fabricated] = 0
    else:
        fabricated = np.concatenate([order[cohorts[order] == cohort][:5] for cohort in range(64)])
    rows[fabricated] = 255
    raised = alarms(run_fit_tests(collected(Reports(genuine.metric, cohorts, rows))))
    assert "number_of_ones" in raised
    assert ("ones_by_cohort" in raised) == one_cohort
    assert "number_of_ones" in alarms(run_fit_tests(Reports(genuine.metric, cohorts, rows).bit_counts()))


def test_detects_bits_that_are_never_set_from_bit_counts(unseen_seed: int) -> None:
    """The clients have 8 bits and the definition 16: the upper byte is noise without true ones."""
    eight = reported(string_params(8), unseen_seed % (1 << 62))
    noise = np.random.default_rng(unseen_seed).random((len(eight.rows), 8)) < 0.225
    rows = np.column_stack([eight.rows[:, 0], np.packbits(noise, axis=1, bitorder="little")[:, 0]])
    counts = Reports(string_params(16), eight.cohorts, rows).bit_counts()
    assert "even_bits" in alarms(run_fit_tests(counts))


def test_detects_an_oversized_cohort(unseen_seed: int) -> None:
    reports = reported(string_params(), unseen_seed % (1 << 62))
    cohorts = reports.cohorts.copy()
    cohorts[:600] = 5
    assert alarms(run_fit_tests(Reports(reports.metric, cohorts, reports.rows).bit_counts())) == {"equal_cohorts"}


def test_repeated_reports_of_the_same_clients_raise_no_alarm(unseen_seed: int) -> None:
    """30,000 clients, 8 periods, constant cohort and permanent response; declared as one period, the cohort test must fail.

    Its statistic is then 8 times a chi-squared with 63 degrees of freedom: p > 1e-6 once in 2e9 runs.
    """
    params = string_params(32, m=64, p=0.25, q=0.75, f=0.5)
    once = reported(
        replace(params, mechanism=UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5)),
        unseen_seed % (1 << 62),
        num_reports=30_000,
        no_value=3_000,
    )
    permanent = np.unpackbits(once.rows, axis=1, bitorder="little").astype(bool)
    rng = np.random.default_rng(unseen_seed)
    noise = [rng.random(permanent.shape) < np.where(permanent, 0.75, 0.25) for _ in range(8)]
    rows = np.concatenate([np.packbits(bits, axis=1, bitorder="little") for bits in noise])
    cohorts, days = np.tile(once.cohorts, 8), tuple(f"2024-06-0{day}" for day in range(1, 9))
    assert alarms(run_fit_tests(Reports(params, cohorts, rows, days))) == set()
    assert "equal_cohorts" in alarms(run_fit_tests(Reports(params, cohorts, rows)))


def test_decoding_reports_failed_fit_tests_with_a_remedy(unseen_seed: int) -> None:
    reports = reported(string_params(h=3), unseen_seed % (1 << 62))
    decoding = decode(relabeled(string_params(), reports), ["a", "b"])
    assert {"patterns", "number_of_ones", "equal_cohorts"} <= {test.name for test in decoding.fit_tests}
    assert any(
        "No set of values" in warning.text and "Compare num_bits" in warning.remedy for warning in decoding.warnings
    )
    by_name = {test["name"]: test for test in decoding.to_dict()["fit_tests"]}
    assert by_name["patterns"]["p_value"] < ALPHA
    assert by_name["patterns"]["degrees_of_freedom"] > 200  # 227 minus merged cells


def test_tests_without_enough_reports_are_skipped() -> None:
    few = BitCounts(string_params(), np.ones(64, int), np.zeros((64, 8), int))
    assert run_fit_tests(few) == ()
    for patterns in (np.zeros((64, 256), int), np.eye(64, 256, dtype=int)):  # no reports; one per cohort
        assert alarms(run_fit_tests(PatternCounts(string_params(), patterns))) == set()
    survey = Metric.boolean("from_jfk", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
    assert alarms(run_fit_tests(BitCounts(survey, [1000], [[400]]))) == set()
    categories = Metric.categorical(
        "os", ("linux", "macos", "windows"), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0)
    )
    counts = BitCounts(categories, [100_000], [[75_000, 75_000, 75_000]])  # every report has all three
    assert alarms(run_fit_tests(counts)) == {"share_with_value"}
