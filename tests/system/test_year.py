"""A deployment of real parts under a simulated clock: docs/progress/57.md says what lives in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from scipy.stats import binom

from tests.system.year.checks import all_faults
from tests.system.year.coverage_check import ALPHA, false_detections, intervals, most_misses
from tests.system.year.deployment import lived

SEEDS = int(os.environ.get("HUBBUB_TEST_YEARS", "0"))

pytestmark = pytest.mark.skipif(not SEEDS, reason="`make soak` lives through years: HUBBUB_TEST_YEARS is their number")


def test_a_few_people_for_some_weeks(tmp_path: Path, unseen_seed: int) -> None:
    """Nothing is wrong after 40 days: one week is published, so the intervals are too few to be counted."""
    with lived(tmp_path, unseen_seed, days=40, number=4) as deployment:
        assert not all_faults(deployment)
        assert deployment.service.requests


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_nothing_is_wrong_and_intervals_cover(tmp_path: Path, unseen_seed: int) -> None:
    """Intervals of one definition each, of independent seeds: more misses, or false detections, than a rate of 5 % has with 1 - 1e-6.

    The sum of the false shares has a smaller tail than a binomial number with the same mean, up to one more: each share is in [0, 1].
    """
    found, false, definitions = [], 0.0, 0
    for number in range(SEEDS):
        with lived(tmp_path / str(number), unseen_seed + number, days=66, number=20) as deployment:
            assert not all_faults(deployment), f"seed {unseen_seed + number}"
            found += intervals(deployment)
            of_seed, tested = false_detections(deployment)
            false, definitions = false + of_seed, definitions + tested
    missed = [interval for interval in found if not interval.covers]
    assert len(missed) <= most_misses(len(found)), missed
    assert false <= binom.isf(ALPHA, definitions, 0.05) + 1
