"""Throughput of `hubbub decode-all`: decodings per second, a second run without changes, and a run after a kill.

    python -m benchmarks.decode_all [--metrics 10 20 40] [--periods 30] [--candidates 1000] [--jobs 2]

Half of the metrics are strings (128 bits, 2 hashes, 64 cohorts), the others categorical with 20 categories or boolean. Each period has
100,000 reports of a Zipf distribution. Processor seconds are those of all processes of a run; they depend less than the wall clock on other
work of the machine. The last line extrapolates 1,000 metrics x 30 periods from the slope between the two largest sizes; it is not measured.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.runner import Benchmark
from benchmarks.tables import Row
from hubbub import Metric, Params, UnaryResponse
from hubbub.summary import write_summary
from hubbub_decoder.data.candidates import write_candidates
from hubbub_decoder.data.populations import distribution_shares, draw_population
from hubbub_decoder.simulation import simulate

_REPORTS, _CATEGORIES, _FIRST_DAY = 100_000, 20, date(2024, 6, 1)
_NOISE: dict[str, Any] = {"prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.5}
_STRINGS = Params(num_bits=128, num_hashes=2, num_cohorts=64, **_NOISE)
_EXTRAPOLATED = 30_000


class Run(NamedTuple):
    """Wall-clock and processor seconds of a run, and its number of outcomes by status."""

    seconds: float
    processor: float
    counts: dict[str, int]


class Runs(NamedTuple):
    """Runs for one number of decodings: the first, one without changes, and one after a kill."""

    decodings: int
    first: Run
    unchanged: Run
    resumed: Run


def _metric(number: int) -> Metric:
    name = f"metric_{number:04}"
    if number % 2 == 0:
        return Metric.string(name, _STRINGS)
    if number % 4 == 1:
        return Metric.categorical(
            name, tuple(f"v{number}" for number in range(1, _CATEGORIES + 1)), UnaryResponse(**_NOISE)
        )
    return Metric.boolean(name, UnaryResponse(**_NOISE))


def make_summaries(place: Path, metrics: int, periods: int, candidates: int) -> None:
    """Write the summaries of all metrics and periods, and the candidates of the string metrics."""
    rng = np.random.default_rng(1)
    (place / "summaries").mkdir(parents=True)
    (place / "candidates").mkdir()
    for metric in map(_metric, range(metrics)):
        values = {"string": candidates // 2, "categorical": _CATEGORIES}.get(str(metric.kind), 2)
        population = draw_population(distribution_shares("zipf1", values), _REPORTS, rng)
        if metric.kind.needs_candidates:
            write_candidates(
                [f"v{value}" for value in range(1, candidates + 1)], place / "candidates" / f"{metric.name}.txt"
            )
        elif metric.kind.word == "boolean":
            population = dict(zip(("true", "false"), population.values(), strict=True))
        for day in range(periods):
            period = str(_FIRST_DAY + timedelta(day))
            summary = simulate(metric, population, rng, periods=[period])
            write_summary(summary, place / "summaries" / f"{metric.name}-{period}.parquet")


class Command:
    """`hubbub decode-all` of the summaries in a directory."""

    def __init__(self, place: Path, jobs: int) -> None:
        self.out = place / "estimates"
        program = str(Path(sys.executable).with_name("hubbub"))
        arguments = ["--candidates", f"{place}/candidates", "--out-dir", str(self.out), "--jobs", str(jobs), "--json"]
        self._command = [program, "decode-all", f"{place}/summaries", *arguments]

    def run(self) -> Run:
        """Run the command to its end."""
        began, used = time.perf_counter(), _processor_seconds()
        done = subprocess.run(self._command, capture_output=True, text=True, check=True)
        return Run(time.perf_counter() - began, _processor_seconds() - used, json.loads(done.stdout)["counts"])

    def kill_at(self, results: int) -> None:
        """Start a run, and kill it once it has so many results."""
        with subprocess.Popen(self._command, stdout=subprocess.DEVNULL) as process:
            while self._results() < results and process.poll() is None:
                time.sleep(0.02)
            process.send_signal(signal.SIGKILL)

    def _results(self) -> int:
        return sum(1 for _ in self.out.glob("*/*.json"))


def _processor_seconds() -> float:
    """Processor time of all processes that were started here and have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(metrics: int, periods: int, candidates: int, jobs: int) -> Runs:
    with tempfile.TemporaryDirectory(prefix="hubbub-bench-") as directory:
        make_summaries(Path(directory), metrics, periods, candidates)
        command, decodings = Command(Path(directory), jobs), metrics * periods
        first = command.run()
        assert first.counts["decoded"] == decodings, first
        unchanged = command.run()
        assert unchanged.counts["unchanged"] == decodings, unchanged
        shutil.rmtree(command.out)
        command.kill_at(decodings // 2)
        resumed = command.run()
        assert resumed.counts["decoded"] + resumed.counts["unchanged"] == decodings, resumed
        return Runs(decodings, first, unchanged, resumed)


def row(runs: Runs) -> Row:
    """Row of the table."""
    return {
        "decodings": f"{runs.decodings:,}",
        "s": f"{runs.first.seconds:.0f}",
        "decodings/s": f"{runs.decodings / runs.first.seconds:.2f}",
        "processor s each": f"{runs.first.processor / runs.decodings:.3f}",
        "unchanged, processor s": f"{runs.unchanged.processor:.2f}",
        "kept after a kill": f"{runs.resumed.counts['unchanged']:,}",
        "decoded after it": f"{runs.resumed.counts['decoded']:,}",
    }


def main() -> None:
    benchmark = Benchmark(__doc__, jobs=os.cpu_count() or 1)
    benchmark.add("--metrics", type=int, nargs="+", default=[10, 20, 40])
    benchmark.add("--periods", type=int, default=30)
    benchmark.add("--candidates", type=int, default=1_000)
    options = benchmark.start()
    table, found = benchmark.table(), list[Runs]()
    for metrics in options.metrics:
        found.append(measure(metrics, options.periods, options.candidates, options.jobs))
        table.add(row(found[-1]))
    if len(found) > 1:
        hours, minutes = _extrapolated(found, "first") / 3_600, _extrapolated(found, "unchanged") / 60
        times = f"{hours:.1f} processor hours; without changes {minutes:.1f} processor minutes"
        print(f"\nextrapolated to {_EXTRAPOLATED:,} decodings: {times}")


def _extrapolated(rows: Sequence[Runs], name: str) -> float:
    """Processor seconds of a kind of run, by the line through the two largest sizes."""
    (x, y), (x_last, y_last) = ((row.decodings, getattr(row, name).processor) for row in rows[-2:])
    return float(y_last + (_EXTRAPOLATED - x_last) * (y_last - y) / (x_last - x))


if __name__ == "__main__":
    main()
