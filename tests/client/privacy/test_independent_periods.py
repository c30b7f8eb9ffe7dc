"""Central epsilon of several periods with fresh noise, against enumeration of small groups in rational arithmetic."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations_with_replacement, permutations, product

import numpy as np
import pytest
from scipy import stats

from hubbub import Metric
from hubbub.mechanisms.unary import UnaryResponse
from hubbub.metrics.params import Params
from hubbub.privacy import central_epsilon, epsilon, published_guarantee
from hubbub.privacy.central import epsilon_of_messages
from hubbub.privacy.loss_distribution import LossDistribution
from tests.support.enumerate_shuffling import (
    Chance,
    exact_report_laws,
    lowered_exponential,
    shuffled,
)

DELTA = 1e-9
DAYS = [f"2026-11-{day:02}" for day in range(1, 31)]
History = tuple[int, ...]
Law = dict[tuple[tuple[int, ...], ...], Chance]


def composed(params: Params, n: int, delta: float, epochs: Sequence[int]) -> float:
    """Return the bound for any two histories of epochs, each with so many reports of one permanent response."""
    return epsilon_of_messages((params,), n, delta, tuple(Counter(epochs).items()))


def violations(
    seen: Callable[[Sequence[History]], Law], length: int, n: int, eps: float, delta: float, num_values: int = 2
) -> tuple[int, int]:
    """Count the pairs of histories of one client, and histories of the others, whose delta is above the given one, and all of them.

    seen : law of what is seen of the histories of all n clients
    """
    factor, histories, above, number = lowered_exponential(eps), list(product(range(num_values), repeat=length)), 0, 0
    for others in combinations_with_replacement(histories, n - 1):
        laws = [seen((mine, *others)) for mine in histories]
        for first, second in permutations(laws, 2):
            exact = sum(max(0, chance - factor * second.get(counts, 0)) for counts, chance in first.items())
            assert not isinstance(exact, float)
            above, number = above + (exact > Fraction(delta)), number + 1
    return above, number


def fresh(params: Params, epochs: Sequence[int]) -> Callable[[Sequence[History]], Law]:
    """Every epoch has noise of its own: its shuffled messages are independent of those of the others."""
    laws = [exact_report_laws(params, reports) for reports in epochs]

    def seen(people: Sequence[History]) -> Law:
        of_epochs = [shuffled([law[history[i]] for history in people]) for i, law in enumerate(laws)]
        return {
            tuple(counts for counts, _ in outcome): math.prod(chance for _, chance in outcome)
            for outcome in product(*(law.items() for law in of_epochs))
        }

    return seen


def memoized(params: Params) -> Callable[[Sequence[History]], Law]:
    """One permanent response for each value in two periods, of which p = 0 and q = 1 show it; the counts of ones of each period are seen."""
    a, b = Fraction(params.mechanism.permanent_q), Fraction(params.mechanism.permanent_p)

    def seen(people: Sequence[History]) -> Law:
        law: Law = {}
        for responses in product(product((0, 1), repeat=2), repeat=len(people)):
            chance = math.prod(
                rate if response[value] else 1 - rate for response in responses for value, rate in enumerate((b, a))
            )
            counts = tuple(
                (sum(of[history[period]] for of, history in zip(responses, people, strict=True)),) for period in (0, 1)
            )
            law[counts] = law.get(counts, Fraction(0)) + chance
        return law

    return seen


def random_bits(rng: np.random.Generator, prob_f: float, num_bits: int = 1) -> Params:
    p, q = sorted(int(number) for number in rng.choice(np.arange(1, 64), 2, replace=False))
    return Params.one_hot(num_bits, prob_p=p / 64, prob_q=q / 64, prob_f=prob_f)


def test_no_pair_of_histories_exceeds_the_bound_without_permanent_noise(unseen_seed: int) -> None:
    """Two periods, three clients with one bit or two with two: all pairs of histories, whatever the others do."""
    rng = np.random.default_rng(unseen_seed)
    checked = 0
    for k, n in ((1, 3), (2, 2)) * 8:
        params, delta = random_bits(rng, 0, k), float(10 ** rng.uniform(-3, -0.5))
        above, number = violations(fresh(params, (1, 1)), 2, n, composed(params, n, delta, (1, 1)), delta, k + 1)
        assert above == 0, (params, n, delta)
        checked += number
    assert checked > 1_000


@pytest.mark.parametrize("epochs", [(2, 2), (2, 1)])
def test_no_pair_of_histories_exceeds_the_bound_of_epochs(epochs: tuple[int, ...], unseen_seed: int) -> None:
    """Permanent noise that is drawn anew in each epoch: two clients, and all reports of an epoch are one message."""
    rng = np.random.default_rng(unseen_seed)
    for _ in range(12):
        params, delta = random_bits(rng, float(rng.choice([0.25, 0.5]))), float(10 ** rng.uniform(-3, -0.5))
        above, _ = violations(fresh(params, epochs), 2, 2, composed(params, 2, delta, epochs), delta)
        assert above == 0, (params, delta)


def test_one_period_is_no_bound_of_two() -> None:
    """The enumeration finds a bound that is too small."""
    params, delta = Params.one_hot(1, prob_p=0.25, prob_q=0.75, prob_f=0), 0.05
    above, _ = violations(fresh(params, (1, 1)), 2, 2, central_epsilon(params, 2, delta), delta)
    assert above > 0


def test_composing_memoized_noise_as_if_it_were_fresh_is_wrong() -> None:
    """Without `hold`, a change shows as a difference between two periods, because the noise of the other clients repeats."""
    params, delta = Params.one_hot(1, prob_p=0, prob_q=1, prob_f=0.5), 0.05
    above, number = violations(memoized(params), 2, 2, composed(params, 2, delta, (1, 1)), delta)
    assert 0 < above < number
    survey = Metric.boolean("survey", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
    assert published_guarantee(survey, DAYS[:2], 10_000).condition.name == "one unchanging value"


@pytest.mark.parametrize(("local", "n"), [(1.0, 60), (3.0, 60), (2.0, 150)])
def test_larger_groups_are_within_the_bound(local: float, n: int) -> None:
    """Counts of one bit in two periods, of which the client's reports change both; the others answer 0, 1, or one of both by halves."""
    p = 1 / (math.exp(local) + 1)
    params = Params.one_hot(1, prob_p=p, prob_q=1 - p, prob_f=0)
    found, counts = composed(params, n, 1e-3, (1, 1)), np.arange(n)

    def worst(eps: float) -> float:
        deltas = []
        for ones in (0, n // 2, n - 1):
            others = np.convolve(stats.binom.pmf(counts, ones, 1 - p), stats.binom.pmf(counts, n - 1 - ones, p))[:n]
            zero, one = (np.convolve(others, (1 - rate, rate)) for rate in (p, 1 - p))
            gain = np.outer(one, one) - math.exp(eps) * np.outer(zero, zero)
            deltas.append(float(gain[gain > 0].sum()))
        return max(deltas)

    assert worst(found) <= 1e-3 < worst(found / 3)


def test_thirty_periods_cost_far_less_than_thirty_times_one() -> None:
    """Optimized unary encoding of epsilon 6 among 39,062 reports of a cohort."""
    params = Params.one_hot(10, prob_p=1 / (math.exp(6) + 1), prob_q=0.5, prob_f=0)
    found = [central_epsilon(params, 39_062, DELTA, periods) for periods in (1, 2, 7, 30)]
    assert found == pytest.approx([0.5416, 0.831, 1.607, 3.486], rel=1e-3)  # docs/explanation/privacy-proofs.md


def test_a_published_site_bounds_any_histories_if_noise_is_fresh() -> None:
    for response, hold in (
        (UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0), None),
        (UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), 7),
    ):
        metric = Metric.boolean("dark", response, hold=hold)
        week, month = (published_guarantee(metric, DAYS[:days], 10_000) for days in (7, 30))
        assert week.condition.name == month.condition.name == "any recordings"
        assert week.epsilon < month.epsilon < 5 * week.epsilon


@pytest.mark.parametrize("delta", [1e-300, 1e-9, 0.4])
def test_pure_mechanisms_compose_at_most_to_their_sum(delta: float) -> None:
    """One client: no others hide it, so the distribution is that of randomized response."""
    params = Params.one_hot(1, prob_p=0.25, prob_q=0.75, prob_f=0)
    assert 0 < central_epsilon(params, 1, delta, 40) <= 40 * epsilon(params) * (1 + 1e-9)


def test_curve_of_an_exact_distribution_is_reproduced(unseen_seed: int) -> None:
    """The law of randomized response has one loss; its curve in many points has it, too."""
    rng = np.random.default_rng(unseen_seed)
    local = float(rng.uniform(0.1, 3))
    points = [(e, (math.exp(local) - math.exp(e)) / (math.exp(local) + 1)) for e in np.linspace(0, local, 9)]
    law = LossDistribution.of_curve([(float(e), float(delta)) for e, delta in points])
    for theta in (0.5, 2.0, 10.0):
        exact = math.log((math.exp(local * (theta + 1)) + math.exp(-local * theta)) / (math.exp(local) + 1))
        assert exact <= law.log_moment(theta) <= exact + 1e-8
