"""False alarms and power of `hubbub watch`; benchmarks/watch.py prints the tables of docs/how-to/watching.md."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import binom, norm

from hubbub.metrics.periods import PeriodKind
from hubbub_decoder.watch.look import POWER, Rules, look_at_shares
from tests.support.watched_years import (
    BASELINE,
    CLIENTS,
    NOISES,
    have_alarms,
    look_through,
    steps,
    years_without_change,
)

FAILURE = 1e-6
NUM_YEARS = 2000
NUM_STEPS = 5000


@pytest.mark.parametrize(("noise", "same_clients"), [*product(NOISES, (True, False))])
def test_looks_in_closed_form_are_those_of_the_command(noise: str, same_clients: bool, unseen_seed: int) -> None:
    """Alarms of steps that about half of the looks find, and what a look says it can find."""
    rng, rules = np.random.default_rng(unseen_seed), Rules(same_clients=same_clients)
    years = steps(noise, "new", 10, rng, size=5.0)
    reach = norm.isf((1 - rules.confidence(years.metric, 1)) / 2)
    looks = [*look_through(years, rules)]
    for year in range(10):
        samples = years.samples(year)
        for number in range(3):
            look = look_at_shares(samples[: BASELINE + number + 1], None, rules)
            alone, together = ((d[year], e[year]) for d, e in looks[2 * number : 2 * number + 2])
            assert bool(look.alarms) == any(abs(d) > reach * e for d, e in (alone, together))
            assert look.detectable == pytest.approx((reach + norm.ppf(POWER)) * together[1], rel=1e-6)
            for alarm in look.alarms:
                d, e = alone if alarm.num_periods == 1 else together
                assert (alarm.estimate, alarm.low, alarm.high) == pytest.approx((d, d - reach * e, d + reach * e))


@pytest.mark.parametrize("kind", [PeriodKind.WEEK, pytest.param(PeriodKind.DAY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("clients", CLIENTS)
def test_years_without_a_change_have_alarms_at_the_stated_rate_at_most(
    clients: str, kind: PeriodKind, unseen_seed: int
) -> None:
    """2,000 years for each mechanism: at 5% a year, more alarms than this have probability 1e-6. It is below 8%."""
    rng, limit = np.random.default_rng(unseen_seed), binom.isf(FAILURE, NUM_YEARS, 0.05)
    assert limit < 0.08 * NUM_YEARS
    for noise in NOISES:
        assert have_alarms(years_without_change(noise, kind, clients, NUM_YEARS, rng), Rules()).sum() <= limit, noise


@pytest.mark.parametrize("noise", NOISES)
def test_a_step_of_three_standard_errors_is_found_within_three_periods(noise: str, unseen_seed: int) -> None:
    """By clients that are known to differ: if .9 are found, fewer than this have probability 1e-6."""
    years = steps(noise, "new", NUM_STEPS, np.random.default_rng(unseen_seed))
    assert have_alarms(years, Rules(same_clients=False)).sum() >= binom.ppf(FAILURE, NUM_STEPS, 0.9)
