"""Goodput, rejections and memory of an aggregator under three times its peak load.

python -m benchmarks.overload          (or: make bench-ingest)

The peak is the rate of 128 connections that each wait for their response before the next request. Then requests are sent
at three times that rate without waiting for responses, over at most 2,000 connections. Goodput is the number of batches
stored per second. In the last case the queue is short, so most batches are rejected: a rejection must be cheap.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import platform
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from benchmarks.ingest import DEFINITIONS, Lane, OutcomeCounters, drive, requests_of, started
from hubbub import parse_definitions

ROUNDS = int(os.environ.get("HUBBUB_TEST_ROUNDS", "3"))
CONNECTIONS, TIMES, TICK = 2_000, 3, 0.01
FILLING, SECONDS = 3.0, 4.0  # responses while the queues fill up are not counted


@dataclass(frozen=True)
class Case:
    """A line of the table."""

    name: str
    reports: int
    formed: int
    options: tuple[str, ...] = ()


CASES = (
    Case("default options", 1, 100_000),
    Case("default options", 1_000, 8_000),
    Case("a short queue", 1, 100_000, ("--max-queue-bytes", "65536")),
)


class Shot(asyncio.Protocol):
    """A connection that sends one request on demand, and is idle after the response."""

    def __init__(self, tally: OutcomeCounters, idle: list[Shot]) -> None:
        self._lane = Lane(iter(()), tally)
        self._tally, self._idle = tally, idle
        self.unexplained = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._idle.append(self)

    def data_received(self, data: bytes) -> None:
        before = len(self._tally.latencies)
        if data.startswith((b"HTTP/1.1 503", b"HTTP/1.1 429")) and b"\r\nretry-after: " not in data.lower():
            self.unexplained += 1
        self._lane.data_received(data)
        if len(self._tally.latencies) != before:
            self._idle.append(self)

    def send(self, request: bytes) -> None:
        assert self.transport
        self._lane.sent_now()
        self.transport.write(request)


@dataclass
class Overload:
    """Figures of one overload run."""

    tally: OutcomeCounters
    sent_rate: float  # requests per second, those that waited for an idle connection included
    unexplained: int  # rejected without Retry-After


async def flood(address: tuple[str, int], requests: Iterator[bytes], rate: float) -> Overload:
    """Send `rate` requests per second without waiting for responses; return the figures."""
    tally, loop, idle = OutcomeCounters(), asyncio.get_running_loop(), list[Shot]()
    shots: list[Shot] = []
    for _ in range(CONNECTIONS // 100):
        made = [loop.create_connection(lambda: Shot(tally, idle), *address) for _ in range(100)]
        shots += [shot for _, shot in await asyncio.gather(*made)]
    began, sent = loop.time(), 0
    is_filling = True
    while (passed := loop.time() - began) < FILLING + SECONDS:
        if passed > FILLING and is_filling:
            tally.statuses.clear()
            tally.latencies.clear()
            is_filling = False
        for _ in range(int(passed * rate) - sent):
            sent += 1
            if idle and (request := next(requests, None)):
                idle.pop().send(request)
        await asyncio.sleep(TICK)
    for shot in shots:
        if shot.transport:
            shot.transport.abort()
    return Overload(tally, sent / passed, sum(shot.unexplained for shot in shots))


def resident(pid: int, what: str) -> float:
    """Return the resident memory of a process in MiB: current (VmRSS) or peak (VmHWM)."""
    found = re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


def main() -> None:
    import uvloop

    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; SQLite, one process;"
    )
    print(f"median of {ROUNDS} rounds\n")
    print(
        "| | reports per batch | peak batches/s | sent/s | goodput/s | relative to the peak | rejected | without Retry-After "
        "| other than 2xx, 429, 503 | p99 of stored and rejected s | resident MiB before, most |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for case in CASES:
        requests = requests_of(parse_definitions(DEFINITIONS)["homepage"], case.reports, case.formed)
        peaks, goods, overloads, memory = [], [], [], []
        for _ in range(ROUNDS):
            with TemporaryDirectory(prefix="hubbub-bench-") as directory:
                definitions = Path(directory) / "metrics.toml"
                definitions.write_text(DEFINITIONS, encoding="utf-8")
                command = ["-m", "hubbub", "serve", str(definitions), "--port", "0", "--local-rate-factor", "1e6"]
                command += ["--max-connections", str(2 * CONNECTIONS)]
                command += case.options
                with started([*command, "--database", str(Path(directory) / "reports.db"), "--create"]) as (
                    host,
                    port,
                    pid,
                ):
                    served = itertools.cycle(requests)
                    warm = uvloop.run(drive([(host, port)], served, 32, 0.3))
                    assert warm.statuses[202]
                    peak = uvloop.run(drive([(host, port)], served, 32 if case.options else 128, 2.0)).rate(2.0)
                    before = resident(pid, "VmRSS")
                    over = uvloop.run(flood((host, port), served, TIMES * peak))
                    peaks.append(peak)
                    goods.append(over.tally.rate(SECONDS))
                    overloads.append(over)
                    memory.append((before, resident(pid, "VmHWM")))
        statuses = sum((over.tally.statuses for over in overloads), start=overloads[0].tally.statuses.__class__())
        refused = statuses[429] + statuses[503]
        other = statuses.total() - refused - statuses[200] - statuses[202]
        peak, good = statistics.median(peaks), statistics.median(goods)
        share = statistics.median(good / peak for good, peak in zip(goods, peaks, strict=True))
        print(
            f"| {case.name} | {case.reports:,} | {peak:,.0f} | {statistics.median(over.sent_rate for over in overloads):,.0f} "
            f"| {good:,.0f} | {share:.2f} | {refused} of {statuses.total()} | {sum(over.unexplained for over in overloads)} "
            f"| {other} | {statistics.median(over.tally.p99() for over in overloads) / 1e3:.2f} "
            f"| {max(m for m, _ in memory):.0f}, {max(m for _, m in memory):.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
