"""Null distribution: against enumeration, and with a frequent unlisted string."""

from __future__ import annotations

import math
from itertools import combinations, combinations_with_replacement, product

import numpy as np
import pytest
from scipy.stats import binom, norm

from hubbub import Metric, Params
from hubbub.summary import BitCounts, PatternCounts
from hubbub_decoder import decode
from hubbub_decoder.data.populations import distribution_shares, draw_population
from hubbub_decoder.inference.null_distribution import NullDistribution, collision_p_value, sum_tail
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


def test_collision_p_value_is_the_tail_of_the_whole_sum_however_large_it_is() -> None:
    """64 cohorts, so without a cap: sums from -640 to 1,280, standard deviation 99, up to the rounding of 64 scores (0.02 of it each)."""
    law = np.ones(1)
    for _ in range(64):
        law = np.convolve(law, [0.5, 0, 0.25, 0.25])  # -10, 10, 20
    scores = [np.array([-10.0, 10.0, 20.0])] * 64
    sums = np.arange(-640, 1281, 10)
    for total in (-45.0, -5.0, 35.0, 205.0, 705.0, 1275.0):
        p = collision_p_value([total / 64] * 64, scores, 1e-200, np.array([0.5, 0.25, 0.25]))
        assert law[sums >= total + 20].sum() <= p <= law[sums >= total - 20].sum()


@pytest.mark.parametrize(("num_bits", "num_hashes"), [(16, 1), (8, 2), (10, 3)])
@pytest.mark.parametrize("cohorts", [3, 16, 256])
def test_p_value_of_a_present_candidate_is_that_of_its_bits(num_bits: int, num_hashes: int, cohorts: int) -> None:
    """Without noise only the same bits in all cohorts reach its sum, whether that is 30 or 1e8 standard errors."""
    filters = np.array(
        [np.isin(np.arange(num_bits), bits) for bits in combinations(range(num_bits), num_hashes)], float
    )
    overlap = filters @ filters[0] - num_hashes**2 / num_bits
    for z in (30, 1e3, 1e5, 1e8):
        score = z / cohorts / overlap[0] * overlap
        p = collision_p_value([z / cohorts] * cohorts, [score] * cohorts, 1 / len(filters))
        assert p == pytest.approx(float(len(filters)) ** -cohorts, rel=1e-6)


def test_p_values_of_random_strings_keep_each_level_down_to_one_string(unseen_seed: int) -> None:
    """Three cohorts of 16 filters, one to three strings dominate in no order: P(p <= level) of all 4,096 strings, at every level that occurs.

    The law of the sum keeps each level exactly. The cap depends on the string that is tested, which costs at most a tenth here.
    """
    rng = np.random.default_rng(unseen_seed)
    for heights in ([], [30], [3e2, 2e2], [1e5, 1e4, 1e3]):
        scores = rng.normal(size=(3, 16))
        for height in heights:
            scores[np.arange(3), rng.integers(16, size=3)] += height
        scores -= scores.mean(axis=1, keepdims=True)
        scores /= math.sqrt(scores.var(axis=1).sum())
        own = np.array([list(combination) for combination in product(*scores)])
        exact = np.sort([sum_tail(z, [*scores], None) for z in own])
        assert (exact >= np.arange(1, 4097) / 4096 * (1 - 1e-9)).all()
        p = np.sort([collision_p_value(z, [*scores], 1 / 16) for z in own])
        assert (p >= np.arange(1, 4097) / 4096 / 1.1).all()


@pytest.mark.parametrize(("first", "second"), [(50.0, 0.0), (1e4, 1e3), (1e4, 5e3), (1e4, 9e3)])
@pytest.mark.parametrize("cohorts", [4, 8, 16])
def test_p_values_of_random_strings_keep_levels_far_below_one_in_a_million(
    first: float, second: float, cohorts: int
) -> None:
    """16 bits and one or two reported strings, so a random string's score in a cohort has one of three values.

    All 3**m combinations are counted by their multiplicity. The law of the sum keeps each level exactly. The cap depends on the string that is
    tested; where two strings are nearly as frequent, this costs up to a factor of 2.1 (at 1e-9 in 8 cohorts).
    """
    chances = np.array([1 / 16, 1 / 16, 14 / 16])
    score = np.array([first, second, 0.0]) - (first + second) / 16
    score /= math.sqrt(cohorts * chances @ score**2)
    tails, found, likely = [], [], []
    for numbers in combinations_with_replacement(range(3), cohorts):
        counts, own = np.bincount(numbers, minlength=3), score[[*numbers]]
        likely.append(math.factorial(cohorts) * np.prod(chances**counts / [math.factorial(n) for n in counts]))
        tails.append(sum_tail(own, [score] * cohorts, chances))
        found.append(max(norm.sf(own.sum()), collision_p_value(own, [score] * cohorts, 1 / 16, chances)))
    for level in 10.0 ** -np.arange(1, 14):
        assert np.array(likely)[np.array(found) <= level].sum() <= 2.5 * level
    for tail in tails:
        assert np.array(likely)[np.array(tails) <= tail * (1 + 1e-12)].sum() <= tail * (1 + 1e-9)


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


def test_tail_beyond_the_grid_is_that_of_leaving_it() -> None:
    """One of 2,500 strings has an error of 50 standard deviations: the tail up to it is 1/2500, and far beyond it that of a normal law."""
    law = NullDistribution.from_scores([np.array([-1.0] * 2499 + [2499.0])])
    assert law.tail(np.array([39.0, 45.0, 49.0])) == pytest.approx(1 / 2500, rel=0.01)
    assert law.tail(np.array(70.0)) == 0
    assert law.quantile(1e-4) >= 49


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
    scores = [score - chances @ score for score in rng.normal(size=(5, 5)) * 0.6]
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

    Three cohorts of score 3.9 give a sum of 11.7 with 64 cohorts; with 63 cohorts the three are capped.
    """
    scores = [np.array([0.5, 0.0, 0.0])] * 64
    own = [3.9] * 3 + [0.0] * 61
    assert collision_p_value(own, scores, 1 / 28) == pytest.approx(binom.sf(23, 64, 1 / 3), rel=0.01)
    assert collision_p_value(own[:63], scores[:63], 1 / 28) > 0.9


def test_level_that_all_strings_of_a_cohort_have_in_common_is_no_evidence() -> None:
    """A level of -2 in one of four cohorts would make a candidate with .8 in each look absent from that cohort."""
    scores = [np.array([0.8] + [-0.05] * 16)] * 4
    moved = [scores[0] - 2, scores[1] + 2, *scores[2:]]
    p = collision_p_value([0.8] * 4, scores, 1 / 17)
    assert collision_p_value([-1.2, 2.8, 0.8, 0.8], moved, 1 / 17) == pytest.approx(p, rel=1e-9)


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
