"""Calibration of changes between two periods: intervals cover at s = 0, .5 and 1, with s estimated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from hubbub import Metric, Params
from hubbub_decoder import compare, simulate_two_periods

ALPHA = 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("b", "a"), [(0.1, 0.5), (0.25, 0.75)])
def test_intervals_of_changes_cover(b: float, a: float, overlap: float, unseen_seed: int) -> None:
    """Squared error / declared variance within 1, coverage within .95, up to 4.9 standard errors between populations (alpha = 1e-6).

    30 candidates, 10 of them absent, and an unlisted string with a fifth of the clients in both periods; a tenth of the clients of the
    first candidate move to the second.
    """
    rng, runs, clients = np.random.default_rng(unseen_seed), 24, 2_000
    params = Params(num_bits=32, num_hashes=1, num_cohorts=32, prob_p=0.1, prob_q=0.9, permanent_p=b, permanent_q=a)
    ratios, covered = [], []
    for run in range(runs):
        names = [f"{unseen_seed}-{run}-{i}" for i in range(20)]
        kept = round(overlap * clients)
        people = {(name, name): kept for name in names}
        people |= {(name, names[(i + 7) % 20]): clients - kept for i, name in enumerate(names)}
        people["heavy", "heavy"] = 10_000
        people[names[0], names[1]] = clients // 10
        total = sum(people.values())
        truth = dict.fromkeys(names, 0.0) | {names[0]: -clients / 10 / total, names[1]: clients / 10 / total}
        comparison = compare(*simulate_two_periods(Metric.string("m", params), people, rng), [*names, *(f"{run}-no-{i}" for i in range(10))])  # fmt: skip
        errors = [(row, row.change - truth.get(row.candidate, 0.0)) for row in comparison]
        ratios.append(np.mean([(error / row.std_error) ** 2 for row, error in errors]))
        covered.append(np.mean([row.low <= row.change - error <= row.high for row, error in errors]))
    reach = norm.isf(ALPHA / 2) / math.sqrt(runs)
    assert abs(np.mean(ratios) - 1) < 0.1 + reach * np.std(ratios, ddof=1)
    assert abs(np.mean(covered) - 0.95) < 0.02 + reach * np.std(covered, ddof=1)
