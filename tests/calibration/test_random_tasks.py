"""Calibration on random tasks, the smaller run of `benchmarks/random_tasks.py`: fixed seeds, so that a failure is a change of the code."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from hubbub_decoder import Decoding, decode
from tests.support.random_tasks import KINDS, Score, Task, clustered_mean, draw_task, score, simulate_task

SEED = 1
TASKS = 72
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
    """Error / declared variance in [.9, 1.1], coverage in [.945, .955], false discoveries at most 5 %, within 4 standard errors."""
    scores = [s for _, _, s in outcomes]
    check([s.ratio for s in scores], 0.9, 1.1)
    check([s.coverage["all"] for s in scores], 0.945, 0.955)
    check([s.coverage["totals"] for s in scores], 0.945, 0.955)
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


def check(values: Sequence[float], low: float, high: float) -> None:
    """Assert that the mean over the tasks is within [low, high], up to 4 of its standard errors."""
    mean, error = clustered_mean(np.array(values, float))
    assert not math.isnan(mean)
    assert low - STANDARD_ERRORS * error <= mean <= high + STANDARD_ERRORS * error, (mean, error)
