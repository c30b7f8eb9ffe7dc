"""Errors of Spark itself in `hubbub fold --engine spark`: the command names the cause and the next step, and counts nothing.

Each runs in a process of its own, because a process has one Spark session.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hubbub import parse_definitions
from hubbub_aggregator.segments.engines import ArrowEngine
from hubbub_aggregator.segments.folding import fold_folder
from hubbub_aggregator.segments.object_store import ObjectStore
from hubbub_aggregator.segments.segment_file import SegmentFolder, segment_to_bytes
from tests.aggregator.conftest import DEFINITIONS, TODAY, MakeBatch
from tests.aggregator.segments.test_spark import properties, with_spark

__all__ = ["with_spark"]  # a fixture
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("with_spark")]

METRIC = parse_definitions(DEFINITIONS)["homepage"]
FOLDER = SegmentFolder(METRIC.name, METRIC.digest, TODAY)


@pytest.fixture
def objects(tmp_path: Path, make_batch: MakeBatch) -> ObjectStore:
    """A directory with one segment."""
    store = ObjectStore.open(str(tmp_path / "segments"))
    store.create(f"{FOLDER.path}/segments/first.parquet", segment_to_bytes([make_batch(METRIC)]))
    return store


def fold_by_command(objects: ObjectStore, place: Path, master: str, **conf: str) -> subprocess.CompletedProcess[str]:
    (place / "metrics.toml").write_text(DEFINITIONS)
    options = ["--engine", "spark", "--spark-master", master]
    for name, value in (properties(place) | conf).items():
        options += ["--spark-conf", f"{name}={value}"]
    command = [str(Path(sys.executable).with_name("hubbub")), "fold", str(place / "metrics.toml"), objects.place]
    return subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=200)


def require_uncounted(objects: ObjectStore) -> None:
    """Require that nothing but the segment exists, and that another engine counts it."""
    assert [name.rpartition("/")[2] for name in objects.names()] == ["first.parquet"]
    counted = fold_folder(objects, FOLDER, METRIC, ArrowEngine(), keep=False)
    assert (counted.num_batches, counted.num_repeated) == (1, 0)


def test_spark_that_does_not_start_is_named_with_its_master(objects: ObjectStore, tmp_path: Path) -> None:
    done = fold_by_command(objects, tmp_path, "nonsense")
    assert done.returncode == 1
    assert "Spark did not start with master nonsense (" in done.stderr
    assert "Check --spark-master, --spark-conf" in done.stderr
    assert "Traceback" not in done.stderr
    require_uncounted(objects)


def test_failed_job_is_reported_for_its_folder_and_counts_nothing(objects: ObjectStore, tmp_path: Path) -> None:
    """The results of the tasks are larger than the driver may hold."""
    done = fold_by_command(objects, tmp_path, "local[1]", **{"spark.driver.maxResultSize": "1b"})
    assert done.returncode == 1
    assert f"{METRIC.name} {METRIC.digest[:12]} {TODAY}: failed: --engine spark: a job failed (" in done.stdout
    assert "Nothing was counted: run fold again" in done.stdout
    assert "Traceback" not in done.stderr
    require_uncounted(objects)
