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
import pyarrow.compute as pc

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

    Each task may run again after its executor is lost: it creates its id file under a name of its own attempt, and returns the name with its
    counts. The files of other attempts are deleted; what the manifest does not name counts for nothing.
    """

    def __init__(self, session: Any) -> None:
        self._session = session

    def count(self, new: NewSegments) -> Counted:
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
            .withColumn(
                "segment", sql.shiftright(sql.when(is_new, sql.col("first")).otherwise(sql.col("last")), _ROW_BITS)
            )
            .repartition(self._num_tasks(new.segments), "segment")
        )
        count = _counter(place, metric, period, new.segments, new.ids)
        found = (
            rows.select("batch_id", "first", "times")
            .mapInArrow(count, "ids string, cell long, reports long, repeated long")
            .groupBy("cell")
            .agg(
                sql.max("ids").alias("ids"), sql.sum("reports").alias("reports"), sql.sum("repeated").alias("repeated")
            )
        )
        written: list[str] = []
        try:
            table = found.toArrow()
            is_cell = pc.greater_equal(table["cell"], 0)
            totals, tasks = table.filter(is_cell), table.filter(pc.invert(is_cell))
            written = [name for name in tasks["ids"].to_pylist() if name]
        except (PySparkException, _java_error()) as problem:
            raise _task_error(problem) from None
        finally:
            _delete_others(new, written)
        flat = np.zeros(sum(map(np.size, _arrays(summary_type(metric).empty(metric)))), np.int64)
        flat[totals["cell"].to_numpy()] = totals["reports"].to_numpy()
        batches, repeated = (int(tasks[name].to_numpy().sum()) for name in ("reports", "repeated"))
        return Counted(_from_cells(metric, period, flat), written, batches, repeated)

    def _num_tasks(self, names: Sequence[str]) -> int:
        """Return the number of tasks for some objects. Without it Spark takes 200, of 50 ms each, also for one small segment."""
        cores: int = self._session.sparkContext.defaultParallelism
        return max(1, min(len(names), _TASKS_PER_CORE * cores))

    def _ids(self, place: str, names: Sequence[str], read: Callable[[str, bytes, int], pa.Table]) -> Any:
        """Return the data frame of the ids in some objects, with their positions."""
        names = list(names)

        def read_all(batches: Batches) -> Batches:
            objects = ObjectStore.open(place)
            for batch in batches:
                for number in batch["id"].to_pylist():
                    table = read(names[number], objects.read(names[number]), number)
                    yield from table.to_batches(max_chunksize=_MAX_ROWS_SENT_AT_ONCE)

        tasks = self._session.range(0, len(names), 1, self._num_tasks(names))
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


def _delete_others(new: NewSegments, written: Sequence[str]) -> None:
    """Delete the id files of tasks that ran in vain."""
    names = new.objects.names(new.ids.rpartition("/")[0])
    new.objects.delete([name for name in names if name.startswith(f"{new.ids}-") and name not in written])


def _counter(
    place: str, metric: Metric, period: str, names: Sequence[str], prefix: str
) -> Callable[[Batches], Batches]:
    """Return a task that counts the rows of its partition, and creates an id file of their batches.

    It returns the cells of its counts that are not 0, with `ids` = "", and one row with the name of its id file, the cell -1 - partition,
    and as `reports` and `repeated` the numbers of batches and of repeated rows. Rows are added up by cell, which is the same in each
    attempt of a task. By name, the row of a second attempt could reach a task of the addition that has ended without it: no manifest
    would name the ids, and a batch that is sent again would count twice.
    """
    names = list(names)

    def count(batches: Batches) -> Batches:
        from pyspark import TaskContext

        first, ids, repeated = [np.zeros(0, np.int64)], list[pa.Array](), 0
        for batch in batches:
            positions = batch["first"].to_numpy()
            is_new = positions > _KNOWN
            first.append(positions[is_new])
            ids.append(batch["batch_id"].filter(pa.array(is_new)).cast(pa.binary(16)))
            repeated += int(batch["times"].to_numpy().sum()) - batch.num_rows
        ordered = np.sort(np.concatenate(first))
        starts = np.flatnonzero(np.diff(ordered >> _ROW_BITS, prepend=-1))
        per_segment: Iterable[tuple[str, np.ndarray]] = (
            (names[rows[0] >> _ROW_BITS], rows & ((1 << _ROW_BITS) - 1)) for rows in np.split(ordered, starts)[1:]
        )
        objects = ObjectStore.open(place)
        flat = np.concatenate(
            [np.ravel(each) for each in _arrays(count_segments(metric, period, objects.read, per_segment))]
        )
        task = TaskContext.get()
        name = f"{prefix}-{task.taskAttemptId()}.parquet" if len(ordered) else ""
        if name:
            objects.create(name, ids_to_bytes(ids))
        cells = np.flatnonzero(flat)
        table = pa.table({
            "ids": pa.array([name] + [""] * len(cells), pa.string()),
            "cell": pa.array(np.append(-1 - task.partitionId(), cells), pa.int64()),
            "reports": pa.array(np.append(len(ordered), flat[cells]), pa.int64()),
            "repeated": pa.array(np.append(repeated, np.zeros_like(cells)), pa.int64()),
        })  # fmt: skip
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
