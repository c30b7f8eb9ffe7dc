"""Goodput, rejections and memory of an aggregator under three times its peak load.

    python -m benchmarks.overload [--runs 3]

The peak is the rate of 128 connections that each wait for their response before the next request. Then requests are sent
at three times that rate without waiting for responses, over at most 2,000 connections. Goodput is the number of batches
stored per second. In the last case the queue is short, so most batches are rejected: a rejection must be cheap.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import uvloop

from benchmarks.runner import Benchmark
from benchmarks.service import Lane, OutcomeCounters, drive, requests_of, resident, serving
from benchmarks.tables import Row

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


@dataclass
class Round:
    """Peak rate in batches per second, the overload after it, and the resident memory in MiB before it and at most."""

    peak: float
    overload: Overload
    before: float
    most: float

    @property
    def goodput(self) -> float:
        """Batches stored per second."""
        return self.overload.tally.rate(SECONDS)


def measure(case: Case, requests: list[bytes]) -> Round:
    """Overload a new service."""
    options = ["--local-rate-factor", "1e6", "--max-connections", str(2 * CONNECTIONS), *case.options]
    with serving(*options) as (host, port, pid):
        served = itertools.cycle(requests)
        assert uvloop.run(drive([(host, port)], served, 32, 0.3)).statuses[202]
        peak = uvloop.run(drive([(host, port)], served, 32 if case.options else 128, 2.0)).rate(2.0)
        before = resident(pid, "VmRSS")
        overload = uvloop.run(flood((host, port), served, TIMES * peak))
        return Round(peak, overload, before, resident(pid, "VmHWM"))


def row(case: Case, rounds: list[Round]) -> Row:
    """Row of the table: medians over the rounds, and the most memory of all."""
    statuses = sum((measured.overload.tally.statuses for measured in rounds), Counter[int]())
    refused = statuses[429] + statuses[503]
    return {
        "": case.name,
        "reports per batch": f"{case.reports:,}",
        "peak batches/s": f"{statistics.median(measured.peak for measured in rounds):,.0f}",
        "sent/s": f"{statistics.median(measured.overload.sent_rate for measured in rounds):,.0f}",
        "goodput/s": f"{statistics.median(measured.goodput for measured in rounds):,.0f}",
        "relative to the peak": f"{statistics.median(measured.goodput / measured.peak for measured in rounds):.2f}",
        "rejected": f"{refused} of {statuses.total()}",
        "without Retry-After": f"{sum(measured.overload.unexplained for measured in rounds)}",
        "other than 2xx, 429, 503": f"{statuses.total() - refused - statuses[200] - statuses[202]}",
        "p99 of stored and rejected s": f"{statistics.median(measured.overload.tally.p99() for measured in rounds) / 1e3:.2f}",
        "resident MiB before, most": f"{max(measured.before for measured in rounds):.0f}, {max(measured.most for measured in rounds):.0f}",
    }


def main() -> None:
    benchmark = Benchmark(__doc__, runs=3)
    options = benchmark.start()
    table = benchmark.table()
    for case in CASES:
        requests = requests_of(case.reports, case.formed)
        table.add(row(case, [measure(case, requests) for _ in range(options.runs)]))


if __name__ == "__main__":
    main()
