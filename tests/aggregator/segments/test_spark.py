"""`hubbub fold --engine spark`: summaries equal to those of the Arrow engine, byte for byte, also if executors are killed.

One Spark session for all tests but those that need a cluster, since its start takes 10 seconds.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from hubbub import Batch, Metric
from hubbub.cli import main
from hubbub.summary import summary_to_bytes
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.segments import spark_engine
from hubbub_aggregator.segments.engines import ArrowEngine, NewSegments
from hubbub_aggregator.segments.manifest import Manifest, read_ids
from hubbub_aggregator.segments.object_store import ObjectStore
from hubbub_aggregator.segments.segment_file import segment_to_bytes
from hubbub_aggregator.segments.spark_engine import SparkEngine, spark_session
from tests.aggregator.conftest import DEFINITIONS
from tests.aggregator.segments.test_folding import NARROW, WIDE, batch, fold_now, folder_of, one_by_one, put
from tests.support.programs import installed
from tests.support.s3_server import environment, s3_server


@pytest.fixture(scope="module")
def with_spark() -> None:
    """Skip the test if Java or pyspark is missing, or fail if $HUBBUB_TEST_REQUIRE contains `java`."""
    installed("java", "openjdk-17-jre-headless")
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pandas") is None:
        reason = "pyspark is not installed: make test-spark"
        if "java" in os.environ.get("HUBBUB_TEST_REQUIRE", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)


def properties(folder: Path) -> dict[str, str]:
    """Spark properties for tests: few tasks, Java without the compiler for long runs, and all files in a folder of the test."""
    java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    return {
        "spark.driver.extraJavaOptions": java,
        "spark.executor.extraJavaOptions": java,
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }


@pytest.fixture(scope="module")
def bucket(with_spark: None) -> Iterator[str]:
    """A bucket; its variables must be set before Spark starts, since its processes inherit them."""
    with s3_server() as url, pytest.MonkeyPatch.context() as patch:
        for name, value in environment(url).items():
            patch.setenv(name, value)
        yield "s3://bucket"


@pytest.fixture(scope="module")
def engine(bucket: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkEngine]:
    with spark_session("local-cluster[2,1,1024]", properties(tmp_path_factory.mktemp("spark"))) as session:
        yield SparkEngine(session)


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore.open(str(tmp_path / "segments"))


def draw_segments(rng: np.random.Generator, metric: Metric) -> list[list[Batch]]:
    """Segments with ids that repeat in and between them, an empty one, and one without a new id."""
    segments = [
        list(
            {
                number: batch(metric, number, rng.integers(0, 1 << 9, rng.integers(1, 4)).tolist())
                for number in rng.integers(0, 60, rng.integers(1, 30)).tolist()
            }.values()
        )
        for _ in range(6)
    ]
    return [*segments[:4], [], segments[4], segments[0], segments[5]]


@pytest.mark.slow
@pytest.mark.parametrize("metric", [WIDE, NARROW], ids=["bits", "patterns"])
def test_spark_counts_the_same_bytes_at_once_and_in_steps(
    engine: SparkEngine, tmp_path: Path, unseen_seed: int, metric: Metric
) -> None:
    segments = draw_segments(np.random.default_rng(unseen_seed), metric)
    rows = sum(map(len, segments))
    for name, cuts in {"at once": (), "in steps": (3, 5)}.items():
        objects, found = ObjectStore.open(str(tmp_path / name)), []
        for number, segment in enumerate(segments):
            if number in cuts:
                found.append(fold_now(objects, metric, engine))
            put(objects, metric, segment, f"{number:04}")
        found.append(fold_now(objects, metric, engine))
        assert found[-1].summary is not None
        assert summary_to_bytes(found[-1].summary) == summary_to_bytes(one_by_one(metric, segments))
        assert sum(folded.num_batches for folded in found) == len(
            {stored.batch_id for some in segments for stored in some}
        )
        assert sum(folded.num_batches + folded.num_repeated for folded in found) == rows


@pytest.mark.slow
def test_second_fold_changes_no_byte_and_engines_continue_each_other(engine: SparkEngine, objects: ObjectStore) -> None:
    segments = [[batch(WIDE, number + step) for number in range(6)] for step in (0, 3, 6)]
    put(objects, WIDE, segments[0], "a")
    fold_now(objects, WIDE, engine)
    before = {name: objects.read(name) for name in objects.names()}
    assert fold_now(objects, WIDE, engine).num_segments == 0
    assert {name: objects.read(name) for name in objects.names()} == before
    put(objects, WIDE, segments[1], "b")
    fold_now(objects, WIDE, ArrowEngine(), keep=False)
    put(objects, WIDE, segments[2], "c")
    folded = fold_now(objects, WIDE, engine, keep=False)
    assert folded.summary == one_by_one(WIDE, segments)
    assert (folded.num_batches, folded.num_repeated) == (3, 3)


@pytest.mark.slow
def test_segments_without_a_new_batch_leave_no_id_file(engine: SparkEngine, objects: ObjectStore) -> None:
    put(objects, NARROW, [], "a")
    assert fold_now(objects, NARROW, engine).summary == one_by_one(NARROW, [])
    assert not [name for name in objects.names() if "/ids/" in name]


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["cut", "other width"])
def test_damaged_segment_is_named_and_nothing_is_counted(
    engine: SparkEngine, objects: ObjectStore, damage: str
) -> None:
    put(objects, WIDE, [batch(WIDE, 1)], "a")
    whole = segment_to_bytes([batch(NARROW, 2)])
    objects.create(f"{folder_of(WIDE).path}/segments/b.parquet", whole[:-7] if damage == "cut" else whole)
    with pytest.raises(StoreError, match=r"^metric=wide.*segments/b\.parquet: .*[Mm]ove it out of the folder$"):
        fold_now(objects, WIDE, engine)
    assert not [name for name in objects.names() if "/folded/" in name or "/summaries/" in name]


@pytest.mark.slow
def test_tasks_read_a_bucket_with_our_client(engine: SparkEngine, bucket: str) -> None:
    objects = ObjectStore.open(f"{bucket}/{uuid.uuid4()}")
    segments = [[batch(WIDE, number + step) for number in range(6)] for step in (0, 3)]
    for name, segment in zip("ab", segments, strict=True):
        put(objects, WIDE, segment, name)
    folded = fold_now(objects, WIDE, engine, keep=False)
    assert folded.summary == one_by_one(WIDE, segments)
    assert not [name for name in objects.names() if "/segments/" in name]


@pytest.mark.slow
def test_killed_executors_change_no_count(
    engine: SparkEngine, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """SIGKILL to the executor of a task that reads ids, and to that of a task that has created its id file."""
    reader, counter = spark_engine._reader, spark_engine._counter

    def kill_executor_once(name: str) -> None:
        parent = Path(f"/proc/{os.getppid()}/status").read_text()  # the worker's parent is forked by the executor
        executor = int(parent.partition("PPid:")[2].split()[0])
        with suppress(FileExistsError), (tmp_path / name).open("x") as marker:
            marker.write(Path(f"/proc/{executor}/cmdline").read_text())
            marker.flush()
            os.kill(executor, signal.SIGKILL)
            signal.pause()

    def read_and_kill(new: NewSegments) -> Any:
        read = reader(new)

        def read_some(batches: Any) -> Any:
            given = list(batches)
            if any(1 in batch["id"].to_pylist() for batch in given):
                kill_executor_once("while reading")
            yield from read(iter(given))

        return read_some

    def count_and_kill(*arguments: Any) -> Any:
        count = counter(*arguments)

        def count_one(batches: Any) -> Any:
            counted = list(count(batches))
            kill_executor_once("after writing")
            yield from counted

        return count_one

    monkeypatch.setattr(spark_engine, "_reader", read_and_kill)
    monkeypatch.setattr(spark_engine, "_counter", count_and_kill)
    segments = [[batch(WIDE, number + step) for number in range(20)] for step in (0, 10, 20, 30)]
    for number, segment in enumerate(segments):
        put(objects, WIDE, segment, str(number))
    folded = fold_now(objects, WIDE, engine, keep=False)
    for name in ("while reading", "after writing"):
        assert "CoarseGrainedExecutorBackend" in (tmp_path / name).read_text()
    assert folded.summary == one_by_one(WIDE, segments)
    assert (folded.num_batches, folded.num_repeated) == (50, 30)
    newest = Manifest.from_bytes(name := max(n for n in objects.names() if "/folded/" in n), objects.read(name))
    known = [batch_id for name in newest.ids for batch_id in read_ids(name, objects.read(name)).to_pylist()]
    assert sorted(known) == sorted({stored.batch_id.bytes for segment in segments for stored in segment})
    put(objects, WIDE, segments[3], "again")
    assert fold_now(objects, WIDE, ArrowEngine()).num_batches == 0  # every id is known, also of the task that ran twice


@dataclass(frozen=True)
class Attempt:
    """A run of a task, as pyspark's TaskContext gives it."""

    number: int
    partition: int

    def taskAttemptId(self) -> int:  # noqa: N802
        return self.number

    def partitionId(self) -> int:  # noqa: N802
        return self.partition


def test_attempts_of_a_task_return_rows_with_the_same_cells(
    with_spark: None, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are added up by cell. If a second attempt had other cells, the task that adds them could have ended without them."""
    import pyspark

    for name in "ab":
        put(objects, WIDE, [batch(WIDE, number) for number in range(4)], name)
    names = sorted(objects.names())
    positions = pa.table({"positions": pa.array([b""], pa.binary())})

    def run(attempt: Attempt) -> pa.Table:
        monkeypatch.setattr(pyspark.TaskContext, "get", lambda: attempt)
        new = NewSegments(objects, folder_of(WIDE), WIDE, names, [], f"ids/{attempt.number}")
        count = spark_engine._counter(new, np.array([0, 1, 2]))
        return pa.Table.from_batches(count(iter(positions.to_batches())))

    first, again, other = run(Attempt(7, 0)), run(Attempt(8, 0)), run(Attempt(9, 1))
    assert first["ids"][0].as_py() != again["ids"][0].as_py()
    assert first.drop_columns("ids") == again.drop_columns("ids")
    assert other["cell"][0].as_py() not in first["cell"].to_pylist()  # two tasks of one job keep their names apart


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    (tmp_path / "metrics.toml").write_text(DEFINITIONS)
    return ["fold", str(tmp_path / "metrics.toml"), str(tmp_path / "segments")]


@pytest.mark.parametrize("home", [None, "/no/java"])
def test_command_without_java_names_the_package(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: str | None
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("JAVA_HOME", home)
    done = CliRunner().invoke(main, [*arguments, "--engine", "spark"])
    assert done.exit_code == 1
    assert f"there is no `java` in {home or 'PATH'}" in done.stderr.replace("$JAVA_HOME/bin (", "").replace(")", "")
    assert "apt-get install openjdk-17-jre-headless), or use --engine arrow" in done.stderr


@pytest.mark.parametrize("missing", ["pyspark.sql", "pandas"])
def test_command_without_pyspark_names_the_extra(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: str
) -> None:
    (tmp_path / "java").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    done = CliRunner().invoke(main, [*arguments, "--engine", "spark"])
    assert done.exit_code == 1
    assert "pyspark or pandas is not installed" in done.stderr
    assert "pip install 'hubbub-telemetry[spark]'" in done.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--spark-master", "local[2]"], "--spark-master is for --engine spark"),
        (["--engine", "arrow", "--spark-conf", "spark.a=b"], "--spark-conf is for --engine spark"),
        (["--engine", "spark", "--spark-conf", "memory=4g"], "--spark-conf memory=4g: this is not a property of Spark"),
        (["--engine", "spark", "--spark-conf", "spark.a"], "--spark-conf spark.a: this is not a property of Spark"),
        (["--engine", "spark", "--jobs", "2"], "--jobs is for --engine arrow"),
    ],
)
def test_options_of_other_engines_are_refused(arguments: list[str], options: list[str], reason: str) -> None:
    done = CliRunner().invoke(main, [*arguments, *options])
    assert done.exit_code == 2
    assert reason in done.stderr
