"""Calibration of `compare` on random tasks: does the interval of a change cover, and how much wider is it than with a known overlap?

Coverage should be .94 to .96 at s = 0, .5 and 1. Where s is known well, s.e.(s) V_prr <= .03 (V_irr + (1 - s) V_prr), the width should be
within 3 % of that at the known s.

    python -m benchmarks.studies.change_intervals [--tasks 60] [--first 0] [--save FILE]
    python -m benchmarks.studies.change_intervals --fit [--tasks 300]

With --fit, only the changes of string metrics with at most 5,000 bits and 120 candidates are fitted, at the true expected shares, and
intervals are normal: this is a tenth of the time.

Standard errors are clustered by task.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.runner import Benchmark, seed
from benchmarks.tables import Row
from hubbub_decoder import Overlap, compare
from hubbub_decoder.comparison.compare import compare_decodings
from hubbub_decoder.comparison.covariance import Sample
from hubbub_decoder.comparison.fit import fit_changes
from hubbub_decoder.comparison.results import MAX_STD_ERROR
from hubbub_decoder.model.design_matrix import design_matrix
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.simulation import simulate_two_periods
from tests.support.period_tasks import PeriodScore, PeriodTask, draw_period_task, score_periods
from tests.support.random_tasks import clustered_mean

_MAX_FIT_BITS, _MAX_FIT_CANDIDATES = 5_000, 120
_TWO_SIDED = 1.959964  # standard errors, 95 %


@dataclass(frozen=True)
class Outcome:
    """Score of one task, and the time of `compare`."""

    index: int
    task: PeriodTask
    score: PeriodScore
    seconds: float


def run_task(index: int) -> Outcome:
    """Draw, simulate, compare and score one task."""
    task = draw_period_task(index, seed())
    before, after = simulate_two_periods(task.metric, task.transitions, np.random.default_rng([seed(), index, 1]))
    started = time.perf_counter()
    comparison = compare(before, after, task.candidates)
    seconds = time.perf_counter() - started
    design = None if task.kind == "categories" else design_matrix(task.candidates, task.metric.params)
    overlap = Overlap.known(task.true_overlap())
    known = compare_decodings((Evidence(before), Evidence(after)), (comparison.a, comparison.b), design, overlap)
    rows = [known[row.candidate] for row in comparison if np.isfinite(row.change)]
    changes, errors = np.array([row.change for row in rows]), np.array([row.std_error for row in rows])
    reach = np.array([(row.high - row.low) / 2 for row in rows]) / errors
    return Outcome(index, task, score_periods(task, comparison, (changes, errors, reach)), seconds)


def run_fit(index: int) -> tuple[PeriodTask, float, float, float] | None:
    """Task, coverage, error / declared variance and error of s in standard errors of a fit at the true shares; None: no small task."""
    task = draw_period_task(index, seed())
    params = task.metric.params
    small = params.num_bits * params.num_cohorts <= _MAX_FIT_BITS and len(task.candidates) <= _MAX_FIT_CANDIDATES
    if task.kind == "categories" or not small:
        return None
    counts = simulate_two_periods(task.metric, task.transitions, np.random.default_rng([seed(), index, 1]))
    design = design_matrix(task.candidates, params)
    column = {name: i for i, group in enumerate(design.groups) for name in group}
    shares = np.zeros((2, len(design.groups) + 1))
    for pair, number in task.transitions.items():
        for row, value in zip(shares, pair, strict=True):
            row[column.get(value or "", -1)] += number / task.num_clients
    before, after = (Sample(Evidence(period), row) for period, row in zip(counts, shares, strict=True))
    result = fit_changes(before, after, design, None)
    z = (result.fit.shares - (shares[1] - shares[0])[:-1]) / np.sqrt(result.fit.reporter_variances)
    z = z[np.isfinite(z)]
    overlap = result.overlap
    error = (
        (overlap.estimate - task.true_overlap()) / overlap.std_error if overlap.std_error <= MAX_STD_ERROR else np.nan
    )
    return (task, float(np.mean(np.abs(z) < _TWO_SIDED)), float(np.mean(z**2)), float(error)) if len(z) else None


def strata(tasks: Sequence[PeriodTask]) -> Iterator[tuple[str, list[int]]]:
    """Yield the name of each stratum and the positions of its tasks, all tasks first."""
    yield "all tasks", list(range(len(tasks)))
    for name, value in sorted({stratum for task in tasks for stratum in task.strata().items()}):
        yield f"{name}: {value}", [i for i, task in enumerate(tasks) if task.strata().get(name) == value]


def fit_row(stratum: str, figures: Sequence[tuple[float, ...]]) -> Row:
    """Row of the fits of a stratum."""
    columns = zip(("covers", "error / declared", "s in s.e."), zip(*figures, strict=True), strict=True)
    cells = {name: _figure(column) for name, column in columns}
    return {"stratum": stratum, "tasks": f"{len(figures)}", **cells}


def row(stratum: str, outcomes: Sequence[Outcome]) -> Row:
    """Row of the comparisons of a stratum."""
    scores = [o.score for o in outcomes]
    return {
        "stratum": stratum,
        "tasks": f"{len(outcomes)}",
        "covers": _figure([s.coverage for s in scores]),
        "error / declared": _figure([s.ratio for s in scores]),
        "covers changed": _figure([s.changed for s in scores]),
        "covers, s known": _figure([s.known for s in scores]),
        "width / s known": _figure([s.width for s in scores]),
        "width, s known well": _figure([s.width if s.precise else np.nan for s in scores]),
        "s in s.e.": _figure([s.overlap_error for s in scores], 2),
        "false %": _figure([100 * s.false / max(1, s.false + s.found) for s in scores], 1),
        "found": f"{np.mean([s.found for s in scores]):.1f}",
        "seconds": f"{np.mean([o.seconds for o in outcomes]):.1f}",
    }


def _figure(values: Sequence[float], digits: int = 3) -> str:
    known = [value for value in values if np.isfinite(value)]
    if len(known) < 2:
        return "-"
    mean, error = clustered_mean(np.array(known, float))
    return f"{mean:.{digits}f} ({error:.{digits}f})"


def main() -> None:
    """Run the tasks and print the table."""
    benchmark = Benchmark(__doc__, tasks=60, jobs=1)
    benchmark.add("--save", type=Path, help="write one JSON object a task to this file")
    benchmark.add("--fit", action="store_true", help="fit the changes at the true shares, without decoding")
    options = benchmark.start()
    table = benchmark.table()
    if options.fit:
        fits = [fit for fit in benchmark.map(run_fit, benchmark.indices) if fit is not None]
        for stratum, positions in strata([task for task, *_ in fits]):
            table.add(fit_row(stratum, [fits[i][1:] for i in positions]))
        return
    outcomes = list(benchmark.map(run_task, benchmark.indices))
    for stratum, positions in strata([o.task for o in outcomes]):
        table.add(row(stratum, [outcomes[i] for i in positions]))
    if options.save:
        scores = ({"index": o.index, "task": str(o.task), **asdict(o.score)} for o in outcomes)
        options.save.write_text("".join(json.dumps(score) + "\n" for score in scores))
    for o in sorted(outcomes, key=lambda o: o.score.coverage)[:8]:
        print(f"covers {o.score.coverage:.3f}, error / declared {o.score.ratio:.2f}, {o.index}: {o.task}")


if __name__ == "__main__":
    main()
