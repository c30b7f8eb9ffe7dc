"""Folding of generated segments by each engine, at several sizes: time of each stage, memory, and what each cost grows by.

    python -m benchmarks.scale [REPORTS ...] [--out docs/explanation/data] [--plot FILE.svg]

Each batch has one report of 128 bits and 64 cohorts, and one batch in ten is repeated in the next segment. A measurement is a fold in a
process of its own, after a fold of one small segment, so that the start of Spark (printed apart) is not part of it. Memory is the largest
sum of the resident memory of that process and its descendants, in which pages that they share count several times. The bare kernel counts
the same number of reports from memory in one process. DuckDB, the yardstick, only groups the ids of all segments, with all cores.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks.runner import Benchmark
from benchmarks.service import family
from benchmarks.tables import Row
from hubbub import Metric, Params
from hubbub.summary import summary_to_bytes
from hubbub.summary.counting import count_bits
from hubbub_aggregator.segments.engines import ArrowEngine, Engine
from hubbub_aggregator.segments.folding import fold_folder
from hubbub_aggregator.segments.object_store import ObjectStore
from hubbub_aggregator.segments.repeated_ids import Ints
from hubbub_aggregator.segments.segment_file import SegmentFolder, table_to_bytes

SIZES = (1_000_000, 4_000_000, 20_000_000, 100_000_000)
PER_SEGMENT, REPEATED = 20_000, 2_000
PARAMS = Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0.5)
METRIC = Metric.string("page", PARAMS)
FOLDER = SegmentFolder(METRIC.name, METRIC.digest, "2024-06-15")
ENGINES = ("arrow", "spark")

Figures = dict[str, Any]


def write_segments(place: Path, reports: int) -> None:
    """Write segments with `reports` rows in all, of which every segment but the first repeats some of the one before."""
    rng, objects = np.random.default_rng(0), ObjectStore.open(str(place))
    before = np.zeros((0, 16), np.uint8)
    for number in range(max(1, reports // PER_SEGMENT)):
        rows = min(PER_SEGMENT, reports)
        ids = np.concatenate([before[:REPEATED], rng.integers(0, 256, (rows - len(before[:REPEATED]), 16), np.uint8)])
        cohorts = rng.integers(0, PARAMS.num_cohorts, rows, np.uint8)
        bits = rng.integers(0, 256, (rows, METRIC.row_bytes), np.uint8)
        order = np.lexsort(ids.T[::-1])
        data = table_to_bytes(fixed(ids[order]), fixed(cohorts[:, None]), fixed(bits))
        objects.create(f"{FOLDER.path}/segments/{number:06}.parquet", data)
        before = ids[::-1]


def fixed(values: np.ndarray) -> pa.Array:
    """Return the rows of an array of bytes as fixed-size binary."""
    width = pa.binary(values.shape[1])
    return pa.FixedSizeBinaryArray.from_buffers(width, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


class Timed:
    """The Arrow engine, which measures its search for repeated ids."""

    def __init__(self, engine: ArrowEngine) -> None:
        self.engine, self.ids, self.ids_processor, repeated = engine, 0.0, 0.0, engine.repeated

        def timed(blocks: Iterable[Ints]) -> Ints:
            began, processor = time.perf_counter(), time.process_time()
            found = repeated(blocks)
            self.ids, self.ids_processor = time.perf_counter() - began, time.process_time() - processor
            return found

        engine.repeated = timed  # type: ignore[method-assign]


def measure(engine: str, place: str) -> dict[str, float]:
    """Fold all segments of a place; return the seconds of the fold, of its stages, and of the start of the engine."""
    with ExitStack() as stack:
        began = time.perf_counter()
        if engine == "spark":
            from hubbub_aggregator.segments.spark_engine import SparkEngine, spark_session

            chosen: Engine = SparkEngine(stack.enter_context(spark_session("local[2]", {})))
            timed = None
        else:
            timed = Timed(ArrowEngine())
            chosen = timed.engine
        small = Path(stack.enter_context(TemporaryDirectory()))
        write_segments(small, 1_000)
        fold_folder(ObjectStore.open(str(small)), FOLDER, METRIC, chosen, keep=True)
        started, processor_before = time.perf_counter(), family(os.getpid())[1]
        folded = fold_folder(ObjectStore.open(place), FOLDER, METRIC, chosen, keep=True)
        seconds, processor = time.perf_counter() - started, family(os.getpid())[1] - processor_before
        assert folded.summary is not None
        stages = {}
        if timed is not None:
            stages = {
                "ids": timed.ids,
                "counting": seconds - timed.ids,
                "ids_processor": timed.ids_processor,
                "counting_processor": processor - timed.ids_processor,
            }
        check = zlib.crc32(summary_to_bytes(folded.summary))
        return {"seconds": seconds, "processor": processor, "start": started - began, "check": check, **stages}


def in_own_process(engine: str, place: Path) -> dict[str, float]:
    """Run `measure` in a process; return its figures, and the peak of its memory in bytes."""
    command = [sys.executable, "-m", "benchmarks.scale", "--one", engine, str(place)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            peak[0] = max(peak[0], family(process.pid)[0])

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, _ = process.communicate()
    done.set()
    watcher.join()
    assert process.returncode == 0, f"{engine} failed"
    for made in ("folded", "ids", "summaries"):
        shutil.rmtree(place / FOLDER.path / made)
    return {**json.loads(output), "memory": peak[0]}


def seconds_of(work: Callable[[], object]) -> tuple[float, float]:
    """Return the duration and the processor time of a call in seconds."""
    began, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - processor


def kernel(reports: int) -> tuple[float, float]:
    """Return the duration and the processor time in which the kernel counts reports from memory; the best of three."""
    rng, some = np.random.default_rng(0), 1_000_000
    cohorts, rows = rng.integers(0, 64, some, np.uint8), rng.integers(0, 256, (some, 16), np.uint8)
    found = [seconds_of(lambda: count_bits(cohorts, rows, 64, 128)) for _ in range(3)]
    return min(wall for wall, _ in found) * reports / some, min(processor for _, processor in found) * reports / some


def duckdb_alone(place: Path) -> tuple[float, float]:
    """Return the duration and the processor time in which DuckDB finds the distinct ids of all segments."""
    files = f"{place}/{FOLDER.path}/segments/*.parquet"
    query = f"SELECT count(*) FROM (SELECT batch_id FROM read_parquet('{files}') GROUP BY batch_id)"  # noqa: S608
    with duckdb.connect() as connection:
        return seconds_of(lambda: connection.execute(query).fetchall())


def first_segments(all_of_them: Path, place: Path, reports: int) -> None:
    """Make the first `reports` rows available in another place."""
    folder = f"{FOLDER.path}/segments"
    (place / folder).mkdir(parents=True)
    for segment in sorted((all_of_them / folder).iterdir())[: max(1, reports // PER_SEGMENT)]:
        os.link(segment, place / folder / segment.name)


def measure_size(all_of_them: Path, reports: int) -> list[Figures]:
    """Return the figures of each engine at one size; raises AssertionError if their summaries differ."""
    with TemporaryDirectory(prefix="hubbub-scale-", dir=all_of_them.parent) as directory:
        place = Path(directory)
        first_segments(all_of_them, place, reports)
        (counting, counting_processor), (ids, ids_processor) = kernel(reports), duckdb_alone(place)
        bare = {
            "load": os.getloadavg()[0],
            "kernel": counting,
            "kernel_processor": counting_processor,
            "duckdb_alone": ids,
            "duckdb_alone_processor": ids_processor,
        }
        found = [{"reports": reports, "engine": engine, **bare, **in_own_process(engine, place)} for engine in ENGINES]
    assert len({figures["check"] for figures in found}) == 1, "the engines disagree"
    return found


def fit(found: Sequence[Figures], engine: str, *measured: str) -> tuple[float, float]:
    """Return the seconds of a fold of no report, and the seconds for each report: least relative error over the sizes."""
    rows = [figures for figures in found if figures["engine"] == engine]
    seconds = np.array([sum(figures[name] for name in measured) for figures in rows])
    terms = np.stack([np.ones(len(rows)), [figures["reports"] for figures in rows]], axis=1)
    fixed, slope = np.linalg.lstsq(terms / seconds[:, None], np.ones(len(rows)))[0]
    return float(fixed), float(slope)


def crossover(found: Sequence[Figures], engine: str) -> float | None:
    """Return the number of reports from which Spark, with its start, is faster than another engine; None: at no size."""
    (fixed, slope), (start, spark_slope) = fit(found, engine, "seconds"), fit(found, "spark", "seconds", "start")
    return (start - fixed) / (slope - spark_slope) if slope > spark_slope else None


def plot(found: Sequence[Figures], path: Path) -> None:
    """Draw time against reports for each engine."""
    from matplotlib.figure import Figure

    axes = (figure := Figure(figsize=(6, 4), layout="constrained")).subplots()
    for engine in ENGINES:
        rows = [figures for figures in found if figures["engine"] == engine]
        axes.loglog(
            [figures["reports"] for figures in rows], [figures["seconds"] for figures in rows], "o-", label=engine
        )
    for name, label in {"duckdb_alone": "ids by DuckDB alone", "kernel": "bare kernel"}.items():
        rows = [figures for figures in found if figures["engine"] == ENGINES[0]]
        axes.loglog([figures["reports"] for figures in rows], [figures[name] for figures in rows], "--", label=label)
    axes.set(xlabel="reports", ylabel="seconds of a fold")
    axes.legend()
    figure.savefig(path, metadata={"Date": None})


def row(fold: Figures) -> Row:
    """Row of the table: seconds of a fold and of its stages, their ratios to DuckDB alone and to the bare kernel, start and memory."""
    return {
        "reports": f"{fold['reports']}",
        "engine": fold["engine"],
        **_cells(fold, "seconds", ""),
        **_cells(fold, "processor", "_processor"),
        "start_seconds": f"{fold['start']:.1f}",
        "memory_mb": f"{fold['memory'] / 1e6:.0f}",
    }


def _cells(fold: Figures, name: str, kind: str) -> dict[str, str]:
    """Return the seconds, or the processor's seconds, of a fold and of its stages, and the ratios."""
    total = fold[name]
    ids, counting = (fold.get(f"{stage}{kind}") for stage in ("ids", "counting"))
    duckdb, kernel = (fold[f"{bare}{kind}"] for bare in ("duckdb_alone", "kernel"))
    figures = {
        "": total,
        "_ids": ids,
        "_counting": counting,
        "_duckdb_over_ids": duckdb / ids if ids else None,
        "_kernel_over_counting": kernel / counting if counting else None,
        "_over_kernel": total / kernel,
    }
    return {f"{name}{end}": "" if value is None else f"{value:.2f}" for end, value in figures.items()}


def fits(found: Sequence[Figures]) -> list[Row]:
    """Rows with the cost of each engine: a fixed number of seconds, and microseconds of a report."""
    rows = []
    for engine in ENGINES:
        (fixed, slope), (fixed_processor, slope_processor) = (
            fit(found, engine, "seconds"),
            fit(found, engine, "processor"),
        )
        at = None if engine == "spark" else crossover(found, engine)
        rows.append(
            {
                "engine": engine,
                "fixed, s": f"{fixed:.2f}",
                "microseconds a report": f"{slope * 1e6:.3f}",
                "processor: fixed, s": f"{fixed_processor:.2f}",
                "processor: microseconds a report": f"{slope_processor * 1e6:.3f}",
                "Spark is faster from": "" if engine == "spark" else "no size" if at is None else f"{at:.2g} reports",
            }
        )
    return rows


def main() -> None:
    benchmark = Benchmark(__doc__)
    benchmark.add("reports", nargs="*", type=int, default=SIZES)
    benchmark.add("--plot", type=Path, help="write a plot of time against reports to this SVG file")
    options = benchmark.start()
    found, table = list[Figures](), benchmark.table("folds")
    with TemporaryDirectory(prefix="hubbub-scale-") as directory:
        write_segments(everything := Path(directory) / "all", max(options.reports))
        for reports in options.reports:
            for figures in measure_size(everything, reports):
                found.append(figures)
                table.add(row(figures))
            print(f"{reports:,} reports, load {found[-1]['load']:.1f}", file=sys.stderr)
    print()
    benchmark.table().add_all(fits(found))
    if options.plot is not None:
        plot(found, options.plot)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:  # a fold in a process of its own
        print(json.dumps(measure(*sys.argv[2:])))
    else:
        main()
