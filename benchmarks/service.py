"""A service under load: `hubbub serve` in a temporary folder, requests of arbitrary reports, and connections that send them.

The load comes from this process, on the same machine, over connections that stay open.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import re
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from hubbub import Batch, Metric, parse_definitions

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
METRIC = parse_definitions(DEFINITIONS)["homepage"]


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


@contextmanager
def serving(*options: str, database: str = "") -> Iterator[tuple[str, int, int]]:
    """Run `hubbub serve` with one metric until the block ends; yield its host, port and pid.

    database : default: a new SQLite file
    """
    with TemporaryDirectory(prefix="hubbub-bench-") as directory:
        definitions = Path(directory) / "metrics.toml"
        definitions.write_text(DEFINITIONS, encoding="utf-8")
        storage = ["--database", database or str(Path(directory) / "reports.db"), "--create"]
        with started(["-m", "hubbub", "serve", str(definitions), "--port", "0", *storage, *options]) as address:
            yield address


def requests_of(reports: int, number: int, metric: Metric = METRIC) -> list[bytes]:
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


def resident(pid: int, what: str) -> float:
    """Return the resident memory of a process in MiB: current (VmRSS) or peak (VmHWM)."""
    found = re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


def family(root: int) -> tuple[int, float]:
    """Return the resident memory in bytes and the processor time in seconds of a process and its descendants, also of those that ended."""
    parents, memory, ticks = dict[int, int](), dict[int, int](), dict[int, int]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        number = int(folder.name)
        parents[number] = int(fields[1])
        memory[number] = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        ticks[number] = sum(map(int, fields[11:15]))
    members = {root}
    while more := {child for child, parent in parents.items() if parent in members} - members:
        members |= more
    seconds = sum(ticks.get(member, 0) for member in members) / os.sysconf("SC_CLK_TCK")
    return sum(memory.get(member, 0) for member in members), seconds
