"""Amplification by shuffling: bounds against enumeration of small groups."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise, product

import pytest

from hubbub import Params
from hubbub.privacy import epsilon, shuffle_amplification
from hubbub.privacy.amplification import amplified_delta, closed_form_epsilon
from tests.support.enumerate_shuffling import Distribution, hockey_stick, shuffled, worst_deltas


def coin(local: float) -> list[Distribution]:
    """Return the output distributions of binary randomized response, one per value."""
    true = 1 / (1 + math.exp(-local))
    return [(true, 1 - true), (1 - true, true)]


def one_of(number: int, local: float) -> list[Distribution]:
    """Return the output distributions of k-ary randomized response."""
    true = math.exp(local) / (math.exp(local) + number - 1)
    other = (1 - true) / (number - 1)
    return [[true if i == j else other for j in range(number)] for i in range(number)]


def bits(params: Params) -> list[Distribution]:
    """Return the pattern probabilities of one-hot reports, of "no value" and of each category."""
    k, p, q = params.num_bits, params.mechanism.p_star, params.mechanism.q_star

    def chance(value: int, pattern: int) -> float:
        ones = [q if i == value else p for i in range(k)]
        return math.prod(one if pattern >> i & 1 else 1 - one for i, one in enumerate(ones))

    return [[chance(value, pattern) for pattern in range(1 << k)] for value in range(-1, k)]


@pytest.mark.parametrize("local", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_bound_holds_for_shuffled_binary_randomized_responses(local: float, n: int) -> None:
    for share in (0.0, 0.2, 0.5, 0.9):
        eps = share * local
        assert max(worst_deltas(coin(local), n, eps)) <= amplified_delta(eps, local, n)


@pytest.mark.parametrize("number", [3, 4])
def test_bound_holds_for_shuffled_k_ary_randomized_responses(number: int) -> None:
    for local, n, share in product((0.5, 1.5), (2, 4), (0.1, 0.6)):
        eps = share * local
        assert max(worst_deltas(one_of(number, local), n, eps)) <= amplified_delta(eps, local, n)


@pytest.mark.parametrize("n", [2, 4])
def test_bound_holds_for_shuffled_reports(n: int) -> None:
    params = Params.one_hot(2, prob_p=0.25, prob_q=0.75, prob_f=0.25)
    local = epsilon(params)
    for share in (0.1, 0.6):
        assert max(worst_deltas(bits(params), n, share * local)) <= amplified_delta(share * local, local, n)


@pytest.mark.parametrize("local", [0.0, 5e-324, 1e-17, 1e-12])
def test_no_epsilon_is_too_small(local: float) -> None:
    assert 0 <= shuffle_amplification(local, 1_000, 1e-9) <= local


def test_one_report_is_not_amplified() -> None:
    for local, eps in ((1.0, 0.0), (2.0, 0.5), (3.0, 2.9)):
        exact = max(worst_deltas(coin(local), 1, eps))
        assert exact <= amplified_delta(eps, local, 1) <= exact * (1 + 1e-7)
    assert shuffle_amplification(1.0, 1, 1e-6) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("local", [0.5, 2.0])
def test_steps_are_close_to_the_exact_sum_and_never_below(local: float) -> None:
    """Against the sum over every number of clones, term by term."""
    n, eps = 400, local / 4
    mine, grown, clone = 1 / (1 + math.exp(-local)), math.exp(eps), math.exp(-local)

    def fair(c: int, j: int) -> float:
        return math.comb(c, j) / 2**c if 0 <= j <= c else 0.0

    def sup(c: int) -> float:
        ways = [(fair(c, j - 1), fair(c, j)) for j in range(c + 2)]
        return math.fsum(max(0.0, mine * a + (1 - mine) * b - grown * ((1 - mine) * a + mine * b)) for a, b in ways)

    exact = math.fsum(math.comb(n - 1, c) * clone**c * (1 - clone) ** (n - 1 - c) * sup(c) for c in range(n))
    assert exact <= amplified_delta(eps, local, n) <= 2 * exact


def test_epsilon_keeps_delta_and_is_at_most_the_closed_form() -> None:
    for local, n, delta in product((0.5, 1.07, 4.0), (100, 10_000), (1e-6, 1e-9)):
        eps = shuffle_amplification(local, n, delta)
        assert amplified_delta(eps, local, n) <= delta
        assert eps <= closed_form_epsilon(local, n, delta) <= local


@pytest.mark.parametrize("n", [10**5, 10**9])
@pytest.mark.parametrize("local", [0.01, 1.0, 5.0])
def test_closed_form_is_the_theorem_for_every_mechanism(local: float, n: int) -> None:
    """Not that of 2022, which has 2 / (e^eps0 + 1) in the place of the probability e^-eps0 of a clone, and an erratum."""
    clones = n * math.exp(-local)
    other = 8 * math.sqrt(math.log(4 / 1e-9) / clones) + 8 / clones
    exact = math.log(1 + (math.exp(local) - 1) / (math.exp(local) + 1) * other)
    assert closed_form_epsilon(local, n, 1e-9) == pytest.approx(min(local, exact), rel=1e-8)


def test_central_epsilon_decreases_with_reports_and_is_at_most_local() -> None:
    sizes = [1, 10, 100, 1_000, 10_000, 10**6, 10**9, 10**12]
    found = [shuffle_amplification(1.07, n, 1e-9) for n in sizes]
    assert all(more >= less for more, less in pairwise(found))
    assert found[0] == pytest.approx(1.07, abs=1e-3)
    assert found[-1] < 1e-4


def test_bound_holds_for_two_periods() -> None:
    """Booleans with permanent noise, with each period shuffled separately, for every pair of values."""
    params = Params.one_hot(1, prob_p=0.25, prob_q=0.75, prob_f=0.5)
    local, g = epsilon(params, 2), params.mechanism.permanent_p

    def twice(value: int) -> list[float]:
        """Return the chance of each pair of reports, bit 0 the first."""
        chances = [0.0] * 4
        for permanent in (0, 1):
            one = params.mechanism.prob_q if permanent else params.mechanism.prob_p
            for pair in range(4):
                shown = math.prod(one if pair >> period & 1 else 1 - one for period in (0, 1))
                chances[pair] += (1 - g if permanent == value else g) * shown
        return chances

    def sums(people: Sequence[Distribution]) -> dict[tuple[int, ...], float]:
        ones: dict[tuple[int, ...], float] = defaultdict(float)
        for (_, first, second, both), chance in shuffled(people).items():
            ones[first + both, second + both] += chance
        return ones

    for n, share in product((1, 2, 4), (0.05, 0.4)):
        for trues in range(n):
            others = [twice(1)] * trues + [twice(0)] * (n - 1 - trues)
            for mine in (0, 1):
                found = hockey_stick(sums([twice(mine), *others]), sums([twice(1 - mine), *others]), share * local)
                assert found <= amplified_delta(share * local, local, n)
