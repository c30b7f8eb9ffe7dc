"""Time in which `hubbub serve` answers batches, without and with people who explore results on the same machine.

python -m benchmarks.exploring          (or: make bench-explore)

The service gets 100 batches a second on SQLite. In every second round, 20 readers open pages of `hubbub explore`, each another view that
nobody has opened before, five seconds after the page before; `explore` runs at the priority that hubbub-explore.service gives it.
The table has the quantiles of the answers' times in each round, and the last line the median ratio of rounds that follow each other.
"""

from __future__ import annotations

import asyncio
import os
import platform
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import urllib3

from benchmarks.ingest import DEFINITIONS, requests_of, started
from hubbub import Metric, Params, parse_definitions
from hubbub.summary import write_summary
from hubbub_decoder import simulate

ROUNDS, SECONDS, RATE = 6, 20, 100
READERS, PAUSE = 20, 5.0
PERIODS = 12
CONNECTIONS = 16
PARAMS = Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0.5)
METRICS = tuple(Metric.string(f"page{number}", PARAMS) for number in range(4))
DAYS = tuple((date(2026, 3, 2) + timedelta(days=number)).isoformat() for number in range(PERIODS))


def write_summaries(place: Path) -> None:
    """Twelve days of four metrics with 100 candidates."""
    (place / "summaries").mkdir()
    names = [f"site-{number}" for number in range(100)]
    (place / "candidates.txt").write_text("\n".join(names))
    population = {name: 100_000 // (number + 1) for number, name in enumerate(names)}
    for metric in METRICS:
        for number, day in enumerate(DAYS):
            counts = simulate(metric, population, np.random.default_rng(number), periods=[day])
            write_summary(counts, place / "summaries" / f"{metric.name}-{day}.parquet")


@contextmanager
def exploring(place: Path) -> Iterator[str]:
    """Run `hubbub explore` until the block ends; yield its address."""
    command = [sys.executable, "-m", "hubbub", "explore", str(place / "summaries")]
    command += ["--candidates", str(place / "candidates.txt"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: os.nice(10)) as process:
        assert process.stdout
        yield process.stdout.readline().split()[0]
        process.terminate()


def views() -> list[str]:
    """views of these summaries, in random order."""
    shows = [
        f"{metric.name}@{metric.digest[:8]}/?show={show}&from={DAYS[first]}&to={DAYS[last]}"
        for metric in METRICS
        for show in ("sum", "periods", "change")
        for first in range(1, PERIODS)
        for last in range(first, PERIODS)
    ]
    random.shuffle(shows)
    return shows


def read(url: str, shows: list[str], is_over: threading.Event, opened: list[float]) -> None:
    """Open page after page, as one person with a browser; add the time that each took."""
    http, cookie = urllib3.PoolManager(), {"cookie": f"hubbub-explore={random.random()}"}  # noqa: S311
    while not is_over.wait(PAUSE * random.random() * 2):  # noqa: S311
        began, show = time.perf_counter(), shows.pop()
        while not is_over.is_set():
            answer = http.request("GET", url + show, headers=cookie)
            if answer.status not in (202, 429):
                assert answer.status == 200, (answer.status, show)
                opened.append(time.perf_counter() - began)
                break
            is_over.wait(3)


async def send(address: tuple[str, int], requests: Iterator[bytes], seconds: float) -> list[float]:
    """Send requests at RATE, and return the times in which they were answered."""
    lanes: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        lanes.put_nowait(await asyncio.open_connection(*address))
    times: list[float] = []

    async def one(request: bytes) -> None:
        began = time.perf_counter()
        reader, writer = await lanes.get()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 202"), head
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        await reader.readexactly(int(length.partition(b":")[2]))
        times.append(time.perf_counter() - began)
        lanes.put_nowait((reader, writer))

    began, running = time.perf_counter(), []
    for number in range(int(seconds * RATE)):
        await asyncio.sleep(max(0.0, began + number / RATE - time.perf_counter()))
        running.append(asyncio.create_task(one(next(requests))))
    await asyncio.gather(*running)
    while not lanes.empty():
        lanes.get_nowait()[1].close()
    return times


def measured(
    address: tuple[str, int], requests: Iterator[bytes], place: Path, num_readers: int, shows: list[str]
) -> tuple[list[float], list[float]]:
    """Times of the answers of a round, and those of the pages that readers opened."""
    if not num_readers:
        return asyncio.run(send(address, requests, SECONDS)), []
    is_over, opened = threading.Event(), list[float]()
    with exploring(place) as url:
        while b"still being decoded" in urllib3.request("GET", url).data:
            time.sleep(1)
        readers = [threading.Thread(target=read, args=(url, shows, is_over, opened)) for _ in range(num_readers)]
        for reader in readers:
            reader.start()
        times = asyncio.run(send(address, requests, SECONDS))
        is_over.set()
        for reader in readers:
            reader.join()
    return times, opened


def main() -> None:
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {RATE} batches a second, {READERS} readers\n"
    )
    requests = iter(
        requests_of(parse_definitions(DEFINITIONS)["homepage"], 100, 2 * ROUNDS * SECONDS * RATE + 10 * RATE)
    )
    shows, p99s = views(), []
    with TemporaryDirectory(prefix="hubbub-bench-") as directory:
        place = Path(directory)
        write_summaries(place)
        (place / "metrics.toml").write_text(DEFINITIONS, encoding="utf-8")
        ours = ["-m", "hubbub", "serve", str(place / "metrics.toml"), "--port", "0"]
        ours += ["--database", str(place / "reports.db"), "--create", "--local-rate-factor", "1e6"]
        print(
            "| round | readers | pages | median s of a page | median ms | p99 ms | slowest ms |\n|---|---|---|---|---|---|---|"
        )
        with started(ours) as (host, port, _):
            asyncio.run(send((host, port), requests, 5))  # the first requests are slower
            for number in range(ROUNDS):
                for readers in (0, READERS):
                    times, opened = measured((host, port), requests, place, readers, shows)
                    p99s.append(float(np.quantile(times, 0.99)))
                    page = f"{statistics.median(opened):.1f}" if opened else "-"
                    figures = " | ".join(
                        f"{1e3 * each:.1f}" for each in (statistics.median(times), p99s[-1], max(times))
                    )
                    print(f"| {number + 1} | {readers} | {len(opened)} | {page} | {figures} |", flush=True)
    ratios = [after / before for before, after in zip(p99s[::2], p99s[1::2], strict=True)]
    print(f"\np99 with readers / without: {statistics.median(ratios):.2f} ({min(ratios):.2f} .. {max(ratios):.2f})")


if __name__ == "__main__":
    main()
