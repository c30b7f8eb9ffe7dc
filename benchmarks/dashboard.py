"""Response times of the dashboard, a metric's page and /metrics with many metrics and periods.

python -m benchmarks.dashboard          (or: make bench-pages)

The database has 500 metrics of 128 bits and 64 cohorts, and 90 days of each: 45,000 summaries. Each path is requested
once right after the start of the process, and then 20 times more. The baseline /livez is requested in the same run.
HUBBUB_TEST_METRICS and HUBBUB_TEST_PERIODS change the numbers.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import urllib3

from benchmarks.ingest import started
from hubbub import parse_definitions
from hubbub_aggregator.store.sql_store import SqlStore
from tests.support.many_metrics import definitions_text, fill

METRICS, PERIODS = (
    int(os.environ.get(f"HUBBUB_TEST_{name}", default)) for name, default in (("METRICS", 500), ("PERIODS", 90))
)
REPEATS = 20


def milliseconds(http: urllib3.HTTPConnectionPool, path: str) -> tuple[float, int]:
    """Return the duration of a request in ms, and the size of its response in bytes."""
    began = time.perf_counter()
    answer = http.request("GET", path)
    took = 1e3 * (time.perf_counter() - began)
    assert answer.status == 200, (path, answer.status, answer.data[:200])
    return took, len(answer.data)


def main() -> None:
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; SQLite, one process"
    )
    with TemporaryDirectory(prefix="hubbub-bench-") as directory:
        database, file = Path(directory) / "reports.db", Path(directory) / "metrics.toml"
        file.write_text(definitions_text(METRICS), encoding="utf-8")
        definitions = parse_definitions(file.read_text(encoding="utf-8"))
        with closing(SqlStore.open(database)) as store:
            fill(store, definitions, datetime.now(UTC).date(), PERIODS)
        name = next(iter(definitions))
        print(f"{METRICS} metrics x {PERIODS} periods, a database of {database.stat().st_size / 1e6:,.0f} MB\n")
        print("| | first after the start, ms | median, ms | slowest of 20, ms | kB |\n|---|---|---|---|---|")
        options = ["--port", "0", "--database", str(database), "--local-reads-without-token"]
        for path in ("/livez", "/", f"/?q={name}", f"/metric/{name}", "/metrics"):
            with started(["-m", "hubbub", "serve", str(file), *options]) as (host, port, _):
                http = urllib3.HTTPConnectionPool(host, port)
                first, size = milliseconds(http, path)
                times = [milliseconds(http, path)[0] for _ in range(REPEATS)]
                http.close()
            print(
                f"| `{path}` | {first:.1f} | {statistics.median(times):.1f} | {max(times):.1f} | {size / 1e3:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
