"""Every closed form of epsilon against brute-force enumeration of the output distribution, to 1e-12."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from hubbub import Buckets, Metric, ParameterError, Params, Policy, UnaryResponse
from hubbub.encoding.bloom import bloom_bits
from hubbub.privacy import epsilon, epsilon_of_values, epsilon_permanent
from hubbub.privacy.pricing import Price, unit_price
from tests.support.attack_models import one_bit, one_bit_twice
from tests.support.enumerate_mechanism import Floats, bloom_filters, largest_loss, report_distribution

ALPHA = 1e-6

PROBABILITIES = [
    (0.5, 0.75, 0.5),
    (0.25, 0.75, 0.5),
    (0.1, 0.6, 0.25),
    (0.39, 0.61, 0.45),
    (0.2, 0.9, 0.0),
    (0.0, 1.0, 0.5),
    (0.0, 0.5, 0.25),
    (0.65, 0.35, 0.1),
]
SHAPES = [(k, h) for k in range(2, 7) for h in (1, 2) if h < k]


def close(closed: float, enumerated: float) -> bool:
    return closed == enumerated or abs(closed - enumerated) < 1e-12


@pytest.mark.parametrize("t", [1, 2, 3])
@pytest.mark.parametrize("pqf", PROBABILITIES)
@pytest.mark.parametrize(("k", "h"), SHAPES)
def test_epsilon_of_murmur3_strings_equals_enumeration(k: int, h: int, pqf: tuple[float, float, float], t: int) -> None:
    """All h-subsets and "no value": the largest loss over every pair and every output of t reports."""
    params = Params(num_bits=k, num_hashes=h, num_cohorts=1, prob_p=pqf[0], prob_q=pqf[1], prob_f=pqf[2])
    assert close(epsilon(params, t), largest_loss(report_distribution(params, bloom_filters(k, {0, h}), t)))


@pytest.mark.parametrize("t", [1, 2])
@pytest.mark.parametrize("pqf", PROBABILITIES)
@pytest.mark.parametrize(("k", "h"), [(2, 1), (3, 2), (4, 2), (4, 3), (5, 3), (6, 2)])
def test_epsilon_of_google_md5_strings_equals_enumeration(
    k: int, h: int, pqf: tuple[float, float, float], t: int
) -> None:
    params = Params(
        num_bits=k, num_hashes=h, num_cohorts=1, prob_p=pqf[0], prob_q=pqf[1], prob_f=pqf[2], hash_scheme="google-md5"
    )
    reachable = bloom_filters(k, set(range(h + 1)))
    assert close(epsilon(params, t), largest_loss(report_distribution(params, reachable, t)))


@pytest.mark.parametrize("t", [1, 2, 3])
@pytest.mark.parametrize("pqf", PROBABILITIES)
@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_epsilon_of_categories_and_booleans_equals_enumeration(k: int, pqf: tuple[float, float, float], t: int) -> None:
    """One bit per category; k = 1 is a boolean metric."""
    params = Params.one_hot(k, prob_p=pqf[0], prob_q=pqf[1], prob_f=pqf[2])
    assert close(epsilon(params, t), largest_loss(report_distribution(params, bloom_filters(k, {0, 1}), t)))


@pytest.mark.parametrize("t", [1, 2, 3])
@pytest.mark.parametrize("default", [None, 7])
@pytest.mark.parametrize("pqf", PROBABILITIES)
@pytest.mark.parametrize("edges", [(0, 1, 2), (-3, 0, 5, 9), (0, 1, 2, 4, 8, 16)])
def test_epsilon_of_numbers_equals_enumeration(
    edges: tuple[float, ...], pqf: tuple[float, float, float], default: float | None, t: int
) -> None:
    """The filters of a number in every bucket, at and beyond the edges, and of a period without a recording."""
    noise = {"prob_p": pqf[0], "prob_q": pqf[1], "prob_f": pqf[2]}
    metric = Metric.ordinal("o", Buckets(edges, default=default), UnaryResponse(**noise))
    recorded = [None, *edges, *(edge + 0.5 for edge in edges), edges[0] - 1e9, edges[-1] + 1e9]
    filters = sorted({int(bloom_bits(metric, number, cohort=0)) for number in recorded})
    assert len(filters) == len(edges) - 1 + (default is None)
    assert close(epsilon(metric, t), largest_loss(report_distribution(metric.params, filters, t)))


def random_asymmetric(chance: random.Random) -> dict[str, Any]:
    """Probabilities with an asymmetric permanent response; one in four is at a limit: b = 0, a = 1, p = 0 or q = 1."""
    b, a = sorted(chance.uniform(0.02, 0.98) for _ in range(2))
    p, q = (chance.uniform(0.02, 0.98) for _ in range(2))
    drawn = {"prob_p": p, "prob_q": q, "permanent_p": b, "permanent_q": a}
    limit: dict[str, Any] = chance.choice(
        [{}] * 12 + [{"permanent_p": 0}, {"permanent_q": 1}, {"prob_p": 0.0}, {"prob_q": 1.0}]
    )
    return drawn | limit


@pytest.mark.parametrize("case", range(60))
def test_epsilon_of_asymmetric_responses_equals_enumeration(case: int, unseen_seed: int) -> None:
    """Every kind, random probabilities, p > q now and then: all pairs of filters, "no value" among them, all outputs of t reports."""
    chance = random.Random(unseen_seed)  # noqa: S311
    probabilities, t = random_asymmetric(chance), chance.choice([1, 2, 3])
    scheme = ("murmur3-v1", "google-md5", "one-hot")[case % 3]
    k = chance.randint(2, 5 if t == 3 else 6)
    h = 1 if scheme == "one-hot" else chance.randint(1, k - 1)
    params = Params(num_bits=k, num_hashes=h, num_cohorts=1, hash_scheme=scheme, **probabilities)
    reachable = bloom_filters(k, {0, h} if scheme == "murmur3-v1" else set(range(h + 1)))
    assert close(epsilon(params, t), largest_loss(report_distribution(params, reachable, t)))


def test_epsilon_of_asymmetric_responses_has_exact_limits() -> None:
    """One report of one bit each way: ln(q*(1-p*) / (p*(1-q*))). Any number: h ln(a (1-b) / (b (1-a))), infinite at b = 0, a = 1."""
    shape: dict[str, Any] = {"num_bits": 64, "num_hashes": 2, "num_cohorts": 1, "prob_p": 0.2, "prob_q": 0.7}
    params = Params(**shape, permanent_p=0.125, permanent_q=0.5)
    p, q = params.mechanism.p_star, params.mechanism.q_star
    assert abs(epsilon(params) - 2 * math.log(q * (1 - p) / (p * (1 - q)))) < 1e-12
    assert abs(epsilon_permanent(params) - 2 * math.log(7)) < 1e-12
    assert abs(epsilon(params, 10**9) - 2 * math.log(7)) < 1e-12
    for b, a in ((0, 0.5), (0.5, 1)):
        one_sided = Params(**shape, permanent_p=b, permanent_q=a)
        assert epsilon_permanent(one_sided) == math.inf
        assert math.isfinite(epsilon(one_sided, 10**6))
    whole = Params(**shape, permanent_p=0, permanent_q=1)
    assert whole == Params(**shape, prob_f=0)
    assert abs(epsilon(whole, 7) - 7 * epsilon(whole)) < 1e-12


def test_one_sided_permanent_noise_costs_more_than_the_sum_of_its_reports() -> None:
    """Why `unit_price` does not charge eps(1) a report at permanent_p = 0: correlated reports add up to more."""
    params = Params(num_bits=8, num_hashes=1, num_cohorts=1, prob_p=0.3, prob_q=0.6, permanent_p=0, permanent_q=0.5)
    two = largest_loss(report_distribution(params, bloom_filters(8, {0, 1}), 2))
    assert two > 2 * epsilon(params) + 0.03
    assert close(epsilon(params, 2), two)
    metric = Metric.string("m", params)
    assert unit_price(metric) == Price("value", math.inf)
    assert "a value's epsilon is unbounded" in (Policy().objection(metric) or "")


def test_no_value_is_the_worst_neighbour_of_3_hashes_in_4_bits() -> None:
    """min(h, k-h) (T + T') alone misses the empty filter if h > k/2."""
    params = Params(num_bits=4, num_hashes=3, num_cohorts=1, prob_p=0.1, prob_q=0.6, prob_f=0.25)
    with_values_only = largest_loss(report_distribution(params, bloom_filters(4, {3}), 1))
    with_no_value = largest_loss(report_distribution(params, bloom_filters(4, {0, 3}), 1))
    assert with_values_only < with_no_value - 0.1
    assert close(epsilon(params), with_no_value)


@pytest.mark.parametrize(
    ("k", "h", "pqf", "once", "forever"),
    [  # computed by hand from theorems 1 and 2 of Erlingsson et al. 2014
        (128, 2, (0.5, 0.75, 0.5), 1.0743, 4.3944),
        (128, 2, (0.5, 0.75, 0.75), 0.5343, 2.0433),
        (128, 2, (0.25, 0.75, 0.5), 2.0433, 4.3944),
        (32, 1, (0.25, 0.75, 0.5), 1.0217, 2.1972),
    ],
)
def test_epsilon_equals_theorems_1_and_2_of_the_rappor_paper(
    k: int, h: int, pqf: tuple[float, float, float], once: float, forever: float
) -> None:
    """t = 1: h ln(q*(1-p*) / (p*(1-q*))); t -> infinity: 2 h ln((1-f/2) / (f/2))."""
    params = Params(num_bits=k, num_hashes=h, num_cohorts=8, prob_p=pqf[0], prob_q=pqf[1], prob_f=pqf[2])
    p, q = params.mechanism.p_star, params.mechanism.q_star
    assert abs(epsilon(params) - h * math.log(q * (1 - p) / (p * (1 - q)))) < 1e-12
    assert abs(epsilon_permanent(params) - 2 * h * math.log((1 - pqf[2] / 2) / (pqf[2] / 2))) < 1e-12
    assert (round(epsilon(params), 4), round(epsilon_permanent(params), 4)) == (once, forever)


def test_two_coin_survey_costs_ln_3_for_any_number_of_reports() -> None:
    survey = Params.one_hot(1, prob_p=0, prob_q=1, prob_f=0.5)
    for t in (1, 2, 1000, math.inf):
        assert abs(epsilon(survey, t) - math.log(3)) < 1e-15


def test_epsilon_increases_to_its_limit_unless_f_is_0() -> None:
    params = Params(num_bits=128, num_hashes=2, num_cohorts=8, prob_p=0.5, prob_q=0.75, prob_f=0.5)
    losses = [epsilon(params, t) for t in (1, 2, 3, 10, 100, 10_000, 10**9)]
    assert losses == sorted(losses)
    assert epsilon_permanent(params) - 1e-12 < losses[-1] <= epsilon_permanent(params)
    unmemoized = Params(num_bits=128, num_hashes=2, num_cohorts=8, prob_p=0.5, prob_q=0.75, prob_f=0)
    assert epsilon_permanent(unmemoized) == math.inf
    assert abs(epsilon(unmemoized, 7) - 7 * epsilon(unmemoized)) < 1e-12


@pytest.mark.parametrize("t", [0, -1, 1.5, math.nan])
def test_rejects_invalid_number_of_reports(t: float) -> None:
    with pytest.raises(ParameterError, match="num_reports must be"):
        epsilon(Params.one_hot(1, prob_p=0, prob_q=1, prob_f=0.5), t)


def test_post_processing_does_not_increase_epsilon() -> None:
    """Post-processing: dropping bits, counting ones, merging outputs at random, all enumerated."""
    params = Params(num_bits=4, num_hashes=2, num_cohorts=1, prob_p=0.2, prob_q=0.7, prob_f=0.3)
    reports = report_distribution(params, bloom_filters(4, {0, 2}), 1)
    bound = epsilon(params)
    ones = np.array([[bits.bit_count() == n for n in range(5)] for bits in range(16)], float)
    first_two = np.array([[bits & 3 == kept for kept in range(4)] for bits in range(16)], float)
    random_map = np.random.default_rng(7).dirichlet(np.ones(6), size=16)
    for process in (ones, first_two, random_map):
        assert largest_loss(reports @ process) <= bound + 1e-12


# --- values that change ------------------------------------------------------------------------------------


def history_distribution(params: Params, history: list[int]) -> Floats:
    """P(all reports | the filter reported in each period): equal filters share a PRR, different ones do not."""
    k = params.num_bits
    parts = []
    for bloom in sorted(set(history)):
        times = history.count(bloom)
        parts.append(report_distribution(params, [bloom], times)[0].reshape((1 << k,) * times))
    joint = parts[0]
    for part in parts[1:]:
        joint = np.multiply.outer(joint, part)
    order = [period for bloom in sorted(set(history)) for period, at in enumerate(history) if at == bloom]
    flat: Floats = np.transpose(joint, np.argsort(order)).ravel()
    return flat


@pytest.mark.parametrize("pqf", PROBABILITIES)
def test_loss_of_histories_with_the_same_changes_is_at_most_the_sum(pqf: tuple[float, float, float]) -> None:
    """k = 4, h = 1, three reports: every pair of histories v v w, enumerated."""
    params = Params(num_bits=4, num_hashes=1, num_cohorts=1, prob_p=pqf[0], prob_q=pqf[1], prob_f=pqf[2])
    bound = epsilon_of_values(params, [2, 1])
    filters = bloom_filters(4, {0, 1})
    histories = [[v, v, w] for v, w in itertools.permutations(filters, 2)]
    assert largest_loss(np.array([history_distribution(params, history) for history in histories])) <= bound + 1e-12


def test_change_of_a_value_is_not_protected() -> None:
    """The figure of docs/explanation/privacy.md for two linked reports at k = 6, h = 1, p = 0.25, q = 0.75, f = 0.5.

    v v against v w has a loss of 2.40, above eps(2) = 1.69 of an unchanging value. It grows with k.
    """
    losses = []
    for k in (2, 3, 4, 5, 6):
        params = Params(num_bits=k, num_hashes=1, num_cohorts=1, prob_p=0.25, prob_q=0.75, prob_f=0.5)
        stayed, changed = history_distribution(params, [1, 1]), history_distribution(params, [1, 2])
        losses.append(largest_loss(np.array([stayed, changed])))
    assert losses == sorted(losses)
    assert losses[-1] > epsilon(
        Params(num_bits=6, num_hashes=1, num_cohorts=1, prob_p=0.25, prob_q=0.75, prob_f=0.5), 2
    )
    assert [round(loss, 2) for loss in losses] == [1.47, 1.69, 1.91, 2.14, 2.4]


CHANGING, TEN = Params(num_bits=128, num_hashes=2, num_cohorts=1, prob_p=0.5, prob_q=0.75, prob_f=0.5), 10


def test_squared_differences_of_linked_reports_reveal_a_change() -> None:
    """The exact figure of docs/explanation/privacy.md: ten reports before and after, power 0.961 at a false alarm rate of 0.05."""
    times = np.arange(TEN + 1)
    squares = (times[:, None] - times) ** 2

    def summed(bits: list[tuple[Floats, int]]) -> Floats:
        total = np.ones(1)
        for joint, many in bits:
            for _ in range(many):
                total = np.convolve(total, np.bincount(squares.ravel(), weights=joint.ravel()))
        return total

    zero, one = (one_bit(CHANGING, TEN, true) for true in (0, 1))
    stayed = summed([(one_bit_twice(CHANGING, TEN, 1), 2), (one_bit_twice(CHANGING, TEN, 0), 126)])
    changed = summed([(np.outer(one, zero), 2), (np.outer(zero, one), 2), (np.outer(zero, zero), 124)])
    false_alarm, power = (chances[::-1].cumsum()[::-1] for chances in (stayed, changed))
    assert power[np.argmax(false_alarm <= 0.05)] == pytest.approx(0.961, abs=0.0005)


@pytest.mark.slow
def test_likelihood_ratio_of_known_values_reveals_nearly_every_change(unseen_seed: int) -> None:
    """The likelihood ratio has power 0.999: at most 30 of 20,000 simulated observers miss the change; alpha = 1e-6."""
    params, rng = CHANGING, np.random.default_rng(unseen_seed)
    observers, g = 20_000, params.mechanism.permanent_p
    first, second = np.repeat([1.0, 0.0], [2, 126]), np.repeat([0.0, 1.0, 0.0], [2, 2, 124])

    def permanent(true: Floats) -> Floats:
        masked = rng.random((observers, 128)) < 2 * params.mechanism.permanent_p
        return np.where(masked, rng.random((observers, 128)) < 0.5, true)

    def ones(prr: Floats) -> Floats:
        return rng.binomial(TEN, np.where(prr, params.mechanism.prob_q, params.mechanism.prob_p)).astype(float)

    def given(chance: float, n: Floats) -> Floats:
        return chance**n * (1 - chance) ** (TEN - n)

    def log_ratio(before: Floats, after: Floats) -> Floats:
        one_first, one_second = np.where(first == 1, 1 - g, g), np.where(second == 1, 1 - g, g)
        b1, b0, a1, a0 = (
            given(c, n) for n in (before, after) for c in (params.mechanism.prob_q, params.mechanism.prob_p)
        )
        unchanged = one_first * b1 * a1 + (1 - one_first) * b0 * a0
        changed = (one_first * b1 + (1 - one_first) * b0) * (one_second * a1 + (1 - one_second) * a0)
        return np.asarray(np.log(changed / unchanged).sum(axis=1))

    stays = permanent(first)
    threshold = np.quantile(log_ratio(ones(stays), ones(stays)), 0.95)
    missed = np.sum(log_ratio(ones(permanent(first)), ones(permanent(second))) <= threshold)
    assert missed <= binom.isf(ALPHA, observers, 0.0015)
