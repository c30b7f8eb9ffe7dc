"""`hubbub watch`: how many years without a change have a false alarm, and how often is a step of three standard errors found?

    python -m benchmarks.watch [--years 4000] [--steps 20000] [--period week]

rate_independent is the rate with --independent-clients. One value of a yes/no metric, 20,000 clients, a baseline of 26 periods, and 5% false alarms a year. The step lasts, and three looks may find it.
The looks are those of `hubbub watch` in closed form (tests/support/watched_years.py).
"""

from __future__ import annotations

from itertools import product

import numpy as np

from benchmarks.runner import Benchmark, generator
from hubbub.metrics.periods import PeriodKind
from hubbub_decoder.audit.bound import clopper_pearson_high
from hubbub_decoder.watch.look import Rules
from tests.support.watched_years import CLIENTS, NOISES, have_alarms, steps, years_without_change


def main() -> None:
    """Print both tables."""
    benchmark = Benchmark(__doc__)
    benchmark.add("--years", type=int, default=4000, help="years of each case (default: 4000)")
    benchmark.add("--steps", type=int, default=20_000, help="steps of each case (default: 20,000)")
    benchmark.add("--period", choices=["week", "day"], action="append", help="years of these periods only; repeatable")
    options = benchmark.start()
    table = benchmark.table("watch-years")
    for kind, noise, clients in product(map(PeriodKind, options.period or ("week", "day")), NOISES, CLIENTS):
        rng = generator("years", kind, noise, clients)
        years = years_without_change(noise, kind, clients, options.years, rng)
        with_alarm = int(have_alarms(years, Rules()).sum())
        upper = clopper_pearson_high(np.array([float(with_alarm)]), options.years, 0.01)
        table.add(
            {
                "period": str(kind),
                "permanent_noise": noise,
                "clients": clients,
                "years": str(options.years),
                "with_alarm": str(with_alarm),
                "rate": f"{with_alarm / options.years:.2%}",
                "upper_99": f"{upper[0]:.2%}",
                "rate_independent": f"{have_alarms(years, Rules(same_clients=False)).mean():.2%}",
            }
        )
    print()
    table = benchmark.table("watch-steps")
    for noise, (clients, same_clients) in product(NOISES, (("stay", True), ("new", True), ("new", False))):
        rng = generator("steps", noise, clients, same_clients)
        found = have_alarms(steps(noise, clients, options.steps, rng), Rules(same_clients=same_clients)).mean()
        table.add(
            {
                "permanent_noise": noise,
                "clients": clients,
                "option": "" if same_clients else "--independent-clients",
                "steps": str(options.steps),
                "found": f"{found:.1%}",
            }
        )


if __name__ == "__main__":
    main()
