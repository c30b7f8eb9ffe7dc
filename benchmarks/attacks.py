"""Throughput and latency of honest clients, and memory of the aggregator, during attacks.

    python -m benchmarks.attacks [--runs 3]

Each attack runs in its own process. Before and during it, 32 connections send single reports from many networks,
and one requests `/livez` every 20 ms. The rate during the attack is divided by the rate just before it, in the same run.
`idle` is an attacker that sends nothing: it shows the noise of the machine.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import uvloop

from benchmarks.runner import Benchmark
from benchmarks.service import drive, requests_of, resident, serving
from benchmarks.tables import Row

SECONDS, SETTLE = 5.0, 1.0
REQUEST = b"POST /v1/reports HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
TINY_HEADERS = b"a:\r\n" * 12_800


def forwarded(request: bytes, network: str) -> bytes:
    """Return a request with the header of a trusted proxy that forwards it from this address."""
    return request.replace(b"\r\n", f"\r\nX-Forwarded-For: {network}\r\n".encode(), 1)


async def idle(_host: str, _port: int) -> None:
    await asyncio.sleep(SETTLE + SECONDS)


async def nested(host: str, port: int) -> None:
    """Send 10 requests per second from one network, each 4.2 MB of nested lists in 4 to 42 kB of gzip."""
    body = gzip.compress(b'{"x":[' + b"[[[]]]," * 600_000 + b"[]]}", 1)
    head = b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    request = forwarded(REQUEST, "198.51.100.1") + head + body
    end = time.monotonic() + SETTLE + SECONDS
    while time.monotonic() < end:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(request)
            await reader.read(9)
            writer.close()
        await asyncio.sleep(0.1)


async def pipelined(host: str, port: int) -> None:
    """Request /openapi.json repeatedly over 200 connections without reading responses; reopen closed connections."""
    request = forwarded(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n", "198.51.100.1") + b"\r\n"
    end = time.monotonic() + SETTLE + SECONDS

    async def connection() -> None:
        while time.monotonic() < end:
            with suppress(OSError, TimeoutError, RuntimeError):
                reader, writer = await asyncio.open_connection(host, port, limit=1)
                while time.monotonic() < end and not reader.at_eof():
                    writer.write(request * 20)
                    async with asyncio.timeout(1):
                        await writer.drain()
                    await asyncio.sleep(1)
            await asyncio.sleep(1)

    async with asyncio.TaskGroup() as group:
        for _ in range(200):
            group.create_task(connection())


async def unfinished(host: str, port: int, networks: int = 1) -> None:
    """Send 600 bodies of 1 MiB without their last bytes; send all rejected ones again each second."""
    head = REQUEST + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % (1 << 20)
    end = time.monotonic() + SETTLE + SECONDS

    async def body(number: int) -> None:
        while time.monotonic() < end:
            with suppress(OSError, TimeoutError, RuntimeError):
                _, writer = await asyncio.open_connection(host, port)
                writer.write(forwarded(head, f"198.51.{number % networks}.1"))
                for _ in range(63):
                    writer.write(bytes(16_384))
                    async with asyncio.timeout(1):
                        await writer.drain()
                await asyncio.sleep(max(0.0, end - time.monotonic()))
            await asyncio.sleep(1)

    async with asyncio.TaskGroup() as group:
        for number in range(600):
            group.create_task(body(number))


async def readiness(host: str, port: int) -> None:
    """Request /readyz over 32 connections of one network, each again right after its response."""
    request = forwarded(b"GET /readyz HTTP/1.1\r\nHost: x\r\n", "198.51.100.1") + b"\r\n"
    end = time.monotonic() + SETTLE + SECONDS

    async def connection() -> None:
        while time.monotonic() < end:
            with suppress(OSError, RuntimeError):
                reader, writer = await asyncio.open_connection(host, port)
                while time.monotonic() < end:
                    writer.write(request)
                    if not await reader.read(4_096):
                        break
                writer.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(32):
            group.create_task(connection())


async def headers(host: str, port: int) -> None:
    """Send 40 requests per second from one network, each with 12,800 headers in 51 kB."""
    request = forwarded(REQUEST, "198.51.100.1") + TINY_HEADERS + b"Content-Length: 2\r\n\r\n{}"
    end = time.monotonic() + SETTLE + SECONDS
    while time.monotonic() < end:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(request)
            await reader.read(9)
            writer.close()
        await asyncio.sleep(1 / 40)


async def unfinished_headers(host: str, port: int) -> None:
    """Hold 195 connections of one network, each with 12,800 headers and without their end; reopen closed ones each second."""
    begun = forwarded(REQUEST, "198.51.100.1") + TINY_HEADERS
    end = time.monotonic() + SETTLE + SECONDS

    async def connection() -> None:
        while time.monotonic() < end:
            with suppress(OSError, TimeoutError):
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(begun)
                async with asyncio.timeout(max(0.0, end - time.monotonic())):
                    await reader.read()
                writer.close()
            await asyncio.sleep(1)

    async with asyncio.TaskGroup() as group:
        for _ in range(195):
            group.create_task(connection())


ATTACKS: Mapping[str, Callable[[str, int], Coroutine[object, object, None]]] = {
    "idle": idle,
    "nested": nested,
    "pipelined": pipelined,
    "unfinished": unfinished,
    "unfinished, 100 networks": partial(unfinished, networks=100),
    "readiness": readiness,
    "headers": headers,
    "unfinished headers": unfinished_headers,
}


@dataclass
class Seen:
    """Figures of honest clients and of a prober over one time interval."""

    rate: float
    p99: float  # ms, of single reports
    alive: list[float] = field(default_factory=list)  # ms, of /livez


async def honest(address: tuple[str, int], requests: Iterator[bytes], seconds: float) -> Seen:
    """Send single reports and request /livez; return the figures."""
    alive: list[float] = []
    probing = asyncio.create_task(probe(address, alive))
    tally = await drive([address], requests, 32, seconds)
    probing.cancel()
    with suppress(asyncio.CancelledError):
        await probing
    return Seen(tally.rate(seconds), tally.p99(), alive)


async def probe(address: tuple[str, int], alive: list[float]) -> None:
    while True:
        began = time.perf_counter()
        try:
            async with asyncio.timeout(5):
                reader, writer = await asyncio.open_connection(*address)
                writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                answered = (await reader.read()).startswith(b"HTTP/1.1 200")
                writer.close()
        except (OSError, TimeoutError):
            answered = False
        alive.append((time.perf_counter() - began) * 1e3 if answered else 5_000.0)
        await asyncio.sleep(0.02)


def measure(name: str) -> tuple[Seen, Seen, float, float]:
    """Return the figures before and during an attack, and the resident memory before it and at most, in MiB."""
    requests = requests_of(1, 60_000)
    spread = [forwarded(request, f"203.{n >> 8 & 127}.{n & 255}.1") for n, request in enumerate(requests)]
    with serving() as (host, port, pid):
        served = itertools.cycle(spread)
        uvloop.run(drive([(host, port)], served, 32, 0.5))
        before = uvloop.run(honest((host, port), served, SECONDS))
        memory = resident(pid, "VmRSS")
        attacker = subprocess.Popen([sys.executable, "-m", "benchmarks.attacks", "--attack", name, host, str(port)])
        time.sleep(SETTLE)
        during = uvloop.run(honest((host, port), served, SECONDS - 0.5))
        most = resident(pid, "VmHWM")
        attacker.wait(60)
    return before, during, memory, most


def p99(values: list[float]) -> float:
    return sorted(values)[int(0.99 * len(values))] if values else float("nan")


def row(name: str, rounds: list[tuple[Seen, Seen, float, float]]) -> Row:
    """Row of the table: medians over the rounds, and the most memory of all."""
    before, during, memory, most = zip(*rounds, strict=True)
    latencies = (statistics.median(seen.p99 for seen in phase) for phase in (before, during))
    return {
        "attack": name,
        "reports/s before": f"{statistics.median(seen.rate for seen in before):,.0f}",
        "fraction during it": f"{statistics.median(y.rate / x.rate for x, y in zip(before, during, strict=True)):.2f}",
        "p99 ms before, during": ", ".join(f"{latency:.0f}" for latency in latencies),
        "/livez p99 ms": f"{statistics.median(p99(seen.alive) for seen in during):.0f}",
        "resident MiB before, most": f"{max(memory):.0f}, {max(most):.0f}",
    }


def main() -> None:
    benchmark = Benchmark(__doc__, runs=3)
    benchmark.add("--only", nargs="+", choices=ATTACKS, default=list(ATTACKS), help="these attacks")
    options = benchmark.start()
    table = benchmark.table()
    for name in options.only:
        table.add(row(name, [measure(name) for _ in range(options.runs)]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--attack"]:  # the attacker's process
        uvloop.run(ATTACKS[sys.argv[2]](sys.argv[3], int(sys.argv[4])))
    else:
        main()
