"""The central epsilon is a bound to the last digit: against rational arithmetic, for random small groups, without a tolerance."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from hubbub.mechanisms.blanket import CERTAIN, CHANCE_ERROR, MAX_RATIOS, RATIO_ERROR
from hubbub.mechanisms.subset import SubsetSelection
from hubbub.metrics.params import Params
from hubbub.privacy import central_epsilon, epsilon, shuffle_amplification
from hubbub.privacy.amplification import amplified_delta
from hubbub.privacy.blanket import blanket_delta
from tests.support.enumerate_shuffling import (
    Distribution,
    exact_bit_laws,
    exact_report_laws,
    lowered_exponential,
    worst_deltas,
)

DIGITS = 24


def random_params(rng: np.random.Generator) -> Params:
    """One or two bits with probabilities of few or of all 24 digits, with or without permanent noise."""
    digits = int(rng.choice([3, DIGITS]))
    places = 1 + rng.permutation(2**3 - 1)[:3] * 2 ** (digits - 3)
    p, middle, q = sorted(int(number) for number in places + rng.integers(2 ** (digits - 3), size=3))
    unit = 2**digits
    if rng.random() < 0.5:
        return Params.one_hot(int(rng.integers(1, 3)), prob_p=p / unit, prob_q=q / unit, prob_f=0)
    mechanism = {"prob_p": p / unit, "prob_q": q / unit, "prob_f": 1.5 * min(middle, unit - middle) / unit}
    return Params.one_hot(int(rng.integers(1, 3)), **mechanism)


def worst(laws: Sequence[Distribution], n: int, eps: float) -> Fraction:
    found: Fraction = max(worst_deltas(laws, n, lowered_exponential(eps)))
    assert isinstance(found, Fraction | int), "a float among the fractions"
    return Fraction(found)


def test_printed_epsilons_keep_a_tiny_delta_exactly(unseen_seed: int) -> None:
    """At delta = 1e-25 the epsilon must be at least the exact local one, which a float can miss by a unit in the last place."""
    rng = np.random.default_rng(unseen_seed)
    for _ in range(40):
        params, n = random_params(rng), int(rng.integers(1, 3))
        for periods in (1, 2) if params.num_bits == 1 else (1,):
            laws = exact_report_laws(params, periods)
            found = central_epsilon(params, n, 1e-25, periods)
            assert worst(laws, n, found) <= Fraction(1e-25), (params, n, periods)
            assert found <= epsilon(params, periods) * (1 + 1e-7)


def test_printed_epsilons_keep_every_delta_exactly(unseen_seed: int) -> None:
    rng = np.random.default_rng(unseen_seed)
    for _ in range(40):
        params, n, delta = random_params(rng), int(rng.integers(2, 5)), float(10 ** rng.uniform(-6, -0.3))
        laws = exact_report_laws(params, 1)
        found = central_epsilon(params, n, delta)
        assert worst(laws, n, found) <= Fraction(delta), (params, n, delta)
        general = shuffle_amplification(epsilon(params) * (1 + 1e-12), n, delta)
        assert worst(laws, n, general) <= Fraction(delta), (params, n, delta)


@pytest.mark.parametrize("n", [1, 2, 3, 40])
def test_delta_of_randomized_response_with_clones_is_never_below_the_exact_sum(n: int, unseen_seed: int) -> None:
    """Theorem 3.2 of 2021, in rational arithmetic, at local epsilons ln r of a rational r; at n = 1 it is an equality."""
    rng = np.random.default_rng(unseen_seed)
    for _ in range(40):
        exact_ratio = 1 + Fraction(int(rng.integers(1, 4_000)), int(rng.integers(1, 2_000)))
        local = math.log(exact_ratio)
        eps = local * float(rng.choice([0.0, 1e-6, 0.1, 0.5, 0.9, 1 - 1e-9]))
        # rounded so that the exact sum is at a local epsilon of at most, and an epsilon of at least, those of the floats
        ratio, factor = lowered_exponential(local), 1 / lowered_exponential(-eps)
        clone, mine = 1 / ratio, ratio / (1 + ratio)
        exact = Fraction(0)
        for c in range(n):
            fair = [Fraction(math.comb(c, j), 2**c) for j in range(c + 1)]
            ways = zip([Fraction(0), *fair], [*fair, Fraction(0)], strict=True)
            sup = sum(
                max(Fraction(0), mine * u + (1 - mine) * v - factor * ((1 - mine) * u + mine * v)) for u, v in ways
            )
            exact += math.comb(n - 1, c) * clone**c * (1 - clone) ** (n - 1 - c) * sup
        assert exact <= Fraction(amplified_delta(eps, local, n)), (exact_ratio, eps)


@pytest.mark.parametrize("n", [1, 5, 60])
def test_delta_of_the_blanket_is_never_below_the_exact_sum_of_its_lemma(n: int, unseen_seed: int) -> None:
    """Lemma 5.3 of 2019 for one bit, in rational arithmetic: the sum of M ratios is a function of the number of ones among them."""
    rng = np.random.default_rng(unseen_seed)
    for _ in range(8):
        params = Params.one_hot(1, prob_p=int(rng.integers(1, 2**23)) / 2**24, prob_q=0.75, prob_f=0)
        p, q = (Fraction(rate) for rate in (params.mechanism.p_star, params.mechanism.q_star))
        local, eps = epsilon(params), epsilon(params) * float(rng.uniform(0.01, 0.6))
        factor = 1 / lowered_exponential(-eps)
        weight = min(p, q) + min(1 - p, 1 - q)
        blanket = [min(1 - p, 1 - q) / weight, min(p, q) / weight]
        exact = Fraction(0)
        for first, second in (((1 - p, p), (1 - q, q)), ((1 - q, q), (1 - p, p))):
            gains = [(x - factor * y) / w for x, y, w in zip(first, second, blanket, strict=True)]
            total = Fraction(0)
            for m, ones in product(range(1, n + 1), range(n + 1)):
                if ones <= m:
                    chance = math.comb(n, m) * weight**m * (1 - weight) ** (n - m) * math.comb(m, ones)
                    gain = max(Fraction(0), ones * gains[1] + (m - ones) * gains[0])
                    total += chance * blanket[1] ** ones * blanket[0] ** (m - ones) * gain
            exact = max(exact, total / (weight * n))
        found = params.mechanism.blanket(1, (0, 1), (1,))
        assert exact <= Fraction(blanket_delta(found, eps, n)), (params, eps, local)


def test_weights_are_within_their_stated_error(unseen_seed: int) -> None:
    """Bits of several permanent responses: the smallest ratio to "no value"; one bit: the smaller of both laws; rows: a row without the value."""
    rng = np.random.default_rng(unseen_seed)
    for _ in range(100):
        p, b, a, q = (int(number) / 2**DIGITS for number in np.sort(rng.integers(2**20, 2**DIGITS - 2**20, 4)))
        if not p < b < a < q:
            continue
        hashes, epochs = int(rng.integers(1, 9)), tuple(map(int, rng.integers(1, 4, rng.integers(1, 8))))
        params = Params(
            num_bits=128, num_hashes=hashes, num_cohorts=1, prob_p=p, prob_q=q, permanent_p=b, permanent_q=a
        )
        laws = [exact_bit_laws(params, reports) for reports in epochs]
        least = math.prod(min(one / zero for zero, one in zip(*law, strict=True)) for law in laws)
        found = params.mechanism.blanket(128, params.possible_ones, epochs).weight
        assert abs(Fraction(found) / least**hashes - 1) < Fraction(CHANCE_ERROR), (params, epochs)
        zeros, ones = ([math.prod(chances) for chances in product(*of)] for of in zip(*laws[:2], strict=True))
        found = params.mechanism.blanket(1, (0, 1), epochs[:2]).weight
        if len(zeros) <= MAX_RATIOS:
            assert abs(Fraction(found) / sum(map(min, zeros, ones)) - 1) < Fraction(CHANCE_ERROR), (params, epochs)
    for rate in (0.75, 1 - 2**-20):
        rows = SubsetSelection(num_values=8, num_ones=2, prob_q=rate, permanent_q=1 - 2**-22)
        kept, shown = Fraction(rows.permanent_q), Fraction(rows.prob_q)
        included = kept * shown + (1 - kept) * (2 - shown) / 7
        found = rows.blanket(8, (1,), (1,)).weight
        assert abs(Fraction(found) / ((1 - included) * 8 / 6) - 1) < Fraction(CHANCE_ERROR), rate


def test_chances_and_ratios_of_a_bit_are_within_their_stated_errors() -> None:
    """Seven reports of a bit, at probabilities of 24 digits."""
    params = Params.one_hot(2, prob_p=0.1, prob_q=0.7, permanent_p=0.2, permanent_q=0.6)
    blanket = params.mechanism.blanket(2, (0, 1), (7,))
    exact = defaultdict[Fraction, Fraction](Fraction)
    for zero, one in zip(*exact_bit_laws(params, 7), strict=True):
        exact[one / zero] += zero
    ((part,),) = [pair for pair in blanket.pairs if pair[0].first != CERTAIN and pair[0].second == CERTAIN]
    assert abs(Fraction(blanket.weight) / min(exact) - 1) < Fraction(CHANCE_ERROR)
    for (chance, ratio), (exact_ratio, exact_chance) in zip(part.first, sorted(exact.items()), strict=True):
        assert abs(Fraction(chance) / exact_chance - 1) < Fraction(CHANCE_ERROR)
        assert abs(Fraction(ratio) / exact_ratio - 1) < Fraction(RATIO_ERROR)
