"""Files of a SQLite database that are truncated or overwritten while they are served: nothing is acknowledged, nothing destroyed."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import urllib3

from hubbub import Definitions
from hubbub_aggregator.database.engine import served_files
from hubbub_aggregator.database.integrity import FileCheck
from hubbub_aggregator.errors import FilesInDoubtError, StoreError
from hubbub_aggregator.pipeline.folding import fold
from hubbub_aggregator.store.sql_store import SqlStore
from tests.aggregator.conftest import DEFINITIONS
from tests.stress.served_damage_matrix import cases
from tests.support.free_ports import free_ports
from tests.support.paths import REPOSITORY

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch

pytestmark = pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")  # reported since Python 3.13


@pytest.fixture(autouse=True)
def _collect_open_connections() -> Iterator[None]:
    """Collect the connections that a damaged database leaves open, before another test is blamed for them."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


PAGE = 4_096
SUFFIXES = ("", "-wal", "-shm")


@pytest.fixture
def filled(tmp_path: Path, definitions: Definitions, make_batch: MakeBatch) -> SqlStore:
    """A store with pages in the database file and in the `-wal`. It is not closed: a damaged one cannot be."""
    store = SqlStore.open(tmp_path / "reports.db")
    store.append([make_batch(definitions["homepage"], n=2_000) for _ in range(20)])
    fold(store, definitions["homepage"])
    store.append([make_batch(definitions["homepage"])])
    store._truncate_wal()
    store.append([make_batch(definitions["carrier"], n=2_000) for _ in range(2)])
    return store


def contents(place: Path) -> dict[str, bytes]:
    return {suffix: Path(f"{place / 'reports.db'}{suffix}").read_bytes() for suffix in ("", "-wal")}


def write(file: Path, position: int, data: bytes) -> None:
    with file.open("r+b", buffering=0) as opened:
        opened.seek(position)
        opened.write(data)


@pytest.mark.parametrize(("suffix", "size"), [("", 0), ("", 5 * PAGE), ("-wal", 0), ("-wal", 5_000)])
def test_truncated_file_is_detected_by_the_next_transaction(
    filled: SqlStore,
    tmp_path: Path,
    definitions: Definitions,
    make_batch: MakeBatch,
    caplog: pytest.LogCaptureFixture,
    suffix: str,
    size: int,
) -> None:
    """80 of 80 batches were acknowledged and lost; closing wrote a hole in the log over 18,000 reports."""
    os.truncate(tmp_path / f"reports.db{suffix}", size)
    before = contents(tmp_path)
    for _ in range(3):
        with pytest.raises(FilesInDoubtError, match=f"truncated while it is open: it has {size} bytes"):
            filled.append([make_batch(definitions["homepage"])])
    for refused in (filled.require_intact, filled.check_files, filled._truncate_wal, filled.close):
        with pytest.raises(FilesInDoubtError):
            refused()
    assert contents(tmp_path) == before
    (logged,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert logged.startswith(f"{tmp_path / 'reports.db'}{suffix} was truncated")
    assert "leaves the files as they are" in logged


def is_damaged_after_a_restart(place: Path, there: Path) -> bool:
    """Return whether SQLite finds damage in copies of the database file and its log."""
    there.mkdir()
    for suffix, data in contents(place).items():
        (there / f"copy{suffix}").write_bytes(data)
    with closing(sqlite3.connect(there / "copy")) as connection:
        try:
            return bool(connection.execute("PRAGMA quick_check").fetchone() != ("ok",))
        except sqlite3.DatabaseError:
            return True


def test_check_finds_the_overwritten_pages_that_a_restart_would_find(filled: SqlStore, tmp_path: Path) -> None:
    """Also pages that the service has in memory. Not pages that are in the log, or have nothing but bytes of reports."""
    file = tmp_path / "reports.db"
    pages = [file.read_bytes()[start:][:PAGE] for start in range(0, file.stat().st_size, PAGE)]
    found = []
    for number, page in enumerate(pages):
        with closing(SqlStore.open(file)) as other:
            check = FileCheck(other._engine, lambda: 0.0)
            check.run()
            write(file, number * PAGE, os.urandom(PAGE))
            try:
                check.run()
            except FilesInDoubtError:
                found.append(number)
            assert is_damaged_after_a_restart(tmp_path, tmp_path / str(number)) == (number in found)
            write(file, number * PAGE, page)
            files = served_files(other._engine)
            assert files is not None
            files._damage = None  # it can be closed again
    assert len(found) >= 10


def test_overwritten_frame_of_the_log_is_found_by_the_check(filled: SqlStore, tmp_path: Path) -> None:
    write(tmp_path / "reports.db-wal", 32 + 24 + 100, os.urandom(8))
    with pytest.raises(FilesInDoubtError, match=r"frame 1 of \d+ has a wrong checksum"):
        filled.check_files()
    with pytest.raises(FilesInDoubtError):
        filled.close()


def test_overwritten_log_is_not_written_into_the_database_when_it_is_closed_at_once(
    filled: SqlStore, tmp_path: Path
) -> None:
    write(tmp_path / "reports.db-wal", 32 + 24 + 100, os.urandom(8))
    before = contents(tmp_path)
    with pytest.raises(FilesInDoubtError):
        filled.close()
    assert contents(tmp_path) == before


def test_removed_index_leaves_the_log_to_the_next_start(
    filled: SqlStore, tmp_path: Path, definitions: Definitions, make_batch: MakeBatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another process may have opened the database with a new index, and have written to the log."""
    (tmp_path / "reports.db-shm").unlink()
    with pytest.raises(FilesInDoubtError):
        filled.append([make_batch(definitions["homepage"])])
    before = contents(tmp_path)
    with pytest.raises(FilesInDoubtError):
        filled.close()
    assert contents(tmp_path) == before
    assert "Restart the service" in caplog.text


def test_check_reads_pages_for_a_tenth_of_the_time_and_only_after_a_change(
    filled: SqlStore, definitions: Definitions, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, reads = 0.0, 0

    def read(_database: str) -> list[str]:
        nonlocal now, reads
        now, reads = now + 1.0, reads + 1
        return []

    monkeypatch.setattr(FileCheck, "_page_damage", staticmethod(read))
    check = FileCheck(filled._engine, lambda: now)
    check.run()
    now += 100
    check.run()
    assert reads == 1, "the files have not changed"
    for _ in range(90):
        filled.append([make_batch(definitions["homepage"])])
        check.run()
        now += 1.0
    assert reads == 1 + 10
    assert now == 101 + 90 + 10


@pytest.mark.parametrize("is_found", [False, True], ids=["missing", "replaced"])
def test_file_that_is_moved_during_the_check_is_not_damaged(
    filled: SqlStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_found: bool
) -> None:
    file, away = tmp_path / "reports.db", tmp_path / "away.db"

    def move(_database: str) -> list[str]:
        file.rename(away)
        if is_found:
            return ["the pages of another file"]
        raise StoreError("the file does not exist")

    monkeypatch.setattr(FileCheck, "_page_damage", staticmethod(move))
    with pytest.raises(FilesInDoubtError, match="was removed, renamed, replaced"):
        FileCheck(filled._engine).run()
    away.rename(file)
    filled.require_intact()
    filled.close()


@pytest.mark.slow
def test_service_with_a_truncated_log_ends_with_1_and_leaves_the_files(
    tmp_path: Path, definitions: Definitions, make_batch: MakeBatch
) -> None:
    (tmp_path / "metrics.toml").write_text(DEFINITIONS)
    (port,) = free_ports(1)
    program = Path(sys.executable).with_name("hubbub")
    command: list[str | Path] = [program, "serve", tmp_path / "metrics.toml", "--port", str(port), "--create"]
    command += ["--database", tmp_path / "reports.db"]
    service = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        assert service.stderr is not None
        while "is listening" not in service.stderr.readline():
            assert service.poll() is None
        url = f"http://127.0.0.1:{port}/readyz"
        assert urllib3.request("GET", url, retries=False).status == 200
        os.truncate(tmp_path / "reports.db-wal", 5_000)
        before = contents(tmp_path)
        assert urllib3.request("GET", url, retries=False).status == 503
        service.send_signal(signal.SIGTERM)
        _, log = service.communicate(timeout=15)
    finally:
        with suppress(ProcessLookupError):
            service.kill()
        service.wait()
    assert service.returncode == 1
    assert contents(tmp_path) == before
    assert "leaves the database files as they are" in log.splitlines()[-1]
    assert "Traceback" not in log


def test_cases_of_the_matrix_are_all_combinations() -> None:
    named = {(damage, suffix, ends) for damage, suffix, ends, _ in cases(40, 7) if damage}
    assert len(named) == 36


@pytest.mark.slow
def test_random_damage_while_serving_loses_nothing_that_is_acknowledged_later(unseen_seed: int) -> None:
    """12 of the 200 cases of `make matrix`."""
    command = [sys.executable, "-m", "tests.stress.served_damage_matrix", "12", str(unseen_seed)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
