"""Cost of an embedded client for its host: `record()`, the import, memory.

python -m benchmarks.client
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Literal

from benchmarks.runner import Benchmark
from hubbub import Client
from hubbub.client import collaborators

METRICS = Path(__file__).parent.parent / "tests" / "data" / "metrics.toml"
STARTS = 15
SUBJECTS = (1_000, 10_000)
Durability = Literal["process", "power", "memory"]
RECORDINGS: dict[Durability, int] = {"memory": 20_000, "process": 20_000, "power": 500}
IMPORTED = """
import time
began = time.perf_counter()
{code}
took = time.perf_counter() - began
status = open("/proc/self/status").read() if __import__("sys").platform == "linux" else ""
print(took * 1e3, status.partition("VmHWM:")[2].split()[0] if status else "nan")
"""


def recording(durability: Durability, *, distinct: bool) -> tuple[float, float]:
    """Return p50 and p99 of one `record()`, in us.

    distinct : every recording is the first of its period, the most expensive case
    """
    taken = []
    with (
        tempfile.TemporaryDirectory() as place,
        Client(METRICS, place, "http://127.0.0.1:1", durability=durability) as client,
    ):
        client.set_consent("local")
        for number in range(RECORDINGS[durability]):
            if distinct:
                with collaborators(client).journal as state:
                    state.drafts.clear()
            began = time.perf_counter_ns()
            client.record("homepage", f"https://example.org/{number % 7}")
            taken.append((time.perf_counter_ns() - began) / 1e3)
    cuts = statistics.quantiles(taken, n=100)
    return cuts[49], cuts[98]


def beside_a_compaction(subjects: int) -> tuple[float, float]:
    """Return the duration of a compaction of the state of `subjects`, in s, and the longest `record()` during it, in ms."""
    with (
        tempfile.TemporaryDirectory() as place,
        Client(METRICS, place, "http://127.0.0.1:1", per_subject=True) as client,
    ):
        client.set_consent("local")
        for number in range(subjects):
            client.subject(str(number)).record("homepage", str(number % 7))
        collaborators(client).uploader.start().stop(60)
        compactor = threading.Thread(target=collaborators(client).compactor.compact, kwargs={"always": True})
        began, longest, number = time.perf_counter(), 0.0, 0
        compactor.start()
        while compactor.is_alive():
            called = time.perf_counter()
            client.subject(str(number % subjects)).record("homepage", "x")
            longest, number = max(longest, time.perf_counter() - called), number + 1
            time.sleep(0.001)
        return time.perf_counter() - began, longest * 1e3


def stall(*, beside_a_client: bool) -> float:
    """Return p99 of the event loop's delay in ms, with or without a client that records; the aggregator does not respond."""

    async def loop() -> float:
        late = []
        with tempfile.TemporaryDirectory() as place, Client(METRICS, place, "http://127.0.0.1:1") as client:
            client.set_consent("on")
            for number in range(1000):
                task = asyncio.create_task(
                    client.arecord("homepage", str(number)) if beside_a_client else asyncio.sleep(0)
                )
                began = time.perf_counter()
                await asyncio.sleep(0.001)
                late.append((time.perf_counter() - began - 0.001) * 1e3)
                await task
        return statistics.quantiles(late, n=100)[98]

    return asyncio.run(loop())


def start(code: str) -> tuple[float, float]:
    """Return medians of the duration of `code` in a new interpreter, in ms, and its peak memory, in MB (Linux)."""
    command = [sys.executable, "-c", IMPORTED.format(code=code)]
    outputs = [subprocess.run(command, capture_output=True, check=True).stdout.split() for _ in range(STARTS)]
    rows = [tuple(map(float, output)) for output in outputs]
    return statistics.median(row[0] for row in rows), statistics.median(row[1] for row in rows) / 1024


def main() -> None:
    benchmark = Benchmark(__doc__)
    benchmark.start()
    table = benchmark.table()
    for durability in RECORDINGS:
        for distinct, drafts in ((False, "mostly existing drafts"), (True, "each a new draft")):
            p50, p99 = recording(durability, distinct=distinct)
            table.add({"record()": f"{durability}, {drafts}", "p50 us": f"{p50:.1f}", "p99 us": f"{p99:.1f}"})
    print()
    table = benchmark.table()
    for subjects in SUBJECTS:
        took, longest = beside_a_compaction(subjects)
        row = {"compaction of": f"{subjects:,} subjects of one metric", "duration s": f"{took:.1f}"}
        table.add({**row, "longest record() during it, ms": f"{longest:.1f}"})
    print()
    bare_ms, bare_mb = start("pass")
    imported_ms, imported_mb = start("import hubbub")
    with tempfile.TemporaryDirectory() as place:
        state = f"os.path.join({place!r}, str(os.getpid()))"
        first_ms, _ = start(f"import os, hubbub; hubbub.Client({str(METRICS)!r}, {state}, 'http://127.0.0.1:1')")
    body = "import hubbub; from hubbub.sdk.upload.transport import HttpTransport; HttpTransport('http://127.0.0.1:1').send(b'')"
    _, uploaded_mb = start(body)
    figures = {
        "import hubbub": f"{imported_ms - bare_ms:.0f} ms",
        "import hubbub, and the first Client": f"{first_ms - bare_ms:.0f} ms",
        "memory after the import": f"{imported_mb - bare_mb:.1f} MB",
        "memory after the first upload": f"{uploaded_mb - bare_mb:.1f} MB",
        "event loop delay, p99, without a client": f"{stall(beside_a_client=False):.2f} ms",
        "event loop delay, p99, with a client": f"{stall(beside_a_client=True):.2f} ms",
    }
    benchmark.table().add_all({"in addition to a bare interpreter": name, "": text} for name, text in figures.items())


if __name__ == "__main__":
    main()
