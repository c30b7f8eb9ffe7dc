"""Composition of epsilon."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub import ParameterError
from hubbub.privacy import compose, group_privacy, parallel_composition, sequential_composition
from hubbub.privacy.composition import zero_concentrated


def test_composition_matches_sequential_parallel_and_group_formulas() -> None:
    assert sequential_composition([1.0, 2.5, 0.5]) == 4.0
    assert parallel_composition([1.0, 2.5, 0.5]) == 2.5
    assert group_privacy(0.5, size=3) == 1.5
    assert (sequential_composition([]), parallel_composition([])) == (0.0, 0.0)
    assert sequential_composition([1.0, math.inf]) == math.inf


def test_sequential_composition_is_tight_for_randomized_responses() -> None:
    """By enumeration: three binary randomized responses together have exactly the sum of their epsilons."""
    losses = [0.3, 1.0, 2.0]
    worst = 0.0
    for outputs in itertools.product((0, 1), repeat=3):
        ratio = 1.0
        for output, loss in zip(outputs, losses, strict=True):
            keep = math.exp(loss) / (1 + math.exp(loss))
            ratio *= keep / (1 - keep) if output == 0 else (1 - keep) / keep
        worst = max(worst, math.log(ratio))
    assert abs(worst - sequential_composition(losses)) < 1e-12


@pytest.mark.parametrize(("epsilon", "times"), [(0.1, 20), (0.5, 7), (1.0, 10)])
def test_optimal_composition_equals_theorem_3_3(epsilon: float, times: int) -> None:
    """Theorem 3.3: ((n - 2i) eps, delta_i)-DP.

    delta_i = sum_{l<i} C(n,l) (e^((n-l)eps) - e^((n-2i+l)eps)) / (1+e^eps)^n
    """
    for i in range(1, times // 2 + 1):
        delta = (
            sum(
                math.comb(times, n) * (math.exp((times - n) * epsilon) - math.exp((times - 2 * i + n) * epsilon))
                for n in range(i)
            )
            / (1 + math.exp(epsilon)) ** times
        )
        found = compose([epsilon] * times, delta=delta)
        assert found.epsilon == pytest.approx((times - 2 * i) * epsilon, abs=1e-9)
        assert found.method == "optimal"


@given(st.lists(st.floats(0, 2), max_size=5), st.floats(1e-9, 0.5))
def test_optimal_composition_of_unequal_epsilons_by_enumeration(losses: list[float], delta: float) -> None:
    """delta(E) over all 2**n outputs is at most the given delta."""
    found = compose(losses, delta=delta)
    failure = 0.0
    for signs in itertools.product((1, -1), repeat=len(losses)):
        total = sum(sign * loss for sign, loss in zip(signs, losses, strict=True))
        chance = math.prod(1 / (1 + math.exp(-sign * loss)) for sign, loss in zip(signs, losses, strict=True))
        failure += max(0.0, chance * (1 - math.exp(found.epsilon - total)))
    assert failure <= delta * (1 + 1e-9) + 1e-12


@given(st.lists(st.floats(0, 5), max_size=30), st.floats(0, 0.5))
def test_epsilon_does_not_increase_with_delta(losses: list[float], delta: float) -> None:
    found = compose(losses, delta=delta)
    assert found.epsilon <= sequential_composition(losses) + 1e-12
    assert found.delta in (0.0, delta)


def test_many_different_epsilons_use_closed_forms() -> None:
    losses = [0.01 + 0.001 * i for i in range(100)]
    found = compose(losses, delta=1e-6)
    assert found.method in {"advanced", "concentrated"}
    assert found.epsilon < sequential_composition(losses) / 1.5


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 2.0, 5.0, 10.0])
def test_pure_dp_is_concentrated_at_eps_tanh_half_eps(epsilon: float) -> None:
    """Renyi divergence of the worst eps-DP mechanism, binary randomized response, at orders from 1 up."""
    keep, flip = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
    rho = zero_concentrated(epsilon)
    for order in [1 + 10**exponent for exponent in (-4, -3, -2, -1, 0, 1, 2)]:
        top = max(order * math.log(keep) + (1 - order) * math.log(flip), 0)
        total = math.exp(order * math.log(keep) + (1 - order) * math.log(flip) - top) + math.exp(
            order * math.log(flip) + (1 - order) * math.log(keep) - top
        )
        assert (top + math.log(total)) / (order - 1) <= rho * order * (1 + 1e-9) + 1e-9
    assert rho <= epsilon**2 / 2


@pytest.mark.parametrize("bad", [-1.0, math.nan])
def test_rejects_invalid_epsilon(bad: float) -> None:
    for combine in (sequential_composition, parallel_composition, compose):
        with pytest.raises(ParameterError, match=r"epsilon must be a number in \[0, inf\]"):
            combine([bad])


def test_rejects_invalid_delta_and_group_size() -> None:
    with pytest.raises(ParameterError, match="delta must be a number in"):
        compose([1.0], delta=1.0)
    with pytest.raises(ParameterError, match="size must be an integer >= 1, got 0"):
        group_privacy(1.0, size=0)
