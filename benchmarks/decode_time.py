"""Time of decoding by number of candidates: of `decode` alone, and of the whole `hubbub decode` process.

    python -m benchmarks.decode_time [--only NAME ...] [--runs 3] [--out docs/explanation/data]

Each figure is the median of the runs. The process starts Python, imports, reads the files, decodes and prints the table.
`--only bits` selects all cases whose name contains "bits"; `--only shell` is `hubbub decode` of 200 candidates.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.runner import Benchmark
from benchmarks.tables import Row
from hubbub import Metric, Params
from hubbub.summary import BitCounts, PatternCounts, Summary, read_summary, write_summary
from hubbub_decoder import decode
from hubbub_decoder.data.candidates import write_candidates
from hubbub_decoder.data.populations import distribution_shares, draw_population
from hubbub_decoder.simulation import simulate

_REPORTS = 1_000_000
_POPULATION_SEED = 1
_GOOGLE = Params(
    num_bits=8, num_hashes=2, num_cohorts=128, prob_p=0.39, prob_q=0.61, prob_f=0.45, hash_scheme="google-md5"
)


def _params(num_bits: int, num_hashes: int) -> Params:
    """Parameters of 64 cohorts at p = .25, q = .75, f = .5."""
    return Params(num_bits=num_bits, num_hashes=num_hashes, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0.5)


class Case(NamedTuple):
    """Summary of a million reports of `values` strings, and the number of candidates: v1, v2, ..."""

    name: str
    params: Params
    patterns: bool
    distribution: str
    values: int
    candidates: int

    def summary(self) -> Summary:
        """Simulated counts, the same in every run."""
        rng = np.random.default_rng(_POPULATION_SEED)
        population = draw_population(distribution_shares(self.distribution, self.values), _REPORTS, rng)
        form = PatternCounts if self.patterns else BitCounts
        return simulate(Metric.string("timed", self.params), population, rng, form=form)


CASES = [
    Case("shell-200", _params(128, 1), False, "zipf1", 250, 200),
    *(
        Case(f"bits-{number}", _params(128, 1), False, "zipf1", 500, number)
        for number in (300, 1_000, 3_000, 10_000, 100_000)
    ),
    *(Case(f"patterns-{number}", _params(16, 1), True, "zipf1", 500, number) for number in (300, 1_000, 3_000, 10_000)),
    Case("patterns-h2-280", _params(16, 2), True, "zipf1", 250, 280),
    Case("google-120", _GOOGLE, True, "exp", 100, 120),
]


def seconds(run: Callable[[], object]) -> float:
    """Wall-clock time of one run."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def row(case: Case, runs: int, directory: Path) -> Row:
    """Decode a case in this process and from the shell, and return its row of the table."""
    candidates = [f"v{i}" for i in range(1, case.candidates + 1)]
    summary_path, candidates_path = directory / f"{case.name}.parquet", directory / f"{case.name}.txt"
    write_summary(case.summary(), summary_path)
    write_candidates(candidates, candidates_path)
    summary = read_summary(summary_path)
    command = [sys.executable, "-m", "hubbub", "decode", str(summary_path), "--candidates", str(candidates_path)]
    inside = statistics.median(seconds(lambda: decode(summary, candidates)) for _ in range(runs))
    process = statistics.median(
        seconds(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(runs)
    )
    params, kind = case.params, "patterns" if case.patterns else "bits"
    return {
        "case": case.name,
        "counts": kind,
        "num_bits": f"{params.num_bits}",
        "num_hashes": f"{params.num_hashes}",
        "num_cohorts": f"{params.num_cohorts}",
        "candidates": f"{case.candidates}",
        "decode_seconds": f"{inside:.2f}",
        "process_seconds": f"{process:.2f}",
    }


def main() -> None:
    benchmark = Benchmark(__doc__, runs=3)
    benchmark.add("--only", nargs="+", metavar="NAME", default=[""], help="cases whose name contains NAME")
    options = benchmark.start()
    chosen = [case for case in CASES if any(part in case.name for part in options.only)]
    if not chosen:
        benchmark.parser.error(f"no case has such a name; the cases are {', '.join(case.name for case in CASES)}")
    table = benchmark.table("decode-time")
    with tempfile.TemporaryDirectory() as directory:
        for case in chosen:
            table.add(row(case, options.runs, Path(directory)))


if __name__ == "__main__":
    main()
