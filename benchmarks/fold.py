"""Rate of folding reports on one core, and time to read the counts of 100 million reports.

    python -m benchmarks.fold [--runs 5]

The whole fold reads segments of 1,000 reports from SQLite, counts, and writes the summary back.
The counts of the read test are synthetic: 64 cohorts, 128 bits.
"""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import urllib3

from benchmarks.runner import Benchmark
from benchmarks.service import DEFINITIONS, METRIC, started
from hubbub import Batch
from hubbub.summary import BitCounts, summary_from_bytes, summary_to_bytes
from hubbub.summary.counting import count_bits, count_patterns
from hubbub_aggregator.pipeline.folding import fold, read_summary
from hubbub_aggregator.store.sql_store import SqlStore

READS, MANY, PERIOD = 50, 100_000_000, "2024-06-15"


def seconds(work: Callable[[], object]) -> float:
    """Return the duration of a call in seconds."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def kernel(num_bits: int, reports: int, counting: Callable[..., object], rounds: int) -> float:
    """Return the number of reports counted per second, the median of the rounds."""
    rng = np.random.default_rng(0)
    cohorts = rng.integers(0, 64, reports, np.uint8)
    rows = rng.integers(0, 256, (reports, num_bits // 8), np.uint8)
    return reports / statistics.median(seconds(lambda: counting(cohorts, rows, 64, num_bits)) for _ in range(rounds))


def whole_fold(reports: int) -> float:
    """Return the number of reports per second that a fold reads from a store and writes back."""
    rng = np.random.default_rng(0)
    with TemporaryDirectory() as directory, closing(SqlStore.open(Path(directory) / "reports.db")) as store:
        for _ in range(reports // 1_000):
            cohorts, rows = rng.bytes(1_000), rng.bytes(1_000 * METRIC.row_bytes)
            cohorts = bytes(byte % METRIC.num_cohorts for byte in cohorts)
            store.append([Batch(uuid.uuid4(), METRIC.name, METRIC.digest, PERIOD, cohorts, rows)])
        return reports / seconds(lambda: fold(store, METRIC))


def read() -> tuple[float, float]:
    """Return the seconds that a read of 100 million folded reports takes, in process and over HTTP."""
    m, k = METRIC.num_cohorts, METRIC.num_bits
    rng = np.random.default_rng(0)
    reports = rng.multinomial(MANY, np.full(m, 1 / m))
    counts = BitCounts(METRIC, reports, rng.binomial(reports[:, None], 0.3, (m, k)), [PERIOD])
    with TemporaryDirectory() as directory:
        database, file = Path(directory) / "reports.db", Path(directory) / "metrics.toml"
        file.write_text(DEFINITIONS, encoding="utf-8")
        with closing(SqlStore.open(database)) as store:
            store.append([Batch(uuid.uuid4(), METRIC.name, METRIC.digest, PERIOD, b"\0", bytes(METRIC.row_bytes))])
            (holding,) = store.read(METRIC.digest)
            assert store.fold(holding, summary_to_bytes(counts))
            assert read_summary(store, METRIC).num_reports == MANY
            inside = statistics.median(seconds(lambda: read_summary(store, METRIC)) for _ in range(READS))
        options = ["--port", "0", "--database", str(database), "--local-reads-without-token", "--local-port", "0"]
        with started(["-m", "hubbub", "serve", str(file), *options]) as (host, port, _):
            http = urllib3.HTTPConnectionPool(host, port)
            url = f"/v1/metrics/{METRIC.name}/summary"
            assert summary_from_bytes(http.request("GET", url).data).num_reports == MANY
            outside = statistics.median(seconds(lambda: http.request("GET", url)) for _ in range(READS))
            http.close()
    return inside, outside


def main() -> None:
    benchmark = Benchmark(__doc__, runs=5)
    rounds, table = benchmark.start().runs, benchmark.table()
    for name, num_bits, reports, counting in (
        ("bits, k = 16", 16, 4_000_000, count_bits),
        ("patterns, k = 16", 16, 4_000_000, count_patterns),
        ("bits, k = 128", 128, 1_000_000, count_bits),
    ):
        rate = kernel(num_bits, reports, counting, rounds)
        table.add({"": f"kernel, {name}", "M reports/s": f"{rate / 1e6:.1f}"})
    table.add({"": "whole fold, bits, k = 128", "M reports/s": f"{whole_fold(1_000_000) / 1e6:.1f}"})
    inside, outside = read()
    print(f"\nreading 100 M folded reports: {inside * 1e3:.1f} ms in process, {outside * 1e3:.1f} ms over HTTP")


if __name__ == "__main__":
    main()
