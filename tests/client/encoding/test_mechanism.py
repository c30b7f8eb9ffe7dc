"""Laws of a mechanism against an enumeration of the permanent and the reported bits of small blocks."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import product

import pytest

from hubbub.mechanisms.unary import UnaryResponse

RESPONSES = [
    UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5),
    UnaryResponse(prob_p=0.125, prob_q=0.625, permanent_p=0.0625, permanent_q=0.5),
    UnaryResponse(prob_p=0, prob_q=1, prob_f=0.25),
    UnaryResponse(prob_p=0.375, prob_q=0.875, prob_f=0),
]


def chance(bit: int, of_one: float) -> float:
    return of_one if bit else 1 - of_one


def permanent_law(mechanism: UnaryResponse, true_bits: tuple[int, ...]) -> dict[tuple[int, ...], float]:
    """P(permanent bits) of a block."""
    rates = [mechanism.permanent_q if bit else mechanism.permanent_p for bit in true_bits]
    return {bits: math.prod(map(chance, bits, rates)) for bits in product((0, 1), repeat=len(true_bits))}


def reports_law(mechanism: UnaryResponse, true_bits: tuple[int, ...], reports: int) -> dict[tuple[int, ...], float]:
    """P(the bits of all reports of one permanent response)."""
    law: dict[tuple[int, ...], float] = defaultdict(float)
    for permanent, weight in permanent_law(mechanism, true_bits).items():
        rates = [mechanism.prob_q if bit else mechanism.prob_p for bit in permanent] * reports
        for bits in product((0, 1), repeat=len(rates)):
            law[bits] += weight * math.prod(map(chance, bits, rates))
    return law


@pytest.mark.parametrize("mechanism", RESPONSES)
def test_star_probabilities_are_those_of_both_stages(mechanism: UnaryResponse) -> None:
    assert mechanism.p_star == reports_law(mechanism, (0,), 1)[1,]
    assert mechanism.q_star == reports_law(mechanism, (1,), 1)[1,]


@pytest.mark.parametrize("mechanism", RESPONSES)
@pytest.mark.parametrize("true_ones", [0.0, 0.3, 1.0])
def test_noise_variances_add_up_stage_by_stage(mechanism: UnaryResponse, true_ones: float) -> None:
    """Mean variance given the permanent bit, and mean variance over the permanent bit of the rate that it gives."""
    p, q = mechanism.prob_p, mechanism.prob_q
    instantaneous = permanent = 0.0
    for bit in (0, 1):
        law = permanent_law(mechanism, (bit,))
        rate = law[1,]
        instantaneous += chance(bit, true_ones) * (law[0,] * p * (1 - p) + rate * q * (1 - q))
        permanent += chance(bit, true_ones) * (rate * (1 - rate) * (q - p) ** 2)
    assert mechanism.noise_variances(true_ones) == pytest.approx((instantaneous, permanent))


@pytest.mark.parametrize("mechanism", RESPONSES)
@pytest.mark.parametrize("true_bits", [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1)])
def test_number_of_ones_has_its_law(mechanism: UnaryResponse, true_bits: tuple[int, ...]) -> None:
    expected = [0.0] * 4
    for bits, weight in reports_law(mechanism, true_bits, 1).items():
        expected[sum(bits)] += weight
    assert mechanism.ones_distribution(3, sum(true_bits)).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("mechanism", RESPONSES)
@pytest.mark.parametrize(("true_bits", "reports"), [((0,), 1), ((1,), 3), ((1, 0), 2), ((1, 1, 0), 1)])
def test_collision_is_that_of_two_clients(mechanism: UnaryResponse, true_bits: tuple[int, ...], reports: int) -> None:
    expected = math.log(sum(probability**2 for probability in reports_law(mechanism, true_bits, reports).values()))
    assert mechanism.log_collision(len(true_bits), sum(true_bits), reports) == pytest.approx(expected)
