"""Calibration on random tasks, the smaller run of `benchmarks/random_tasks.py`: fixed seeds, so that a failure is a change of the code."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from hubbub_decoder import Decoding, decode
from tests.support.random_tasks import KINDS, SATURATED, Score, Task, clustered_mean, draw_task, score, simulate_task

SEED = 1
TASKS = 48
SATURATED_TASKS = 40
STANDARD_ERRORS = 4.0


@pytest.fixture(scope="module")
def outcomes() -> list[tuple[Task, Decoding, Score]]:
    """Decoded tasks with their scores."""
    found = []
    for index in range(TASKS):
        task = draw_task(index, SEED)
        summary, candidates, population, no_value = simulate_task(task)
        decoding = decode(summary, candidates)
        found.append((task, decoding, score(decoding, population, no_value)))
    return found


@pytest.mark.slow
def test_random_tasks_are_calibrated(outcomes: list[tuple[Task, Decoding, Score]]) -> None:
    """Error / declared variance in [.9, 1.1], coverage in [.945, .955], false discoveries at most 5 %, within 4 standard errors.

    Of three totals a task too few miss for an upper bound of their coverage: one miss in all tasks has a probability of .6 % at .95.
    """
    scores = [s for _, _, s in outcomes]
    check([s.ratio for s in scores], 0.9, 1.1)
    check([s.coverage["all"] for s in scores], 0.945, 0.955)
    check([s.coverage["totals"] for s in scores], 0.945, 1)
    check([s.false / max(1, s.false + s.found) for s in scores], 0, 0.05)
    assert not any(s.wild for s in scores)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_random_tasks_of_each_kind_are_calibrated(outcomes: list[tuple[Task, Decoding, Score]], kind: str) -> None:
    """Error / declared variance in [.85, 1.15] and coverage in [.94, .96], within 4 standard errors."""
    scores = [s for task, _, s in outcomes if task.kind == kind]
    check([s.ratio for s in scores], 0.85, 1.15)
    check([s.coverage["all"] for s in scores], 0.94, 0.96)


@pytest.mark.slow
def test_detected_candidates_have_intervals_above_zero(outcomes: list[tuple[Task, Decoding, Score]]) -> None:
    for task, decoding, _ in outcomes:
        assert all(e.low > 0 for e in decoding.detected), task


@pytest.mark.slow
def test_posterior_shares_are_null_exactly_where_the_listed_total_is(
    outcomes: list[tuple[Task, Decoding, Score]],
) -> None:
    """Else the means add up to the listed total. Both kinds of tasks are met."""
    determined = []
    for task, decoding, _ in outcomes:
        total, estimates = (
            decoding.listed_total.share,
            [estimate for estimate in decoding if not math.isnan(estimate.share)],
        )
        columns = np.array([[e.posterior_median, e.credible_low, e.credible_high, e.posterior_mean] for e in estimates])
        if not estimates:
            continue
        determined.append(not math.isnan(total))
        if determined[-1]:
            assert abs(columns[:, 3].sum() - min(max(total, 0), 1)) < 1e-9, task
            assert (columns[:, [0, 3]] >= 0).all(), task
        else:
            assert np.isnan(columns).all(), task
    assert {*determined} == {True, False}


@pytest.mark.slow
def test_saturated_tasks_are_calibrated() -> None:
    """40 tasks of few bits, few cohorts and 1e7 to 1e10 reports: error / declared variance at most 1.15, coverage at least .94.

    Every estimate is a possible share up to 10 standard errors. Where hashing decides, some fits are wider than they need to be.
    """
    scores = []
    for index in SATURATED[:SATURATED_TASKS]:
        task = draw_task(index, SEED)
        summary, candidates, population, no_value = simulate_task(task)
        decoding = decode(summary, candidates)
        scores.append(score(decoding, population, no_value))
        known = [e for e in decoding if not math.isnan(e.share)]
        assert all(-10 * e.std_error < e.share < 1 + 10 * e.std_error and e.std_error < 1 for e in known), task
    check([s.ratio for s in scores], 0, 1.15)
    check([s.coverage["all"] for s in scores], 0.94, 1)
    assert not any(s.wild for s in scores)


def check(values: Sequence[float], low: float, high: float) -> None:
    """Assert that the mean over the tasks is within [low, high], up to 4 of its standard errors."""
    mean, error = clustered_mean(np.array(values, float))
    assert not math.isnan(mean)
    assert low - STANDARD_ERRORS * error <= mean <= high + STANDARD_ERRORS * error, (mean, error)
