"""Search for the probabilities: closed forms of the literature, brute force on random tasks, rounding within the epsilons."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hubbub_decoder.model.repetition import Repetition
from hubbub_decoder.planning.law.chain import Chain
from hubbub_decoder.planning.probabilities import Limits, best_chain


def oue(epsilon: float) -> float:
    """N Var of optimized unary encoding."""
    return 4 * math.exp(epsilon) / math.expm1(epsilon) ** 2


def best_noise(limits: Limits, number: int, share: float, *, symmetric: bool = False) -> tuple[float, Chain]:
    hashes = max(1, limits.most_exchanged)

    def noise(chain: Chain) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return chain.noise(share, Repetition(number, number)) / (number * hashes)

    chain = best_chain(limits, noise, symmetric=symmetric)
    return float(noise(chain)), chain


@pytest.mark.parametrize("epsilon", [0.5, 1, 2, 4])
def test_one_report_finds_optimized_unary_encoding(epsilon: float) -> None:
    noise, chain = best_noise(Limits(64, (0, 1), epsilon), 1, 0.0)
    assert noise == pytest.approx(oue(epsilon), rel=1e-4)
    assert [float(probability) for probability in chain] == pytest.approx(
        [1, 0, 1 / (math.exp(epsilon) + 1), 0.5], abs=0.002
    )


@pytest.mark.parametrize(("report", "lifetime"), [(1, 4), (2, 4), (4, 8)])
@pytest.mark.parametrize("number", [7, 30])
def test_repeated_reports_find_the_asymmetric_chain(report: float, lifetime: float, number: int) -> None:
    """L-OSUE: a = 1/2, b = 1/(e^einf + 1), q = 1 - p, and N Var = OUE(einf) + (OUE(e1) - OUE(einf)) / T at share 0."""
    noise, chain = best_noise(Limits(64, (0, 1), report, lifetime), number, 0.0)
    law = oue(lifetime) + (oue(report) - oue(lifetime)) / number
    assert noise == pytest.approx(law, rel=1e-3)
    assert [float(chain.a), float(chain.b)] == pytest.approx([0.5, 1 / (math.exp(lifetime) + 1)], abs=0.02)
    assert float(chain.p + chain.q) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(
    ("report", "lifetime", "reachable"), [(1, 4, True), (2, 4, True), (4, 4.2, False), (4, 8, True)]
)
def test_symmetric_response_reaches_optimized_unary_encoding_within_its_condition(
    report: float, lifetime: float, reachable: bool
) -> None:
    assert (math.expm1(report) / (math.exp(report) + 3) <= math.tanh(lifetime / 4)) is reachable
    noise, _ = best_noise(Limits(64, (0, 1), report, lifetime), 1, 0.0, symmetric=True)
    assert (noise <= oue(report) * 1.001) is reachable


def test_large_shares_move_the_permanent_response_towards_one() -> None:
    """(4, 8), 30 reports, share .1: .0156 with P(1|1) = .95; the chain of small shares has .104."""
    noise, chain = best_noise(Limits(64, (0, 1), 4, 8), 30, 0.1)
    assert noise == pytest.approx(0.0156, abs=1e-4)
    assert float(chain.a) == pytest.approx(0.95, abs=0.01)


@pytest.mark.parametrize("hashes", [2, 3])
def test_more_hashes_have_a_larger_variance(hashes: int) -> None:
    for number in (1, 30):
        one, _ = best_noise(Limits(64, (0, 1), 2, 4), number, 0.001)
        more, _ = best_noise(Limits(64, (0, hashes), 2, 4), number, 0.001)
        assert more > 1.5 * one


def test_boolean_finds_randomized_response() -> None:
    noise, chain = best_noise(Limits(1, (0, 1), 1.0), 1, 0.3)
    assert float(chain.p) == pytest.approx(1 / (math.e + 1), abs=1e-3)
    assert float(chain.p + chain.q) == pytest.approx(1, abs=1e-3)
    assert noise == pytest.approx(math.e / (math.e - 1) ** 2, rel=1e-3)


def test_epoch_limit_binds_where_its_reports_exceed_it() -> None:
    limits = Limits(64, (0, 1), 1.0, 2.0, 7)
    _, chain = best_noise(limits, 28, 0.0)
    assert float(chain.epsilon(64, (0, 1), 1)) <= 1
    assert 1.9 <= float(chain.epsilon(64, (0, 1), 7)) <= 2
