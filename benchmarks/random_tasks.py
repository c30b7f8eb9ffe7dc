"""Calibration on random tasks: error against declared variance, coverage, false discoveries, time; a line for each stratum.

The ranges of the tasks are in `tests/support/random_tasks.py`. Error / declared is the mean squared error over the declared variance, of
single shares and of totals. Estimated is the share of the candidates with an estimate, and wild counts tasks with a p-value of an absent
candidate below 1e-6 over their number. Detected above limit is the share of the candidates above the printed detection limit that are
detected; above zero that of the intervals above 0 among estimates of more than 10 standard errors, where nothing is unlisted. Below are the rates of the warnings by kind of counts; what makes a warning right is in `RIGHT` of
`benchmarks/warning_rates.py`. One of the warnings is that of a frequent unlisted string, which all kinds are searched for.

    python -m benchmarks.random_tasks [--tasks 320] [--jobs 2] [--kind bits] [--first 0] [--save FILE] [--out docs/explanation/data]

Standard errors are clustered by task: each task counts once.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.runner import Benchmark, seed
from benchmarks.tables import Row
from benchmarks.warning_rates import Alarm, alarms, rates
from hubbub_decoder import Finding, decode
from tests.support.random_tasks import KINDS, Score, Task, clustered_mean, draw_task, score, simulate_task

COVERAGES = ("all", "absent", "top 20", "totals", "selected")
_WORST = 12


@dataclass(frozen=True)
class Outcome:
    """Score of one task, the time of `decode`, its warnings and whether they are right; error: the exception if it raised one."""

    index: int
    task: Task
    score: Score | None
    seconds: float
    warnings: tuple[Finding, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    error: str = ""


def run_task(index: int) -> Outcome:
    """Draw, simulate, decode and score one task."""
    task = draw_task(index, seed())
    summary, candidates, population, no_value = simulate_task(task)
    started = time.perf_counter()
    try:
        decoding = decode(summary, candidates)
    except Exception as problem:  # noqa: BLE001, a task that fails is a finding
        return Outcome(index, task, None, time.perf_counter() - started, error=repr(problem))
    seconds = time.perf_counter() - started
    judged = tuple(alarms(decoding, population, task))
    return Outcome(index, task, score(decoding, population, no_value), seconds, decoding.warnings, judged)


def strata_rows(outcomes: Sequence[Outcome]) -> Iterable[Row]:
    """Yield the row of all tasks and of each stratum."""
    yield _row("all tasks", "", outcomes)
    for name, value in sorted({stratum for o in outcomes for stratum in o.task.strata().items()}):
        yield _row(name, value, [o for o in outcomes if o.task.strata()[name] == value])


def strong_rows(outcomes: Sequence[Outcome]) -> Iterable[Row]:
    """Yield the rows of estimates above 20 standard errors: tasks that have any, error / declared and coverage by kind of counts."""
    for kind in KINDS:
        scores = [o.score for o in outcomes if o.task.kind == kind and o.score and not math.isnan(o.score.strong_ratio)]
        yield {
            "counts": kind,
            "tasks": f"{len(scores)}",
            **_figure("error_over_declared", [s.strong_ratio for s in scores]),
            **_figure("covers", [s.coverage["strong"] for s in scores]),
        }


def _row(name: str, value: str, outcomes: Sequence[Outcome]) -> Row:
    scores = [o.score for o in outcomes if o.score is not None]
    false = [100 * s.false / max(1, s.false + s.found) for s in scores]
    row = {"stratum": name, "value": value, "tasks": f"{len(outcomes)}"}
    row["estimated"] = f"{np.mean([s.estimated for s in scores]):.2f}"
    row |= _figure("error_over_declared", [s.ratio for s in scores])
    row |= _figure("totals_error_over_declared", [s.totals_ratio for s in scores])
    for candidates in COVERAGES:
        row |= _figure(f"covers_{candidates.replace(' ', '_')}", [s.coverage[candidates] for s in scores])
    row |= _figure("false_percent", false, 1)
    row |= _figure("detected_above_limit", [s.power for s in scores])
    row |= _figure("above_zero", [s.above_zero for s in scores])
    row["found"] = f"{np.mean([s.found for s in scores]):.1f}"
    row["wild"] = f"{sum(s.wild for s in scores)}"
    row["seconds"] = f"{np.mean([o.seconds for o in outcomes]):.1f}"
    return row


def _figure(name: str, values: Sequence[float], digits: int = 3) -> dict[str, str]:
    mean, error = clustered_mean(np.array(values, float))
    return {name: f"{mean:.{digits}f}", f"{name}_se": f"{error:.{digits}f}"}


def worst(outcomes: Sequence[Outcome]) -> Iterable[str]:
    """Yield the tasks with the largest error / declared variance, those that failed, and the slowest."""
    scored = [(o, o.score) for o in outcomes if o.score is not None]
    for o in outcomes:
        if o.error:
            yield f"failed  {o.index}: {o.error}  {o.task}"
    for o, s in sorted(scored, key=lambda pair: -_known(pair[1].ratio))[:_WORST]:
        yield f"error {s.ratio:7.2f} {o.index}: {o.task}"
    for o, s in sorted(scored, key=lambda pair: -_known(pair[1].totals_ratio))[:_WORST]:
        yield f"totals {s.totals_ratio:6.2f} {o.index}: {o.task}"
    for o in sorted(outcomes, key=lambda o: -o.seconds)[: _WORST // 2]:
        yield f"seconds {o.seconds:5.1f} {o.index}: {o.task}"


def _known(value: float) -> float:
    return -1.0 if math.isnan(value) else value


def main() -> None:
    """Run the tasks and print the tables."""
    benchmark = Benchmark(__doc__, tasks=320, jobs=2)
    benchmark.add("--kind", choices=KINDS, help="only tasks of this kind of counts")
    benchmark.add("--save", type=Path, help="add one JSON object a task to this file, as soon as it is done")
    options = benchmark.start()
    indices = [index for index in benchmark.indices if options.kind in (None, KINDS[index % len(KINDS)])]
    outcomes = []
    for outcome in benchmark.map(run_task, indices):
        outcomes.append(outcome)
        if options.save:
            with options.save.open("a") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
    judged = [(outcome.task.kind, alarm) for outcome in outcomes for alarm in outcome.alarms]
    benchmark.table("random-tasks").add_all(strata_rows(outcomes))
    benchmark.table("random-tasks-strong").add_all(strong_rows(outcomes))
    benchmark.table("random-tasks-warnings").add_all(rates("counts", judged))
    print(*worst(outcomes), sep="\n")


if __name__ == "__main__":
    main()
