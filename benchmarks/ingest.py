"""Processor time and rate of durably stored batches, compared with services that store nothing or check nothing.

    python -m benchmarks.ingest [SQLite | PostgreSQL] [--runs 5]

The others (`benchmarks/baselines.py`) run on the same server with as many processes and connections, in the same run: each round measures
every application once. Figures are medians over the rounds, and ratios are medians of the ratios within a round. Processor time is that of
all processes, also PostgreSQL's, without the process that sends the requests.
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory

import uvloop

from benchmarks.runner import Benchmark
from benchmarks.service import OutcomeCounters, drive, family, requests_of, serving, started
from benchmarks.tables import Row
from tests.support.databases import new_postgres
from tests.support.postgres import postgres

WARM_UP_SECONDS, SECONDS = 0.3, 1.5
FORMED_BYTES = 160 << 20
"""Size of the requests of a case, which are then sent again: the rounds end before the aggregator sees one twice."""
MOST_FORMED = 40_000


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    engine: str
    processes: int
    reports: int
    connections: int

    def applications(self) -> tuple[str, ...]:
        """Names of the applications; the one with inserts is written for SQLite."""
        return ("fastapi", "raw", "inserts", "aggregator") if self.engine == "SQLite" else ("fastapi", "aggregator")


CASES = (
    *(
        Case("SQLite", 1, reports, connections)
        for reports, connections in itertools.product((1, 100, 1_000), (16, 128))
    ),
    Case("PostgreSQL", 1, 1, 128),
    Case("PostgreSQL", 2, 1, 128),
    Case("PostgreSQL", 2, 100, 64),
)


@dataclass(frozen=True)
class Measured:
    """Figures of one application in one round."""

    counters: OutcomeCounters
    seconds: float
    processor: float

    @property
    def rate(self) -> float:
        """Accepted requests per second."""
        return self.counters.rate(self.seconds)

    @property
    def processor_microseconds(self) -> float:
        """Processor time of an accepted request."""
        return self.processor * 1e6 / max(self.rate * self.seconds, 1)


Rounds = dict[str, list[Measured]]


@contextmanager
def baseline(name: str) -> Iterator[tuple[str, int, int]]:
    """Run one of the applications of `benchmarks/baselines.py`, with a new database."""
    with (
        TemporaryDirectory(prefix="hubbub-bench-") as directory,
        started(["-m", "benchmarks.baselines", name, f"{directory}/reports.db"]) as address,
    ):
        yield address


def running(name: str, case: Case, server: str) -> Callable[[], AbstractContextManager[tuple[str, int, int]]]:
    """Return the function that starts a process of an application; all processes of an aggregator share a new database."""
    if name != "aggregator":
        return lambda: baseline(name)
    database = new_postgres(server) if case.engine == "PostgreSQL" else ""
    return lambda: serving("--local-rate-factor", "1e6", database=database)


def measured(name: str, case: Case, server: str, requests: Sequence[bytes]) -> Measured:
    """Start an application, send requests, and return its figures."""
    with ExitStack() as stack:
        start = running(name, case, server)
        addresses = [stack.enter_context(start())[:2] for _ in range(case.processes)]
        sent = iter(itertools.cycle(requests))
        uvloop.run(drive(addresses, sent, case.connections, WARM_UP_SECONDS))
        began, processor = time.perf_counter(), _processor_of_services()
        counters = uvloop.run(drive(addresses, sent, case.connections, SECONDS))
        seconds = time.perf_counter() - began
        return Measured(counters, seconds, _processor_of_services() - processor)


def _processor_of_services() -> float:
    """Processor time in seconds of all processes that this one started."""
    return family(os.getpid())[1] - time.process_time()


def rounds_of(case: Case, server: str, rounds: int) -> Rounds:
    """Measure every application of a case once in each round."""
    (request,) = requests_of(case.reports, 1)
    requests = requests_of(case.reports, min(MOST_FORMED, FORMED_BYTES // len(request)))
    found: Rounds = {name: [] for name in case.applications()}
    for _ in range(rounds):
        for name, figures in found.items():
            figures.append(measured(name, case, server, requests))
    return found


def row(case: Case, found: Rounds) -> Row:
    """Row of the table."""
    cells = {
        "engine": case.engine,
        "processes": f"{case.processes}",
        "reports": f"{case.reports}",
        "connections": f"{case.connections}",
    }
    for name in ("raw", "fastapi", "inserts", "aggregator"):
        cells[f"{name}_us"] = _median(found, name, "{:.0f}", lambda figures: figures.processor_microseconds)
    for name in ("fastapi", "inserts"):
        cells[f"us_over_{name}"] = _ratio(found, name, lambda figures: figures.processor_microseconds)
    cells["requests_per_second"] = _median(found, "aggregator", "{:.0f}", lambda figures: figures.rate)
    for name in ("fastapi", "inserts"):
        cells[f"rate_over_{name}"] = _ratio(found, name, lambda figures: figures.rate)
    cells["p99_ms"] = _median(found, "aggregator", "{:.0f}", lambda figures: figures.counters.p99())
    statuses = sum((figures.counters.statuses for figures in found["aggregator"]), Counter[int]())
    cells["other_responses"] = f"{ {status: count for status, count in statuses.items() if status != 202} or 'none' }"
    return cells


def _median(found: Rounds, name: str, form: str, figure: Callable[[Measured], float]) -> str:
    return form.format(statistics.median(map(figure, found[name]))) if name in found else ""


def _ratio(found: Rounds, name: str, figure: Callable[[Measured], float]) -> str:
    """Median over the rounds of a figure of the aggregator, divided by that of another application."""
    if name not in found:
        return ""
    pairs = zip(found["aggregator"], found[name], strict=True)
    return f"{statistics.median(figure(ours) / figure(other) for ours, other in pairs):.2f}"


def main() -> None:
    benchmark = Benchmark(__doc__, runs=5)
    benchmark.add("engines", nargs="*", metavar="ENGINE", help="SQLite or PostgreSQL (default: both)")
    options = benchmark.start()
    table = benchmark.table("ingestion-cost")
    with postgres() as server:
        for case in CASES:
            if not options.engines or case.engine in options.engines:
                table.add(row(case, rounds_of(case, server, options.runs)))


if __name__ == "__main__":
    main()
