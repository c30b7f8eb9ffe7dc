"""Plausibility tests: no alarm for genuine reports, and detection of fabricated reports."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from hubbub import Metric, Params
from hubbub.encoding.encoder import Encoder
from hubbub.encoding.secret import Secret
from hubbub.summary import BitCounts, PatternCounts, summary_to_bytes
from hubbub.summary.counting import CountProfile
from hubbub.summary.plausibility import (
    TAIL_PROBABILITY,
    binned_distributions,
    divergence,
    find_implausible,
    log_divergence_bound,
    log_extremes_bound,
    ones_distributions,
    plausible_ones,
)
from hubbub.summary.summary_file import read_count_profile

Counts = NDArray[np.int64]


def bloom(k: int, h: int, m: int = 64, p: float = 0.25, q: float = 0.75, f: float = 0.5) -> Params:
    return Params(num_bits=k, num_hashes=h, num_cohorts=m, prob_p=p, prob_q=q, prob_f=f)


CROWDS = [
    bloom(128, 2, p=0.5),
    bloom(64, 1, f=0.25),
    bloom(16, 2, m=16),
    bloom(256, 16),
    bloom(32, 2, p=0, q=1),
    bloom(24, 2, p=0, q=1, f=0),
    Params.one_hot(5, prob_p=0.25, prob_q=0.75, prob_f=0.5),
    Params.one_hot(1, prob_p=0, prob_q=1, prob_f=0.5),
    bloom(32, 2, p=0.75, q=0.25),  # as imported reports may be
]


def honest(params: Params, n: int, rng: np.random.Generator, num_periods: int = 1) -> CountProfile:
    """Draw the profile of n clients with a mixture of numbers of true bits."""
    values = rng.dirichlet(np.full(params.num_hashes + 1, 0.5))
    people = rng.multinomial(n, values)
    ones_histogram = sum(
        rng.multinomial(n, shape) for n, shape in zip(people, ones_distributions(params.blocks), strict=True)
    )
    cohorts = rng.multinomial(n, np.full(params.num_cohorts, 1 / params.num_cohorts))
    return CountProfile(cohorts, np.asarray(ones_histogram), num_periods)


def kinds(params: Params, profile: CountProfile) -> set[str]:
    return {oddity.kind for oddity in find_implausible(params.blocks, profile)}


def poisoned(profile: CountProfile, ones: int, reports: int) -> CountProfile:
    assert profile.ones_histogram is not None
    ones_histogram = profile.ones_histogram.copy()
    ones_histogram[ones] += reports
    m = len(profile.reports)
    return CountProfile(profile.reports + reports // m, ones_histogram, profile.num_periods)


@pytest.mark.parametrize("params", CROWDS)
def test_genuine_reports_of_any_number_and_values_are_plausible(params: Params, unseen_seed: int) -> None:
    """9 x 100 groups. The test of extremes has the tightest bound; this test fails in one of 500,000 runs."""
    rng = np.random.default_rng(unseen_seed)
    sizes = [1, 2, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 1_000_000_000]
    assert [kinds(params, honest(params, n, rng)) for n in sizes * 10] == [set()] * 100


@pytest.mark.parametrize(
    ("params", "ones", "reports"),
    [
        (bloom(128, 2, p=0.5), 128, 5),
        (bloom(128, 2, p=0.5), 0, 5),
        (bloom(64, 1, f=0.25), 64, 5),
        (bloom(16, 2, m=16), 16, 80),
        (Params.one_hot(5, prob_p=0.25, prob_q=0.75, prob_f=0.5), 5, 1_800),
        (bloom(128, 2, p=0.5), 82, 3_500),  # two standard deviations above the mean
    ],
)
def test_detects_fabricated_reports_among_a_million(params: Params, ones: int, reports: int, unseen_seed: int) -> None:
    """About twice the number of docs/how-to/fabricated-reports.md: missed with probability below 1e-6."""
    crowd = honest(params, 1_000_000, np.random.default_rng(unseen_seed))
    assert kinds(params, poisoned(crowd, ones, reports)) & {"extreme", "shape"}


def test_fabricated_reports_with_genuine_noise_are_not_detected(unseen_seed: int) -> None:
    """Limit of the tests: fabricated reports with the noise of a client cannot be distinguished from genuine ones."""
    params = bloom(128, 2)
    rng = np.random.default_rng(unseen_seed)
    crowd, forged = honest(params, 100_000, rng), rng.multinomial(50_000, ones_distributions(params.blocks)[-1])
    assert crowd.ones_histogram is not None
    assert kinds(params, CountProfile(crowd.reports, crowd.ones_histogram + forged, 1)) == set()


def test_detects_cohorts_that_are_not_uniform(unseen_seed: int) -> None:
    params = bloom(64, 1)
    crowd = honest(params, 100_000, np.random.default_rng(unseen_seed))
    stuck = crowd.reports.copy()
    stuck[7] *= 2
    assert kinds(params, CountProfile(stuck, None, 1)) == {"cohorts"}


def test_same_clients_in_many_periods_are_plausible(unseen_seed: int) -> None:
    """30 days of the same clients repeat the cohorts of one day 30 times."""
    params = bloom(64, 1)
    one_day = honest(params, 20_000, np.random.default_rng(unseen_seed))
    assert one_day.ones_histogram is not None
    month = CountProfile(30 * one_day.reports, 30 * one_day.ones_histogram, 30)
    assert kinds(params, month) == set()
    assert kinds(params, CountProfile(month.reports, month.ones_histogram, 1)) == {"shape", "cohorts"}


@pytest.mark.parametrize("params", CROWDS)
def test_ones_distributions_are_sums_of_two_binomials_with_rare_tails(params: Params) -> None:
    k, ones = params.num_bits, np.arange(params.num_bits + 1)
    for a, shape in enumerate(ones_distributions(params.blocks)):
        assert shape.sum() == pytest.approx(1, abs=1e-12)
        assert shape @ ones == pytest.approx((k - a) * params.mechanism.p_star + a * params.mechanism.q_star)
        low, high = plausible_ones(params.blocks)
        assert shape[:low].sum() + shape[high + 1 :].sum() < TAIL_PROBABILITY
    assert ones_distributions(params.blocks)[0] == pytest.approx(
        stats.binom.pmf(ones, k, params.mechanism.p_star), abs=1e-13
    )
    assert binned_distributions(params.blocks)[0].sum(axis=1) == pytest.approx(1)


@pytest.mark.parametrize("fits", [True, False], ids=["genuine", "forged"])
@pytest.mark.parametrize("params", CROWDS)
def test_divergence_is_minimal_and_never_overstated(params: Params, fits: bool, unseen_seed: int) -> None:
    """At most the divergence of the true mixture and of many others, and at most .1 less than the least divergence.

    After steps of expectation maximization from any mixture, n (largest derivative - 1) bounds how far the least divergence is away.
    """
    rng = np.random.default_rng(unseen_seed)
    shapes, starts = binned_distributions(params.blocks)
    for n in (1_000, 1_000_000):
        truth = rng.dirichlet(np.full(len(shapes), 0.5))
        chances = truth @ shapes if fits else rng.dirichlet(np.ones(shapes.shape[1]))
        counts = rng.multinomial(n, chances / chances.sum())
        found = divergence(counts, shapes)
        there = counts > 0
        share, seen = counts[there] / n, shapes[:, there]
        mixtures = [truth, *rng.dirichlet(np.ones(len(shapes)), 50)]
        if not (np.mean(mixtures, axis=0) @ seen).all():
            assert found == math.inf
            continue
        weights = np.mean(mixtures, axis=0)
        for _ in range(2_000):
            weights *= seen @ (share / (weights @ seen))
        distance = n * (float((seen @ (share / (weights @ seen))).max()) - 1)
        with np.errstate(divide="ignore"):
            apart = [float(n * share @ np.log(share / (w @ seen))) for w in (weights, *mixtures)]
        assert 0 <= found <= min(apart) + 1e-6
        assert found >= apart[0] - distance - 0.1 - 1e-6
    assert len(starts) == shapes.shape[1]


def test_divergence_bound_is_above_the_exact_probability() -> None:
    """Enumerates all outcomes of n = 30 reports in 3 bins."""
    n, shape = 30, np.array([0.5, 0.3, 0.2])
    outcomes = [np.array([a, b, n - a - b]) for a in range(n + 1) for b in range(n + 1 - a)]
    chances = stats.multinomial.pmf(outcomes, n, shape)
    apart = np.array([divergence(outcome, shape[None]) for outcome in outcomes])
    for distance in (2.5, 4, 8, 16, 25):
        exact = chances[apart >= distance - 1e-9].sum()
        assert math.log(exact) <= log_divergence_bound(distance, 3) + 1e-9


def test_extremes_bound_is_above_the_exact_probability() -> None:
    for n, chance in ((10, 0.01), (1_000_000, 1e-9), (10**9, 1e-9)):
        for count in (1, 2, 3, 10):
            assert stats.binom.logsf(count - 1, n, chance) <= log_extremes_bound(count, n * chance) + 1e-9


@given(st.lists(st.integers(0, 2**13 - 1), max_size=30), st.integers(0, 30))
def test_ones_histogram_counts_reports_and_adds(patterns: list[int], cut: int) -> None:
    metric = Metric.string("m", bloom(13, 2, m=1))
    rows = [pattern.to_bytes(2, "little") for pattern in patterns]
    counted = [BitCounts.from_rows(metric, bytes(len(part)), b"".join(part)) for part in (rows[:cut], rows[cut:])]
    whole = counted[0] + counted[1]
    assert whole.ones_histogram is not None
    assert whole.ones_histogram.tolist() == [sum(p.bit_count() == j for p in patterns) for j in range(14)]
    both = (whole, PatternCounts.from_rows(metric, bytes(len(rows)), b"".join(rows)))
    for profile in (
        *(summary.count_profile() for summary in both),
        *(read_count_profile(summary_to_bytes(summary)) for summary in both),
    ):
        assert profile.ones_histogram is not None
        assert profile.ones_histogram.tolist() == whole.ones_histogram.tolist()
        assert profile.reports.tolist() == [len(patterns)]


@pytest.mark.parametrize("k", [8, 24, 32, 40, 128, 1024])
def test_ones_histogram_for_any_row_width(k: int) -> None:
    rows = np.random.default_rng(k).integers(0, 256, (50, k // 8), np.uint8)
    counts = BitCounts.from_rows(bloom(k, 2, m=1), bytes(50), rows.tobytes())
    assert counts.ones_histogram is not None
    assert (
        counts.ones_histogram.tolist() == np.bincount(np.unpackbits(rows, axis=1).sum(axis=1), minlength=k + 1).tolist()
    )


def test_unknown_ones_histogram_stays_unknown() -> None:
    params = bloom(16, 2, m=1)
    imported = BitCounts(params, [3], [[1] * 16])
    assert (imported + BitCounts.empty(params)).ones_histogram is None
    assert kinds(params, imported.count_profile()) == set()


def test_reports_of_real_encoders_are_plausible() -> None:
    """Reports of 4,000 encoders, half of them without a value."""
    metric = Metric.string("homepage", bloom(32, 2, m=8))
    encoders = [Encoder(metric, Secret.generate()) for _ in range(4_000)]
    reports = [encoder.encode(None if i % 2 else "a") for i, encoder in enumerate(encoders)]
    counts = BitCounts.from_reports(metric, reports)
    assert find_implausible(metric.blocks, counts.count_profile()) == ()
