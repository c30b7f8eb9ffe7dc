"""Mechanisms for sets beside hubbub's (`benchmarks/set_mechanisms.py`): their loss by enumeration, and their counts against their laws."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations, product

import numpy as np
import pytest

from benchmarks.set_mechanisms import MISSING, OTHERS, AskOne, PadAndSample, PrivSet, SetMechanism, Wheel
from benchmarks.sets import Cell
from hubbub import KindWord
from hubbub_decoder import Wishes, plan
from hubbub_decoder.model.distributions import norm

EPSILON, ITEMS, OWN = 1.3, 4, 2
SETS = [set_ for size in range(OWN + 1) for set_ in combinations(range(ITEMS), size)]
Law = dict[tuple[int, ...], float]
"""Probabilities of the reports, each the items that it supports; of PrivSet also the blanks."""


def privset_law(mechanism: PrivSet, own: tuple[int, ...]) -> Law:
    """Law of the rows, from their weights."""
    touched = {*own, *(ITEMS + blank for blank in range(OWN - len(own)))}
    rows = list(combinations(range(ITEMS + OWN), mechanism.num_ones))
    weights = [math.exp(EPSILON) if touched & {*row} else 1.0 for row in rows]
    return {row: weight / sum(weights) for row, weight in zip(rows, weights, strict=True)}


def pad_and_sample_law(own: tuple[int, ...]) -> Law:
    """Law of the bits: the mean over the slots of optimized unary encoding."""
    noise = 1 / (math.exp(EPSILON) + 1)
    law = {}
    for bits in product((False, True), repeat=ITEMS):
        of_slots = [
            math.prod(0.5 if i == slot else noise if bit else 1 - noise for i, bit in enumerate(bits))
            for slot in (*own, *[MISSING] * (OWN - len(own)))
        ]
        law[tuple(np.flatnonzero(bits).tolist())] = sum(of_slots) / OWN
    return law


def largest_ratio(laws: list[Law]) -> float:
    return max(first[report] / other[report] for first in laws for other in laws for report in first)


def enumerated(mechanism: PrivSet | PadAndSample) -> Iterator[tuple[tuple[int, ...], Law]]:
    for own in SETS:
        yield own, privset_law(mechanism, own) if isinstance(mechanism, PrivSet) else pad_and_sample_law(own)


@pytest.mark.parametrize("kind", [PrivSet, PadAndSample])
def test_enumerated_loss_is_epsilon_and_every_item_has_its_support(kind: type[PrivSet | PadAndSample]) -> None:
    """All reports of all sets: the largest ratio is e**eps, and an item is supported with a if own, else with b, so estimates are unbiased."""
    mechanism = kind(ITEMS, OWN, EPSILON)
    laws = dict(enumerated(mechanism))
    assert largest_ratio([*laws.values()]) == pytest.approx(math.exp(EPSILON), rel=1e-12)
    a, b = mechanism.support
    for own, law in laws.items():
        assert sum(law.values()) == pytest.approx(1)
        for item in range(ITEMS):
            supported = sum(chance for report, chance in law.items() if item in report)
            assert supported == pytest.approx(a if item in own else b, rel=1e-12)


@pytest.mark.parametrize("own", [1, 2, 3, 7])
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_density_of_the_wheel_keeps_epsilon_and_supports_every_item_alike(
    own: int, epsilon: float, unseen_seed: int
) -> None:
    """The density is between 1 / Omega and e**eps / Omega, both reached, its integral is 1, and an own arc has the mass a."""
    wheel, rng = Wheel(100, own, epsilon), np.random.default_rng(unseen_seed)
    places = rng.random((500, own))
    places[:, 0] = np.where(np.arange(500) < 100, np.nan, places[:, 0])
    covered = np.append(wheel.covered(places), [own * wheel.arc, 0.0])
    inside, outside = (wheel.density(covered, on_arc=on_arc) for on_arc in (True, False))
    assert np.allclose(covered * inside + (1 - covered) * outside, 1)
    assert outside.min() == pytest.approx(1 / wheel.omega)
    assert np.all(outside <= inside * (1 + 1e-12))
    assert inside[0] * wheel.omega == pytest.approx(math.exp(epsilon))
    a, b = wheel.support
    assert (wheel.arc * inside[0], wheel.arc) == pytest.approx((a, b))
    grid = (np.arange(20_000) + 0.5) / 20_000
    on_grid = [(((grid[:, None] - starts) % 1) < wheel.arc).any(axis=1).mean() for starts in places[90:110]]
    assert covered[90:110] == pytest.approx(on_grid, abs=own / 10_000)


@pytest.mark.parametrize("own", [1, 3, 20])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_arc_of_the_wheel_has_the_smallest_variance(own: int, epsilon: float) -> None:
    """Of a grid of arcs; with one item the arc is that of optimized local hashing, 1 / (e**eps + 1)."""
    wheel, e = Wheel(100, own, epsilon), math.exp(epsilon)
    arcs = np.linspace(0, 1 / own, 100_000)[1:-1]
    likely = arcs * e / (1 + own * arcs * (e - 1))
    assert wheel.variance(0.0, 1) == pytest.approx((arcs * (1 - arcs) / (likely - arcs) ** 2).min(), rel=1e-6)
    assert own > 1 or wheel.arc == pytest.approx(1 / (e + 1))


def test_answer_about_one_item_keeps_epsilon() -> None:
    yes_if_own, yes_if_not = AskOne(ITEMS, OWN, EPSILON).support
    assert yes_if_own / yes_if_not == pytest.approx(math.exp(EPSILON))
    assert (1 - yes_if_not) / (1 - yes_if_own) == pytest.approx(math.exp(EPSILON))


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize(("epsilon", "items", "own"), [(1.0, 12, 3), (4.0, 30, 5)])
def test_simulated_errors_are_those_of_the_formula(
    kind: type[SetMechanism], epsilon: float, items: int, own: int, unseen_seed: int
) -> None:
    """Mean error of each item at alpha = 1e-6, mean squared error of all items within 6 standard errors; 300 runs, sets of 1 to m items.

    Squares are skewed, so that the mean of 300 is below 4.9 of its estimated standard errors more often than once in a million.
    """
    runs, clients, rng = 300, 1_200, np.random.default_rng(unseen_seed)
    cell, mechanism = Cell(epsilon, items, own), kind(items, own, epsilon)
    shares, sets = cell.shares(clients), cell.sets(clients)
    variances = np.array([mechanism.variance(share, clients) for share in shares]) / clients
    found = np.array([mechanism.estimate(sets, rng) - shares for _ in range(runs)])
    assert np.all(np.abs(found.mean(axis=0)) <= norm.isf(5e-7 / items) * np.sqrt(variances / runs))
    ratios = (found**2 / variances).mean(axis=1)
    assert ratios.mean() == pytest.approx(1, abs=6 * ratios.std(ddof=1) / math.sqrt(runs))


@pytest.mark.slow
@pytest.mark.parametrize("own", [1, 3, 5, 8, 20])
@pytest.mark.parametrize("items", [30, 100, 250, 500, 1000, 1025, 2000, 5000])
def test_plans_are_near_the_best_of_the_others(items: int, own: int) -> None:
    """Mean planned variance of a million clients at most 1.1 times that of Wheel, and of one question to each client.

    The mean is over the items of three workloads in which clients have m items on average: equal shares, Zipf's law, and 90 % of the items below
    1 %, as far as no share is above 1.
    """
    clients, rare, ranks = 10**6, min(0.005, own / items), np.arange(1, items + 1)
    equal, rest = np.full(items, own / items), (own - 0.9 * items * rare) / (0.1 * items)
    workloads = [equal, *([np.where(ranks <= items / 10, rest, rare)] if rest <= 1 else [])]
    for epsilon in (0.5, 1.0, 2.0, 3.0, 4.0):
        wanted = Wishes(kind=KindWord.SET, num_candidates=items, own=own, epsilon=epsilon, num_reports=clients)
        law, wheel = plan(wanted).description.accuracy, Wheel(items, own, epsilon)
        zipf = np.repeat(law.shares.values, law.shares.numbers.astype(int))
        for shares in (*workloads, zipf):
            best = min(
                np.mean([wheel.variance(share, clients) for share in (0.0, 1.0)] @ np.array([1 - shares, shares])),
                np.mean(items * (math.exp(epsilon) / math.expm1(epsilon) ** 2 + shares * (1 - shares))),
            )
            planned = clients * float(np.mean(law.variance(shares)))
            assert planned <= 1.1 * best, (epsilon, shares.max(), planned / best)
