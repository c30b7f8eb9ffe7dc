"""False alarms and power of `hubbub watch`; benchmarks/watch.py prints the table of docs/how-to/watching.md."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import binom

from hubbub.metrics.periods import PeriodKind
from hubbub_decoder.watch.look import Rules
from tests.support.watched_years import NOISES, POPULATIONS, metric_of, null_year_has_alarm, step_is_found

FAILURE = 1e-6
NUM_YEARS = 20
NUM_STEPS = 200


@pytest.mark.slow
def test_years_without_a_change_have_alarms_at_the_stated_rate_at_most(unseen_seed: int) -> None:
    """20 years of weeks for each noise and population: at 5% a year, more alarms than this have probability 1e-6."""
    rng = np.random.default_rng(unseen_seed)
    cases = [(metric_of(noise, PeriodKind.WEEK), clients) for noise, clients in product(NOISES, POPULATIONS)]
    alarms = sum(null_year_has_alarm(metric, clients, rng) for metric, clients in cases for _ in range(NUM_YEARS))
    assert alarms <= binom.isf(FAILURE, NUM_YEARS * len(cases), 0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "clients", "same"), [("0%", "new", True), ("0%", "stay", True), ("100%", "new", False)]
)
def test_a_step_of_three_standard_errors_is_found_within_three_periods(
    noise: str, clients: str, same: bool, unseen_seed: int
) -> None:
    """With a probability of .9 at least, fewer than this are found with probability 1e-6: without permanent noise, or with clients that are known to differ."""
    rng, metric = np.random.default_rng(unseen_seed), metric_of(noise, PeriodKind.WEEK)
    found = sum(step_is_found(metric, clients, rng, Rules(same_clients=same)) for _ in range(NUM_STEPS))
    assert found >= binom.ppf(FAILURE, NUM_STEPS, 0.9)
