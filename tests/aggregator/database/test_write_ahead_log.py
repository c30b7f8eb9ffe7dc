"""The comparison of a write-ahead log with its index agrees with SQLite's own recovery."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from hubbub_aggregator.database.write_ahead_log import (
    IndexHeader,
    find_descriptor,
    find_log_damage,
    identity_of,
    read_index_header,
)

FRAMES_OF_THREE_BLOCKS = 9_000


@contextmanager
def filled(file: Path, frames: int, page: int = 4_096) -> Iterator[sqlite3.Connection]:
    """Yield a connection to a database with at least this many frames in its log, of several commits."""
    with closing(sqlite3.connect(file, check_same_thread=False)) as connection:
        for pragma in (f"page_size = {page}", "journal_mode = WAL", "synchronous = OFF", "wal_autocheckpoint = 0"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, data BLOB)")
        while header(file).num_frames < frames:
            rows = [(os.urandom(number * page // 7),) for number in range(15)]
            connection.executemany("INSERT INTO t (data) VALUES (?)", rows * (1 + frames // 1_000))
            connection.commit()
        yield connection


def descriptors(file: Path) -> tuple[int, int]:
    """Return SQLite's own descriptors of the log and of its index."""
    found = [find_descriptor(identity_of(Path(f"{file}{suffix}")) or (0, 0)) for suffix in ("-wal", "-shm")]
    assert found[0] is not None
    assert found[1] is not None
    return found[0], found[1]


def header(file: Path) -> IndexHeader:
    found = read_index_header(descriptors(file)[1])
    assert found is not None
    return found


def recovered_rows(file: Path, there: Path) -> int:
    """Return the number of rows after SQLite has recovered copies of the file and its log, without the index."""
    shutil.rmtree(there, ignore_errors=True)
    there.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{file}{suffix}", there / f"copy{suffix}")
    with closing(sqlite3.connect(there / "copy")) as connection:
        try:
            return int(connection.execute("SELECT count(*) FROM t").fetchone()[0])
        except sqlite3.DatabaseError:
            return 0


@pytest.mark.parametrize(("page", "frames"), [(512, 300), (4_096, 100), (65_536, 40)])
def test_log_is_damaged_if_and_only_if_sqlite_does_not_recover_all_of_it(
    tmp_path: Path, unseen_seed: int, page: int, frames: int
) -> None:
    """Any changed byte, in any field of the header and of a frame; beyond the last commit, a byte has no effect."""
    rng, file = random.Random(unseen_seed), tmp_path / "x.db"  # noqa: S311
    with filled(file, frames, page) as connection:
        rows = connection.execute("SELECT count(*) FROM t").fetchone()[0]
        log, index = descriptors(file)
        assert find_log_damage(log, index) is None
        end = header(file).log_bytes
        assert Path(f"{file}-wal").stat().st_size == end
        with Path(f"{file}-wal").open("r+b", buffering=0) as opened:
            opened.seek(end)
            opened.write(rng.randbytes(page))  # as of a transaction that was not committed
            frame = 32 + (24 + page) * rng.randrange(1, frames)
            for position in (*range(32), *range(frame, frame + 26), *(rng.randrange(end + page) for _ in range(40))):
                opened.seek(position)
                was = opened.read(1)
                opened.seek(position)
                opened.write(bytes([was[0] ^ rng.randrange(1, 256)]))
                is_recovered = recovered_rows(file, tmp_path / "copy") == rows
                assert (find_log_damage(log, index) is None) == is_recovered == (position >= end), position
                opened.seek(position)
                opened.write(was)
        assert find_log_damage(log, index) is None
        os.truncate(f"{file}-wal", end - 1)
        assert "it ends before frame" in str(find_log_damage(log, index))


def test_changed_page_number_or_slot_of_the_index_is_damage(tmp_path: Path, unseen_seed: int) -> None:
    """In each of three blocks of 4,096 frames; SQLite would read another page, and has no checksum of these bytes."""
    rng, file = random.Random(unseen_seed), tmp_path / "x.db"  # noqa: S311
    with filled(file, FRAMES_OF_THREE_BLOCKS):
        log, index = descriptors(file)
        assert find_log_damage(log, index) is None
        frames = header(file).num_frames
        for block, start, num in ((0, 136, 4_062), (1, 0, 4_096), (2, 0, frames - 8_158)):
            tables = os.pread(index, 32_768, block * 32_768)
            taken = [2 * slot for slot in range(8_192) if tables[16_384 + 2 * slot : 16_386 + 2 * slot] != b"\0\0"]
            places = [start + rng.randrange(4 * num) for _ in range(5)] + [16_384 + rng.choice(taken) for _ in range(5)]
            for place in places:
                os.pwrite(index, bytes([tables[place] ^ rng.randrange(1, 256)]), block * 32_768 + place)
                assert f"the index of the frames {max(1, block * 4_096 - 33)} to" in str(find_log_damage(log, index))
                os.pwrite(index, tables[place : place + 1], block * 32_768 + place)
        assert find_log_damage(log, index) is None


def test_index_whose_header_sqlite_will_rebuild_is_no_damage(tmp_path: Path) -> None:
    with filled(tmp_path / "x.db", 20) as connection:
        log, index = descriptors(tmp_path / "x.db")
        os.pwrite(index, bytes(136), 0)
        assert find_log_damage(log, index) is None
        assert connection.execute("PRAGMA quick_check").fetchone() == ("ok",)
        assert header(tmp_path / "x.db").num_frames >= 20
        assert find_log_damage(log, index) is None


def test_commits_rollbacks_and_checkpoints_are_no_damage(tmp_path: Path, unseen_seed: int) -> None:
    """A transaction larger than the cache leaves frames in the log when it is rolled back."""
    rng, file, over = random.Random(unseen_seed), tmp_path / "x.db", threading.Event()  # noqa: S311
    done = 0

    def write() -> None:
        nonlocal done
        with closing(sqlite3.connect(file)) as writer:
            for pragma in ("synchronous = OFF", "cache_size = 10", "wal_autocheckpoint = 50"):
                writer.execute(f"PRAGMA {pragma}")
            while not over.is_set():
                for _ in range(rng.choice((1, 50))):
                    writer.execute("INSERT INTO t (data) VALUES (?)", (rng.randbytes(rng.randrange(9_000)),))
                if rng.random() < 0.3:
                    writer.rollback()
                else:
                    writer.commit()
                if rng.random() < 0.2:
                    writer.execute(f"PRAGMA wal_checkpoint({rng.choice(['PASSIVE', 'RESTART', 'TRUNCATE'])})")
                done += 1

    with filled(file, 5):
        log, index = descriptors(file)
        thread = threading.Thread(target=write)
        thread.start()
        try:
            while done < 200:
                assert find_log_damage(log, index) is None
        finally:
            over.set()
            thread.join()
