"""Rate of durably stored reports, compared with a baseline service that stores nothing.

    python -m benchmarks.ingest [SQLite | PostgreSQL] [--runs 5]

The baseline is a FastAPI POST without a body model, on the same server with as many processes and connections, in the same
run. Figures are medians over rounds; the two services alternate.
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass

import uvloop

from benchmarks.runner import Benchmark
from benchmarks.service import OutcomeCounters, drive, requests_of, serving, started
from benchmarks.tables import Row
from tests.support.databases import new_postgres
from tests.support.postgres import postgres


@dataclass(frozen=True)
class Case:
    """One line of the table; after `formed` batches the same batches are sent again, as duplicates."""

    engine: str
    processes: int
    reports: int
    connections: int
    seconds: float
    formed: int


CASES = (
    Case("SQLite", 1, 1, 128, 2.0, 40_000),
    Case("SQLite", 1, 100, 64, 2.0, 16_000),
    Case("SQLite", 1, 1_000, 32, 1.0, 5_000),
    Case("PostgreSQL", 1, 1, 128, 2.0, 40_000),
    Case("PostgreSQL", 2, 1, 128, 2.0, 40_000),
    Case("PostgreSQL", 2, 100, 64, 2.0, 16_000),
)

DO_NOTHING = """
import sys
from fastapi import FastAPI, Request
from hubbub_aggregator.server.listener import bound_url, listen, run
from hubbub_aggregator.settings import Settings

app = FastAPI()

@app.post("/v1/reports", status_code=202)
async def post(request: Request) -> dict[str, str]:
    await request.body()
    return {"status": "stored"}

with listen("127.0.0.1", 0) as listener:
    ready = lambda: print("listening on", bound_url(listener), file=sys.stderr, flush=True)
    run(app, [listener], Settings().connection_limits(), ready)
"""


def measured(case: Case, server: str, rounds: int) -> tuple[list[OutcomeCounters], list[OutcomeCounters]]:
    """Return the rounds of the baseline and of the aggregator; each of the latter starts with an empty database."""
    requests = requests_of(case.reports, case.formed)
    baseline, ours = list[OutcomeCounters](), list[OutcomeCounters]()
    for _ in range(rounds):
        for counters in (baseline, ours):
            with ExitStack() as running:
                database = "" if case.engine == "SQLite" or counters is baseline else new_postgres(server)
                services = [
                    running.enter_context(
                        started(["-c", DO_NOTHING])
                        if counters is baseline
                        else serving("--local-rate-factor", "1e6", database=database)
                    )
                    for _ in range(case.processes)
                ]
                addresses = [(host, port) for host, port, _ in services]
                uvloop.run(drive(addresses, iter(requests[: case.connections]), case.connections, 0.3))
                served = itertools.islice(itertools.cycle(requests), case.connections, None)
                counters.append(uvloop.run(drive(addresses, served, case.connections, case.seconds)))
    return baseline, ours


def row(case: Case, baseline: list[OutcomeCounters], ours: list[OutcomeCounters]) -> Row:
    """Row of the table."""
    base, rate = (statistics.median(counters.rate(case.seconds) for counters in rounds) for rounds in (baseline, ours))
    statuses = sum((counters.statuses for counters in ours), Counter[int]())
    others = {status: count for status, count in statuses.items() if status != 202}
    return {
        "engine": case.engine,
        "processes": f"{case.processes}",
        "reports per batch": f"{case.reports:,}",
        "connections": f"{case.connections}",
        "baseline req/s": f"{base:,.0f}",
        "aggregator req/s": f"{rate:,.0f}",
        "ratio": f"{rate / base:.2f}",
        "reports/s": f"{rate * case.reports:,.0f}",
        "p99 ms": f"{statistics.median(counters.p99() for counters in ours):.0f}",
        "other responses": f"{others or 'none'}",
    }


def main() -> None:
    benchmark = Benchmark(__doc__, runs=5)
    benchmark.add("engines", nargs="*", metavar="ENGINE", help="SQLite or PostgreSQL (default: both)")
    options = benchmark.start()
    table = benchmark.table()
    with postgres() as server:
        for case in CASES:
            if not options.engines or case.engine in options.engines:
                table.add(row(case, *measured(case, server, options.runs)))


if __name__ == "__main__":
    main()
