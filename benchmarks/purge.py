"""Commit latency of an appending thread while the reports and batch ids of a period are deleted.

    python -m benchmarks.purge [--reports 10000000] [--ids 1000000] [--quiet 15]

A period has so many retained reports of 128 bits and so many batch ids.
One thread appends to another period all the time. The table has the times of its commits, in ms: on a database that deletes
nothing, while the reports are deleted, and while the ids are deleted. The last column is the longest time, in ms, for which the
deletion held the database. On an idle machine no commit waits longer for it.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from sqlalchemy import insert, text

from benchmarks.runner import Benchmark
from benchmarks.tables import Table
from hubbub import Batch, Metric, Params
from hubbub_aggregator.database.engine import (
    SQLITE_LOCK_POLL_SECONDS,
    open_existing,
    open_postgres,
    open_sqlite,
    transaction,
)
from hubbub_aggregator.database.location import is_postgres
from hubbub_aggregator.database.schema import retained
from hubbub_aggregator.store.sql_store import SqlStore
from tests.support.postgres import postgres

METRIC = Metric.string("m", Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0.5))
OLD, NEW, BLOCK = "2024-06-14", "2024-06-15", 1 << 16
IDS = {
    False: "WITH RECURSIVE i(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM i WHERE i < :n) INSERT INTO batch (collection_id, batch_id) "
    "SELECT 1, randomblob(16) AS id FROM i ORDER BY id",
    True: "INSERT INTO batch (collection_id, batch_id) SELECT 1, id FROM (SELECT uuid_send(gen_random_uuid()) AS id "
    "FROM generate_series(1, :n)) AS i ORDER BY id",
}


def batch(period: str) -> Batch:
    return Batch(uuid.uuid4(), METRIC.name, METRIC.digest, period, bytes(10), os.urandom(160))


def fill(database: str, reports: int, ids: int) -> None:
    with open_existing(database) as engine:
        for start in range(0, reports, BLOCK):
            n = min(BLOCK, reports - start)
            with transaction(engine, writes=True) as connection:
                block = {"collection_id": 1, "cohorts": bytes(n), "reports": os.urandom(16 * n)}
                connection.execute(insert(retained), block)
        with transaction(engine, writes=True) as connection:
            connection.execute(text(IDS[is_postgres(database)]), {"n": ids})


@contextmanager
def appending(store: SqlStore) -> Iterator[list[float]]:
    """Append until the block ends; yield the list of commit times in ms, complete after the block."""
    times: list[float] = []
    done = threading.Event()

    def run() -> None:
        while not done.wait(0.001):
            began = time.perf_counter()
            store.append([batch(NEW)])
            times.append(1_000 * (time.perf_counter() - began))

    thread = threading.Thread(target=run)
    thread.start()
    yield times
    done.set()
    thread.join()


def measure(database: str, reports: int, ids: int, quiet: float, table: Table) -> None:
    """Drop the reports and the ids of a period, and add a row for each.

    quiet : seconds in which nothing is dropped
    """
    store, held = SqlStore.open(database), [0.0]

    def pause(seconds: float) -> None:
        held.append(1_000 * (seconds - SQLITE_LOCK_POLL_SECONDS))
        time.sleep(seconds)

    other = SqlStore(open_postgres(database) if is_postgres(database) else open_sqlite(Path(database)), pause=pause)
    store.append([batch(OLD)])
    fill(database, reports, ids)
    acts: dict[str, Callable[[], None]] = {
        "nothing": lambda: time.sleep(quiet),
        "reports": lambda: other.drop_reports(METRIC.digest, OLD),
        "ids": lambda: other.close_period(METRIC, OLD),
    }
    for name, act in acts.items():
        held[:] = [0.0]
        began = time.perf_counter()
        with appending(store) as times:
            act()
        took = time.perf_counter() - began
        engine = "PostgreSQL" if is_postgres(database) else "SQLite"
        median, p99, longest = np.quantile(times, (0.5, 0.99, 1))
        table.add(
            {
                "engine": engine,
                "dropped": name,
                "s": f"{took:.1f}",
                "commits during it": f"{len(times)}",
                "median ms": f"{median:.1f}",
                "p99": f"{p99:.1f}",
                "longest": f"{longest:.1f}",
                "held": f"{max(held):.1f}",
            }
        )
    store.close()
    other.close()


def main() -> None:
    benchmark = Benchmark(__doc__)
    benchmark.add("--reports", type=int, default=10_000_000)
    benchmark.add("--ids", type=int, default=1_000_000)
    benchmark.add("--quiet", type=float, default=15, help="seconds in which nothing is dropped")
    options = benchmark.start()
    table = benchmark.table()
    with TemporaryDirectory() as place:
        measure(str(Path(place) / "reports.db"), options.reports, options.ids, options.quiet, table)
    with postgres() as url:
        measure(url, options.reports, options.ids, options.quiet, table)


if __name__ == "__main__":
    main()
