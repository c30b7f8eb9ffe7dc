"""Calibration of changes between two periods: intervals cover at s = 0, .5 and 1, with s estimated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import t as student_t

from hubbub import Metric, Params
from hubbub_decoder import compare, simulate_two_periods

ALPHA = 1e-6
RUNS, CLIENTS = 12, 5_000


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [0.0, 0.5, 1.0])
def test_intervals_of_changes_cover(overlap: float, unseen_seed: int) -> None:
    """Squared error / declared variance within 1, coverage within .95, up to 4.9 standard errors between populations (alpha = 1e-6).

    16 candidates, 8 of them absent; a tenth of the clients of the first candidate move to the second. Slack: .15 and .03, for intervals
    of s less a standard error of .1 to .16.
    """
    rng = np.random.default_rng(unseen_seed)
    params = Params(num_bits=32, num_hashes=1, num_cohorts=16, prob_p=0.1, prob_q=0.9, permanent_p=0.1, permanent_q=0.5)
    ratios, covered = [], []
    for run in range(RUNS):
        names = [f"{unseen_seed}-{run}-{i}" for i in range(8)]
        kept = round(overlap * CLIENTS)
        people = {(name, name): kept for name in names}
        people |= {(name, names[(i + 3) % 8]): CLIENTS - kept for i, name in enumerate(names)}
        people[names[0], names[1]] = CLIENTS // 10
        moved = CLIENTS / 10 / sum(people.values())
        truth = {names[0]: -moved, names[1]: moved}
        pair = simulate_two_periods(Metric.string("m", params), people, rng)
        rows = list(compare(*pair, [*names, *(f"{run}-no-{i}" for i in range(8))]))
        true = np.array([truth.get(row.candidate, 0.0) for row in rows])
        change, error, low, high = (
            np.array([getattr(row, name) for row in rows]) for name in ("change", "std_error", "low", "high")
        )
        ratios.append(np.mean(((change - true) / error) ** 2))
        covered.append(np.mean((low <= true) & (true <= high)))
    reach = float(student_t.isf(ALPHA / 2, RUNS - 1)) / math.sqrt(RUNS)
    assert abs(np.mean(ratios) - 1) < 0.15 + reach * np.std(ratios, ddof=1)
    assert abs(np.mean(covered) - 0.95) < 0.03 + reach * np.std(covered, ddof=1)
