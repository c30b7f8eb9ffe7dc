"""Frequency oracles at one epsilon: hubbub, exact count laws, and the packages pure-LDP 1.2.0 and multi-freq-ldpy 0.2.5.

    python -m benchmarks.peers [--table few-values] [--eps 1 2 4] [--values 100 1000] [--reports 10000] [--oracles hubbub OUE]
                               [--results FILE] [--environment DIR] [--limit 10] [--out docs/explanation/data]

Every value is a candidate, and shares follow Zipf's law. With at most 30 values hubbub's metric is categorical. The packages run in a virtual
environment in DIR, which is made from the package index; without it their rows have the reason. Each finished row is kept in FILE, and a later call does not repeat it.

The error is N times the mean squared error over all values, as a ratio to the optimum of large domains, 4 e^eps / (e^eps - 1)^2 + 1/M, with
its standard error over the populations. It is a formula where the oracle is called exact. Declared is the mean of the variances that the
decoder states, as the same ratio. Total variation is that of the best guess of the distribution: hubbub's is the posterior median,
multi-freq-ldpy clips and renormalizes, and all others are projected onto the distributions (Norm-Sub). Coverage is that of 95 % intervals.
Seconds of a processor and peak memory are those of one estimation, of a package with the encoding of its reports.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from threadpoolctl import threadpool_limits

from benchmarks.environment import CACHE
from benchmarks.peers.decodings import CATEGORIES, FORMS, MAX_RETAINED_CELLS, score_hubbub
from benchmarks.peers.packages import OF_FEW_VALUES, ORACLES, Packages
from benchmarks.runner import Benchmark
from benchmarks.tables import Row
from tests.support.oracle_cells import FEW_VALUES, Cell, Score, choose_params
from tests.support.oracle_laws import LAWS, score_law

_FORMATS = {
    "error_over_optimum_se": ".3f",
    "declared": ".3f",
    "total_variation": ".4f",
    "coverage": ".3f",
    "processor_seconds": ".2f",
    "memory_mb": ".0f",
}


class Grid(NamedTuple):
    """Cells of a table: numbers of values and of reports, and the largest number of populations of a row, and of a row of a package."""

    values: tuple[int, ...]
    reports: tuple[int, ...]
    runs: int
    package_runs: int


TABLES = {
    "frequency-oracles": Grid((100, 1_000, 10_000), (10_000, 100_000, 1_000_000), 10, 1),
    "few-values": Grid((2, 3, 5, 10, 30), (10_000,), 100, 100),
}


class Ledger:
    """Rows that are finished, in a file: scores, or the reason of a row without one."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._rows: dict[str, list[float] | str] = json.loads(path.read_text()) if path and path.exists() else {}

    def find(self, cell: Cell, name: str) -> Score | str | None:
        """Recorded score of an oracle in a cell, or the reason why it has none; None if it has not run."""
        found = self._rows.get(_key(cell, name))
        return Score(*found) if isinstance(found, list) else found

    def fetch(self, cell: Cell, name: str, score: Callable[[], Score | str]) -> Score | str:
        """Score of an oracle in a cell: the recorded one, or a new one that is then recorded."""
        recorded = self.find(cell, name)
        if recorded is not None:
            return recorded
        result = score()
        self._rows[_key(cell, name)] = result if isinstance(result, str) else list(result)
        if self._path:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(self._rows, indent=0))
        return result


def _key(cell: Cell, name: str) -> str:
    return f"{cell.epsilon:g} {cell.values} {cell.reports} {name}"


def row(cell: Cell, name: str, score: Score | str) -> Row:
    """Row of the table; a figure that does not exist is empty."""
    start = {"eps": f"{cell.epsilon:g}", "values": f"{cell.values}", "reports": f"{cell.reports}", "oracle": name}
    if isinstance(score, str):
        return {**start, "error_over_optimum": score, **dict.fromkeys(_FORMATS, "")}
    figures = {
        column: format(figure, form) if figure > 0 else ""
        for (column, form), figure in zip(_FORMATS.items(), score[1:], strict=True)
    }
    return {**start, "error_over_optimum": f"{score.error:.3f}", **figures}


def oracles(cell: Cell, packages: Packages, ledger: Ledger) -> Mapping[str, Callable[[], Score | str]]:
    """Names of the rows of a cell, and the functions that score them."""
    laws = {f"{name}, exact": functools.partial(score_law, name, cell) for name in LAWS}
    fewer = cell._replace(reports=cell.reports // 10)
    of_packages = OF_FEW_VALUES if cell.values <= FEW_VALUES else ORACLES
    theirs = {name: functools.partial(packages.score, name, cell, ledger.find(fewer, name)) for name in of_packages}
    if cell.values <= FEW_VALUES:
        return (
            {f"hubbub, {collected}": functools.partial(score_hubbub, collected, cell) for collected in CATEGORIES}
            | laws
            | theirs
        )
    params = choose_params(cell)
    ours = {
        f"hubbub, {collected}, k = {params.num_bits}, m = {params.num_cohorts}": functools.partial(
            score_hubbub, collected, cell
        )
        for collected in FORMS
        if collected == "bit counts" or cell.reports * cell.values <= MAX_RETAINED_CELLS
    }
    return {**ours, **laws, **theirs}


def main() -> None:
    benchmark = Benchmark(__doc__)
    benchmark.add("--table", choices=TABLES, help="only this table (default: both)")
    benchmark.add("--eps", type=float, nargs="+", default=[1, 2, 4])
    benchmark.add("--values", type=int, nargs="+", help="numbers of values (default: those of the table)")
    benchmark.add("--reports", type=int, nargs="+", help="numbers of reports (default: those of the table)")
    benchmark.add("--oracles", nargs="+", default=[""], help="only rows whose names contain one of these texts")
    benchmark.add("--environment", type=Path, default=CACHE / "peers", help="folder of the packages' environment")
    benchmark.add("--limit", type=float, default=10, help="seconds of a processor for one estimation by a package")
    benchmark.add("--runs", type=int, help="largest number of populations of a row")
    benchmark.add("--package-runs", type=int, help="the same for rows of a package")
    benchmark.add("--results", type=Path, help="file of finished rows, read and extended")
    benchmark.add("--recorded", action="store_true", help="print the rows of --results only, and run nothing")
    options = benchmark.start()
    ledger = Ledger(options.results)
    for table_name in (options.table,) if options.table else TABLES:
        table, grid = benchmark.table(table_name), TABLES[table_name]
        packages = Packages(options.environment, options.limit, options.package_runs or grid.package_runs)
        sizes = itertools.product(options.eps, options.values or grid.values, options.reports or grid.reports)
        for cell in (Cell(*size, options.runs or grid.runs) for size in sizes):
            for name, score in oracles(cell, packages, ledger).items():
                if any(text in name for text in options.oracles):
                    with threadpool_limits(1):
                        found = ledger.find(cell, name) if options.recorded else ledger.fetch(cell, name, score)
                    if found is not None:
                        table.add(row(cell, name, found))


if __name__ == "__main__":
    main()
