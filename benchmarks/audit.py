"""Does the client keep the epsilon that the surfaces print? Audits every definition of examples/.

    python -m benchmarks.audit [--trials N] [FILE ...]

For each metric, the epsilons that `hubbub metrics show` (text and JSON), the aggregator's page, GET /v1/metrics and the decoder print are
parsed. Each is compared with the declared epsilon, computed from the parameters, and with the lower bound that an audit of the encoder
measures:

    measured bound <= printed <= declared, rounded up to three decimals

Cells: one report; `hold` reports and two epochs, or 7 reports of one value. Exit code 1 if a comparison fails. A correct client fails by
chance with probability at most 1e-4 for each cell. The lifetime sums units of epsilon; no feasible number of trials measures it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hubbub import Metric
from hubbub.metrics.definitions import load_definitions
from hubbub.privacy import epsilon, epsilon_permanent
from hubbub_decoder.audit.audit import Audit, audit_metric
from hubbub_decoder.audit.replay import replay_tests_of
from tests.support.paths import REPOSITORY
from tests.support.printed_figures import printed_figures

CONFIDENCE = 0.9999
ROUNDING = 0.001 + 1e-6
REPORTS_OF_ONE_VALUE = 7


@dataclass(frozen=True, slots=True)
class Cell:
    """Printed figure under audit: its label, the reports to make, the declared epsilon of the label, and the units that it counts."""

    label: str
    reports: int
    declared: float
    units: int = 1


def cells_of(metric: Metric) -> Iterator[Cell]:
    """Cells of a metric, one for each printed label that trials can reach."""
    yield Cell("per report", 1, epsilon(metric.params))
    if metric.hold is not None:
        for epochs in (1, 2):
            yield Cell("per epoch", epochs * metric.hold, epsilon(metric.params, metric.hold), epochs)
    elif metric.params.permanent_p > 0 or metric.params.permanent_q < 1:
        yield Cell("per value", REPORTS_OF_ONE_VALUE, epsilon_permanent(metric.params))


def problems(cell: Cell, audit: Audit, printed: dict[str, float]) -> list[str]:
    """Failed comparisons of one cell. printed : figure by surface"""
    found = []
    for surface, figure in printed.items():
        if audit.bound.epsilon > cell.units * figure:
            found.append(
                f"{surface} prints {figure}, and {audit.bound.epsilon:.4f} was measured for {cell.units} of them"
            )
        if not cell.declared - 1e-9 <= figure <= cell.declared + ROUNDING:
            found.append(f"{surface} prints {figure}, and the parameters declare {cell.declared:.6f}")
    return found


def run(file: Path, trials: int | None) -> int:
    """Audit one definitions file, print a table, and return the number of failed comparisons."""
    definitions = load_definitions(file)
    with tempfile.TemporaryDirectory() as folder:
        surfaces = printed_figures(file, definitions, Path(folder))
    failed = 0
    for name in definitions:
        metric = definitions[name]
        for cell in cells_of(metric):
            start = time.perf_counter()
            printed = {surface: figures[name][cell.label] for surface, figures in surfaces.items()}
            audit = audit_metric(metric, reports=cell.reports, confidence=CONFIDENCE, trials=trials)
            replays = replay_tests_of(None, metric, audit.values[0], audit.schedule, None)
            found = problems(cell, audit, printed) + [test.finding for test in replays if test.refuted]
            failed += len(found)
            figure = " ".join(sorted({f"{each:.3f}" for each in printed.values()}))
            print(
                f"| {file.name} {name} | {cell.label}{f' x {cell.units}' if cell.units > 1 else ''} | {cell.reports} | {figure} "
                f"| {audit.claim:.3f} | {audit.bound.epsilon:.3f} | {audit.bound.epsilon / audit.claim:.3f} | {audit.trials:,} "
                f"| {audit.trials_needed:,.0f} | {'FAILED' if found else 'kept'} | {time.perf_counter() - start:.0f} s |",
                flush=True,
            )
            for each in found:
                print(f"  {file.name} {name}: {each}")
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description="Audit the epsilons that the surfaces print.")
    parser.add_argument("files", nargs="*", type=Path, default=sorted((REPOSITORY / "examples").glob("*.toml")))
    parser.add_argument(
        "--trials", type=int, help="clients for each cell; default: enough for 95 % of the claim, at most 2,000,000"
    )
    arguments = parser.parse_args()
    print(
        "| definition | figure | reports | printed by all surfaces | declared for these reports | measured bound | share | clients | needed | | time |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    failed = sum(run(file, arguments.trials) for file in arguments.files)
    print(f"{failed} failed comparisons; confidence {CONFIDENCE} for each cell", file=sys.stderr)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
