"""Repeated ids: equal to a dictionary, in memory and in temporary files; and counting in several processes."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from hubbub.summary import summary_to_bytes
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.segments import engines, repeated_ids
from hubbub_aggregator.segments.counting import Counted
from hubbub_aggregator.segments.engines import ArrowEngine
from hubbub_aggregator.segments.object_store import MissingObjectError, ObjectStore
from hubbub_aggregator.segments.repeated_ids import KNOWN, Ints
from hubbub_aggregator.segments.segment_file import segment_to_bytes
from tests.aggregator.segments.test_folding import NARROW, WIDE, batch, fold_now, folder_of, one_by_one, put


def draw_blocks(rng: np.random.Generator) -> list[Ints]:
    """Rows whose ids agree in the first half, in the second, in both or in none; some are known."""
    rows = np.concatenate([rng.integers(0, 20, (600, 2)) * (1 << 40), np.arange(600)[:, None]], axis=1)
    rows[:100, 2] = KNOWN
    rows[rng.random(600) < 0.3, 0] += 1
    rows[100:] = rng.permutation(rows[100:])
    return np.split(rows, [100, 250, 250, 400])


def expected(blocks: list[Ints]) -> list[int]:
    first = dict[tuple[int, int], int]()
    rows = np.concatenate(blocks).tolist()
    for high, low, position in rows:
        first[high, low] = min(position, first.get((high, low), position))
    return sorted(position for high, low, position in rows if position not in (KNOWN, first[high, low]))


@pytest.mark.parametrize("most", [1, 300, 10_000])
def test_repeated_ids_are_those_of_a_dictionary(monkeypatch: pytest.MonkeyPatch, unseen_seed: int, most: int) -> None:
    monkeypatch.setattr(repeated_ids, "_MAX_ROWS_IN_MEMORY", most)
    for rng in np.random.default_rng(unseen_seed).spawn(5):
        blocks = draw_blocks(rng)
        assert ArrowEngine().repeated(iter(blocks)).tolist() == expected(blocks)
    assert ArrowEngine().repeated(iter([])).tolist() == []


def refuse() -> IO[bytes]:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full() -> IO[bytes]:
    return Path("/dev/full").open("wb")


@pytest.mark.parametrize("make", [refuse, full])
def test_full_disk_of_temporary_files_is_an_error_with_the_next_step(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], IO[bytes]]
) -> None:
    """So that `hubbub fold` names the folder and goes on with the others."""
    monkeypatch.setattr(repeated_ids, "_MAX_ROWS_IN_MEMORY", 100)
    monkeypatch.setattr(repeated_ids, "TemporaryFile", make)
    with pytest.raises(StoreError, match=r"No space left on device\. Nothing was counted: set TMPDIR"):
        ArrowEngine().repeated(draw_blocks(np.random.default_rng(0)))


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore.open(str(tmp_path / "segments"))


@pytest.fixture
def many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each segment is a part, and processes count from the first row on."""
    monkeypatch.setattr(engines, "_MIN_ROWS_FOR_PROCESSES", 0)
    monkeypatch.setattr(engines, "_MIN_ROWS_OF_PART", 1)
    monkeypatch.setattr(engines, "_MAX_ROWS_OF_PART", 1)


@pytest.mark.parametrize("metric", [WIDE, NARROW], ids=["bits", "patterns"])
def test_processes_count_the_same_bytes(objects: ObjectStore, many_parts: None, metric: Any) -> None:
    segments = [
        [batch(metric, number + step, [number, 3][: 1 + step % 2]) for number in range(8)] for step in (0, 5, 9)
    ]
    for number, segment in enumerate(segments):
        put(objects, metric, segment, str(number))
    folded = fold_now(objects, metric, ArrowEngine(processes=2))
    assert folded.summary is not None
    assert summary_to_bytes(folded.summary) == summary_to_bytes(one_by_one(metric, segments))
    assert (folded.num_batches, folded.num_repeated) == (17, 7)
    assert len([name for name in objects.names() if "/ids/" in name]) == 3
    assert fold_now(objects, metric, ArrowEngine()).num_segments == 0


def test_damaged_segment_in_a_process_is_named_and_no_id_file_stays(objects: ObjectStore, many_parts: None) -> None:
    put(objects, WIDE, [batch(WIDE, 1)], "a")
    objects.create(f"{folder_of(WIDE).path}/segments/b.parquet", segment_to_bytes([batch(NARROW, 2)]))
    with pytest.raises(StoreError, match=r"segments/b\.parquet"):
        fold_now(objects, WIDE, ArrowEngine(processes=2))
    assert not [name for name in objects.names() if "/segments/" not in name]


def end_by_signal(*_: Any) -> Counted:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


@pytest.mark.slow
def test_killed_process_fails_the_fold_and_the_next_counts_all(
    objects: ObjectStore, many_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = [[batch(WIDE, number + step) for number in range(4)] for step in (0, 2)]
    for number, segment in enumerate(segments):
        put(objects, WIDE, segment, str(number))
    with monkeypatch.context() as patch:
        patch.setattr(engines, "_count", end_by_signal)
        with pytest.raises(StoreError, match="a process that counts was killed"):
            fold_now(objects, WIDE, ArrowEngine(processes=2))
    assert fold_now(objects, WIDE, ArrowEngine(processes=2)).summary == one_by_one(WIDE, segments)


def test_cut_segment_is_named(objects: ObjectStore) -> None:
    objects.create(f"{folder_of(WIDE).path}/segments/b.parquet", segment_to_bytes([batch(WIDE, 2)])[:-7])
    with pytest.raises(StoreError, match=r"segments/b\.parquet: the segment is damaged"):
        fold_now(objects, WIDE)


def test_segment_that_another_fold_has_deleted_is_a_missing_object() -> None:
    """The fold then starts again; for another StoreError it fails."""

    def blocks() -> Iterator[Ints]:
        yield np.zeros((3, 3), np.int64)
        raise MissingObjectError("there is no object a")

    with pytest.raises(MissingObjectError):
        ArrowEngine().repeated(blocks())
