"""`compare`: changes between two samples, their intervals, and bad input."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from hubbub import Discovery, Metric, Params, UnaryResponse
from hubbub.errors import ParameterError, SummaryError
from hubbub.summary import BitCounts
from hubbub_decoder import CandidateError, compare, decode_each, simulate, simulate_two_periods
from hubbub_decoder.comparison.results import Comparison
from hubbub_decoder.documents.finding import Severity
from tests.support.every_kind import METRICS, VERSION

PARAMS = Params(num_bits=32, num_hashes=1, num_cohorts=32, prob_p=0.1, prob_q=0.9, permanent_p=0.1, permanent_q=0.5)
METRIC = Metric.string("homepage", PARAMS)
NAMES = [f"v{i}" for i in range(10)]
SURVEY = Metric.boolean("dark", UnaryResponse(prob_p=0.1, prob_q=0.9, prob_f=0.5))


def transitions(size: int, overlap: float, moved: int = 0) -> dict[tuple[str | None, str | None], int]:
    """`size` clients of each of ten values; a share `overlap` keeps its value, `moved` clients move from v0 to v1, the rest to the next but two."""
    pairs: dict[tuple[str | None, str | None], int] = {}
    for i, name in enumerate(NAMES):
        kept = round(overlap * size)
        pairs[name, name] = kept - moved * (i == 0)
        pairs[name, NAMES[(i + 3) % 10]] = size - kept
    pairs["v0", "v1"] = pairs.get(("v0", "v1"), 0) + moved
    return pairs


def counts(seed: int, overlap: float = 1.0, moved: int = 0) -> tuple[BitCounts, BitCounts]:
    return simulate_two_periods(METRIC, transitions(10_000, overlap, moved), np.random.default_rng(seed))


def test_change_of_a_moved_value_is_detected_with_its_sign(unseen_seed: int) -> None:
    """5 % of the clients move from v0 to v1: 10 standard errors."""
    comparison = compare(*counts(unseen_seed, moved=5_000), NAMES)
    assert {change.candidate for change in comparison.detected} >= {"v0", "v1"}
    for name, truth in (("v0", -0.05), ("v1", 0.05)):
        change = comparison[name]
        assert change.change == pytest.approx(truth, abs=6 * change.std_error)
        assert 0 < change.std_error < 0.006
        assert (change.low > 0) == (truth > 0)
        assert (change.high < 0) == (truth < 0)
        assert change.share_b - change.share_a == pytest.approx(change.change, abs=0.03)


def test_reversed_samples_give_reversed_changes(unseen_seed: int) -> None:
    a, b = counts(unseen_seed, moved=2_000)
    there, back = compare(a, b, NAMES), compare(b, a, NAMES)
    for name in NAMES:
        assert back[name].change == pytest.approx(-there[name].change, abs=1e-9)
        assert back[name].low == pytest.approx(-there[name].high, abs=1e-9)
        assert back[name].p_value == pytest.approx(there[name].p_value, rel=1e-6)
    assert back.overlap.estimate == pytest.approx(there.overlap.estimate, abs=1e-9)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_overlap_is_estimated_without_linking_clients(share: float, unseen_seed: int) -> None:
    """1,024 bits: within 6 standard errors, of at most .15, and the limits are one standard error away."""
    overlap = compare(*counts(unseen_seed, share), NAMES).overlap
    assert overlap.std_error < 0.15
    assert abs(overlap.estimate - share) < 6 * overlap.std_error
    if 0 < overlap.estimate < 1:  # at 1 it is cut, and the limits are those of the estimate before
        assert overlap.low == max(0.0, overlap.estimate - overlap.std_error)
        assert overlap.high == min(1.0, overlap.estimate + overlap.std_error)
    assert 0 <= overlap.low <= overlap.estimate <= overlap.high <= 1


@pytest.mark.slow
def test_error_shrinks_as_the_permanent_noise_of_the_same_clients_cancels(unseen_seed: int) -> None:
    """Variances at known s: 2 (V_irr + (1 - s) V_prr) / N, to 15 % for what shares of .1 and collisions add.

    They add 9 to 10 %. At s = 1 the estimated variance of unlisted strings adds a part that varies by 3.2 % between runs, so the mean of
    12 runs is compared. It is above 15 % with probability below 1e-6. Below s = 1 runs differ by less than .1 %.
    """
    a, b, p, q = (
        PARAMS.mechanism.permanent_q,
        PARAMS.mechanism.permanent_p,
        PARAMS.mechanism.prob_p,
        PARAMS.mechanism.prob_q,
    )
    v_prr = b * (1 - b) / (a - b) ** 2
    v_irr = (b * q * (1 - q) + (1 - b) * p * (1 - p)) / ((a - b) * (q - p)) ** 2
    pairs = [counts(unseen_seed + run, 1.0) for run in range(12)]
    absent = [*NAMES, *(f"no{i}" for i in range(20))]
    for s, runs in ((0.0, 1), (0.5, 1), (1.0, 12)):
        comparisons = [compare(*pair, absent, overlap=s) for pair in pairs[:runs]]
        variances = [comparison[f"no{i}"].std_error ** 2 for comparison in comparisons for i in range(20)]
        assert 100_000 * np.mean(variances) == pytest.approx(2 * (v_irr + (1 - s) * v_prr), rel=0.15)


def test_error_of_a_constant_unlisted_string_cancels(unseen_seed: int) -> None:
    """An unlisted string with 30 % of the reports: each share has its hashing error, .3 / sqrt(32 x 31) or more; the change has none."""
    people = transitions(5_000, 1.0) | {("heavy", "heavy"): 20_000}
    comparison = compare(*simulate_two_periods(METRIC, people, np.random.default_rng(unseen_seed)), NAMES)
    same = compare(*simulate_two_periods(METRIC, transitions(5_000, 1.0), np.random.default_rng(unseen_seed)), NAMES)
    ratio = np.mean([comparison[name].std_error / same[name].std_error for name in NAMES])
    assert ratio < 1.25 * math.sqrt(5 / 7)  # 70,000 clients instead of 50,000


def test_groups_of_one_period_have_different_clients(unseen_seed: int) -> None:
    a, b = counts(unseen_seed)
    a, b = (BitCounts(METRIC, summary.reports, summary.ones, ["2026-03-01"]) for summary in (a, b))
    comparison = compare(a, b, NAMES)
    assert not comparison.same_clients
    assert comparison.overlap.high == 0
    assert compare(*counts(unseen_seed), NAMES, same_clients=False)["v1"].std_error == pytest.approx(
        comparison["v1"].std_error
    )


def test_epochs_of_hold_share_no_permanent_noise(unseen_seed: int) -> None:
    """Weeks 1 and 2 are in epochs 0 and 1 of `hold` 2: a client that keeps its value has two independent responses."""
    weekly = Metric.string("homepage", PARAMS, period="week", hold=2)
    pair = simulate_two_periods(
        weekly, transitions(10_000, 1.0), np.random.default_rng(unseen_seed), periods=("1970-01-05", "1970-01-12")
    )
    ratio = compare(*pair, NAMES, overlap=1)["v1"].std_error / compare(*pair, NAMES, overlap=0)["v1"].std_error
    assert ratio == pytest.approx(1, abs=0.02)


def test_change_of_a_boolean_has_the_closed_form(unseen_seed: int) -> None:
    pair = simulate_two_periods(
        SURVEY,
        {("true", "true"): 300, ("false", "false"): 600, ("false", "true"): 100},
        np.random.default_rng(unseen_seed),
    )
    comparison = compare(*pair)
    before, after = ((summary.ones[0, 0] / 1000 - 0.3) / 0.4 for summary in pair)
    assert comparison["true"].change == pytest.approx(after - before)
    assert comparison["true"].std_error == pytest.approx(math.sqrt(2 * 0.3 * 0.7 / 1000) / 0.4)
    permanent = 0.8**2 * 0.25 * 0.75
    assert compare(*pair, overlap=0.5)["true"].std_error == pytest.approx(
        math.sqrt((2 * 0.21 - permanent) / 1000) / 0.4
    )
    assert comparison.overlap.low == 0
    assert math.isnan(comparison.overlap.estimate)


def test_many_candidates_have_changes_of_both_signs(unseen_seed: int) -> None:
    """700 candidates for 1,024 bits: message passing."""
    names = [*NAMES, *(f"no{i}" for i in range(690))]
    comparison = compare(*counts(unseen_seed, moved=5_000), names)
    for name, truth in (("v0", -0.05), ("v1", 0.05)):
        assert comparison[name].detected
        assert comparison[name].change == pytest.approx(truth, abs=6 * comparison[name].std_error)
    overlap = comparison.overlap
    assert abs(overlap.estimate - 1) < 6 * overlap.std_error


def test_no_value_and_totals_change(unseen_seed: int) -> None:
    people: Mapping[tuple[str | None, str | None], int] = transitions(9_000, 1.0) | {("v0", None): 10_000}
    totals = {
        row.candidate: row
        for row in compare(*simulate_two_periods(METRIC, people, np.random.default_rng(unseen_seed)), NAMES).totals
    }
    assert totals["no_value"].change == pytest.approx(0.1, abs=6 * totals["no_value"].std_error)
    assert totals["listed_total"].change == pytest.approx(-0.1, abs=6 * totals["listed_total"].std_error)


def test_comparison_is_saved_and_printed_as_json(tmp_path: Path) -> None:
    comparison = compare(*counts(1, moved=5_000), NAMES)
    comparison.save(tmp_path / "changes.json")
    stored = json.loads((tmp_path / "changes.json").read_text())
    assert stored == json.loads(json.dumps(comparison.to_dict()))
    assert stored["changes"][0]["detected"] is True
    comparison.save(tmp_path / "changes.csv")
    lines = (tmp_path / "changes.csv").read_text().splitlines()
    assert lines[0].startswith("candidate,share_a,share_b,change,")
    assert len(lines) == 11
    assert isinstance(comparison, Comparison)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"overlap": 1.5}, "overlap must be a number"),
        ({"overlap": True}, "overlap must be a number"),
        ({"same_clients": None}, "same_clients must be True or False"),
        ({"overlap": 0.5, "same_clients": False}, "no client is in both"),
        ({"confidence": 1}, "confidence must be"),
        ({"target": "all"}, "target must be"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, object], problem: str) -> None:
    with pytest.raises((SummaryError, ParameterError), match=problem):
        compare(*counts(1), NAMES, **arguments)  # type: ignore[arg-type]


def test_samples_that_cannot_be_compared_are_refused() -> None:
    a, b = counts(1)
    with pytest.raises(SummaryError, match="different definitions"):
        compare(a, BitCounts.empty(SURVEY) + BitCounts(SURVEY, [10], [[4]]), NAMES)
    with pytest.raises(SummaryError, match="b holds no report"):
        compare(a, BitCounts.empty(METRIC), NAMES)
    with pytest.raises(SummaryError, match="a has no summary"):
        compare([], b, NAMES)
    with pytest.raises(SummaryError, match="b must be BitCounts"):
        compare(a, "b.parquet", NAMES)  # type: ignore[arg-type]
    with pytest.raises(CandidateError, match="candidates"):
        compare(a, b)
    march = BitCounts(METRIC, a.reports, a.ones, ["2026-03-01", "2026-03-02"])
    with pytest.raises(SummaryError, match="1 common periods"):
        compare(march, BitCounts(METRIC, b.reports, b.ones, ["2026-03-02"]), NAMES)
    ones, reports = np.zeros((2, 32, 32), int), np.zeros((2, 32), int)
    reports[0, 0] = reports[1, 1] = 10
    with pytest.raises(SummaryError, match="no cohort has reports in both"):
        compare(BitCounts(METRIC, reports[0], ones[0]), BitCounts(METRIC, reports[1], ones[1]), NAMES)


def test_strings_to_discover_are_compared_by_whole_values_alone(unseen_seed: int) -> None:
    """Other clients report prefixes, whose bits say nothing of a candidate: at 1 - 1e-6, the intervals hold the changes of 40 points."""
    metric = Metric.string("words", replace(PARAMS, num_cohorts=128), discover=Discovery(longest=8))
    rng, before, after = (
        np.random.default_rng(unseen_seed),
        {"start": 60_000, "mail": 20_000},
        {"start": 28_000, "mail": 52_000},
    )
    a, b = (
        simulate(metric, clients, rng, periods=[day])
        for clients, day in ((before, "2026-03-02"), (after, "2026-03-03"))
    )
    for found in (
        compare(a, b, ["start", "mail"], confidence=1 - 1e-6),
        decode_each([a, b], ["start", "mail"], confidence=1 - 1e-6).overall,
    ):
        assert found is not None
        for name, change in {"start": -0.4, "mail": 0.4}.items():
            assert found[name].low <= change <= found[name].high
            assert found[name].detected


EQUAL = [
    (metric, bits)
    for metric in METRICS
    if metric.name not in ("words", "size", "os_and_page", "theme_and_page")
    for bits in ("simulated", "none", "all")
    if bits == "simulated" or isinstance(metric.params.mechanism, UnaryResponse)
]
"""A metric of each kind that `compare` takes, but `words`, which would take seconds; rows of other mechanisms all have the same number of ones."""


def counts_of(metric: Metric, bits: str, seed: int) -> BitCounts:
    """Counts of simulated clients, or where no bit or each bit is one in all reports."""
    if bits == "simulated":
        people = dict.fromkeys(metric.kind.named_values or ("u", "v"), 500)
        return simulate(metric, people, np.random.default_rng(seed)).bit_counts()
    reports = np.full(metric.num_cohorts, 40)
    return BitCounts(metric, reports, np.tile(reports[:, None] * (bits == "all"), metric.num_bits))


@pytest.mark.parametrize(("metric", "bits"), EQUAL, ids=lambda value: getattr(value, "name", value))
def test_equal_counts_have_a_change_of_0_with_its_interval(metric: Metric, bits: str, unseen_seed: int) -> None:
    """Of two periods; also where all clients are in both, and nothing of their permanent noise is left."""
    counted = counts_of(metric, bits, unseen_seed)
    names = None if metric.kind.named_values else ["u", "v", "w"]
    a, b = (replace(counted, periods=(day,)) for day in ("2026-03-02", "2026-03-30"))
    for overlap in (None, 1.0):
        comparison = compare(a, b, names, overlap=overlap)
        for change in (*comparison.changes, *comparison.totals):
            assert change.change == 0
            assert change.low == -change.high
            assert change.high >= 0
            assert not change.detected
        assert all(change.p_value == 1 for change in comparison)
        assert any(change.high > 0 for change in comparison)
        assert "repeated_inputs" not in {warning.kind for warning in comparison.warnings}


@pytest.mark.parametrize("bits", ["simulated", "none", "all"])
def test_equal_counts_have_no_change_of_many_candidates(bits: str, unseen_seed: int) -> None:
    """700 candidates for 1,024 bits: message passing, which leaves rounding errors."""
    counted = counts(unseen_seed)[0] if bits == "simulated" else counts_of(METRIC, bits, unseen_seed)
    a, b = (replace(counted, periods=(day,)) for day in ("2026-03-02", "2026-03-30"))
    comparison = compare(a, b, [*NAMES, *(f"no{i}" for i in range(690))])
    for change in (*comparison.changes, *comparison.totals):
        assert change.change == pytest.approx(0, abs=1e-9)
        assert change.low < 0 < change.high
        assert not change.detected


def test_equal_counts_of_two_groups_have_a_change_of_0() -> None:
    metric = replace(SURVEY, group=VERSION)
    a, b = (BitCounts(metric.in_group(value), [10], [[4]], ["2026-03-02"]) for value in VERSION.values[:2])
    comparison = compare(a, b)
    error = math.sqrt(2 * 0.3 * 0.7 / 10) / 0.4
    assert comparison["true"].change == 0
    assert comparison["true"].high == pytest.approx(norm.isf(0.025) * error)
    assert "repeated_inputs" not in {warning.kind for warning in comparison.warnings}


@pytest.mark.parametrize(
    ("periods", "is_warned"),
    [
        (("2026-03-02", "2026-03-02"), True),
        ((None, None), True),
        (("2026-03-02", None), True),
        (("2026-03-02", "2026-03-03"), False),
    ],
)
def test_the_same_counts_twice_are_a_problem(periods: tuple[str | None, ...], is_warned: bool) -> None:
    """Unless two periods tell them apart."""
    a, b = (BitCounts(SURVEY, [10], [[4]], [period] if period else []) for period in periods)
    problems = [warning for warning in compare(a, b).warnings if warning.severity is Severity.PROBLEM]
    assert [problem.kind for problem in problems] == ["repeated_inputs"] * is_warned
