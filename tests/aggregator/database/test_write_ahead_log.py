"""The last frame that the index knows is the last one of the log after a commit, and never beyond the log."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from hubbub_aggregator.database.write_ahead_log import LastFrame, find_descriptor, identity_of, read_last_frame


@contextmanager
def filled(file: Path, page: int = 4_096) -> Iterator[sqlite3.Connection]:
    """Yield a connection to a database with several commits in its log."""
    with closing(sqlite3.connect(file, check_same_thread=False)) as connection:
        for pragma in (f"page_size = {page}", "journal_mode = WAL", "synchronous = OFF", "wal_autocheckpoint = 0"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, data BLOB)")
        for number in range(15):
            connection.execute("INSERT INTO t (data) VALUES (?)", (os.urandom(number * page // 7),))
            connection.commit()
        yield connection


def index_of(file: Path) -> int:
    """Return SQLite's own descriptor of the index."""
    found = find_descriptor(identity_of(Path(f"{file}-shm")) or (0, 0))
    assert found is not None
    return found


def last_frame(file: Path) -> LastFrame:
    found = read_last_frame(index_of(file))
    assert found is not None
    return found


@pytest.mark.parametrize("page", [512, 4_096, 65_536])
def test_last_frame_is_that_of_the_last_commit(tmp_path: Path, page: int) -> None:
    file, log = tmp_path / "x.db", tmp_path / "x.db-wal"
    with filled(file, page) as connection:
        for _ in range(10):
            connection.execute("INSERT INTO t (data) VALUES (?)", (os.urandom(3 * page),))
            connection.commit()
            frame = last_frame(file)
            assert frame.is_in(log)
            assert frame.end == log.stat().st_size
        os.truncate(log, frame.end - page - 20)
        assert not frame.is_in(log)
        os.truncate(log, frame.end)
        assert not frame.is_in(log), "a hole"


def test_checkpoint_leaves_no_frame(tmp_path: Path) -> None:
    with filled(tmp_path / "x.db") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert read_last_frame(index_of(tmp_path / "x.db")) is None


def test_index_whose_header_sqlite_will_rebuild_has_no_frame(tmp_path: Path) -> None:
    with filled(tmp_path / "x.db") as connection:
        frame = last_frame(tmp_path / "x.db")
        os.pwrite(index_of(tmp_path / "x.db"), bytes(136), 0)
        assert read_last_frame(index_of(tmp_path / "x.db")) is None
        assert connection.execute("PRAGMA quick_check").fetchone() == ("ok",)
        assert last_frame(tmp_path / "x.db") == frame


def test_last_frame_is_in_the_log_during_commits_rollbacks_and_checkpoints(tmp_path: Path, unseen_seed: int) -> None:
    """Unless the log has begun anew in the meantime."""
    rng, file, over = random.Random(unseen_seed), tmp_path / "x.db", threading.Event()  # noqa: S311
    done = compared = 0

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

    with filled(file):
        index = index_of(file)
        thread = threading.Thread(target=write)
        thread.start()
        try:
            while done < 200:
                frame = read_last_frame(index)
                if frame is None or frame.is_in(Path(f"{file}-wal")):
                    compared += frame is not None
                else:
                    after = read_last_frame(index)
                    assert after is None or after.salt != frame.salt
        finally:
            over.set()
            thread.join()
    assert compared > 0
