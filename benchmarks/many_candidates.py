"""Accuracy of bit counts with hundreds to thousands of candidates: total variation, detections, coverage, time.

python -m benchmarks.many_candidates [--runs 4] [--out docs/explanation/data]
python -m benchmarks.many_candidates --paired --runs 50          (finds with more reports, and with more cohorts)
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from benchmarks.runner import Benchmark, generator
from benchmarks.runs import REPORTS, Run, compare, mean_figures, standard_error
from benchmarks.tables import Row
from hubbub import Metric, Params
from hubbub_decoder import decode
from hubbub_decoder.data.populations import distribution_shares, draw_population
from hubbub_decoder.simulation import simulate


class Case(NamedTuple):
    """Metric parameters, distribution of the values, and number of absent candidates; every tenth value is not a candidate."""

    num_bits: int
    num_hashes: int
    num_cohorts: int
    prob_f: float
    distribution: str
    values: int
    absent: int


CASES = [
    Case(64, 1, 64, 0.25, "zipf1", 1000, 1000),
    Case(64, 2, 64, 0.25, "zipf1", 1000, 1000),
    Case(64, 1, 64, 0.25, "exp", 1000, 1000),
    Case(64, 2, 64, 0.25, "zipf1", 1000, 4000),
    Case(128, 2, 16, 0.5, "zipf1.5", 200, 800),
    Case(32, 1, 64, 0.5, "zipf1", 100, 100),
    Case(32, 1, 64, 0.5, "zipf1", 1000, 200),
    Case(32, 1, 64, 0.5, "exp", 100, 2000),
    Case(32, 1, 64, 0.5, "exp", 100, 6000),
    Case(256, 1, 64, 0, "zipf1", 10_000, 0),
    Case(128, 2, 64, 0, "zipf1", 3_000, 0),
    Case(128, 2, 64, 0, "zipf1", 10_000, 90_000),
]
COLLECTIONS = ((32, 1), (64, 1), (128, 1), (32, 3), (32, 10))
"""Cohorts and millions of reports of collections of one population."""
PAIRS = ((0, 1), (1, 2), (0, 3), (0, 4))
"""A smaller and a larger collection: with more cohorts, or with more reports."""


def run(case: Case, rng: np.random.Generator) -> Run:
    """Simulate a million reports and decode their bit counts."""
    size = {name: getattr(case, name) for name in ("num_bits", "num_hashes", "num_cohorts")}
    params = Params(**size, prob_p=0.25, prob_q=0.75, prob_f=case.prob_f)
    population = draw_population(distribution_shares(case.distribution, case.values), REPORTS, rng)
    counts = simulate(Metric.string("many", params), population, rng)
    names = [name for name in population if not name.endswith("9")] + [f"absent{i}" for i in range(case.absent)]
    started = time.perf_counter()
    decoding = decode(counts, names)
    return compare(decoding, {name: population.get(name, 0) / REPORTS for name in names}, time.perf_counter() - started)


def paired_finds(runs: int) -> None:
    """Print the finds of 10,000 candidates, k = 128, h = 1, epsilon 4, and how many more a larger collection has: mean, standard error."""
    found = []
    for number in range(runs):
        found.append([_finds(number, *collection) for collection in COLLECTIONS])
        print(number, *found[-1], flush=True)
    for smaller, larger in PAIRS:
        more = [finds[larger] - finds[smaller] for finds in found]
        sizes = f"{COLLECTIONS[smaller]} -> {COLLECTIONS[larger]}"
        print(f"(cohorts, million reports) {sizes}: {np.mean(more):.1f} more ({standard_error(more):.1f})")


def _finds(number: int, cohorts: int, millions: int) -> int:
    """Number of present candidates that are detected in a collection."""
    rng = generator(number, cohorts, millions)
    params = Params(num_bits=128, num_hashes=1, num_cohorts=cohorts, prob_p=0.018, prob_q=0.5, prob_f=0)
    shares = {f"{number} {name}": share for name, share in distribution_shares("zipf1", 10_000).items()}
    people = draw_population(shares, millions * REPORTS, rng)
    decoding = decode(simulate(Metric.string("many", params), people, rng), list(shares))
    return sum(e.candidate in people for e in decoding.detected)


def row(case: Case, runs: list[Run]) -> Row:
    """Row of the table: means over the runs."""
    return {**{name: f"{value}" for name, value in case._asdict().items()}, **mean_figures(runs)}


def main() -> None:
    benchmark = Benchmark(__doc__, runs=4)
    benchmark.add("--paired", action="store_true", help="compare collections of the same population")
    options = benchmark.start()
    if options.paired:
        paired_finds(options.runs)
    else:
        benchmark.means("many-candidates", CASES, run, row)


if __name__ == "__main__":
    main()
