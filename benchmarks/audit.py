"""Does the client keep the epsilon that the surfaces print? Audits every definition of examples/ and of the demo.

    python -m benchmarks.audit [--trials N] [FILE ...]
    python -m benchmarks.audit --cells [--most N] [--only TEXT ...] [--command COMMAND]   bound over claim for every kind of metric, without
        surfaces: of the client of this project, or of an adapter of `hubbub conformance`

For each metric, the epsilons that `hubbub metrics show` (text and JSON), the aggregator's page, GET /v1/metrics and the decoder print are
parsed. Each is compared with the declared epsilon, computed from the parameters, and with the lower bound that an audit of the encoder
measures:

    measured bound <= printed <= declared, rounded up to three decimals

Cells: one report; `hold` reports and two epochs, or several reports of one value. "Per value" bounds any number of reports: the cell has
as many, 2 to 30, as reach 95 % of it with the fewest reports of all clients. The noise of values, epochs and metrics is tested for
independence. Exit code 1 if a comparison or a test fails. A correct client fails by chance with probability at most .001 for each cell.
The lifetime sums units of epsilon; no feasible number of trials measures it.
"""

from __future__ import annotations

import math
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.runner import Benchmark
from benchmarks.tables import Row, Table
from hubbub import Buckets, Estimand, Metric, Params, UnaryResponse
from hubbub.metrics.definitions import load_definitions
from hubbub.privacy import epsilon, epsilon_permanent
from hubbub_decoder.audit.audit import MIN_TRIALS, Audit, audit_metric, declared_epsilon
from hubbub_decoder.audit.bound import epsilon_lower_bounds
from hubbub_decoder.audit.external_clients import AdapterClient
from hubbub_decoder.audit.independence import compare_metrics, independence_tests
from hubbub_decoder.audit.laws import true_bits
from hubbub_decoder.audit.loss_law import declared_event, loss_law
from hubbub_decoder.audit.pair_search import declared_pair
from hubbub_decoder.audit.replay import replay_tests_of
from hubbub_decoder.audit.trials import Schedule
from hubbub_decoder.kinds.operations import operations_of
from tests.support.every_kind import METRICS
from tests.support.paths import REPOSITORY
from tests.support.printed_figures import printed_figures

DEFINITIONS = [
    *sorted((REPOSITORY / "examples").glob("*.toml")),
    REPOSITORY / "decoder" / "hubbub_decoder" / "demo" / "metrics.toml",
]
CONFIDENCE = 0.999
CELL_CONFIDENCE = 0.99
ROUNDING = 0.001 + 1e-6
MOST_REPORTS_OF_ONE_VALUE = 30
MAX_REPORTS = 6_000_000
CLIENTS = 100_000
"""Most clients of an independence test."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Printed figure under audit: its label, the reports to make, the declared epsilon of the label, and the units that it counts."""

    label: str
    reports: int
    declared: float
    units: int = 1

    @property
    def claim(self) -> float:
        """Declared epsilon of these reports."""
        return self.units * self.declared


def cells_of(metric: Metric) -> Iterator[Cell]:
    """Cells of a metric, one for each printed label that trials can reach."""
    yield Cell("per report", 1, epsilon(metric))
    if metric.hold is not None:
        for epochs in (1, 2):
            yield Cell("per epoch", epochs * metric.hold, epsilon(metric, metric.hold), epochs)
    elif metric.params.mechanism.permanent_p > 0 or metric.params.mechanism.permanent_q < 1:
        declared = epsilon_permanent(metric)
        tried = range(2, MOST_REPORTS_OF_ONE_VALUE + 1)
        fewest = min(tried, key=lambda reports: reports * _trials_needed(metric, reports, declared, CONFIDENCE))
        yield Cell("per value", fewest, declared)


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


def run(file: Path, trials: int | None, table: Table) -> int:
    """Audit one definitions file, add a row for each cell, and return the number of failed comparisons."""
    definitions = load_definitions(file)
    with tempfile.TemporaryDirectory() as folder:
        surfaces = printed_figures(file, definitions, Path(folder))
    failed = 0
    for name in definitions:
        metric = definitions[name]
        for cell in cells_of(metric):
            start = time.perf_counter()
            printed = {surface: figures[name][cell.label] for surface, figures in surfaces.items()}
            needed = _trials_needed(metric, cell.reports, cell.claim, CONFIDENCE)
            number = trials or math.ceil(min(max(needed, MIN_TRIALS), MAX_REPORTS // cell.reports))
            audit = audit_metric(
                metric, num_reports=cell.reports, claim=cell.claim, confidence=CONFIDENCE, trials=number
            )
            replays = replay_tests_of(None, metric, audit.values[0], audit.schedule, None)
            found = problems(cell, audit, printed) + [test.finding for test in replays if test.refuted]
            failed += len(found)
            figure = " ".join(sorted({f"{printed_epsilon:.3f}" for printed_epsilon in printed.values()}))
            table.add(
                {
                    "definition": f"{file.parent.name}/{file.name} {name}",
                    "figure": f"{cell.label}{f' x {cell.units}' if cell.units > 1 else ''}",
                    "reports": f"{cell.reports}",
                    "printed by all surfaces": figure,
                    **_bound_cells(audit, cell.claim),
                    "clients": f"{audit.trials:,}",
                    "needed": f"{needed:,.0f}",
                    "": "FAILED" if found else "kept",
                    "time": f"{time.perf_counter() - start:.0f} s",
                }
            )
            for problem in found:
                print(f"  {file.name} {name}: {problem}")
    tests = [test for name in definitions for test in independence_tests(None, definitions[name], None, CLIENTS, None)]
    if len(definitions) > 1:
        metrics = [definitions[name] for name in definitions]
        tests += compare_metrics(None, metrics, CLIENTS, None)
    dependent = [test for test in tests if test.refuted]
    for test in dependent:
        print(f"  {file.name}: {test.name}: {test.finding}")
    return failed + len(dependent)


def _bound_cells(audit: Audit, claim: float) -> Row:
    bound = audit.bound.epsilon
    return {"declared": f"{claim:.3f}", "measured bound": f"{bound:.3f}", "share": f"{bound / claim:.3f}"}


def _trials_needed(metric: Metric, reports: int, claim: float, confidence: float) -> float:
    """Clients of an audit for a bound of 95 % of the claim with power 99 %."""
    bits = [true_bits(metric, value) for value in operations_of(metric).audited_values()]
    schedule = Schedule.of(reports, metric.hold)
    return 4 * declared_pair(metric, bits, schedule, claim, 1 - confidence)[2]


def all_kinds() -> Iterator[tuple[str, Metric, int]]:
    """Name, metric and number of reports of each cell: every kind, one report, several, and several epochs of `hold`."""
    noises = {".5/.75/.75": (0.5, 0.75, 0.75), ".5/.75/.5": (0.5, 0.75, 0.5), ".25/.75/.25": (0.25, 0.75, 0.25)}
    noises |= {".25/.75/.5": (0.25, 0.75, 0.5), "0/1/.5": (0.0, 1.0, 0.5), ".4/.6/0": (0.4, 0.6, 0.0)}
    fields: dict[str, dict[str, Any]] = {
        name: dict(zip(("prob_p", "prob_q", "prob_f"), noise, strict=True)) for name, noise in noises.items()
    }
    sizes = [(128, 2, ".5/.75/.75"), (128, 2, ".5/.75/.5"), (64, 1, ".25/.75/.25"), (128, 2, ".25/.75/.5")]
    for k, h, noise in sizes:
        params = Params(num_bits=k, num_hashes=h, num_cohorts=64, **fields[noise])
        for reports in (1, 2, 7, 30):
            yield f"string {k}, {h}, {noise}", Metric.string("page", params), reports
        for hold, reports in ((1, 2), (1, 3), (7, 14)):
            yield f"string {k}, {h}, {noise}, hold {hold}", Metric.string("page", params, hold=hold), reports
    many_hashes = Params(num_bits=8, num_hashes=6, num_cohorts=64, **fields[".25/.75/.25"])
    yield "string 8, 6, .25/.75/.25 (no value)", Metric.string("page", many_hashes), 1
    for first, last in ((1, 2), (2, 4)):
        b = 1 / (1 + math.exp(last))
        p = (1 / (1 + math.exp(first)) - b) / (1 - 2 * b)
        noise_of_loss: dict[str, Any] = {"prob_p": p, "prob_q": 1 - p, "permanent_p": b, "permanent_q": 0.5}
        page = Metric.string("page", Params(num_bits=128, num_hashes=1, num_cohorts=16, **noise_of_loss))
        for reports in (1, 7, 30):
            yield f"string 128, 1, asymmetric {first}, {last}", page, reports
        yield (
            f"categorical, asymmetric {first}, {last}",
            Metric.categorical("os", tuple("abcd"), UnaryResponse(**noise_of_loss)),
            1,
        )
    for noise in (".25/.75/.5", "0/1/.5"):
        for reports in (1, 2, 7, 30):
            yield (
                f"categorical {noise}",
                Metric.categorical("os", tuple("abcd"), UnaryResponse(**fields[noise])),
                reports,
            )
    for noise, reports in (
        (".5/.75/.5", 1),
        (".25/.75/.5", 1),
        ("0/1/.5", 1),
        ("0/1/.5", 7),
        (".4/.6/0", 1),
        (".4/.6/0", 4),
    ):
        yield f"boolean {noise}", Metric.boolean("dark", UnaryResponse(**fields[noise])), reports
    page = Metric.string("page", Params(num_bits=32, num_hashes=1, num_cohorts=32, **fields["0/1/.5"]))
    paid, os = (
        Metric.boolean("paid", UnaryResponse(**fields["0/1/.5"])),
        Metric.categorical("os", tuple("abcd"), UnaryResponse(**fields["0/1/.5"])),
    )
    yield "joint of string and categorical, 0/1/.5", Metric.joint("visit", (page, os)), 1
    yield (
        "joint of boolean, boolean and categorical, 0/1/.5",
        Metric.joint("trip", (paid, Metric.boolean("late", UnaryResponse(**fields["0/1/.5"])), os)),
        1,
    )
    yield "ordinal .25/.75/.5", Metric.ordinal("use", (0, 10, 20, 30), UnaryResponse(**fields[".25/.75/.5"])), 2
    mean = Buckets((0, 50), default=0, estimate=Estimand.MEAN)
    yield "mean .25/.75/.5", Metric.ordinal("use", mean, UnaryResponse(**fields[".25/.75/.5"])), 2
    for reports in (2, 3, 4):
        yield "boolean 0/1/.5, hold 1", Metric.boolean("dark", UnaryResponse(**fields["0/1/.5"]), hold=1), reports
    for metric in METRICS:
        yield f"every kind: {metric.name}", metric, 1


def run_cells(most: int, only: list[str], command: list[str] | None, table: Table) -> int:
    """Audit the cells with at most `most` reports each, and return the number of bounds above the claim.

    command : adapter of the client; None for the client of this project
    """
    failed = 0
    for name, metric, reports in all_kinds():
        if not any(text in f"{name} t={reports}." for text in only):
            continue
        claim = declared_epsilon(metric, reports)
        needed = _trials_needed(metric, reports, claim, CELL_CONFIDENCE)
        clients = int(min(max(needed, MIN_TRIALS), most // reports))
        expected = _expected_bound(metric, reports, clients // 4, 1 - CELL_CONFIDENCE)
        start = time.perf_counter()
        client = None if command is None else AdapterClient(command, (metric,))
        audit = audit_metric(metric, client=client, num_reports=reports, confidence=CELL_CONFIDENCE, trials=clients)
        failed += audit.refuted
        speed = audit.trials / (time.perf_counter() - start)
        table.add(
            {
                "metric": name,
                "reports": f"{reports}",
                **_bound_cells(audit, claim),
                "share by the law": f"{expected / claim:.3f}",
                "clients": f"{audit.trials:,}",
                "needed": f"{needed:.2g}",
                "clients/s": f"{speed:,.0f}",
            }
        )
    return failed


def _expected_bound(metric: Metric, reports: int, trials: int, alpha: float) -> float:
    """Bound of the declared pair and event for so many trials of each value, at the expected counts."""
    bits = [true_bits(metric, value) for value in operations_of(metric).audited_values()]
    schedule = Schedule.of(reports, metric.hold)
    i, j, _ = declared_pair(metric, bits, schedule, declared_epsilon(metric, reports), alpha)
    law = loss_law(metric, bits[i], bits[j], schedule.per_epoch, schedule.epochs)
    event = declared_event(law, trials, alpha)
    count, other = (
        trials * law_of_value[event.occurs(law.loss)].sum() for law_of_value in (law.first, law.second)[:: event.sign]
    )
    return float(epsilon_lower_bounds(count, trials, other, trials, alpha))


def main() -> None:
    benchmark = Benchmark(__doc__)
    benchmark.add("files", nargs="*", type=Path, default=DEFINITIONS, metavar="FILE")
    benchmark.add(
        "--trials",
        type=int,
        help="clients for each cell; default: enough for 95 %% of the claim, at most 6,000,000 reports",
    )
    benchmark.add("--cells", action="store_true", help="audit every kind of metric instead of files")
    benchmark.add("--most", type=int, default=3_000_000, help="with --cells: largest number of reports of a cell")
    benchmark.add(
        "--only",
        nargs="+",
        default=[""],
        help="with --cells: parts of the names of the cells, as in 'boolean' or 't=7.'",
    )
    benchmark.add("--command", type=shlex.split, help="with --cells: adapter of the client under audit")
    options = benchmark.start()
    if options.command is not None and not options.cells:
        benchmark.parser.error("--command needs --cells")
    if options.cells:
        sys.exit(bool(run_cells(options.most, options.only, options.command, benchmark.table())))
    table = benchmark.table()
    failed = sum(run(file, options.trials, table) for file in options.files)
    print(f"{failed} failed comparisons; confidence {CONFIDENCE} for each cell", file=sys.stderr)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
