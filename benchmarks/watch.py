"""`hubbub watch`: how many years without a change have a false alarm, and how often is a step of three standard errors found?

    python -m benchmarks.watch [--years 400] [--steps 400] [--jobs 2]

One value of a yes/no metric, 20,000 clients, a baseline of 26 periods, and 5% false alarms a year. The step lasts, and three looks may find it.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

from benchmarks.runner import Benchmark, generator
from hubbub.metrics.periods import PeriodKind
from hubbub_decoder.audit.bound import clopper_pearson_high
from hubbub_decoder.watch.look import Rules
from tests.support.watched_years import NOISES, POPULATIONS, metric_of, null_year_has_alarm, step_is_found


class Year(NamedTuple):
    """One year without a change."""

    period: PeriodKind
    noise: str
    clients: str
    number: int


class Step(NamedTuple):
    """One step; assumed : whether clients may report in several periods."""

    noise: str
    clients: str
    assumed: bool
    number: int


def look_through(year: Year) -> bool:
    """Whether the year has a false alarm."""
    return null_year_has_alarm(metric_of(year.noise, year.period), year.clients, generator(*year))


def look_after(step: Step) -> bool:
    """Whether the step is found."""
    rules = Rules(same_clients=step.assumed)
    return step_is_found(metric_of(step.noise, PeriodKind.WEEK), step.clients, generator(*step), rules)


def main() -> None:
    """Print both tables."""
    benchmark = Benchmark(__doc__, jobs=2)
    benchmark.add("--years", type=int, default=400, help="years of each case (default: 400)")
    benchmark.add("--steps", type=int, default=400, help="steps of each case (default: 400)")
    benchmark.add("--period", choices=["day", "week"], action="append", help="only periods of this length; repeatable")
    options = benchmark.start()
    table = benchmark.table("watch-years")
    for name in options.period or ["week", "day"]:
        for noise, clients in product(NOISES, POPULATIONS):
            years = [Year(PeriodKind(name), noise, clients, i) for i in range(options.years)]
            alarms = sum(benchmark.map(look_through, years))
            table.add(
                {
                    "period": name,
                    "permanent": noise,
                    "clients": clients,
                    "years": str(len(years)),
                    "with_alarm": str(alarms),
                    "rate": f"{alarms / len(years):.1%}",
                    "upper_99": f"{float(clopper_pearson_high(np.array(float(alarms)), len(years), 0.01)):.1%}",
                }
            )
    table = benchmark.table("watch-steps")
    for noise, clients, assumed in product(NOISES, ("stay", "new"), (True, False)):
        if clients == "new" or assumed:
            steps = [Step(noise, clients, assumed, i) for i in range(options.steps)]
            found = sum(benchmark.map(look_after, steps))
            table.add(
                {
                    "permanent": noise,
                    "clients": clients,
                    "option": "" if assumed else "--independent-clients",
                    "steps": str(len(steps)),
                    "found": f"{found / len(steps):.1%}",
                }
            )


if __name__ == "__main__":
    main()
