"""Frequency oracles at one epsilon: hubbub, exact count laws, and the packages pure-LDP 1.2.0 and multi-freq-ldpy 0.2.5.

    python -m benchmarks.peers [--eps 1 2 4] [--values 100 1000 10000] [--reports 10000 100000 1000000] [--out docs/comparison.md]
    (or: make bench-peers)

Every value is a candidate, and shares follow Zipf's law. Each finished row is kept in --results, and a later call does not repeat it.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

from threadpoolctl import threadpool_limits

from benchmarks.pages import put_section
from benchmarks.peers.cells import Cell, Score
from benchmarks.peers.count_laws import LAWS, score_law
from benchmarks.peers.decodings import choose_params, score_hubbub

HEADING = "## Frequency oracles at equal epsilon"
LEGEND = f"""{HEADING}

`make bench-peers`: every value is a candidate, and shares follow Zipf's law.
The error is N times the mean squared error over all values.
It is a ratio to the optimum of large domains, 4 e^eps / (e^eps - 1)^2 + 1/M, with its standard error.
An error without a standard error is exact.
Total variation is that of the best guess of the distribution.
hubbub's is the posterior median; multi-freq-ldpy clips and renormalizes; all others are projected onto the distributions (Norm-Sub).
Coverage is that of 95 % intervals over all values; no other package has intervals.
Time and memory are those of one estimation; those of a package include the encoding of its reports.
A dash means that there is no such figure."""
COLUMNS = ("eps", "values", "reports", "oracle", "error / optimum", "total variation", "coverage", "seconds", "MB")


class Ledger:
    """Rows that are finished, in a file: scores, or the reason of a row without one."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._rows: dict[str, list[float] | str] = json.loads(path.read_text()) if path and path.exists() else {}

    def fetch(self, cell: Cell, name: str, score: Callable[[], Score | str]) -> Score | str:
        """Score of an oracle in a cell: the recorded one, or a new one that is then recorded."""
        key = f"{cell.epsilon:g} {cell.values} {cell.reports} {name}"
        if key not in self._rows:
            result = score()
            self._rows[key] = result if isinstance(result, str) else list(result)
            if self._path:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._path.write_text(json.dumps(self._rows, indent=0))
        found = self._rows[key]
        return found if isinstance(found, str) else Score(*found)


def row(cell: Cell, name: str, score: Score | str) -> str:
    """Row of the table."""
    start = f"| {cell.epsilon:g} | {cell.values:,} | {cell.reports:,} | {name} |"
    if isinstance(score, str):
        return f"{start} {score} |  |  |  |  |"
    error = f"{score.error:.3f}" + (f" ({score.uncertainty:.3f})" if score.uncertainty else "")
    figures = [
        "-" if math.isnan(figure) else format(figure, form)
        for figure, form in zip(score[2:], (".4f", ".3f", ".2f", ".0f"), strict=True)
    ]
    return f"{start} {error} | {' | '.join(figures)} |"


def oracles(cell: Cell) -> Mapping[str, Callable[[], Score | str]]:
    """Names of the rows of a cell, and the functions that score them."""
    params = choose_params(cell)
    ours = f"hubbub, k = {params.num_bits}, m = {params.num_cohorts}"
    laws = {f"{name}, exact": functools.partial(score_law, name, cell) for name in LAWS}
    return {ours: functools.partial(score_hubbub, cell), **laws}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--eps", type=float, nargs="+", default=[1, 2, 4])
    parser.add_argument("--values", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--reports", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--results", type=Path, help="file of finished rows, read and extended")
    parser.add_argument("--out", type=Path, help="write the table to this page")
    options = parser.parse_args()
    ledger, rows = Ledger(options.results), []
    with threadpool_limits(1):
        for cell in itertools.starmap(Cell, itertools.product(options.eps, options.values, options.reports)):
            for name, score in oracles(cell).items():
                rows.append(row(cell, name, ledger.fetch(cell, name, score)))
                print(rows[-1], flush=True)
    if options.out:
        header = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
        put_section(options.out, "\n".join([LEGEND, "", *header, *rows]))


if __name__ == "__main__":
    main()
