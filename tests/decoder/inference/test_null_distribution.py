"""Null distribution: against enumeration, and with a frequent unlisted string."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy.stats import binom, norm

from hubbub import Metric, Params
from hubbub.summary import BitCounts, PatternCounts
from hubbub_decoder import decode
from hubbub_decoder.data.populations import distribution_shares, draw_population
from hubbub_decoder.inference.null_distribution import NullDistribution, collision_p_value
from hubbub_decoder.simulation import simulate

ALPHA = 1e-6


def test_null_distribution_sums_one_draw_from_each_cohort() -> None:
    """Four cohorts of five filters, all 625 strings gone through; below 1.6 % (10 strings) no lighter than a normal tail."""
    rng = np.random.default_rng(7)
    chances = np.array([0.1, 0.3, 0.2, 0.15, 0.25])
    scores = [4 * (score - chances @ score) for score in rng.normal(size=(4, 5))]
    law = NullDistribution.from_scores(scores, chances)
    sums = np.array([sum(picked) for picked in product(*scores)])
    likely = np.array([math.prod(picked) for picked in product(chances, repeat=4)])
    sums /= math.sqrt(likely @ sums**2)
    for z in np.quantile(sums, [0.3, 0.7, 0.95, 0.99]):
        exact = likely[sums >= z - 1e-9].sum() - likely[np.isclose(sums, z)].sum() / 2
        assert law.tail(np.array(z)) == pytest.approx(max(exact, min(norm.sf(z), 0.016)), abs=5e-3)


def test_sums_beyond_the_grid_stay_at_its_end() -> None:
    """Against a walk of 64 steps, each cut to the grid; so many cohorts have no cap."""
    law = {0.0: 1.0}
    for _ in range(64):
        moved: dict[float, float] = {}
        for place, chance in law.items():
            for step, part in ((-10.0, 0.5), (10.0, 0.25), (20.0, 0.25)):
                end = min(max(place + step, -40.0), 40.0)
                moved[end] = moved.get(end, 0.0) + chance * part
        law = moved
    scores = [np.array([-10.0, 10.0, 20.0])] * 64
    for total in (-45.0, -35.0, -5.0, 15.0, 35.0):
        p = collision_p_value([total / 64] * 64, scores, 1e-3, np.array([0.5, 0.25, 0.25]))
        assert p == pytest.approx(sum(chance for place, chance in law.items() if place >= total), rel=1e-9)


def test_null_distribution_has_variance_one(unseen_seed: int) -> None:
    """Scores of any size, fine and coarse beside the grid: the middle of many small ones is normal."""
    rng = np.random.default_rng(unseen_seed)
    for size in (1e-6, 0.03, 5.0):
        scores = size * rng.normal(size=(100, 200))
        law = NullDistribution.from_scores(scores - scores.mean(axis=1, keepdims=True))
        for p in (0.4, 0.1, 0.025):
            assert law.quantile(p) == pytest.approx(norm.isf(p), abs=0.03)


def test_null_distribution_of_equal_scores_is_normal() -> None:
    law = NullDistribution.from_scores([np.zeros(5), np.full(5, 0.3), np.nextafter(np.full(5, 0.7), np.arange(5.0))])
    assert law.quantile(0.025) == law.quantile(0.025, -1) == pytest.approx(1.959964, abs=1e-4)
    assert law.tail(np.array([2.0, np.nan, np.inf])).tolist() == pytest.approx([norm.sf(2), np.nan, 0], nan_ok=True)


def test_rare_large_score_lengthens_the_upper_tail_and_shortens_the_lower() -> None:
    """In each of 8 cohorts, one string in fifty has an error of 4.9, the others of -.1."""
    law = NullDistribution.from_scores([np.array([-0.1] * 49 + [4.9])] * 8)
    spread = math.sqrt(8 * 0.02 * 0.98 * 25)
    assert law.quantile(0.1) == pytest.approx((4.9 - 0.7) / spread, abs=0.05)
    assert law.quantile(0.1, -1) == pytest.approx(0.8 / spread, abs=0.05)
    assert law.quantile(1e-6) > norm.isf(1e-6)
    assert law.quantile(1e-6, -1) == pytest.approx(norm.isf(1e-6), abs=0.01)


def test_tail_of_few_strings_is_not_lighter_than_a_normal_one() -> None:
    """One cohort of eight filters: all tails below 1/2; two cohorts of 40: only those below 1 %."""
    one = NullDistribution.from_scores([np.array([-1.0, 1.0] * 4)])
    assert one.quantile(0.025) == pytest.approx(norm.isf(0.025), abs=0.01)
    two = NullDistribution.from_scores([np.array([-1.0, 1.0] * 20)] * 2)
    assert two.quantile(0.025) == pytest.approx(math.sqrt(2), abs=0.05)
    assert two.quantile(0.005) == pytest.approx(norm.isf(0.005), abs=0.01)


def test_collision_p_value_caps_the_part_of_a_cohort() -> None:
    """Five cohorts of five filters, all 3,125 strings: the share of strings with a capped sum of at least the candidate's."""
    rng = np.random.default_rng(8)
    chances = np.array([0.1, 0.3, 0.2, 0.15, 0.25])
    scores = [np.round(rng.normal(size=5) * 30) / 50 for _ in range(5)]
    strings = np.array(list(product(*scores)))
    likely = np.array([math.prod(picked) for picked in product(chances, repeat=5)])
    for own in ([0.8, 0.5, 0.4, 0.2, 0.6], [0.1, 3.0, 0.2, 0.3, 0.0], [0.4, 0.4, 0.4, 0.4, 0.4]):
        cap = np.mean(sorted(own)[1:-1]) + 1.5 / math.sqrt(5)
        capped = np.minimum(strings, cap).sum(axis=1)
        total = np.minimum(own, cap).sum()
        chance = collision_p_value(own, scores, 1e-12, chances)
        assert likely[capped >= total + 0.1].sum() - 1e-9 <= chance <= likely[capped >= total - 0.1].sum() + 1e-9


def test_collision_p_value_is_large_for_scores_in_two_of_four_cohorts() -> None:
    """Two collisions in four cohorts, once in 136 strings, times the tail of the other two: 0.6, standard error 1/sqrt(2)."""
    quiet = [np.array([0.01, -0.01])] * 4
    chance = collision_p_value([3.3, 0.2, 3.1, 0.4], quiet, 1 / 28)
    assert chance == pytest.approx(binom.sf(1, 4, 1 / 28) * norm.sf(0.6 * math.sqrt(2)), rel=1e-9)
    assert collision_p_value([1.7, 1.8, 1.7, 1.8], quiet, 1 / 28) < chance / 30


def test_collision_p_value_compares_the_sum_with_many_cohorts() -> None:
    """One of 3 filters scores .5, so the sum of a string is binomial.

    Three cohorts of score 4 give a sum of 12 with 64 cohorts; with 63 cohorts the three are capped.
    """
    scores = [np.array([0.5, 0.0, 0.0])] * 64
    own = [4.0] * 3 + [0.0] * 61
    assert collision_p_value(own, scores, 1 / 28) == pytest.approx(binom.sf(23, 64, 1 / 3), rel=1e-6)
    assert collision_p_value(own[:63], scores[:63], 1 / 28) > 0.9


def test_collision_p_value_ignores_cohorts_without_reports() -> None:
    scores = [np.array([2.0, -0.2, -0.1, 0.3])] * 4
    own = [0.9, 1.1, 1.0, 1.0]
    assert collision_p_value([*own, 0.0], [*scores, np.zeros(4)], 0.1) == collision_p_value(own, scores, 0.1)


@pytest.mark.slow
def test_detects_present_candidates_beside_a_frequent_unlisted_string(unseen_seed: int) -> None:
    """14 % of the reports carry the candidate, a third carry no candidate; 400 candidates are absent; 8 cohorts.

    It was detected in 40 of 40 runs. So the probability is at least .9, and fewer than 6 of 14 have probability 2e-6.
    With the plain sum of the cohorts' scores it was detected in one run of 6.
    """
    rng = np.random.default_rng(unseen_seed)
    params = Params(num_bits=8, num_hashes=2, num_cohorts=8, prob_p=0.25, prob_q=0.75, prob_f=0.25)
    metric, found = Metric.string("m", params), 0
    for run in range(14):
        shares = {f"{run} {name}": share for name, share in distribution_shares("zipf1.5", 50).items()}
        counts = simulate(metric, draw_population(shares, 90_000, rng), rng, no_value=10_000, form=PatternCounts)
        candidates = [*list(shares)[1:], *(f"{run} nobody {i}" for i in range(400))]
        found += bool(decode(counts, candidates)[f"{run} v2"].detected)
    assert found >= 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "cohorts", "runs"), [("patterns", 16, 20), ("bits", 8, 24)], ids=["whole patterns", "bits"]
)
def test_frequent_unlisted_string_causes_few_false_discoveries(
    kind: str, cohorts: int, runs: int, unseen_seed: int
) -> None:
    """More than a third of the reports carry an unlisted string; 400 candidates are absent.

    Of these at most .015 have p < .01, and at least .93 are covered; alpha = 1e-6 each, by the spread between populations.
    A warning names the missing string. With a normal null distribution .068 (patterns) and .024 (bits) had p < .01, and .88 and .95
    were covered.
    """
    rng = np.random.default_rng(unseen_seed)
    k = 8 if kind == "patterns" else 64
    params = Params(num_bits=k, num_hashes=2, num_cohorts=cohorts, prob_p=0.25, prob_q=0.75, prob_f=0.25)
    metric, form = Metric.string("m", params), PatternCounts if k == 8 else BitCounts
    small, covered, warned = [], [], 0
    for run in range(runs):
        shares = {f"{run} {name}": share for name, share in distribution_shares("zipf1.5", 50).items()}
        counts = simulate(metric, draw_population(shares, 90_000, rng), rng, form=form, no_value=10_000)
        absent = {f"{run} nobody {i}" for i in range(400)}
        decoding = decode(counts, [*list(shares)[1:], *absent])
        null = [e for e in decoding.estimates if e.candidate in absent and not math.isnan(e.share)]
        small.append(float(np.mean([e.p_value < 0.01 for e in null])))
        covered.append(float(np.mean([e.low <= 0 <= e.high for e in null])))
        warned += any(warning.kind == "unlisted_strings" for warning in decoding.warnings)

    def reach(values: list[float]) -> float:
        return float(norm.isf(ALPHA) * np.std(values, ddof=1) / math.sqrt(runs))

    assert np.mean(small) <= 0.015 + reach(small)
    assert np.mean(covered) >= 0.93 - reach(covered)
    assert warned > 0.9 * runs
