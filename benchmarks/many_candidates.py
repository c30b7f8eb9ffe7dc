"""Accuracy of bit counts with hundreds to thousands of candidates: total variation, detections, coverage, time.

python -m benchmarks.many_candidates [--runs 4] [--out docs/explanation/data]          (or: make bench-many)
python -m benchmarks.many_candidates paired 0 50            (finds with more reports and with more cohorts, populations 0 to 49)
"""

from __future__ import annotations

import sys
import time
from typing import NamedTuple

import numpy as np

from benchmarks.runs import REPORTS, Run, compare, put_table
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


def run(case: Case, seed: int) -> Run:
    """Simulate a million reports and decode their bit counts."""
    rng = np.random.default_rng(seed)
    params = Params(
        num_bits=case.num_bits, num_hashes=case.num_hashes, num_cohorts=case.num_cohorts, prob_p=0.25, prob_q=0.75, prob_f=case.prob_f
    )  # fmt: skip
    population = draw_population(distribution_shares(case.distribution, case.values), REPORTS, rng)
    counts = simulate(Metric.string("many", params), population, rng)
    names = [name for name in population if not name.endswith("9")] + [f"absent{i}" for i in range(case.absent)]
    started = time.perf_counter()
    decoding = decode(counts, names)
    return compare(decoding, {name: population.get(name, 0) / REPORTS for name in names}, time.perf_counter() - started)


def paired_finds(seeds: range) -> None:
    """Print the finds of 10,000 candidates, k = 128, h = 1, epsilon 4, and how many more a larger collection has: mean, standard error."""
    found = []
    for seed in seeds:
        found.append([_finds(seed, *collection) for collection in COLLECTIONS])
        print(seed, *found[-1], flush=True)
    for smaller, larger in PAIRS:
        more = np.diff(np.array(found)[:, [smaller, larger]]).ravel()
        error = more.std(ddof=1) / len(more) ** 0.5
        print(
            f"(cohorts, million reports) {COLLECTIONS[smaller]} -> {COLLECTIONS[larger]}: {more.mean():.1f} more ({error:.1f})"
        )


def _finds(seed: int, cohorts: int, millions: int) -> int:
    """Number of present candidates that are detected in a collection."""
    rng = np.random.default_rng([seed, cohorts, millions])
    params = Params(num_bits=128, num_hashes=1, num_cohorts=cohorts, prob_p=0.018, prob_q=0.5, prob_f=0)
    shares = {f"{seed} {name}": share for name, share in distribution_shares("zipf1", 10_000).items()}
    people = draw_population(shares, millions * REPORTS, rng)
    decoding = decode(simulate(Metric.string("many", params), people, rng), list(shares))
    return sum(e.candidate in people for e in decoding.detected)


def row(case: Case, runs: list[Run]) -> Row:
    """Row of the table: means over the runs."""
    false = [each.false / max(1, each.false + each.found) for each in runs]
    return {
        **{name: f"{value}" for name, value in case._asdict().items()},
        "tv": f"{np.mean([each.total_variation for each in runs]):.3f}",
        "found": f"{np.mean([each.found for each in runs]):.1f}",
        "false_percent": f"{100 * np.mean(false):.1f}",
        "false_percent_se": f"{100 * np.std(false, ddof=1) / len(runs) ** 0.5:.1f}",
        "covers_present": f"{np.mean([each.covered_present for each in runs]):.3f}",
        "covers_absent": f"{np.mean([each.covered_null for each in runs]):.3f}",
        "covers_selected": f"{np.mean([inside for each in runs for inside in each.selected]):.3f}",
        "seconds": f"{np.mean([each.seconds for each in runs]):.1f}",
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["paired"]:
        paired_finds(range(*map(int, sys.argv[2:4])))
        sys.exit()
    put_table("many-candidates", __doc__, CASES, run, row, runs=4)
