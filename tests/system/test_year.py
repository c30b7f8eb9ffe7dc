"""A deployment of real parts under a simulated clock: tests/system/year/README.md says what lives in it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from scipy.stats import binom

from tests.support.typescript import node_adapter
from tests.system.year.checks import all_faults
from tests.system.year.coverage_check import ALPHA, false_detections, false_discoveries, intervals, most_misses
from tests.system.year.deployment import lived

SEEDS = int(os.environ.get("HUBBUB_TEST_YEARS", "10"))


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("has_node", [False, True], ids=["python", "node"])
def test_nothing_is_wrong_and_intervals_cover(unseen_seed: int, has_node: bool) -> None:
    """Half of the seeds have people with the TypeScript client in Node.

    Intervals of one definition each, of independent seeds: more misses, or false detections, than a rate of 5 % has with 1 - 1e-6.

    The sum of the false shares has a smaller tail than a binomial number with the same mean, up to one more: each share is in [0, 1].
    """
    adapter = node_adapter() if has_node else None
    found, false, definitions, unfounded = [], 0.0, 0, 0.0
    for number in range(has_node, SEEDS, 2):
        with (
            tempfile.TemporaryDirectory() as directory,
            lived(Path(directory), unseen_seed + number, days=52, number=8, adapter=adapter) as deployment,
        ):
            assert not all_faults(deployment), f"seed {unseen_seed + number}"
            found += intervals(deployment)
            of_seed, tested = false_detections(deployment)
            false, definitions = false + of_seed, definitions + tested
            unfounded += false_discoveries(deployment)
    missed = [interval for interval in found if not interval.covers]
    assert len(missed) <= most_misses(len(found)), missed
    assert false <= binom.isf(ALPHA, definitions, 0.05) + 1
    assert unfounded <= binom.isf(ALPHA, SEEDS, 0.05) + 1
