"""Files of a SQLite database that are truncated while they are served: nothing is acknowledged, nothing destroyed."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import urllib3
from sqlalchemy import update

from hubbub import Definitions
from hubbub_aggregator.database.engine import transaction
from hubbub_aggregator.database.schema import schema
from hubbub_aggregator.errors import FilesInDoubtError
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
    for refused in (filled.require_intact, filled._truncate_wal, filled.close):
        with pytest.raises(FilesInDoubtError):
            refused()
    assert contents(tmp_path) == before
    (logged,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert logged.startswith(f"{tmp_path / 'reports.db'}{suffix} was truncated")
    assert "leaves the files as they are" in logged


@pytest.mark.parametrize("size", [0, 5_000])
def test_log_that_was_truncated_during_a_commit_is_detected(
    filled: SqlStore, tmp_path: Path, definitions: Definitions, make_batch: MakeBatch, size: int
) -> None:
    """The commit writes behind the hole, so the log has its size again."""
    log = tmp_path / "reports.db-wal"

    def commit() -> None:
        with transaction(filled._engine, writes=True) as connection:
            connection.execute(update(schema).values(write_probes=schema.c.write_probes + 1))
            os.truncate(log, size)

    with pytest.raises(FilesInDoubtError, match="truncated during a commit"):
        commit()
    with pytest.raises(FilesInDoubtError, match="truncated during a commit"):
        filled.append([make_batch(definitions["homepage"])])
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
    named = {(damage, suffix, ends) for damage, suffix, ends, _ in cases(20, 7) if damage}
    assert len(named) == 18


@pytest.mark.slow
def test_random_damage_while_serving_loses_nothing_that_is_acknowledged_later(unseen_seed: int) -> None:
    """12 of the 200 cases of `make matrix`."""
    command = [sys.executable, "-m", "tests.stress.served_damage_matrix", "12", str(unseen_seed)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
