"""Shares of few categories under planned mechanisms: errors near the optimum, and coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from hubbub_decoder import decode, plan, simulate
from hubbub_decoder.planning.wishes import Wishes

ALPHA, REPORTS, ERRORS = 1e-6, 20_000, 800


def least_variance(values: int, epsilon: float) -> float:
    """N times the Fisher bound of a share at the uniform population of d values, of subset selection with the best w, or of OUE.

    A row has w ones, the value's with probability q = w e^eps / (w e^eps + d - w). Counts of ones are efficient at the uniform
    population: pi (1 - pi) / (q - p)**2 with pi = w / d and p = (w - q) / (d - 1). OUE: q = 1/2, p = 1 / (e^eps + 1), pi = p + (q - p) / d.
    """
    d, found = values + 1, []
    for w in range(1, d // 2 + 1):
        q = w * math.exp(epsilon) / (w * math.exp(epsilon) + d - w)
        found.append(w / d * (1 - w / d) / (q - (w - q) / (d - 1)) ** 2)
    p = 1 / (math.exp(epsilon) + 1)
    pi = p + (0.5 - p) / d
    return min(*found, pi * (1 - pi) / (0.5 - p) ** 2)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
@pytest.mark.parametrize(("values", "most"), [(3, 1.05), (10, 1.05), (30, 1.10)])
def test_planned_categories_are_near_the_optimum(values: int, most: float, epsilon: float, unseen_seed: int) -> None:
    """Uniform shares, "no value" among them; as shares of a population, who reports is random. alpha = 1e-6 each."""
    rng, runs = np.random.default_rng(unseen_seed), math.ceil(ERRORS / values)
    metric = plan(Wishes(kind="categorical", num_candidates=values, epsilon=epsilon, num_reports=REPORTS)).metric  # type: ignore[arg-type]
    names, share = metric.kind.named_values, 1 / (values + 1)
    squares, covered = [], []
    for _ in range(runs):
        *clients, nothing = rng.multinomial(REPORTS, np.full(values + 1, share)).tolist()
        counts = simulate(metric, dict(zip(names, clients, strict=True)), rng, no_value=nothing)
        decoding = decode(counts, target="population")
        squares.append(np.mean([(row.share - share) ** 2 for row in decoding]))
        covered.append(np.mean([row.low <= share <= row.high for row in decoding]))
    reach = norm.isf(ALPHA) / math.sqrt(runs)
    ratio = np.array(squares) * REPORTS / least_variance(values, epsilon)
    assert ratio.mean() <= most + reach * ratio.std(ddof=1)
    assert 0.94 - reach * np.std(covered, ddof=1) <= np.mean(covered) <= 0.96 + reach * np.std(covered, ddof=1)
