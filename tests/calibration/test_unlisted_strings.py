"""False alarms of the search for unlisted strings, on random tasks without a frequent one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hubbub_decoder import decode
from tests.support.random_tasks import draw_task, simulate_task

MAX_CANDIDATES, MAX_CELLS, TASKS = 150, 4_000, 60


@pytest.mark.slow
def test_random_tasks_without_a_frequent_unlisted_string_add_none(unseen_seed: int) -> None:
    """60 random tasks of bit counts and pattern counts, with 300 or more small unlisted strings or with none.

    At most 1 in 1,000 may add a string: three among 60 have probability 4e-5, four 6e-7.
    """
    rows = tasks = index = 0
    while tasks < TASKS:
        task = draw_task(index, unseen_seed)
        index += 1
        cells = task.params.num_bits * task.params.num_cohorts
        if task.kind == "reports" or task.num_candidates > MAX_CANDIDATES or cells > MAX_CELLS:
            continue
        tasks += 1
        honest = replace(task, heavy=0.0, num_reports=min(task.num_reports, 300_000))
        summary, candidates, population, _ = simulate_task(honest)
        decoding = decode(summary, candidates)
        largest = max((n for name, n in population.items() if name not in decoding), default=0) / decoding.num_reports
        rows += bool(decoding.unlisted_strings) and largest < decoding.detection_limit / 2
    assert rows < 4
