"""Calibration of `compare` on random tasks: does the interval of a change cover, and how much wider is it than with a known overlap?

Coverage should be .94 to .96 at s = 0, .5 and 1. Where s is known well, s.e.(s) V_prr <= .03 (V_irr + (1 - s) V_prr), the width should be
within 3 % of that at the known s.

    python -m benchmarks.comparison [--tasks 60] [--first 0] [--save FILE]
    python -m benchmarks.comparison --fit [--tasks 300]

With --fit, only the changes of string metrics with at most 5,000 bits and 120 candidates are fitted, at the true expected shares, and intervals are normal: this
is a tenth of the time.

Seeds derive from the commit's hash (HUBBUB_TEST_SEED repeats a run). Standard errors are clustered by task.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.runs import commit_seed
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


def run_task(index: int, seed: int) -> Outcome:
    """Draw, simulate, compare and score one task."""
    task = draw_period_task(index, seed)
    before, after = simulate_two_periods(task.metric, task.transitions, np.random.default_rng([seed, index, 1]))
    with threadpool_limits(1):
        started = time.perf_counter()
        comparison = compare(before, after, task.candidates)
        seconds = time.perf_counter() - started
        design = None if task.kind == "categories" else design_matrix(task.candidates, task.metric.params)
        overlap = Overlap.known(task.true_overlap())
        known = compare_decodings((Evidence(before), Evidence(after)), (comparison.a, comparison.b), design, overlap)
    rows = [known[row.candidate] for row in comparison if np.isfinite(row.change)]
    values = (np.array(list(column)) for column in zip(*((r.change, r.std_error, (r.high - r.low) / 2 / r.std_error) for r in rows), strict=True))  # fmt: skip
    changes, errors, reach = values
    return Outcome(index, task, score_periods(task, comparison, (changes, errors, reach)), seconds)


def run_fit(index: int, seed: int) -> tuple[PeriodTask, float, float, float] | None:
    """Task, coverage, error / declared variance and error of s in standard errors of a fit at the true shares; None: no small task."""
    task = draw_period_task(index, seed)
    params = task.metric.params
    small = params.num_bits * params.num_cohorts <= _MAX_FIT_BITS and len(task.candidates) <= _MAX_FIT_CANDIDATES
    if task.kind == "categories" or not small:
        return None
    counts = simulate_two_periods(task.metric, task.transitions, np.random.default_rng([seed, index, 1]))
    design = design_matrix(task.candidates, params)
    column = {name: i for i, group in enumerate(design.groups) for name in group}
    shares = np.zeros((2, len(design.groups) + 1))
    for pair, number in task.transitions.items():
        for row, value in zip(shares, pair, strict=True):
            row[column.get(value or "", -1)] += number / task.num_clients
    with threadpool_limits(1):
        before, after = (Sample(Evidence(each), row) for each, row in zip(counts, shares, strict=True))
        result = fit_changes(before, after, design, None)
    z = (result.fit.shares - (shares[1] - shares[0])[:-1]) / np.sqrt(result.fit.reporter_variances)
    z = z[np.isfinite(z)]
    overlap = result.overlap
    error = (
        (overlap.estimate - task.true_overlap()) / overlap.std_error if overlap.std_error <= MAX_STD_ERROR else np.nan
    )
    return (task, float(np.mean(np.abs(z) < _TWO_SIDED)), float(np.mean(z**2)), float(error)) if len(z) else None


def fit_lines(results: Sequence[tuple[PeriodTask, float, float, float]]) -> Iterable[str]:
    """Yield the table of the fits, of all tasks and of each stratum."""
    yield "| stratum | tasks | covers | error / declared | s in s.e. |"
    yield "|---|---|---|---|---|"
    strata = sorted({pair for task, *_ in results for pair in task.strata().items()})
    for name, value in [("all tasks", ""), *strata]:
        some = [each[1:] for each in results if not value or each[0].strata().get(name) == value]
        label = f"{name}: {value}" if value else name
        yield f"| {label} | {len(some)} | {' | '.join(_figure(column) for column in zip(*some, strict=True))} |"


def lines(outcomes: Sequence[Outcome]) -> Iterable[str]:
    """Yield the table of all tasks and of each stratum."""
    names = ("covers", "error / declared", "covers changed", "covers, s known", "width / s known", "width, s known well", "s in s.e.", "false %", "found", "seconds")  # fmt: skip
    yield f"| stratum | tasks | {' | '.join(names)} |"
    yield "|---" * (2 + len(names)) + "|"
    yield _line("all tasks", outcomes)
    for name, value in sorted({pair for o in outcomes for pair in o.task.strata().items()}):
        yield _line(f"{name}: {value}", [o for o in outcomes if o.task.strata().get(name) == value])


def _line(name: str, outcomes: Sequence[Outcome]) -> str:
    scores = [o.score for o in outcomes]
    false = [100 * s.false / max(1, s.false + s.found) for s in scores]
    figures = [
        *(_figure([getattr(s, field) for s in scores]) for field in ("coverage", "ratio", "changed", "known", "width")),
        _figure([s.width if s.precise else np.nan for s in scores]),
        _figure([s.overlap_error for s in scores], 2),
        _figure(false, 1),
        f"{np.mean([s.found for s in scores]):.1f}",
        f"{np.mean([o.seconds for o in outcomes]):.1f}",
    ]
    return f"| {name} | {len(outcomes)} | {' | '.join(figures)} |"


def _figure(values: Sequence[float], digits: int = 3) -> str:
    known = [value for value in values if np.isfinite(value)]
    if len(known) < 2:
        return "-"
    mean, error = clustered_mean(np.array(known, float))
    return f"{mean:.{digits}f} ({error:.{digits}f})"


def main() -> None:
    """Run the tasks and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--first", type=int, default=0, help="index of the first task")
    parser.add_argument("--save", type=Path, help="write one JSON object a task to this file")
    parser.add_argument("--fit", action="store_true", help="fit the changes at the true shares, without decoding")
    options = parser.parse_args()
    text, seed = commit_seed()
    print(f"random comparisons, HUBBUB_TEST_SEED={text}", flush=True)
    if options.fit:
        fits = (run_fit(index, seed) for index in range(options.first, options.first + options.tasks))
        print("\n".join(fit_lines([fit for fit in fits if fit is not None])))
        return
    outcomes = []
    for index in range(options.first, options.first + options.tasks):
        outcomes.append(run_task(index, seed))
        if sys.stderr.isatty():
            print(f"\r{len(outcomes)} of {options.tasks}", end="", file=sys.stderr, flush=True)
    print("\n".join(lines(outcomes)))
    if options.save:
        scores = ({"index": o.index, "task": str(o.task), **asdict(o.score)} for o in outcomes)
        options.save.write_text("".join(json.dumps(score) + "\n" for score in scores))
    for o in sorted(outcomes, key=lambda o: o.score.coverage)[:8]:
        print(f"covers {o.score.coverage:.3f}, error / declared {o.score.ratio:.2f}, {o.index}: {o.task}")


if __name__ == "__main__":
    main()
