"""Spark engine: removes duplicates and counts on a cluster, or with several processes on one machine.

    ids of some segments  ->  repeated ids of a bucket  ->  counts of some segments  ->  sum of counts
                     shuffle by bucket        shuffle by part                shuffle by cell

Tasks read and write objects with our own client, so that a directory and a bucket need no JAR. A row of the first two shuffles is a block of
ids or positions. Finding repeated ids and counting are those of the Arrow engine: 128 sums in SQL are about 40 times slower.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hubbub.metrics.metric import Metric
from hubbub.summary import Summary
from hubbub.text import install_hint
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.pipeline.folding import summary_type
from hubbub_aggregator.segments.counting import Counted
from hubbub_aggregator.segments.engines import NewSegments
from hubbub_aggregator.segments.object_store import MissingObjectError
from hubbub_aggregator.segments.repeated_ids import NUM_BUCKETS, ROW_BITS, Ints, by_bucket, repeated_in

_MAX_ROWS_AT_ONCE = 1 << 20
_MAX_ROWS_SENT_AT_ONCE = 1 << 16
_TASKS_PER_CORE = 2
_MAX_OBJECTS_OF_TASK = 100
_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "FATAL",
    "spark.sql.shuffle.partitions": "8",
}

Batches = Iterator[pa.RecordBatch]


@contextmanager
def spark_session(master: str, options: Mapping[str, str]) -> Iterator[Any]:
    """Start Spark, and stop it after the block; raises StoreError if pyspark or Java is missing, or Spark does not start.

    master  : address of the cluster; "local[2]" is two processes of this machine
    options : Spark properties, which take precedence over those of this module
    """
    _check_java()
    try:
        import pandas  # noqa: F401  (pyspark exchanges Arrow data only where it is installed)
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError:
        raise StoreError(
            "--engine spark cannot start: pyspark or pandas is not installed here. "
            f"For this engine {install_hint('spark')}, or use --engine arrow"
        ) from None
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    properties = {**_QUIET, **options}
    try:
        session = SparkSession.builder.master(master).appName("hubbub fold").config(map=properties).getOrCreate()
    except (PySparkException, _java_error()) as problem:
        raise StoreError(
            f"--engine spark: Spark did not start with master {master} ({_first_line(problem)}). Nothing was counted. "
            "Check --spark-master, --spark-conf and that `java -version` is 17 or newer"
        ) from None
    try:
        yield session
    finally:
        session.stop()


class SparkEngine:
    """Counts segments as jobs of a Spark session. The driver holds one summary, and neither ids nor reports.

    Each task may run again after its executor is lost: it creates its id file under a name of its own attempt, and returns the name with its
    counts. The files of other attempts are deleted; what the manifest does not name counts for nothing.
    """

    def __init__(self, session: Any) -> None:
        self._session = session

    def count(self, new: NewSegments) -> Counted:
        from pyspark.errors import PySparkException

        written: list[str] = []
        try:
            table = self._count(new).toArrow()
            is_cell = pc.greater_equal(table["cell"], 0)
            totals, tasks = table.filter(is_cell), table.filter(pc.invert(is_cell))
            written = [name for name in tasks["ids"].to_pylist() if name]
        except (PySparkException, _java_error()) as problem:
            raise _task_error(problem) from None
        finally:
            new.delete_ids_except(written)
        flat = np.zeros(sum(map(np.size, _arrays(summary_type(new.metric).empty(new.metric)))), np.int64)
        flat[totals["cell"].to_numpy()] = totals["reports"].to_numpy()
        batches, repeated_rows = (int(tasks[name].to_numpy().sum()) for name in ("reports", "repeated"))
        return Counted(_from_cells(new.metric, new.folder.period, flat), written, batches, repeated_rows)

    def _count(self, new: NewSegments) -> Any:
        """Return the data frame of the sums of all cells and of what `_counter` returns beside them."""
        from pyspark.sql import functions as sql

        num_parts, num_readers = self._num_tasks(len(new.segments)), self._num_tasks(new.num_objects)
        starts = np.linspace(0, len(new.segments), num_parts + 1).astype(np.int64)  # first segment of each part
        every_part = self._session.range(num_parts).select(
            sql.col("id").cast("int").alias("part"), sql.lit(b"").alias("positions")
        )
        return (
            self._session.range(0, new.num_objects, 1, num_readers)
            .mapInArrow(_reader(new), "bucket int, rows binary")
            .repartitionById(min(NUM_BUCKETS, num_readers), "bucket")
            .mapInArrow(_finder(starts), "part int, positions binary")
            .union(every_part)
            .repartitionById(num_parts, "part")
            .mapInArrow(_counter(new, starts), "ids string, cell long, reports long, repeated long")
            .groupBy("cell")
            .agg(
                sql.max("ids").alias("ids"), sql.sum("reports").alias("reports"), sql.sum("repeated").alias("repeated")
            )
        )

    def _num_tasks(self, num_objects: int) -> int:
        """Return the number of tasks for some objects. Each task costs 50 ms, and holds the ids of its segments in memory."""
        cores: int = self._session.sparkContext.defaultParallelism
        return max(1, min(num_objects, max(_TASKS_PER_CORE * cores, num_objects // _MAX_OBJECTS_OF_TASK)))


def _reader(new: NewSegments) -> Callable[[Batches], Batches]:
    """Return a task that reads the ids of some objects, and returns their rows (`repeated_ids`) of each bucket."""

    def read(batches: Batches) -> Batches:
        rows, size = list[Ints](), 0
        for number in (number for batch in batches for number in batch["id"].to_pylist()):
            rows.append(new.rows(number))
            size += len(rows[-1])
            if size >= _MAX_ROWS_AT_ONCE:
                yield _in_buckets(rows)
                rows, size = [], 0
        if size:
            yield _in_buckets(rows)

    return read


def _in_buckets(rows: Sequence[Ints]) -> pa.RecordBatch:
    """Return one row for each bucket that is not empty: a row for each id would cost Spark and its exchange with Python 20 times more."""
    return _blocks("bucket", "rows", dict(enumerate(by_bucket(np.concatenate(rows)))))


def _blocks(key: str, column: str, arrays: Mapping[int, Ints]) -> pa.RecordBatch:
    """Return the arrays that are not empty, as bytes."""
    some = {number: array.tobytes() for number, array in arrays.items() if len(array)}
    columns = [pa.array(list(some), pa.int32()), pa.array(list(some.values()), pa.binary())]
    return pa.record_batch(columns, [key, column])


def _finder(starts: Ints) -> Callable[[Batches], Batches]:
    """Return a task that finds repeated ids in its buckets, and returns their positions for each part."""

    def find(batches: Batches) -> Batches:
        buckets = defaultdict[int, list[bytes]](list)
        for batch in batches:
            for bucket, rows in zip(batch["bucket"].to_pylist(), batch["rows"].to_pylist(), strict=True):
                buckets[bucket].append(rows)
        repeated = [repeated_in(_rows(bucket)) for bucket in buckets.values()]
        positions = np.sort(np.concatenate([np.zeros(0, np.int64), *repeated]))
        parts = dict(enumerate(np.split(positions, np.searchsorted(positions, starts[1:-1] << ROW_BITS))))
        yield _blocks("part", "positions", parts)

    return find


def _rows(data: Iterable[bytes]) -> Ints:
    return np.frombuffer(b"".join(data), np.int64).reshape(-1, 3)


def _counter(new: NewSegments, starts: Ints) -> Callable[[Batches], Batches]:
    """Return a task that counts the segments of its part, and creates an id file of their batches.

    It returns the cells of its counts that are not 0, and one row with the name of its id file, the cell -1 - part, and as `reports` and
    `repeated` the numbers of batches and of repeated rows. The name and the counts so take the same shuffle, to the same rows for every
    attempt: if a lost task runs again, both are those of its new attempt.
    """

    def count(batches: Batches) -> Batches:
        from pyspark import TaskContext

        task = TaskContext.get()
        number = task.partitionId()
        found = b"".join(positions for batch in batches for positions in batch["positions"].to_pylist())
        repeated = np.sort(np.frombuffer(found, np.int64))
        counted = new.count(range(starts[number], starts[number + 1]), repeated, task.taskAttemptId())
        flat = np.concatenate([np.ravel(array) for array in _arrays(counted.summary)])
        cells = np.flatnonzero(flat)
        columns = {
            "ids": pa.array([*(counted.ids or [""]), *[""] * len(cells)], pa.string()),
            "cell": pa.array(np.append(-1 - number, cells), pa.int64()),
            "reports": pa.array(np.append(counted.num_batches, flat[cells]), pa.int64()),
            "repeated": pa.array(np.append(counted.num_repeated, np.zeros_like(cells)), pa.int64()),
        }
        yield from pa.table(columns).to_batches(max_chunksize=_MAX_ROWS_SENT_AT_ONCE)

    return count


def _arrays(summary: Summary) -> list[np.ndarray]:
    return [getattr(summary, name) for name in summary.arrays]


def _from_cells(metric: Metric, period: str, flat: np.ndarray) -> Summary:
    """Return the summary with the cells of all arrays, one after the other; without a period if there is no report."""
    counts = summary_type(metric)
    empty = _arrays(counts.empty(metric))
    parts = np.split(flat, np.cumsum([array.size for array in empty])[:-1])
    arrays: dict[str, Any] = {
        name: part.reshape(array.shape) for name, part, array in zip(counts.arrays, parts, empty, strict=True)
    }
    return counts(metric, **arrays, periods=[period] if flat.any() else [])


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java" if home is None else str(Path(home) / "bin" / "java")) is None:
        place = "PATH" if home is None else f"$JAVA_HOME/bin ({home})"
        raise StoreError(
            f"--engine spark cannot start: there is no `java` in {place}, and Spark runs in Java. "
            "Install Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless), or use --engine arrow"
        )


def _java_error() -> type[Exception]:
    from py4j.protocol import Py4JError

    found: type[Exception] = Py4JError
    return found


_RAISED = re.compile(r"^hubbub_aggregator\.[\w.]*?(StoreError|MissingObjectError): (.+)$", re.MULTILINE)


def _task_error(problem: Exception) -> StoreError:
    """Return the error of this package that a task raised, or one with Spark's first line."""
    raised = _RAISED.search(str(problem))
    if raised is None:
        return StoreError(f"--engine spark: a job failed ({_first_line(problem)}). Nothing was counted: run fold again")
    return {"StoreError": StoreError, "MissingObjectError": MissingObjectError}[raised[1]](raised[2])


def _first_line(problem: Exception) -> str:
    return next((line.strip() for line in str(problem).splitlines() if line.strip()), type(problem).__name__)
