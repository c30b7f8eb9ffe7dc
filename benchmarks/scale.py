"""Folding of generated segments by each engine: time and memory at several sizes, as ratios to the counting kernel and to DuckDB alone.

python -m benchmarks.scale [REPORTS ...]          (or: make bench-scale)

Each batch has one report of 128 bits and 64 cohorts, and one batch in ten is repeated in the next segment. A measurement is a fold in a
process of its own, after a fold of one small segment, so that the start of Spark (printed apart) is not part of it. Memory is the largest
sum of the resident memory of that process and its descendants, in which pages that they share count several times.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import numpy as np
import pyarrow as pa

from hubbub import Metric, Params
from hubbub.summary import summary_to_bytes
from hubbub.summary.counting import count_bits
from hubbub_aggregator.segments.engines import ArrowEngine, DuckDBEngine, Engine
from hubbub_aggregator.segments.folding import fold_folder
from hubbub_aggregator.segments.object_store import ObjectStore
from hubbub_aggregator.segments.segment_file import SegmentFolder, table_to_bytes

SIZES = (100_000, 300_000, 1_000_000, 3_000_000)
PER_SEGMENT, REPEATED = 20_000, 2_000
PARAMS = Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0.5)
METRIC = Metric.string("page", PARAMS)
FOLDER = SegmentFolder(METRIC.name, METRIC.digest, "2024-06-15")
ENGINES = ("arrow", "duckdb", "spark")


def write_segments(place: Path, reports: int) -> None:
    """Write segments with `reports` rows in all, of which every segment but the first repeats some of the one before."""
    rng, objects = np.random.default_rng(0), ObjectStore.open(str(place))
    before = np.zeros((0, 16), np.uint8)
    for number in range(max(1, reports // PER_SEGMENT)):
        rows = min(PER_SEGMENT, reports)
        ids = np.concatenate([before[:REPEATED], rng.integers(0, 256, (rows - len(before[:REPEATED]), 16), np.uint8)])
        cohorts = rng.integers(0, PARAMS.num_cohorts, rows, np.uint8)
        bits = rng.integers(0, 256, (rows, PARAMS.row_bytes), np.uint8)
        order = np.lexsort(ids.T[::-1])
        data = table_to_bytes(fixed(ids[order]), fixed(cohorts[:, None]), fixed(bits))
        objects.create(f"{FOLDER.path}/segments/{number:06}.parquet", data)
        before = ids[::-1]


def fixed(values: np.ndarray) -> pa.Array:
    """Return the rows of an array of bytes as fixed-size binary."""
    width = pa.binary(values.shape[1])
    return pa.FixedSizeBinaryArray.from_buffers(width, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def measure(engine: str, place: str) -> dict[str, float]:
    """Fold all segments of a place; return the seconds of the fold and of the start of the engine."""
    with ExitStack() as stack:
        began = time.perf_counter()
        chosen: Engine = DuckDBEngine() if engine == "duckdb" else ArrowEngine()
        if engine == "spark":
            from hubbub_aggregator.segments.spark_engine import SparkEngine, spark_session

            chosen = SparkEngine(stack.enter_context(spark_session("local[2]", {})))
        small = Path(stack.enter_context(TemporaryDirectory()))
        write_segments(small, 1_000)
        fold_folder(ObjectStore.open(str(small)), FOLDER, METRIC, chosen, uuid.uuid4, keep=True)
        started = time.perf_counter()
        folded = fold_folder(ObjectStore.open(place), FOLDER, METRIC, chosen, uuid.uuid4, keep=True)
        seconds = time.perf_counter() - started
        assert folded.summary is not None
        return {"seconds": seconds, "start": started - began, "check": zlib.crc32(summary_to_bytes(folded.summary))}


def resident(root: int) -> int:
    """Return the resident memory of a process and its descendants in bytes."""
    parents, memory = dict[int, int](), dict[int, int]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(folder.name)] = int(fields[1])
        memory[int(folder.name)] = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    family = {root}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(memory.get(member, 0) for member in family)


def in_own_process(engine: str, place: Path) -> dict[str, float]:
    """Run `measure` in a process; return its figures, and the peak of its memory in bytes."""
    command = [sys.executable, "-m", "benchmarks.scale", "--one", engine, str(place)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            peak[0] = max(peak[0], resident(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, _ = process.communicate()
    done.set()
    watcher.join()
    assert process.returncode == 0, f"{engine} failed"
    for made in ("folded", "ids", "summaries"):
        shutil.rmtree(place / FOLDER.path / made)
    return {**json.loads(output), "memory": peak[0]}


def seconds_of(work: Callable[[], object]) -> float:
    """Return the duration of a call in seconds."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def kernel_rate() -> float:
    """Return the reports that the kernel counts in a second, from memory; the best of three."""
    rng = np.random.default_rng(0)
    cohorts, rows = rng.integers(0, 64, 1_000_000, np.uint8), rng.integers(0, 256, (1_000_000, 16), np.uint8)
    return 1_000_000 / min(seconds_of(lambda: count_bits(cohorts, rows, 64, 128)) for _ in range(3))


def duckdb_alone(place: Path) -> float:
    """Return the seconds in which DuckDB finds the distinct ids of all segments."""
    files = f"{place}/{FOLDER.path}/segments/*.parquet"
    query = f"SELECT count(*) FROM (SELECT batch_id FROM read_parquet('{files}') GROUP BY batch_id)"  # noqa: S608
    with duckdb.connect() as connection:
        return seconds_of(lambda: connection.execute(query).fetchall())


def main(sizes: Sequence[int]) -> None:
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    print("| rows | engine | s | M rows/s | time / kernel | time / DuckDB's ids alone | start, s | memory, MB |")
    print("|---|---|---|---|---|---|---|---|")
    for rows in sizes:
        with TemporaryDirectory(prefix="hubbub-scale-") as directory:
            place = Path(directory)
            write_segments(place, rows)
            kernel, ids = rows / kernel_rate(), duckdb_alone(place)
            found = {engine: in_own_process(engine, place) for engine in ENGINES}
        assert len({each["check"] for each in found.values()}) == 1, "the engines disagree"
        for engine, each in found.items():
            print(
                f"| {rows:,} | {engine} | {each['seconds']:.2f} | {rows / each['seconds'] / 1e6:.2f} "
                f"| {each['seconds'] / kernel:.1f} | {each['seconds'] / ids:.1f} | {each['start']:.1f} | {each['memory'] / 1e6:,.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(*sys.argv[2:])))
    else:
        main([int(size) for size in sys.argv[1:]] or SIZES)
