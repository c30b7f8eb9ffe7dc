"""A SQLite file that is removed, renamed or replaced while it is served: the service acknowledges no batch that a restart would lose.

The action and its time are random: between two steps of a commit, or at any time from another thread.
"""

from __future__ import annotations

import logging
import random
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hubbub import Batch, Definitions
from hubbub_aggregator.database.served_files import ServedFiles
from hubbub_aggregator.errors import FilesInDoubtError
from hubbub_aggregator.store.interface import AppendResult
from hubbub_aggregator.store.sql_store import SqlStore

pytestmark = pytest.mark.slow  # starts services

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch, StartAggregator

TRIALS, BATCHES = 25, 30
HUBBUB = str(Path(sys.executable).parent / "hubbub")


@dataclass
class Mover:
    """Takes a file away, and may put it back."""

    path: Path
    away: Path
    moved: threading.Event = field(default_factory=threading.Event)

    def remove(self) -> None:
        self.path.unlink()

    def rename(self) -> None:
        self.path.rename(self.away)

    def replace_by_nothing(self) -> None:
        self.rename()
        self.path.touch()

    def replace_by_copy(self) -> None:
        copy = self.path.with_suffix(".copy")
        shutil.copyfile(self.path, copy)
        self.rename()
        copy.rename(self.path)

    def replace_by_link(self) -> None:
        """The same file by the same name, but SQLite would look for its `-wal` elsewhere."""
        self.rename()
        self.path.symlink_to(self.away)

    def put_back(self) -> None:
        self.away.replace(self.path)
        self.moved.clear()


ACTIONS: tuple[Callable[[Mover], None], ...] = (
    Mover.remove,
    Mover.rename,
    Mover.replace_by_nothing,
    Mover.replace_by_copy,
)


def holds_all(database: Path, batches: list[Batch]) -> bool:
    """Return whether a reopening of the path has all of these."""
    with closing(SqlStore.open(database, create=False)) as store:
        return all(store.contains(batch) for batch in batches)


class Trial:
    """One database, one action at a random step, and the acknowledged batches."""

    def __init__(self, database: Path, suffix: str, rng: random.Random, *, from_thread: bool) -> None:
        self.database = database
        self.store = SqlStore.open(database)
        self.action = rng.choice(ACTIONS if suffix else (*ACTIONS, Mover.replace_by_link))
        self.mover = Mover(Path(f"{database}{suffix}"), database.with_suffix(".away"))
        self.acknowledged: list[Batch] = []
        self.refused = 0
        self._steps = rng.randrange(1, 3 * BATCHES)
        self._from_thread = from_thread
        self._due = threading.Event()
        self._thread = threading.Thread(target=self._move)
        self._thread.start()

    def _move(self) -> None:
        self._due.wait()
        self.action(self.mover)
        self.mover.moved.set()

    def step(self) -> None:
        """Come to one of the moments before a transaction and between its commit and its answers."""
        self._steps -= 1
        if not self._steps:
            self._due.set()
            if not self._from_thread:
                self._thread.join()

    def append(self, batch: Batch) -> None:
        was_moved = self.mover.moved.is_set()
        try:
            appended = self.store.append([batch])
        except FilesInDoubtError:
            self.refused += 1
            assert self._due.is_set(), "no false alarm"
            self._thread.join()
            with pytest.raises(FilesInDoubtError):
                self.store.contains(batch)
        else:
            assert appended == [AppendResult.STORED]
            assert not was_moved
            assert self._from_thread or not self.mover.moved.is_set(), "moved between the commit and its answers"
            self.acknowledged.append(batch)

    def finish(self) -> None:
        """Let the file be moved, if it was not yet."""
        self._due.set()
        self._thread.join()


@pytest.mark.parametrize("suffix", ["", "-wal"])
@pytest.mark.parametrize("from_thread", [False, True])
def test_moved_database_loses_no_acknowledged_batch_at_restart(
    tmp_path: Path,
    definitions: Definitions,
    make_batch: MakeBatch,
    monkeypatch: pytest.MonkeyPatch,
    unseen_seed: int,
    suffix: str,
    from_thread: bool,
) -> None:
    rng = random.Random(unseen_seed)  # noqa: S311
    metric, refused, restored = definitions["homepage"], 0, 0
    check = ServedFiles.require_intact
    for number in range(TRIALS):
        trial = Trial(tmp_path / f"{number}.db", suffix, rng, from_thread=from_thread)

        def step(identity: ServedFiles, trial: Trial = trial) -> None:
            trial.step()
            check(identity)

        monkeypatch.setattr(ServedFiles, "require_intact", step)
        for _ in range(BATCHES):
            trial.append(make_batch(metric, n=1))
        monkeypatch.setattr(ServedFiles, "require_intact", check)
        trial.finish()
        with pytest.raises(FilesInDoubtError):
            trial.store.append([make_batch(metric, n=1)])
        refused += trial.refused
        if trial.action is not Mover.remove and rng.random() < 0.5:
            restored += 1
            trial.mover.put_back()
            trial.append(more := make_batch(metric, n=1))
            assert trial.acknowledged[-1] is more, "it stores again"
        trial.store.close()
        if not suffix and trial.mover.moved.is_set():
            if trial.action is Mover.remove:
                continue
            trial.mover.put_back()
        assert holds_all(trial.database, trial.acknowledged), (
            "a lost -wal is written into the file by the last connection"
        )
    assert min(refused, restored) > 0


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_moved_database_is_answered_503_until_it_is_back(
    start: StartAggregator,
    sqlite_store: SqlStore,
    make_batch: MakeBatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    suffix: str,
) -> None:
    aggregator = start(sqlite_store, fold_interval=0.05)
    metric = aggregator.definitions["homepage"]
    stored = make_batch(metric)
    assert aggregator.post(stored).status == 202
    assert aggregator.get("/readyz").status == 200
    mover = Mover(tmp_path / f"reports.db{suffix}", tmp_path / "away")
    mover.rename()
    for batch in (make_batch(metric), stored, make_batch(metric, period="2020-01-01")):
        answer = aggregator.post(batch)
        assert (answer.status, answer.headers["content-type"]) == (503, "application/problem+json")
        assert int(answer.headers["retry-after"]) > 0
    ready = aggregator.get("/readyz")
    assert (ready.status, "a file of the database was removed" in ready.json["detail"]) == (503, True)
    assert aggregator.get("/v1/metrics/homepage/summary").status == 503
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1, errors
    assert errors[0].startswith(str(mover.path))
    assert "Put the same file back" in errors[0]
    mover.put_back()
    assert aggregator.post(make_batch(metric)).status == 202
    assert aggregator.get("/readyz").status == 200
    assert aggregator.stored() == 6


@pytest.mark.slow
def test_other_processes_and_checkpoints_are_not_reported_as_moved(
    start: StartAggregator,
    sqlite_store: SqlStore,
    make_batch: MakeBatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """SQLite empties the -wal at checkpoints, and deletes it with the last connection of all processes only."""
    aggregator = start(sqlite_store, fold_interval=0.01, keep_reports={"homepage": 0})
    metric, database = aggregator.definitions["homepage"], str(tmp_path / "reports.db")
    commands = (
        ["token", "create", "x", "--scope", "read", "--database", database],
        ["db", "backup", str(tmp_path / "backup.db"), "--database", database],
        ["db", "check", "--database", database],
        ["token", "revoke", "x", "--database", database],
    )
    for command in commands:
        with subprocess.Popen([HUBBUB, *command], stdout=subprocess.DEVNULL) as process:
            while process.poll() is None:
                assert aggregator.post(make_batch(metric)).status == 202
        assert process.returncode == 0, command
    for _ in range(20):
        SqlStore.open(database).close()
        assert aggregator.post(make_batch(metric)).status == 202
        sqlite_store.drop_reports(metric.digest, "2024-06-15")  # truncates the -wal
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_new_wal_after_all_connections_closed_is_accepted(
    tmp_path: Path, definitions: Definitions, make_batch: MakeBatch
) -> None:
    store = SqlStore.open(tmp_path / "reports.db")
    for _ in range(3):
        store._engine.dispose()
        assert not (tmp_path / "reports.db-wal").exists()
        assert store.append([make_batch(definitions["homepage"])]) == [AppendResult.STORED]
    (tmp_path / "reports.db").rename(tmp_path / f"{uuid.uuid4()}.db")
    with pytest.raises(FilesInDoubtError):
        store.append([make_batch(definitions["homepage"])])
    store.close()


def test_database_replaced_by_a_link_is_detected(
    tmp_path: Path, definitions: Definitions, make_batch: MakeBatch
) -> None:
    mover = Mover(tmp_path / "reports.db", tmp_path / "elsewhere.db")
    with closing(SqlStore.open(mover.path)) as store:
        store.append([make_batch(definitions["homepage"])])
        mover.replace_by_link()
        with pytest.raises(FilesInDoubtError):
            store.append([make_batch(definitions["homepage"])])
        mover.path.unlink()
        mover.put_back()
        assert store.append([make_batch(definitions["homepage"])]) == [AppendResult.STORED]
