"""Years of a yes/no metric for `hubbub watch`, with clients that stay, that are new in each period, that join, or that are replaced at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from types import MappingProxyType

import numpy as np

from hubbub import Metric, UnaryResponse
from hubbub.metrics.periods import Period, PeriodKind
from hubbub.summary import BitCounts
from hubbub_decoder import decode
from hubbub_decoder.watch.look import LOOKS_A_YEAR, Rules, look_at_shares
from tests.support.panels import Clients, simulate_panel

BASELINE = 26
NUM_CLIENTS = 20_000
SHARE = 0.3
STEP_STANDARD_ERRORS = 3.0
STEP_PERIODS = 3
NOISES = MappingProxyType(
    {
        "0%": UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0),
        "20%": UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5),
        "100%": UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5),
    }
)
"""Mechanisms by the part of a report's noise that is permanent."""

Draw = Callable[[int, np.random.Generator], Mapping[str, int]]
"""Clients with each value, so many of a population."""


def drawn(share: float) -> Draw:
    """Clients of a population in which so many have the value."""

    def draw(number: int, rng: np.random.Generator) -> Mapping[str, int]:
        yes = int(rng.binomial(number, share))
        return {"true": yes, "false": number - yes}

    return draw


def stay(num_periods: int, rng: np.random.Generator) -> list[Clients]:
    """The same clients in all periods."""
    return [(drawn(SHARE)(NUM_CLIENTS, rng), range(num_periods))]


def come_and_go(num_periods: int, rng: np.random.Generator) -> list[Clients]:
    """Other clients in each period."""
    return [(drawn(SHARE)(NUM_CLIENTS, rng), [i]) for i in range(num_periods)]


def join(num_periods: int, rng: np.random.Generator) -> list[Clients]:
    """Clients that stay, and others that join: four times as many at the end as at the beginning."""
    joining = 3 * NUM_CLIENTS // (num_periods - 1)
    return [
        *stay(num_periods, rng),
        *((drawn(SHARE)(joining, rng), range(i, num_periods)) for i in range(1, num_periods)),
    ]


def are_replaced(num_periods: int, rng: np.random.Generator) -> list[Clients]:
    """The same clients in a baseline and as many periods after it, then other ones: the worst case of a comparison."""
    size = 2 * BASELINE
    return [
        (drawn(SHARE)(NUM_CLIENTS, rng), range(start, min(start + size, num_periods)))
        for start in range(0, num_periods, size)
    ]


POPULATIONS = MappingProxyType({"stay": stay, "new": come_and_go, "join": join, "replaced": are_replaced})


def metric_of(noise: str, period: PeriodKind) -> Metric:
    """A yes/no metric."""
    return Metric.boolean("dark", NOISES[noise], period=period)


def days_of(period: PeriodKind, number: int) -> list[str]:
    """First days of so many periods in a row."""
    current, days = Period.containing(period, date(2026, 1, 5)), []
    for _ in range(number):
        days.append(str(current))
        current = current.next()
    return days


def null_year_has_alarm(metric: Metric, clients: str, rng: np.random.Generator) -> bool:
    """Whether any look of a year without a change raises an alarm, after a baseline."""
    number = BASELINE + LOOKS_A_YEAR[metric.period]
    samples = simulate_panel(metric, POPULATIONS[clients](number, rng), days_of(metric.period, number), rng)
    return any(look_at_shares(samples[: i + 1], None, Rules()).alarms for i in range(BASELINE, number))


def step_of(metric: Metric, rng: np.random.Generator) -> float:
    """Change of three standard errors of a share of one period."""
    (sample,) = simulate_panel(metric, stay(1, rng), days_of(metric.period, 1), rng)
    return STEP_STANDARD_ERRORS * float(decode(sample, target="population")["true"].std_error)


def step_is_found(metric: Metric, clients: str, rng: np.random.Generator, rules: Rules) -> bool:
    """Whether one of three looks finds a step of three standard errors after a baseline, of clients that "stay" or are "new"."""
    number = BASELINE + STEP_PERIODS
    before, after = range(BASELINE), range(BASELINE, number)
    step = step_of(metric, rng)
    if clients == "new":
        groups = [(drawn(SHARE + step * (i >= BASELINE))(NUM_CLIENTS, rng), [i]) for i in range(number)]
    else:
        moved = round(step * NUM_CLIENTS)
        groups = [
            (drawn(SHARE / (1 - step))(NUM_CLIENTS - moved, rng), range(number)),
            ({"false": moved}, before),
            ({"true": moved}, after),
        ]
    samples: list[BitCounts] = simulate_panel(metric, groups, days_of(metric.period, number), rng)
    return any(_found(samples[: i + 1], rules) for i in after)


def _found(samples: list[BitCounts], rules: Rules) -> bool:
    return any(alarm.side == "above" for alarm in look_at_shares(samples, None, rules).alarms)
