"""Accuracy in eleven configurations from the literature, compared with google/rappor's decoder: a million reports, five runs.

    python -m benchmarks.literature [--runs 5] [--out docs/explanation/data]          (or: make bench-accuracy)

R's figures are means of 5 runs of its `Decode()` on reports of the same populations with random maps. Ours are decoded from pattern
counts for k = 8, and from individual reports for k = 32 and 128.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.runs import REPORTS, Run, compare, put_table
from benchmarks.tables import Row
from hubbub import Metric, Params
from hubbub.summary import PatternCounts, Reports
from hubbub_decoder import decode
from hubbub_decoder.data.populations import distribution_shares, draw_population
from hubbub_decoder.simulation import simulate, simulate_reports

Floats = NDArray[np.float64]


class Case(NamedTuple):
    """A population with R's results: true detections, false detections, total variation."""

    config: str
    distribution: str
    found: float
    false: float
    total_variation: float


PARAMS = {
    "paper": Params(num_bits=128, num_hashes=2, num_cohorts=16, prob_p=0.5, prob_q=0.75, prob_f=0.5),
    "typical": Params(num_bits=8, num_hashes=2, num_cohorts=128, prob_p=0.39, prob_q=0.61, prob_f=0.45),
    "demo": Params(num_bits=32, num_hashes=1, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0.5),
}
ABSENT = {"paper": 100, "typical": 20, "demo": 100}
CASES = [
    Case("paper", "exp", 46.6, 3.6, 0.130),
    Case("typical", "uniform", 74.0, 3.0, 0.251),
    Case("typical", "exp", 42.4, 1.0, 0.178),
    Case("typical", "gauss", 54.4, 2.0, 0.202),
    Case("typical", "zipf1", 38.4, 1.0, 0.194),
    Case("typical", "zipf1.5", 18.6, 0.4, 0.110),
    Case("demo", "uniform", 88.8, 9.4, 0.154),
    Case("demo", "exp", 53.0, 7.0, 0.139),
    Case("demo", "gauss", 59.6, 10.6, 0.155),
    Case("demo", "zipf1", 53.0, 7.6, 0.148),
    Case("demo", "zipf1.5", 23.4, 4.2, 0.090),
]


def run(case: Case, seed: int) -> Run:
    """Simulate and decode a million reports of 100 values; except in `paper`, every tenth value is not a candidate."""
    rng = np.random.default_rng(seed)
    metric = Metric.string("literature", PARAMS[case.config])
    population = draw_population(distribution_shares(case.distribution, 100), REPORTS, rng)
    listed = [name for name in population if case.config == "paper" or not name.endswith("9")]
    names = [*listed, *(f"absent{i}" for i in range(ABSENT[case.config]))]
    collected: PatternCounts | Reports
    if metric.num_bits <= 16:
        collected = simulate(metric, population, rng, form=PatternCounts)
    else:
        chunks = list(simulate_reports(metric, population, rng))
        collected = Reports(metric, *(np.concatenate(parts) for parts in zip(*chunks, strict=True)))
        del chunks
    started = time.perf_counter()
    decoding = decode(collected, names)
    seconds = time.perf_counter() - started
    return compare(decoding, {name: population.get(name, 0) / REPORTS for name in names}, seconds)


def row(case: Case, runs: list[Run]) -> Row:
    """Row of the table: means over the runs, and R's figures."""
    params = PARAMS[case.config]
    variation = [each.total_variation for each in runs]
    false = [each.false / max(1, each.false + each.found) for each in runs]
    selected = [inside for each in runs for inside in each.selected]
    return {
        "config": case.config,
        **{name: f"{getattr(params, name)}" for name in ("num_bits", "num_hashes", "num_cohorts")},
        **{name: f"{getattr(params.mechanism, name):g}" for name in ("prob_p", "prob_q", "prob_f")},
        "absent": f"{ABSENT[case.config]}",
        "distribution": case.distribution,
        "tv_r": f"{case.total_variation:.3f}",
        "tv": f"{np.mean(variation):.3f}",
        "tv_se": f"{_error(variation):.3f}",
        "found_r": f"{case.found:.1f}",
        "found": f"{np.mean([each.found for each in runs]):.1f}",
        "false_percent_r": f"{100 * case.false / (case.found + case.false):.1f}",
        "false_percent": f"{100 * np.mean(false):.1f}",
        "false_percent_se": f"{100 * _error(false):.1f}",
        "covers_present": f"{np.mean([each.covered_present for each in runs]):.3f}",
        "covers_absent": f"{np.mean([each.covered_null for each in runs]):.3f}",
        "covers_selected": f"{np.mean(selected):.3f}",
        "seconds": f"{np.mean([each.seconds for each in runs]):.1f}",
    }


def _error(values: list[float]) -> float:
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan


if __name__ == "__main__":
    put_table("literature", __doc__, CASES, run, row, runs=5)
