"""Calibration over several periods: the permanent noise of the same clients repeats, and intervals cover all the same."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from hubbub import Metric, Params
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub_decoder import decode
from hubbub_decoder.simulation import consecutive_periods, simulate, simulate_reports

ALPHA = 1e-6


def summary_of(
    kind: str, metric: Metric, people: dict[str, int], periods: tuple[str, ...], rng: np.random.Generator
) -> BitCounts | PatternCounts | Reports:
    if kind == "bits":
        return simulate(metric, people, rng, periods=periods)
    if kind == "patterns":
        return simulate(metric, people, rng, periods=periods, form=PatternCounts)
    cohorts, rows = zip(*simulate_reports(metric, people, rng, periods=periods), strict=True)
    return Reports(metric, np.concatenate(cohorts), np.concatenate(rows), periods)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "k", "p", "q", "b", "a", "number", "hold", "clients", "runs"),
    [
        ("bits", 32, 0.1, 0.9, 0.375, 0.625, 8, None, 100_000, 60),
        ("bits", 32, 0.02, 0.5, 0.125, 0.875, 6, 3, 100_000, 60),
        ("bits", 32, 0.1, 0.9, 0.02, 0.5, 8, None, 100_000, 60),
        ("patterns", 8, 0.1, 0.9, 0.25, 0.75, 6, None, 50_000, 30),
        ("patterns", 8, 0.1, 0.9, 0.05, 0.5, 6, None, 50_000, 30),
        ("reports", 32, 0.05, 0.6, 0.25, 0.75, 4, 2, 10_000, 16),
    ],
)
def test_intervals_of_repeated_reports_cover(
    kind: str,
    k: int,
    p: float,
    q: float,
    b: float,
    a: float,
    number: int,
    hold: int | None,
    clients: int,
    runs: int,
    unseen_seed: int,
) -> None:
    """Squared error / declared variance within 1, coverage within .95, up to 4.9 standard errors between populations (alpha = 1e-6).

    20 halving and equal shares (from .25 to .02) and 10 absent candidates; all strings are listed. Independent reports would be declared
    with a fifth to a quarter of these variances where hold is None.
    """
    rng = np.random.default_rng(unseen_seed)
    params = Params(num_bits=k, num_hashes=1, num_cohorts=32, prob_p=p, prob_q=q, permanent_p=b, permanent_q=a)
    metric, shares = Metric.string("m", params, hold=hold), np.append([0.25, 0.125], np.full(18, 0.625 / 18))
    periods = consecutive_periods(metric, number)
    ratios, covered = [], []
    for run in range(runs):
        names = [f"{unseen_seed}-{run}-{i}" for i in range(20)]
        people = dict(zip(names, rng.multinomial(clients, shares).tolist(), strict=True))
        decoding = decode(
            summary_of(kind, metric, people, periods, rng), [*names, *(f"{run}-no-{i}" for i in range(10))]
        )
        errors = [(people.get(e.candidate, 0) / clients, e) for e in decoding]
        ratios.append(np.mean([((e.share - truth) / e.std_error) ** 2 for truth, e in errors]))
        covered.append(np.mean([e.low <= truth <= e.high for truth, e in errors]))
    reach = norm.isf(ALPHA / 2) / math.sqrt(runs)
    assert abs(np.mean(ratios) - 1) < 0.05 + reach * np.std(ratios, ddof=1)
    assert abs(np.mean(covered) - 0.95) < 0.01 + reach * np.std(covered, ddof=1)
