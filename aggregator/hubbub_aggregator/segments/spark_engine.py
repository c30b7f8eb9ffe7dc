"""Spark engine: removes duplicates and counts on a cluster, or with several processes on one machine.

    ids of each segment (a task reads a file)  ->  group by id  ->  rows to count, by segment  ->  kernel  ->  sum of counts

Tasks read and write objects with our own client, so that a directory and a bucket need no JAR. Grouping ids and adding up counts are
Spark's own shuffles. Counting is the kernel of the other engines on whole segments: 128 sums in SQL are about 40 times slower.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hubbub.metrics.metric import Metric
from hubbub.summary import Summary
from hubbub.text import install_hint
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.pipeline.folding import summary_type
from hubbub_aggregator.segments.counting import count_segments
from hubbub_aggregator.segments.engines import Counted, NewSegments
from hubbub_aggregator.segments.id_file import ids_to_bytes, read_ids
from hubbub_aggregator.segments.object_store import MissingObjectError, ObjectStore
from hubbub_aggregator.segments.segment_file import batch_ids

_ROW_BITS = 32
"""A position is the number of a segment times 2**32, plus the row: the first row of an id is the smallest position."""
_KNOWN = -1
_MAX_ROWS_SENT_AT_ONCE = 1 << 16
_TASKS_PER_CORE = 4
_QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "FATAL"}

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
            f"For this engine {install_hint('spark')}, or use --engine duckdb"
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

    Each task may run again, or twice, after its executor is lost: it creates objects under names of its own attempt, and Spark returns the
    result of one attempt. Names that the manifest does not contain count for nothing.
    """

    def __init__(self, session: Any) -> None:
        self._session = session

    def count(self, new: NewSegments) -> Counted:
        from pyspark import StorageLevel
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as sql

        place, metric, period = _absolute(new.objects.place), new.metric, new.folder.period
        is_new = sql.col("first") > _KNOWN
        rows = (
            self._ids(place, new.segments, _new_ids)
            .union(self._ids(place, new.known, _known_ids))
            .groupBy("batch_id")
            .agg(sql.min("position").alias("first"), sql.max("position").alias("last"), sql.count("*").alias("times"))
            .where(sql.col("last") > _KNOWN)
            .repartition(sql.shiftright(sql.when(is_new, sql.col("first")).otherwise(sql.col("last")), _ROW_BITS))
            .persist(StorageLevel.DISK_ONLY)
        )
        write = _id_writer(place, new.ids)
        count = _counter(place, metric, period, new.segments)
        try:
            cells = rows.select("first").mapInArrow(count, "cell long, reports long")
            totals = cells.groupBy("cell").agg(sql.sum("reports").alias("reports")).toArrow()
            written = rows.mapInArrow(write, "name string, batches long, repeated long").toArrow().to_pylist()
        except (PySparkException, _java_error()) as problem:
            raise _task_error(problem) from None
        finally:
            rows.unpersist()
        flat = np.zeros(sum(map(np.size, _arrays(summary_type(metric).empty(metric)))), np.int64)
        flat[totals["cell"].to_numpy()] = totals["reports"].to_numpy()
        return Counted(
            _from_cells(metric, period, flat),
            [each["name"] for each in written if each["batches"]],
            sum(each["batches"] for each in written),
            sum(each["repeated"] for each in written),
        )

    def _ids(self, place: str, names: Sequence[str], read: Callable[[str, bytes, int], pa.Table]) -> Any:
        """Return the data frame of the ids in some objects, with their positions."""
        names = list(names)

        def read_all(batches: Batches) -> Batches:
            objects = ObjectStore.open(place)
            for batch in batches:
                for number in batch["id"].to_pylist():
                    table = read(names[number], objects.read(names[number]), number)
                    yield from table.to_batches(max_chunksize=_MAX_ROWS_SENT_AT_ONCE)

        most = _TASKS_PER_CORE * self._session.sparkContext.defaultParallelism
        tasks = self._session.range(0, len(names), 1, max(1, min(len(names), most)))
        return tasks.mapInArrow(read_all, "batch_id binary, position long")


def _absolute(place: str) -> str:
    """Return the address of an object store for processes with other working directories."""
    return place if "://" in place else str(Path(place).absolute())


def _new_ids(name: str, data: bytes, number: int) -> pa.Table:
    ids = batch_ids(name, data)
    return _with_positions(ids, (number << _ROW_BITS) + np.arange(len(ids)))


def _known_ids(name: str, data: bytes, _number: int) -> pa.Table:
    ids = read_ids(name, data)
    return _with_positions(ids, np.full(len(ids), _KNOWN))


def _with_positions(ids: pa.Array, positions: np.ndarray) -> pa.Table:
    return pa.table({"batch_id": ids.cast(pa.binary()), "position": pa.array(positions, pa.int64())})


def _id_writer(place: str, prefix: str) -> Callable[[Batches], Batches]:
    """Return a task that creates one id file of the counted batches of its partition."""

    def write(batches: Batches) -> Batches:
        from pyspark import TaskContext

        ids, repeated = list[pa.Array](), 0
        for batch in batches:
            is_new = pa.array(batch["first"].to_numpy() > _KNOWN)
            ids.append(batch["batch_id"].filter(is_new).cast(pa.binary(16)))
            repeated += int(batch["times"].to_numpy().sum()) - batch.num_rows
        num_batches, name = sum(map(len, ids)), f"{prefix}-{TaskContext.get().taskAttemptId()}.parquet"
        if num_batches:
            ObjectStore.open(place).create(name, ids_to_bytes(ids))
        yield pa.record_batch({"name": [name], "batches": [num_batches], "repeated": [repeated]})

    return write


def _counter(place: str, metric: Metric, period: str, names: Sequence[str]) -> Callable[[Batches], Batches]:
    """Return a task that counts the rows of its partition and returns the cells that are not 0."""
    names = list(names)

    def count(batches: Batches) -> Batches:
        first = np.concatenate([np.zeros(0, np.int64), *(batch["first"].to_numpy() for batch in batches)])
        first = np.sort(first[first > _KNOWN])
        starts = np.flatnonzero(np.diff(first >> _ROW_BITS, prepend=-1))
        per_segment: Iterable[tuple[str, np.ndarray]] = (
            (names[rows[0] >> _ROW_BITS], rows & ((1 << _ROW_BITS) - 1)) for rows in np.split(first, starts)[1:]
        )
        summary = count_segments(metric, period, ObjectStore.open(place).read, per_segment)
        flat = np.concatenate([np.ravel(array) for array in _arrays(summary)])
        cells = np.flatnonzero(flat)
        table = pa.table({"cell": pa.array(cells), "reports": pa.array(flat[cells])})
        yield from table.to_batches(max_chunksize=_MAX_ROWS_SENT_AT_ONCE)

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
            "Install Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless), or use --engine duckdb"
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
