"""Frequency oracles at one epsilon (`tests/support/oracle_laws.py`, `benchmarks/peers`): the exact laws, and the planned bit counts against the optimum."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hubbub import Metric
from hubbub_decoder import decode
from hubbub_decoder.data.populations import distribution_shares, draw_population
from hubbub_decoder.model.distributions import norm
from hubbub_decoder.simulation import simulate
from tests.support.oracle_cells import Cell, choose_params, error_ratio, norm_sub
from tests.support.oracle_laws import LAWS, draw_estimates, mean_variance

REACH = float(norm.isf(5e-7))
"""Standard errors that a normal mean exceeds, to either side, with probability 1e-6."""


@pytest.mark.parametrize("name", LAWS)
def test_drawn_estimates_have_the_variance_of_their_law(name: str, unseen_seed: int) -> None:
    """N times the mean squared error of 20,000 estimates is the closed form, at a random epsilon, within 4.9 standard errors."""
    rng = np.random.default_rng(unseen_seed)
    cell, runs = Cell(float(rng.uniform(0.5, 4)), 200, 1_000_000), 100
    counts = rng.multinomial(cell.reports, list(distribution_shares("zipf1", cell.values).values()))
    support = LAWS[name](cell.epsilon, cell.values)
    truth = counts / cell.reports
    ratios = [error_ratio(cell, draw_estimates(name, support, counts, rng), truth) for _ in range(runs)]
    expected = mean_variance(support, cell.values) / cell.optimum
    assert abs(np.mean(ratios) / expected - 1) < REACH * math.sqrt(2 / (runs * cell.values))


@pytest.mark.parametrize("name", LAWS)
def test_laws_keep_their_epsilon(name: str) -> None:
    """The largest ratio of the probabilities of one report under two values is e^epsilon."""
    epsilon, values = 1.7, 50
    p, q = LAWS[name](epsilon, values)
    cells = round(math.exp(epsilon)) + 1
    size = p + (values - 1) * q
    ratio = {
        "OUE": p / q * (1 - q) / (1 - p),
        "SUE": p / q * (1 - q) / (1 - p),
        "OLH": p / ((1 - p) / (cells - 1)),
        "GRR": p / q,
        "subset selection": p / (1 - p) * (values - size) / size,
    }[name]
    assert math.log(ratio) == pytest.approx(epsilon, rel=1e-12)


def test_norm_sub_is_the_nearest_distribution(unseen_seed: int) -> None:
    """Kuhn-Tucker conditions: the same amount is subtracted from all positive entries, and at least the entry itself from the others."""
    estimates = np.random.default_rng(unseen_seed).normal(0.05, 0.1, 30)
    nearest = norm_sub(estimates)
    subtracted = estimates - nearest
    assert nearest.min() >= 0
    assert nearest.sum() == pytest.approx(1)
    assert np.ptp(subtracted[nearest > 0]) == pytest.approx(0, abs=1e-12)
    assert np.all(estimates[nearest == 0] <= subtracted[nearest > 0].max() + 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "bound"), [(1, 1.10), (2, 1.10), (4, 1.20)])
def test_planned_bit_counts_are_near_the_optimum(epsilon: float, bound: float, unseen_seed: int) -> None:
    """The declared variance is below `bound` times the optimum, and the error is the declared one within 4.9 standard errors."""
    rng, cell = np.random.default_rng(unseen_seed), Cell(epsilon, 1_000, 100_000)
    shares = {f"{unseen_seed} {name}": share for name, share in distribution_shares("zipf1", cell.values).items()}
    population = draw_population(shares, cell.reports, rng)
    decoding = decode(simulate(Metric.string("m", choose_params(cell)), population, rng), list(population))
    truth = np.array([population[e.candidate] for e in decoding]) / cell.reports
    declared = error_ratio(cell, np.array([e.std_error for e in decoding]), np.zeros_like(truth))
    error = error_ratio(cell, np.array([e.share for e in decoding]), truth)
    assert declared <= bound
    assert abs(error / declared - 1) < REACH * math.sqrt(2 / cell.values)
