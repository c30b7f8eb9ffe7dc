"""Segments in a directory and on a real S3 server, from uploads to `hubbub decode`."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from hubbub import Batch, Definitions
from hubbub.cli import main
from hubbub.summary import BitCounts, read_summary
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.segments.engines import ArrowEngine
from hubbub_aggregator.segments.folding import fold_folder, folders
from hubbub_aggregator.segments.manifest import closed_name
from hubbub_aggregator.segments.object_store import MissingObjectError, ObjectStore
from hubbub_aggregator.segments.repeated_ids import known_rows, new_rows, per_segment
from hubbub_aggregator.segments.segment_file import SegmentFolder, segment_to_bytes
from hubbub_aggregator.segments.segment_store import open_segment_store
from hubbub_aggregator.store.interface import AppendResult
from hubbub_aggregator.store.sql_store import SqlStore
from tests.aggregator.conftest import DEFINITIONS, MakeBatch
from tests.support.s3_server import environment, s3_server

DAY = "2024-06-15"


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with s3_server() as url, pytest.MonkeyPatch.context() as patch:
        for name, value in environment(url).items():
            patch.setenv(name, value)
        yield "s3://bucket"


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.slow)])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """An empty object store, of each kind in turn."""
    if request.param == "directory":
        return ObjectStore.open(str(tmp_path / "segments"))
    return ObjectStore.open(f"{request.getfixturevalue('bucket')}/{uuid.uuid4()}")


@pytest.fixture
def store(objects: ObjectStore, tmp_path: Path) -> Iterator[SqlStore]:
    with closing(open_segment_store(tmp_path / "reports.db", objects, uuid.uuid4)) as opened:
        yield opened


def test_objects_are_created_once_and_never_changed(objects: ObjectStore) -> None:
    assert objects.create("a/b", b"first")
    assert not objects.create("a/b", b"second")
    assert objects.read("a/b") == b"first"
    assert list(objects.names("a")) == ["a/b"]
    objects.delete(["a/b", "a/c"])
    assert list(objects.names()) == []
    with pytest.raises(MissingObjectError, match="a/b"):
        objects.read("a/b")


def test_one_of_many_writers_of_one_name_wins(objects: ObjectStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda number: objects.create("folded/1", b"%d" % number), range(16)))
    assert sum(won) == 1
    assert objects.read("folded/1") == b"%d" % won.index(True)


def test_uploads_are_folded_once_and_decoded(
    store: SqlStore, objects: ObjectStore, definitions: Definitions, make_batch: MakeBatch
) -> None:
    homepage, carrier = definitions["homepage"], definitions["carrier"]
    first, second = make_batch(homepage, period=DAY), make_batch(homepage, period=DAY, n=5)
    assert store.append([first, second, make_batch(carrier, period=DAY)]) == [AppendResult.STORED] * 3
    assert store.append([first]) == [AppendResult.STORED]  # a retry: an upload cannot be found among the objects
    summaries = {}
    for folder in folders(objects):
        metric = next(metric for metric in definitions.versions() if metric.digest == folder.digest)
        summaries[folder.metric] = fold_folder(objects, folder, metric, ArrowEngine(), keep=False).summary
    assert summaries["homepage"] == BitCounts.from_rows(
        homepage, first.cohorts + second.cohorts, first.rows + second.rows, [DAY]
    )
    assert summaries["carrier"] is not None
    assert summaries["carrier"].num_reports == 3


def test_batches_stored_before_the_object_store_are_still_known(
    objects: ObjectStore, definitions: Definitions, make_batch: MakeBatch, tmp_path: Path
) -> None:
    """Their retries are answered 200 also when they would be refused now."""
    earlier, later = make_batch(definitions["homepage"], period=DAY), make_batch(definitions["homepage"], period=DAY)
    with closing(SqlStore.open(tmp_path / "reports.db")) as database:
        database.append([earlier])
    with closing(open_segment_store(tmp_path / "reports.db", objects, uuid.uuid4)) as store:
        store.append([later])
        assert (store.contains(earlier), store.contains(later)) == (True, False)


def test_closed_period_gets_no_segment(
    store: SqlStore, objects: ObjectStore, definitions: Definitions, make_batch: MakeBatch
) -> None:
    late: Batch = make_batch(definitions["homepage"], period=DAY)
    store.append([late])
    before = set(objects.names())
    store.close_period(definitions["homepage"], late.period)
    assert store.append([make_batch(definitions["homepage"], period=DAY)]) == [AppendResult.CLOSED]
    folder = SegmentFolder(late.metric, late.digest, late.period)
    assert set(objects.names()) == {*before, closed_name(folder.path)}


class GatedObjects(ObjectStore):
    """A directory whose segments are written when `gate` is set; `begun` is set when the first put waits."""

    gate: Event
    begun: Event

    def create(self, name: str, data: bytes) -> bool:
        if "/segments/" in name:
            self.begun.set()
            assert self.gate.wait(60)
        return super().create(name, data)


@pytest.fixture
def gated(tmp_path: Path) -> GatedObjects:
    objects = GatedObjects.open(str(tmp_path / "segments"))
    objects.gate, objects.begun = Event(), Event()
    return objects


def test_only_the_closing_of_a_period_waits_for_a_put(
    database: str, gated: GatedObjects, definitions: Definitions, make_batch: MakeBatch
) -> None:
    """Two processes share the database; one closes the period while the other puts its segment."""
    metric = definitions["homepage"]
    first, second = (open_segment_store(database, gated, uuid.uuid4) for _ in range(2))
    with closing(first), closing(second), ThreadPoolExecutor(2) as pool:
        gated.gate.set()
        first.append([make_batch(metric, period=DAY)])
        gated.gate.clear()
        gated.begun.clear()
        appended = pool.submit(first.append, [make_batch(metric, period=DAY)])
        assert gated.begun.wait(60)
        try:
            for store in (first, second):
                store.add_refusals({("homepage", "malformed"): 1})
            closed = pool.submit(second.close_period, metric, DAY)
            time.sleep(0.3)
            assert not closed.done()
            assert second.open_periods() == [(metric.digest, DAY)]
        finally:
            gated.gate.set()
        assert appended.result() == [AppendResult.STORED]
        closed.result()
        assert first.refusals() == {("homepage", "malformed"): 2}
        assert first.append([make_batch(metric, period=DAY)]) == [AppendResult.CLOSED]
    (folder,) = folders(gated)
    assert fold_folder(gated, folder, metric, ArrowEngine(), keep=False).num_batches == 2


def test_ids_of_a_closed_period_are_deleted_and_its_counts_stay(
    store: SqlStore, objects: ObjectStore, definitions: Definitions, make_batch: MakeBatch
) -> None:
    metric = definitions["homepage"]
    first, second, other = make_batch(metric, period=DAY), make_batch(metric, period=DAY), make_batch(metric)
    folder = SegmentFolder(metric.name, metric.digest, DAY)
    store.append([first])
    fold_folder(objects, folder, metric, ArrowEngine(), keep=False)
    store.append([first, second])
    store.close_period(metric, DAY)
    for _ in range(2):
        folded = fold_folder(objects, folder, metric, ArrowEngine(), keep=False)
        assert folded.summary is not None
        assert folded.summary.num_reports == len(first) + len(second)
    kept = [name.removeprefix(f"{folder.path}/").split("/")[0] for name in objects.names(folder.path)]
    assert set(kept) == {"closed", "folded", "summaries"}
    assert kept.count("summaries") == 1
    objects.create(f"{folder.path}/segments/late.parquet", segment_to_bytes([other]))
    with pytest.raises(StoreError, match="1 segments that came after the ids"):
        fold_folder(objects, folder, metric, ArrowEngine(), keep=False)


def test_period_whose_closing_was_interrupted_is_marked_after_a_restart(
    store: SqlStore,
    objects: ObjectStore,
    definitions: Definitions,
    make_batch: MakeBatch,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process ends between the mark in the database and the one in the object store."""
    metric = definitions["homepage"]
    store.append([make_batch(metric, period=DAY)])
    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "create", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            store.close_period(metric, DAY)
    monkeypatch.setattr(ObjectStore, "names", lambda *_: pytest.fail("the service lists the object store"))
    with closing(open_segment_store(tmp_path / "reports.db", objects, uuid.uuid4)) as again:
        assert again.half_closed_periods() == [(metric.digest, DAY)]
        again.close_period(metric, DAY)
        assert again.half_closed_periods() == []
    monkeypatch.undo()
    assert closed_name(SegmentFolder(metric.name, metric.digest, DAY).path) in set(objects.names())


def _interrupt(*_arguments: object) -> None:
    raise KeyboardInterrupt


def test_command_writes_summaries_that_decode_reads(
    store: SqlStore,
    objects: ObjectStore,
    definitions: Definitions,
    make_batch: MakeBatch,
    tmp_path: Path,
) -> None:
    store.append([make_batch(definitions["homepage"], period=DAY), make_batch(definitions["carrier"], period=DAY)])
    (tmp_path / "metrics.toml").write_text(DEFINITIONS)
    arguments = ["fold", str(tmp_path / "metrics.toml"), objects.place]
    done = CliRunner().invoke(main, [*arguments, "--out-dir", str(tmp_path / "out"), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert {(row["metric"], row["batches"], row["reports"]) for row in json.loads(done.stdout)} == {
        ("carrier", 1, 3),
        ("homepage", 1, 3),
    }
    assert sorted(read_summary(path).metric.name for path in (tmp_path / "out").iterdir()) == ["carrier", "homepage"]
    again = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert "3 reports; 0 segments folded now, 0 new batches, 0 repeated" in again.stdout


def test_command_names_a_digest_without_a_definition(
    store: SqlStore, objects: ObjectStore, definitions: Definitions, make_batch: MakeBatch, tmp_path: Path
) -> None:
    store.append([make_batch(definitions["homepage"], period=DAY)])
    (tmp_path / "metrics.toml").write_text(DEFINITIONS.replace("num_bits = 20", "num_bits = 24"))
    done = CliRunner().invoke(main, ["fold", str(tmp_path / "metrics.toml"), objects.place])
    assert done.exit_code == 1
    assert "has no definition with this digest: add this version of the metric" in done.stderr
    assert [name for name in objects.names() if "/segments/" in name]


def test_command_folds_the_other_folders_if_a_summary_is_damaged(
    store: SqlStore, objects: ObjectStore, definitions: Definitions, make_batch: MakeBatch, tmp_path: Path
) -> None:
    (tmp_path / "metrics.toml").write_text(DEFINITIONS)
    arguments = ["fold", str(tmp_path / "metrics.toml"), objects.place]
    for status in (0, 1):
        store.append([make_batch(definitions[name], period=DAY) for name in ("carrier", "homepage")])
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == status, done.exception
        summary = next(name for name in objects.names() if "metric=carrier" in name and "/summaries/" in name)
        objects.delete([summary])
        objects.create(summary, b"damaged")
    first, second = done.stdout.splitlines()
    assert first.startswith("carrier ")
    assert "failed: " in first
    assert "6 reports; 1 segments folded now" in second


def test_command_writes_figures_for_prometheus(
    store: SqlStore, objects: ObjectStore, definitions: Definitions, make_batch: MakeBatch, tmp_path: Path
) -> None:
    batch = make_batch(definitions["homepage"], period=DAY)
    store.append([batch, make_batch(definitions["carrier"], period=DAY)])
    store.append([batch])
    (tmp_path / "metrics.toml").write_text("[[metric]]".join(DEFINITIONS.split("[[metric]]")[:2]))
    file = tmp_path / "fold.prom"
    arguments = ["fold", str(tmp_path / "metrics.toml"), objects.place, "--prometheus-textfile"]
    assert CliRunner().invoke(main, [*arguments, str(file)]).exit_code == 1
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(file.read_text())
        for sample in family.samples
    }
    assert abs(time.time() - samples.pop(("hubbub_fold_end_timestamp_seconds",))) < 600
    assert samples.pop(("hubbub_fold_duration_seconds",)) > 0
    assert samples == {
        ("hubbub_fold_segments",): 2,
        ("hubbub_fold_batches",): 1,
        ("hubbub_fold_repeated_batches",): 1,
        ("hubbub_fold_folders", "folded"): 1,
        ("hubbub_fold_folders", "failed"): 1,
    }
    missing = CliRunner().invoke(main, [*arguments, str(tmp_path / "none" / "fold.prom")])
    assert missing.exit_code == 1
    assert "create the directory" in missing.stderr


def test_places_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="name a directory, or s3://bucket/prefix"):
        ObjectStore.open("https://example.org/reports")
    with pytest.raises(StoreError, match="file"):
        ObjectStore.open(str(tmp_path / "file")).create("a", b"")


def test_failing_object_store_fails_the_append(
    store: SqlStore, objects: ObjectStore, definitions: Definitions, make_batch: MakeBatch, tmp_path: Path
) -> None:
    if "://" in objects.place:
        pytest.skip("a directory only")
    store.append([make_batch(definitions["homepage"], period=DAY)])
    for path in list((tmp_path / "segments").rglob("segments")):
        path.rename(f"{path}.away")
        path.touch()
    with pytest.raises(StoreError):
        store.append([make_batch(definitions["homepage"], period=DAY)])


def test_repeated_ids_among_a_million_are_found() -> None:
    """A million ids in 100 segments, a tenth of them repeated."""
    import numpy as np
    import pyarrow as pa

    rng = np.random.default_rng(1)
    ids = rng.integers(0, 1 << 62, (100, 10_000, 2))
    ids[1:, :1_000] = ids[:-1, -1_000:]
    segments = [
        pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), 10_000, [None, pa.py_buffer(segment_ids)])
        for segment_ids in ids
    ]
    blocks = [known_rows(segments[0]), *(new_rows(number, segment) for number, segment in enumerate(segments))]
    found = per_segment(ArrowEngine().repeated(iter(blocks)), range(100))
    assert [repeated.tolist() for repeated in found] == [list(range(10_000)), *[list(range(1_000))] * 99]
