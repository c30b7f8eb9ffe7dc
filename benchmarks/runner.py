"""The frame of every benchmark: its arguments, its seed, the line that names machine and commit, its pool of processes, its tables.

Draws of a statistical benchmark come from `generator`, so they derive from the commit's hash, and `--seed` or HUBBUB_TEST_SEED repeats a run.
Inputs of a benchmark that measures time are the same in every run.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.tables import Row, Table

Case = TypeVar("Case")
Result = TypeVar("Result")
SEED_VARIABLE = "HUBBUB_TEST_SEED"


class Benchmark:
    """One run of a benchmark from the command line.

    benchmark = Benchmark(__doc__, runs=5)
    benchmark.add("--reports", type=int, default=10_000)
    options = benchmark.start()
    table = benchmark.table("accuracy")

    runs, tasks, jobs : default of --runs, --tasks (with --first, the index of the first task) and --jobs; None: it has no such option
    """

    def __init__(
        self, doc: str | None, *, runs: int | None = None, tasks: int | None = None, jobs: int | None = None
    ) -> None:
        self.parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        self.add = self.parser.add_argument
        if runs is not None:
            self.add("--runs", type=int, default=runs, help=f"repetitions of each case (default: {runs})")
        if tasks is not None:
            self.add("--tasks", type=int, default=tasks, help=f"number of tasks (default: {tasks})")
            self.add("--first", type=int, default=0, help="index of the first task")
        if jobs is not None:
            self.add("--jobs", type=int, default=jobs, help=f"processes (default: {jobs})")
        self.add(
            "--seed", metavar="TEXT", help=f"repeat the run of this seed (default: ${SEED_VARIABLE}, or the commit)"
        )
        self.add("--out", type=Path, metavar="FOLDER", help="write the published tables to this folder as CSV files")
        self._options = argparse.Namespace()

    def start(self) -> argparse.Namespace:
        """Parse the arguments, print the line that names the machine, and return the options."""
        self._options = self.parser.parse_args()
        if self._options.seed:
            os.environ[SEED_VARIABLE] = self._options.seed
        print(f"{machine()}, seed {seed_text()}\n", flush=True)
        return self._options

    def table(self, name: str = "") -> Table:
        """Return a new table; one with a name is published, and `--out` writes NAME.csv."""
        out: Path | None = self._options.out
        return Table(out / f"{name}.csv" if out and name else None, {"commit": commit()} if name else {})

    @property
    def indices(self) -> range:
        """Indices of the tasks."""
        return range(self._options.first, self._options.first + self._options.tasks)

    def map(self, work: Callable[[Case], Result], cases: Sequence[Case]) -> Iterator[Result]:
        """Yield the results in the order of the cases, from processes with one BLAS thread each; a terminal sees the progress."""
        jobs = getattr(self._options, "jobs", 1)
        with ProcessPoolExecutor(jobs, initializer=threadpool_limits, initargs=(1,)) as pool:
            try:
                for done, result in enumerate(pool.map(work, cases), start=1):
                    if sys.stderr.isatty():
                        print(f"\r{done} of {len(cases)}\033[K\r", end="", file=sys.stderr, flush=True)
                    yield result
            finally:
                pool.shutdown(cancel_futures=True)

    def means(
        self,
        name: str,
        cases: Iterable[Case],
        run: Callable[[Case, np.random.Generator], Result],
        row: Callable[[Case, list[Result]], Row],
    ) -> None:
        """Make a table with a row for each case, from `--runs` runs with generators of their own."""
        table = self.table(name)
        with threadpool_limits(1):
            for case in cases:
                table.add(row(case, [run(case, generator(case, number)) for number in range(self._options.runs)]))


@functools.cache
def commit() -> str:
    """Name of the commit that is measured, with "-dirty" if the code differs from it."""
    return _git("describe", "--always", "--dirty") or "no commit"


def machine() -> str:
    """Python, processor, load and commit of this run."""
    load = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    return f"Python {platform.python_version()}, {platform.machine()}, {load}, commit {commit()}"


def seed_text() -> str:
    """HUBBUB_TEST_SEED, or the commit's hash."""
    return os.environ.get(SEED_VARIABLE) or _git("rev-parse", "HEAD")


def seed() -> int:
    """Seed of the random tasks of this run."""
    return _number(f"random tasks {seed_text()}")


def generator(*key: Any) -> np.random.Generator:
    """Random numbers of a part of the run, for example of a case and the number of its run."""
    return np.random.default_rng(_number(f"{seed_text()} {key}"))


def peak_megabytes() -> float:
    """Peak memory of this process."""
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


@functools.cache
def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent
    ).stdout.strip()
