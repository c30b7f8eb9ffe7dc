"""Frequency oracles at one epsilon: hubbub, exact count laws, and the packages pure-LDP 1.2.0 and multi-freq-ldpy 0.2.5.

    python -m benchmarks.peers [--eps 1 2 4] [--values 100 1000 10000] [--reports 10000 100000 1000000] [--oracles hubbub OUE]
                               [--results FILE] [--environment DIR] [--limit 10] [--out docs/explanation/comparison.md]
    (or: make bench-peers)

Every value is a candidate, and shares follow Zipf's law. The packages run in a virtual environment in DIR, which is made from the package
index; without it their rows have the reason. Each finished row is kept in FILE, and a later call does not repeat it.
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

from benchmarks.environment import CACHE
from benchmarks.pages import put_section
from benchmarks.peers.decodings import FORMS, MAX_RETAINED_CELLS, score_hubbub
from benchmarks.peers.packages import ORACLES, Packages
from tests.support.oracle_cells import MOST_BITS, Cell, Score, choose_params
from tests.support.oracle_laws import LAWS, score_law

HEADING = "## Frequency oracles at equal epsilon"
LEGEND = f"""{HEADING}

`make bench-peers`: every value is a candidate, and shares follow Zipf's law.
The error is N times the mean squared error over all values.
It is a ratio to the optimum of large domains, 4 e^eps / (e^eps - 1)^2 + 1/M, with its standard error over the populations.
It is a formula where the oracle is called exact, and of one population where it has no standard error.
Total variation is that of the best guess of the distribution.
hubbub's is the posterior median; multi-freq-ldpy clips and renormalizes; all others are projected onto the distributions (Norm-Sub).
Coverage is that of 95 % intervals over all values; no other package has intervals.
The estimates of multi-freq-ldpy and of pure-LDP's RAPPOR are clipped or shrunk, so they are biased: compare their total variation, not their error.
Declared is the mean of the variances that the decoder states, as the same ratio; it has less noise than the error.
Seconds of a processor and peak memory are those of one estimation; those of a package include the encoding of its reports.
k and m are those of `hubbub plan`, with at most {MOST_BITS} bits.
Subset selection and generalized randomized response (GRR) are better than the optimum of large domains where there are few values.
The clients of pure-LDP's RAPPOR never turn a one into a zero, so its row has no epsilon.
A dash means that there is no such figure."""
BIT_COUNTS = "hubbub, bit counts"
COLUMNS = (
    "eps",
    "values",
    "reports",
    "oracle",
    "error / optimum",
    "declared",
    "total variation",
    "coverage",
    "seconds",
    "MB",
)


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


def row(cell: Cell, name: str, score: Score | str) -> str:
    """Row of the table."""
    start = f"| {cell.epsilon:g} | {cell.values:,} | {cell.reports:,} | {name} |"
    if isinstance(score, str):
        return f"{start} {score} |  |  |  |  |  |"
    error = f"{score.error:.3f}" + (f" ({score.uncertainty:.3f})" if score.uncertainty > 0 else "")
    figures = [
        "-" if math.isnan(figure) else format(figure, form)
        for figure, form in zip(score[2:], (".3f", ".4f", ".3f", ".2f", ".0f"), strict=True)
    ]
    return f"{start} {error} | {' | '.join(figures)} |"


def oracles(cell: Cell, packages: Packages, ledger: Ledger) -> Mapping[str, Callable[[], Score | str]]:
    """Names of the rows of a cell, and the functions that score them."""
    params = choose_params(cell)
    ours = {
        f"hubbub, {collected}, k = {params.num_bits}, m = {params.num_cohorts}": functools.partial(
            score_hubbub, collected, cell
        )
        for collected in FORMS
        if collected == "bit counts" or cell.reports * cell.values <= MAX_RETAINED_CELLS
    }
    laws = {f"{name}, exact": functools.partial(score_law, name, cell) for name in LAWS}
    fewer = cell._replace(reports=cell.reports // 10)
    theirs = {name: functools.partial(packages.score, name, cell, ledger.find(fewer, name)) for name in ORACLES}
    return {**ours, **laws, **theirs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--eps", type=float, nargs="+", default=[1, 2, 4])
    parser.add_argument("--values", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--reports", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--oracles", nargs="+", default=[""], help="only rows whose names contain one of these texts")
    parser.add_argument("--environment", type=Path, default=CACHE / "peers", help="folder of the packages' environment")
    parser.add_argument(
        "--limit", type=float, default=10, help="seconds of a processor for one estimation by a package"
    )
    parser.add_argument("--runs", type=int, default=10, help="largest number of populations of a row")
    parser.add_argument("--package-runs", type=int, default=1, help="the same for rows of a package")
    parser.add_argument("--results", type=Path, help="file of finished rows, read and extended")
    parser.add_argument("--recorded", action="store_true", help="print the rows of --results only, and run nothing")
    parser.add_argument("--out", type=Path, help="write the table to this page")
    options = parser.parse_args()
    ledger = Ledger(options.results)
    packages = Packages(options.environment, options.limit, options.package_runs)
    cells = [Cell(*each, options.runs) for each in itertools.product(options.eps, options.values, options.reports)]
    results: dict[Cell, dict[str, Score | str]] = {cell: {} for cell in cells}
    with threadpool_limits(1):
        for cell in cells:
            for name, score in oracles(cell, packages, ledger).items():
                if any(text in name for text in options.oracles):
                    found = ledger.find(cell, name) if options.recorded else ledger.fetch(cell, name, score)
                    if found is not None:
                        results[cell][name] = found
                        print(row(cell, name, found), flush=True)
    if options.out:
        header = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
        rows = [row(cell, name, found) for cell, group in results.items() for name, found in group.items()]
        put_section(options.out, "\n".join([LEGEND, "", *findings(results), "", *header, *rows]))


def findings(results: Mapping[Cell, Mapping[str, Score | str]]) -> list[str]:
    """Table of the largest error of the bit counts for each epsilon, and of the cells in which their total variation is the smallest."""
    lines = [
        "| eps | cells | bit counts: largest error / optimum | largest declared | cells with the smallest total variation |",
        "|---|---|---|---|---|",
    ]
    for epsilon in sorted({cell.epsilon for cell in results}):
        ours, first = [], 0
        for cell, group in results.items():
            scores = {name: score for name, score in group.items() if isinstance(score, Score)}
            bits = next((score for name, score in scores.items() if name.startswith(BIT_COUNTS)), None)
            if cell.epsilon == epsilon and bits is not None:
                ours.append(bits)
                first += bits.variation <= min(s.variation for name, s in scores.items() if "hubbub" not in name)
        if ours:
            error, declared = max(each.error for each in ours), max(each.declared for each in ours)
            lines.append(f"| {epsilon:g} | {len(ours)} | {error:.3f} | {declared:.3f} | {first} |")
    return lines


if __name__ == "__main__":
    main()
