"""Calibration of intervals of strings at shares from 0 to 1: coverage and error against declared variance, by form and target.

One candidate has the share, four others have equal parts of the rest, and a sixth is absent. Each round simulates 2,000 reports for every
form and share, and decodes them for both targets, until the processor time is used. Coverage is that of 95 % intervals of the first
candidate, with its binomial standard error; error / declared is its mean squared error over the mean declared variance. Values with a bit
of their own are enumerated instead (`tests/calibration/test_single_bits.py`).

    python -m benchmarks.string_shares [--seconds 600] [--hashes 2] [--out docs/explanation/data]

Seeds derive from the commit's hash (HUBBUB_TEST_SEED repeats a run).
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple, get_args

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.runner import Benchmark, generator
from benchmarks.tables import Row
from hubbub import Metric, Params
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub_decoder import decode
from hubbub_decoder.options import Target
from hubbub_decoder.simulation import simulate

SHARES = (0.0, 0.02, 0.5, 0.9, 0.98, 1.0)
FORMS: dict[str, type[Any]] = {"bits": BitCounts, "patterns": PatternCounts, "reports": Reports}
REPORTS = 2_000
_OTHERS = 4


class Cell(NamedTuple):
    """A share of a form and a target."""

    form: str
    target: Target
    share: float


class Found(NamedTuple):
    """Estimate of one round against the truth."""

    covers: bool
    error: float
    declared: float


def run_round(params: Params, rng: np.random.Generator) -> Iterator[tuple[Cell, Found]]:
    """Yield one estimate of each cell."""
    metric = Metric.string("s", params)
    for form, share in ((form, share) for form in FORMS for share in SHARES):
        drawn = rng.multinomial(REPORTS, [share, *[(1 - share) / _OTHERS] * _OTHERS]).tolist()
        names = [f"{rng.integers(1 << 40)}.{i}" for i in range(_OTHERS + 2)]
        people = dict(zip(names, drawn, strict=False))
        collected = simulate(metric, people, rng, form=FORMS[form])
        for target in get_args(Target):
            truth = share if target == "population" else drawn[0] / REPORTS
            found = decode(collected, names, target=target)[names[0]]
            covers = found.low <= truth <= found.high
            yield Cell(form, target, share), Found(covers, found.share - truth, found.std_error)


def rows(outcomes: Mapping[Cell, list[Found]]) -> Iterator[Row]:
    """Yield the row of each cell."""
    for cell, found in outcomes.items():
        covers, error, declared = np.array(found, float).T
        coverage = covers.mean()
        squared = error**2 / np.mean(declared**2)
        yield {
            "form": cell.form,
            "target": cell.target,
            "share": f"{cell.share:g}",
            "rounds": f"{len(found)}",
            "covers": f"{coverage:.3f}",
            "covers_se": f"{math.sqrt(max(coverage * (1 - coverage), 1 / len(found)) / len(found)):.3f}",
            "error_over_declared": f"{squared.mean():.2f}",
            "error_over_declared_se": f"{squared.std() / math.sqrt(len(found)):.2f}",
        }


def main() -> None:
    """Run rounds and print the table."""
    benchmark = Benchmark(__doc__)
    benchmark.add("--seconds", type=float, default=600, help="processor time")
    benchmark.add("--hashes", type=int, default=2, help="of each string")
    options = benchmark.start()
    params = Params(num_bits=16, num_hashes=options.hashes, num_cohorts=16, prob_p=0.25, prob_q=0.75, prob_f=0)
    outcomes = defaultdict[Cell, list[Found]](list)
    with threadpool_limits(1):
        for number in count():
            for cell, found in run_round(params, generator("string-shares", number)):
                outcomes[cell].append(found)
            if time.process_time() > options.seconds:
                break
    benchmark.table("string-shares").add_all(rows(outcomes))


if __name__ == "__main__":
    main()
