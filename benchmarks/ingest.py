"""Rate of durably stored reports, compared with a baseline service that stores nothing.

python -m benchmarks.ingest [SQLite | PostgreSQL]         (or: make bench-ingest)

The baseline is a FastAPI POST without a body model, on the same server with as many processes and connections, in the same
run. The load comes from this process, on the same machine, over connections that stay open. Figures are medians over rounds;
the two services alternate.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from hubbub import Batch, Metric, parse_definitions
from tests.support.databases import new_postgres
from tests.support.postgres import postgres

ROUNDS = int(os.environ.get("HUBBUB_TEST_ROUNDS", "5"))


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

DEFINITIONS = """
[[metric]]
name = "homepage"
kind = "string"
description = "The page they start from."
owner = "owner@example.org"
num_bits = 128
num_hashes = 2
num_cohorts = 64
prob_p = 0.25
prob_q = 0.75
prob_f = 0.5
expires = 9000-01-01
"""

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


@dataclass
class OutcomeCounters:
    """Figures of a round: responses by status, and the latency of each in seconds."""

    statuses: Counter[int] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)

    def rate(self, seconds: float) -> float:
        return (self.statuses[200] + self.statuses[202]) / seconds

    def p99(self) -> float:
        return sorted(self.latencies)[int(0.99 * len(self.latencies))] * 1e3 if self.latencies else float("nan")


class Lane(asyncio.Protocol):
    """One connection: sends a request, waits for its response, sends the next."""

    def __init__(self, requests: Iterator[bytes], tally: OutcomeCounters) -> None:
        self._requests, self._tally = requests, tally
        self._answer = b""
        self._sent = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, separator, body = self._answer.partition(b"\r\n\r\n")
        if not separator or len(body) < int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]):
            return
        self._tally.latencies.append(time.perf_counter() - self._sent)
        self._tally.statuses[int(head[9:12])] += 1
        self._answer = b""
        self._send()

    def stop(self) -> None:
        if self._transport:
            self._transport.abort()
        self._transport = None

    def sent_now(self) -> None:
        """Start the latency measurement of the next response."""
        self._sent = time.perf_counter()

    def _send(self) -> None:
        if self._transport and (request := next(self._requests, None)):
            self.sent_now()
            self._transport.write(request)


@contextmanager
def started(command: list[str]) -> Iterator[tuple[str, int, int]]:
    """Run a service until the block ends; yield its host, port and pid."""
    with subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        while (line := process.stderr.readline()).startswith("WARNING"):
            pass
        found = re.search(r"http://([\d.]+):(\d+)", line)
        assert found, line + process.stderr.read()
        yield found[1], int(found[2]), process.pid
        process.terminate()


def requests_of(metric: Metric, reports: int, number: int) -> list[bytes]:
    """Return requests with batches of arbitrary bits, each under a new id."""
    rng = random.Random(0)  # noqa: S311
    today = datetime.now(UTC).date().isoformat()
    cohorts = bytes(rng.randrange(metric.num_cohorts) for _ in range(reports))
    formed = []
    for _ in range(number):
        rows = rng.randbytes(reports * metric.row_bytes)
        body = Batch(uuid.uuid4(), metric.name, metric.digest, today, cohorts, rows).to_json()
        head = "POST /v1/reports HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        formed.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return formed


async def drive(
    addresses: Sequence[tuple[str, int]], requests: Iterator[bytes], connections: int, seconds: float
) -> OutcomeCounters:
    """Send requests over a number of connections, distributed over the addresses, for a number of seconds."""
    tally, loop, turns = OutcomeCounters(), asyncio.get_running_loop(), itertools.cycle(addresses)
    made = [loop.create_connection(lambda: Lane(requests, tally), *next(turns)) for _ in range(connections)]
    lanes = [lane for _, lane in await asyncio.gather(*made)]
    await asyncio.sleep(seconds)
    for lane in lanes:
        lane.stop()
    return tally


def measured(case: Case, server: str) -> tuple[list[OutcomeCounters], list[OutcomeCounters]]:
    """Return the rounds of the baseline and of the aggregator; each of the latter starts with an empty database."""
    import uvloop

    requests = requests_of(parse_definitions(DEFINITIONS)["homepage"], case.reports, case.formed)
    rounds: tuple[list[OutcomeCounters], list[OutcomeCounters]] = ([], [])
    for _ in range(ROUNDS):
        with TemporaryDirectory(prefix="hubbub-bench-") as directory:
            definitions = Path(directory) / "metrics.toml"
            definitions.write_text(DEFINITIONS, encoding="utf-8")
            database = str(Path(directory) / "hubbub.db") if case.engine == "SQLite" else new_postgres(server)
            ours = ["-m", "hubbub", "serve", str(definitions), "--port", "0"]
            ours += ["--database", database, "--create", "--local-rate-factor", "1e6"]
            for command, tallies in ((["-c", DO_NOTHING], rounds[0]), (ours, rounds[1])):
                with ExitStack() as running:
                    services = [running.enter_context(started(command)) for _ in range(case.processes)]
                    addresses = [(host, port) for host, port, _ in services]
                    uvloop.run(drive(addresses, iter(requests[: case.connections]), case.connections, 0.3))
                    served = itertools.islice(itertools.cycle(requests), case.connections, None)
                    tallies.append(uvloop.run(drive(addresses, served, case.connections, case.seconds)))
    return rounds


def main(engines: list[str]) -> None:
    print(
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f};"
    )
    print(f"median of {ROUNDS} rounds\n")
    print(
        "| engine | processes | reports per batch | connections | baseline req/s | aggregator req/s | ratio | reports/s "
        "| p99 ms | other responses |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    with postgres() as server:
        for case in CASES:
            if not engines or case.engine in engines:
                print(line(case, *measured(case, server)), flush=True)


def line(case: Case, baseline: list[OutcomeCounters], ours: list[OutcomeCounters]) -> str:
    """Return a line of the table."""
    base, rate = (statistics.median(tally.rate(case.seconds) for tally in tallies) for tallies in (baseline, ours))
    other = sum((tally.statuses for tally in ours), Counter[int]())
    others = {status: count for status, count in other.items() if status != 202} or "none"
    p99 = statistics.median(tally.p99() for tally in ours)
    return (
        f"| {case.engine} | {case.processes} | {case.reports:,} | {case.connections} | {base:,.0f} | {rate:,.0f} "
        f"| {rate / base:.2f} | {rate * case.reports:,.0f} | {p99:.0f} | {others} |"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
