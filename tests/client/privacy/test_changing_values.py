"""Decision 83: values that share a permanent response, by enumeration and by the benchmark's attack."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.changing_values import (
    FilterAttack,
    ResponseAttack,
    filter_attack,
    generalized_response,
    largest_enumerated_losses,
    pattern_differs,
    shared_response_loss,
)

_NUM_BITS = 3


@settings(max_examples=25)
@given(st.sampled_from([(2, 5), (3, 4)]), st.floats(0.1, 4), st.floats(0.05, 0.999))
def test_cells_lose_at_most_their_lifetime_between_histories_of_one_pattern(
    size: tuple[int, int], permanent_epsilon: float, excess: float
) -> None:
    cells, periods = size
    keep = math.exp(permanent_epsilon) / (math.exp(permanent_epsilon) + cells - 1)
    permanent = generalized_response(cells, keep)
    instantaneous = generalized_response(cells, 1 / cells + excess * (1 - 1 / cells))
    any_two, same = largest_enumerated_losses(permanent, instantaneous, periods)
    assert same <= cells * permanent_epsilon + 1e-12
    assert same <= any_two


@pytest.mark.parametrize("cells", [2, 3])
def test_cells_lose_more_than_their_lifetime_between_histories_of_other_patterns(cells: int) -> None:
    permanent, instantaneous = generalized_response(cells, 0.6), generalized_response(cells, 0.95)
    epsilon = math.log(0.6 * (cells - 1) / 0.4)
    any_two, same = largest_enumerated_losses(permanent, instantaneous, 4)
    assert any_two > cells * epsilon >= same
    assert shared_response_loss(permanent, instantaneous, 2) <= any_two + 1e-12
    losses = [shared_response_loss(permanent, instantaneous, reports) for reports in (5, 10, 20)]
    assert losses[2] - losses[1] > 1.9 * (losses[1] - losses[0]) > 0  # it grows in proportion to the reports


@pytest.mark.parametrize(("values", "filters"), [(1, 3), (2, 3), (3, 2), (3, 4), (4, 3)])
def test_pattern_differs_equals_enumeration(values: int, filters: int) -> None:
    def pattern(history: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(map(history.index, history))

    histories = list(itertools.product(range(filters), repeat=values))
    one = [pattern(h) != pattern((other, *h[1:])) for h in histories for other in range(filters)]
    every = [pattern(h) != pattern(other) for h in histories for other in histories]
    assert pattern_differs(values, filters) == pytest.approx((np.mean(one), np.mean(every)), abs=1e-12)


def test_attack_on_cells_has_the_enumerated_likelihood() -> None:
    permanent, instantaneous = generalized_response(3, 0.7), generalized_response(3, 0.8)
    attack, history = ResponseAttack(permanent, instantaneous), np.array([0, 2, 0])
    for outputs in itertools.product(range(3), repeat=3):
        exact = math.fsum(
            math.prod(permanent[cell, response[cell]] for cell in range(3))
            * math.prod(instantaneous[response[cell], output] for cell, output in zip(history, outputs, strict=True))
            for response in itertools.product(range(3), repeat=3)
        )
        counts = np.eye(3)[list(outputs)]
        assert math.exp(attack.log_likelihood(counts, history, 1)) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("by_value", [False, True])
def test_attack_on_filters_has_the_enumerated_likelihood(*, by_value: bool) -> None:
    permanent, once = np.array([[0.8, 0.2], [0.4, 0.6]]), np.array([[0.9, 0.1], [0.3, 0.7]])
    attack, history = FilterAttack(permanent, once, _NUM_BITS, by_value), np.array([1, 1])
    for reports in itertools.product(itertools.product((0, 1), repeat=_NUM_BITS), repeat=2):
        exact = 1.0
        for bit in range(_NUM_BITS):
            true = int(bit == 1)
            apart = [sum(permanent[true, b] * once[b, report[bit]] for b in (0, 1)) for report in reports]
            shared = sum(permanent[true, b] * once[b, reports[0][bit]] * once[b, reports[1][bit]] for b in (0, 1))
            exact *= math.prod(apart) if by_value else shared
        found = attack.log_likelihood(np.array(reports, float), history, 1)
        assert math.exp(found) == pytest.approx(exact, rel=1e-12)


def test_filter_attack_has_the_stated_epsilons() -> None:
    attack = filter_attack(_NUM_BITS, 1.0, 2.0, by_value=True)
    both = attack.permanent @ attack.instantaneous
    for chances, epsilon in ((attack.permanent, 2.0), (both, 1.0)):
        assert math.log(chances[1, 1] / chances[0, 1] * chances[0, 0] / chances[1, 0]) == pytest.approx(epsilon)
