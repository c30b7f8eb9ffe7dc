"""Folding of segments: every engine counts each batch once, whatever segments it stands in, and however the fold is interrupted."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import replace
from functools import reduce
from itertools import count, product
from operator import add
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub import Batch, Metric, Params
from hubbub.summary import Summary, summary_to_bytes
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.pipeline.folding import fold, read_summary, summary_type
from hubbub_aggregator.segments import engines
from hubbub_aggregator.segments.engines import ArrowEngine, Engine
from hubbub_aggregator.segments.folding import Folded, fold_folder, folders
from hubbub_aggregator.segments.manifest import Manifest, closed_name
from hubbub_aggregator.segments.object_store import ObjectStore
from hubbub_aggregator.segments.segment_file import SegmentFolder, batch_ids, segment_to_bytes
from hubbub_aggregator.store.sql_store import SqlStore
from tests.support.databases import new_postgres

DAY = "2024-06-15"
WIDE = Metric.string("wide", Params(num_bits=19, num_hashes=2, num_cohorts=4, prob_p=0.25, prob_q=0.75, prob_f=0.5))
NARROW = Metric.string("narrow", Params(num_bits=9, num_hashes=2, num_cohorts=2, prob_p=0.25, prob_q=0.75, prob_f=0.5))
ARROW = ArrowEngine()


def batch(metric: Metric, number: int, bits: Iterable[int] = (1, 3)) -> Batch:
    width = metric.row_bytes
    rows = [value.to_bytes(width, "little") for value in bits]
    cohorts = bytes(number % metric.num_cohorts for _ in rows)
    return Batch(uuid.UUID(int=number, version=4), metric.name, metric.digest, DAY, cohorts, b"".join(rows))


def folder_of(metric: Metric) -> SegmentFolder:
    return SegmentFolder(metric.name, metric.digest, DAY)


def put(objects: ObjectStore, metric: Metric, batches: Iterable[Batch], name: str) -> None:
    assert objects.create(f"{folder_of(metric).path}/segments/{name}.parquet", segment_to_bytes(batches))


def fold_now(objects: ObjectStore, metric: Metric, engine: Engine = ARROW, *, keep: bool | None = True) -> Folded:
    return fold_folder(objects, folder_of(metric), metric, engine, keep=keep)


def one_by_one(metric: Metric, segments: Iterable[list[Batch]]) -> Summary:
    """Sum of the batches in the order of the segments, each id once: the expected result, without arrays of ids."""
    seen = set[uuid.UUID]()
    total: Summary = summary_type(metric).empty(metric)
    for segment in segments:
        for stored in sorted(segment, key=lambda one: one.batch_id.bytes):
            if stored.batch_id not in seen:
                seen.add(stored.batch_id)
                total = total + summary_type(metric).from_rows(metric, stored.cohorts, stored.rows, [DAY])  # type: ignore[operator]
    return total


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore.open(str(tmp_path / "segments"))


@pytest.mark.parametrize("keeps", list(product((None, True, False), repeat=3)), ids=str)
def test_kept_segments_are_deleted_only_when_asked_for(objects: ObjectStore, keeps: tuple[bool | None, ...]) -> None:
    """Runs with --keep-segments, with --delete-segments and without both, in every order, each repeated without new segments."""
    kept = set[str]()
    for number, keep in enumerate(keeps):
        put(objects, WIDE, [batch(WIDE, number, [number])], f"{number:04}")
        kept = set() if keep is False else kept | {f"{number:04}.parquet"} if keep else kept
        for _ in range(2):
            folded = fold_now(objects, WIDE, keep=keep)
            stored = {name.rpartition("/")[2] for name in objects.names(f"{folder_of(WIDE).path}/segments")}
            assert stored == kept
            assert folded.num_kept == len(kept)
    assert folded.summary is not None
    assert folded.summary.num_reports == len(keeps)


def test_segments_that_an_earlier_version_kept_stay(objects: ObjectStore, tmp_path: Path) -> None:
    """Its manifests do not say which segments are kept."""
    put(objects, WIDE, [batch(WIDE, 0)], "0000")
    fold_now(objects, WIDE, keep=True)
    (manifest,) = (tmp_path / "segments").rglob("folded/*.json")
    about = json.loads(manifest.read_bytes())
    del about["kept"]
    manifest.write_text(json.dumps(about))
    put(objects, WIDE, [batch(WIDE, 1)], "0001")
    assert fold_now(objects, WIDE, keep=None).num_kept == 1
    assert [*map(Path, objects.names(f"{folder_of(WIDE).path}/segments"))] == [
        Path(f"{folder_of(WIDE).path}/segments/0000.parquet")
    ]


@pytest.mark.slow
@settings(max_examples=40)
@given(
    st.sampled_from([WIDE, NARROW]),
    st.lists(
        st.lists(st.tuples(st.integers(0, 12), st.lists(st.integers(0, 511), min_size=1, max_size=3)), max_size=5),
        max_size=5,
    ),
    st.integers(0, 5),
)
def test_each_batch_counts_once(
    tmp_path_factory: pytest.TempPathFactory,
    postgres_url: str,
    metric: Metric,
    drawn: list[list[tuple[int, list[int]]]],
    first: int,
) -> None:
    """Segments with repeated ids, some with other reports, and empty ones; folded in one step, in two steps, and by databases."""
    segments = [list({number: batch(metric, number, bits) for number, bits in segment}.values()) for segment in drawn]
    expected = summary_to_bytes(one_by_one(metric, segments))
    for cut in (0, first):
        objects = ObjectStore.open(str(tmp_path_factory.mktemp("segments")))
        for number, segment in enumerate(segments):
            if number == cut:
                fold_now(objects, metric)
            put(objects, metric, segment, f"{number:04}")
        found = fold_now(objects, metric).summary
        assert summary_to_bytes(found or summary_type(metric).empty(metric)) == expected
    unequal = {stored.batch_id for segment in segments for stored in segment if stored not in one_of_each(segments)}
    if not unequal:
        for database in (tmp_path_factory.mktemp("database") / "reports.db", new_postgres(postgres_url)):
            with closing(SqlStore.open(database)) as store:
                for segment in segments:
                    store.append(segment)
                fold(store, metric)
                assert summary_to_bytes(read_summary(store, metric)) == expected


def one_of_each(segments: Iterable[list[Batch]]) -> list[Batch]:
    found: dict[uuid.UUID, Batch] = {}
    for segment in segments:
        for stored in segment:
            found.setdefault(stored.batch_id, stored)
    return list(found.values())


def test_first_of_several_rows_with_one_id_counts(objects: ObjectStore) -> None:
    put(objects, WIDE, [batch(WIDE, 1, [1]), batch(WIDE, 2, [7, 7])], "a")
    put(objects, WIDE, [batch(WIDE, 1, [2, 2])], "b")
    folded = fold_now(objects, WIDE)
    assert (folded.num_segments, folded.num_batches, folded.num_repeated) == (2, 2, 1)
    assert folded.summary == one_by_one(WIDE, [[batch(WIDE, 1, [1]), batch(WIDE, 2, [7, 7])]])


def test_fold_without_new_segments_changes_no_byte(objects: ObjectStore) -> None:
    put(objects, WIDE, [batch(WIDE, 1)], "a")
    fold_now(objects, WIDE)
    before = {name: objects.read(name) for name in objects.names()}
    again = fold_now(objects, WIDE)
    assert (again.num_segments, again.num_batches) == (0, 0)
    assert {name: objects.read(name) for name in objects.names()} == before


def test_batch_that_is_sent_again_after_its_segment_was_deleted_counts_once(objects: ObjectStore) -> None:
    put(objects, WIDE, [batch(WIDE, 1)], "a")
    fold_now(objects, WIDE, keep=False)
    assert not [name for name in objects.names() if "/segments/" in name]
    put(objects, WIDE, [batch(WIDE, 1), batch(WIDE, 2)], "b")
    folded = fold_now(objects, WIDE, keep=False)
    assert (folded.num_batches, folded.num_repeated) == (1, 1)
    assert folded.summary is not None
    assert folded.summary.num_reports == 4


def end_at_step(patch: pytest.MonkeyPatch, step: int) -> None:
    """Raise KeyboardInterrupt in place of the write or deletion number `step`."""
    calls = count(1)

    def ending(method: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object) -> object:
            if next(calls) == step:
                raise KeyboardInterrupt
            return method(*args)

        return call

    for name in ("create", "delete"):
        patch.setattr(ObjectStore, name, ending(getattr(ObjectStore, name)))


@pytest.mark.parametrize("step", range(1, 8))
def test_fold_that_is_interrupted_at_any_write_loses_and_repeats_nothing(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """The process ends before its write or deletion number `step`; the next fold completes the work."""
    for number, name in enumerate("ab"):
        put(objects, WIDE, [batch(WIDE, number), batch(WIDE, 7)], name)
        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            end_at_step(patch, step)
            fold_now(objects, WIDE, keep=False)
        folded = fold_now(objects, WIDE, keep=False)
        assert folded.summary is not None
        assert folded.summary.num_reports == 2 * (number + 2)
        assert not [name for name in objects.names() if "/segments/" in name]


@pytest.mark.parametrize("step", range(1, 10))
def test_fold_of_a_closed_period_may_be_interrupted_at_any_write(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    put(objects, WIDE, [batch(WIDE, 0), batch(WIDE, 7)], "a")
    fold_now(objects, WIDE, keep=False)
    put(objects, WIDE, [batch(WIDE, 1), batch(WIDE, 7)], "b")
    objects.create(closed_name(folder_of(WIDE).path), b"closed")
    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        end_at_step(patch, step)
        fold_now(objects, WIDE, keep=False)
    folded = fold_now(objects, WIDE, keep=False)
    assert folded.summary is not None
    assert folded.summary.closed
    assert folded.summary.num_reports == 2 * 3
    kinds = [name.split("/")[-2] for name in objects.names()]
    assert set(kinds) == {"closed", "folded", "summaries"}
    assert kinds.count("summaries") == 1


def test_summary_is_closed_once_all_segments_before_the_mark_are_counted(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubbub_aggregator.segments.folding._MAX_SEGMENTS_PER_FOLD", 2)
    closed = list[bool]()
    for number in range(4):
        put(objects, WIDE, [batch(WIDE, number)], f"{number}")
        put(objects, WIDE, [batch(WIDE, number + 10)], f"{number} too")
        if number == 3:
            objects.create(closed_name(folder_of(WIDE).path), b"closed")
        if number != 2:
            summary = fold_now(objects, WIDE, keep=None).summary
            assert summary is not None
            closed.append(summary.closed)
    assert closed == [False, False, True]


def test_fold_that_is_overtaken_starts_again(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another fold counts the same segment and a new one while this one counts."""
    put(objects, WIDE, [batch(WIDE, 1)], "a")
    overtaken = list[str]()

    def overtake(name: str, data: bytes) -> object:
        if not overtaken:
            overtaken.append(name)
            put(objects, WIDE, [batch(WIDE, 2)], "b")
            fold_now(objects, WIDE, keep=False)
        return batch_ids(name, data)

    monkeypatch.setattr(engines, "batch_ids", overtake)
    folded = fold_now(objects, WIDE, keep=False)
    assert folded.summary == one_by_one(WIDE, [[batch(WIDE, 1), batch(WIDE, 2)]])
    used = {name for name in objects.names() if "/segments/" not in name and "/folded/" not in name}
    newest = Manifest.from_bytes(name := max(n for n in objects.names() if "/folded/" in n), objects.read(name))
    assert used == {*newest.ids, newest.summary}  # the overtaken fold has removed its own


@pytest.mark.parametrize("damage", ["cut", "empty", "other columns", "other width", "other cohorts"])
def test_damaged_segment_is_named_and_nothing_is_counted(objects: ObjectStore, damage: str) -> None:
    put(objects, WIDE, [batch(WIDE, 1)], "a")
    whole = segment_to_bytes([batch(WIDE, 2)])
    bytes_of = {
        "cut": whole[:-7],
        "empty": b"",
        "other columns": summary_to_bytes(summary_type(WIDE).empty(WIDE)),
        "other width": segment_to_bytes([batch(NARROW, 2)]),
        "other cohorts": segment_to_bytes([replace(batch(WIDE, 2), cohorts=bytes([0, WIDE.params.num_cohorts]))]),
    }
    name = f"{folder_of(WIDE).path}/segments/b.parquet"
    objects.create(name, bytes_of[damage])
    with pytest.raises(StoreError, match=r"segments/b\.parquet"):
        fold_now(objects, WIDE)
    assert not [name for name in objects.names() if "/segments/" not in name]


def test_folders_are_those_of_segments_alone(objects: ObjectStore) -> None:
    put(objects, WIDE, [batch(WIDE, 1)], "a")
    put(objects, NARROW, [batch(NARROW, 1)], "a")
    objects.create("notes.txt", b"")
    assert folders(objects) == [folder_of(NARROW), folder_of(WIDE)]


def test_summaries_of_parts_add_up_to_the_fold_of_all(tmp_path: Path) -> None:
    segments = [[batch(WIDE, number, [number, 3])] for number in range(6)]
    parts = []
    for name, some in (("a", segments[:2]), ("b", segments[2:])):
        objects = ObjectStore.open(str(tmp_path / name))
        for number, segment in enumerate(some):
            put(objects, WIDE, segment, str(number))
        parts.append(fold_now(objects, WIDE).summary)
    assert reduce(add, parts) == one_by_one(WIDE, segments)
