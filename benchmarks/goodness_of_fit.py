"""Goodness-of-fit tests: false alarms on genuine reports, and power against wrong parameters and fabricated reports.

    python -m benchmarks.goodness_of_fit [--regtest DIR] [--runs 20] [--out docs/explanation/data]

Genuine reports are those of google/rappor's regression grid in DIR, or simulated without DIR. The others are 100,000 reports of 100
exponentially distributed strings, a tenth without a value, that deviate from their declared definition.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.accuracy import DISTRIBUTIONS, SIZES, add_regtest
from benchmarks.runner import Benchmark, generator
from benchmarks.tables import Row
from hubbub import Metric, Params
from hubbub.summary import PatternCounts, Reports
from hubbub_decoder.data.populations import distribution_shares, draw_population
from hubbub_decoder.inference.goodness_of_fit import run_fit_tests
from hubbub_decoder.simulation import simulate, simulate_reports

REPORTS = 100_000
ALARM = 1e-6
PRIVACY = {"loose": (0.225, 0.775, 0.0), "eps = 1": (0.39, 0.61, 0.45)}


def params(
    num_bits: int,
    pqf: tuple[float, float, float],
    *,
    num_hashes: int = 2,
    scheme: str = "murmur3-v1",
    more_f: float = 0.0,
) -> Params:
    """Parameters of the grid (8 bits, 128 cohorts), or of 32 bits in 64 cohorts."""
    p, q, f = pqf
    return Params(
        num_bits=num_bits,
        num_hashes=num_hashes,
        num_cohorts=128 if num_bits == 8 else 64,
        prob_p=p,
        prob_q=q,
        prob_f=f + more_f,
        hash_scheme=scheme,
    )


def genuine(regtest: Path | None, rng: np.random.Generator) -> list[Row]:
    """Run the tests on all reports of the grid, and return rows with the distribution of their p-values."""
    p_values: dict[str, list[float]] = defaultdict(list)
    started = time.process_time()
    tested = 0
    for size, (strings, clients) in SIZES.items():
        for distribution in DISTRIBUTIONS:
            for privacy, pqf in (("eps_1_1", PRIVACY["eps = 1"]), ("eps_1_5", PRIVACY["loose"])):
                for seed in range(3):
                    declared = params(8, pqf, scheme="google-md5")
                    if regtest is not None:
                        with np.load(regtest / f"{size}-{distribution}-{privacy}-{seed}.npz") as file:
                            counts = PatternCounts(declared, file["pattern_counts"])
                    else:
                        name = "uniform" if distribution == "unif" else distribution
                        population = draw_population(distribution_shares(name, strings), clients, rng)
                        counts = simulate(Metric.string("grid", declared), population, rng, form=PatternCounts)
                    tested += 1
                    for test in run_fit_tests(counts):
                        p_values[test.name].append(test.p_value)
    print(f"{tested} sets of genuine reports, {(time.process_time() - started) / tested:.2f} s each\n")
    rows = []
    for name, values in p_values.items():
        spread = np.histogram(values, 5, (0, 1))[0]
        rows.append(
            {
                "test": name.replace("_", " "),
                "tests": f"{len(values)}",
                "alarms": f"{sum(value < ALARM for value in values)}",
                "smallest_p": f"{min(values):.2g}",
                **{f"p_{20 * i}_to_{20 * i + 20}": f"{number}" for i, number in enumerate(spread)},
            }
        )
    return rows


class Case(NamedTuple):
    """A deviation: parameters of the reports, declared parameters, share of fabricated reports."""

    deviation: str
    true: Mapping[str, Any] = MappingProxyType({})
    declared: Mapping[str, Any] = MappingProxyType({})
    fabricated: float = 0
    one_cohort: bool = False


CASES = [
    Case("none"),
    Case("0.5 % of the reports all ones", fabricated=0.005),
    Case("0.1 % of the reports all ones", fabricated=0.001),
    Case("0.1 %, all in one cohort", fabricated=0.001, one_cohort=True),
    Case("f truly larger by .02", true={"more_f": 0.02}),
    Case("f truly larger by .05", true={"more_f": 0.05}),
    Case("f truly larger by .1", true={"more_f": 0.1}),
    Case("f truly larger by .2", true={"more_f": 0.2}),
    Case("f truly smaller by .1", declared={"more_f": 0.1}),
    Case("f truly smaller by .2", declared={"more_f": 0.2}),
    Case("3 hashes, not 2", true={"num_hashes": 3}),
    Case("1 hash, not 2", true={"num_hashes": 1}),
    Case("google-md5, declared as murmur3-v1", true={"scheme": "google-md5"}),
    Case("murmur3-v1, declared as google-md5", declared={"scheme": "google-md5"}),
]


def reported(true: Params, rng: np.random.Generator) -> tuple[NDArray[np.uint16], NDArray[np.uint8]]:
    """Simulated reports with the parameters `true`."""
    population = draw_population(
        {name: 0.9 * share for name, share in distribution_shares("exp", 100).items()}, REPORTS, rng
    )
    chunks = list(
        simulate_reports(Metric.string("x", true), population, rng, no_value=REPORTS - sum(population.values()))
    )
    cohorts, rows = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
    return cohorts, rows


def power(case: Case, num_bits: int, privacy: str, runs: int, rng: np.random.Generator) -> Row:
    """Row of the table: number of runs with an alarm, and the tests that raised it."""
    pqf = PRIVACY[privacy]
    declared, true = params(num_bits, pqf, **case.declared), params(num_bits, pqf, **case.true)
    alarms: dict[str, int] = defaultdict(int)
    runs_with_alarm = 0
    for _ in range(runs):
        cohorts, rows = reported(true, rng)
        fabricated = rng.permutation(REPORTS)[: round(case.fabricated * REPORTS)]
        rows[fabricated] = 255
        if case.one_cohort:
            cohorts[fabricated] = 0
        reports = Reports(declared, cohorts, rows)
        tests = run_fit_tests(reports.pattern_counts() if declared.num_bits == 8 else reports)
        raised = [test.name for test in tests if test.p_value < ALARM]
        runs_with_alarm += bool(raised)
        for name in raised:
            alarms[name] += 1
    return {
        "deviation": case.deviation,
        "num_bits": f"{num_bits}",
        "privacy": privacy,
        "runs": f"{runs}",
        "runs_with_alarm": f"{runs_with_alarm}",
        "alarms_by_test": "; ".join(f"{name.replace('_', ' ')} {n}" for name, n in alarms.items()),
    }


def main() -> None:
    benchmark = Benchmark(__doc__, runs=20)
    add_regtest(benchmark)
    options = benchmark.start()
    with threadpool_limits(1):
        benchmark.table("fit-genuine").add_all(genuine(options.regtest, generator("genuine")))
        table, rng = benchmark.table("fit-power"), generator("power")
        for case in CASES:
            for num_bits in (8, 32):
                for privacy in PRIVACY:
                    table.add(power(case, num_bits, privacy, options.runs, rng))


if __name__ == "__main__":
    main()
