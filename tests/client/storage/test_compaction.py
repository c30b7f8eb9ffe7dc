"""Compaction: recordings do not wait for it, and a start in the middle of it reads the complete state."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hubbub import Client
from hubbub.client import collaborators
from hubbub.sdk.storage.compaction import EVENTS_PER_SLICE, Compactor
from hubbub.sdk.storage.events import JOURNAL, ROTATED, SNAPSHOT
from hubbub.sdk.storage.filesystem import File, Lock, SystemDisk
from hubbub.sdk.storage.journal import MAX_LOCKED_READ_BYTES, Journal
from hubbub.sdk.storage.record_format import scan
from hubbub.sdk.storage.state import State
from hubbub.sdk.storage.state_reader import read_state
from hubbub.sdk.upload.retry_policy import NO_RESPONSE, UploadResponse
from hubbub.testing import deliver
from tests.client.conftest import HOMEPAGE, SURVEY, Rig, require_balanced
from tests.support.power_loss_filesystem import SimulatedDisk

SUBJECTS = 3 * EVENTS_PER_SLICE
RECORDINGS = 300
WRITTEN, WAITS = b".", b"-"
"""A recording after which none waits in memory for the journal, and another one: after this a process may lose the last ones."""


def comparable_fields(state: State) -> dict[str, Any]:
    """Return the fields of a state, except derived ones and those that describe the files."""
    without = ("earliest_period_end", "subjects", "erasure_pending", "damaged")
    return {name: value for name, value in vars(state).items() if name not in without}


def state_of(client: Client) -> dict[str, Any]:
    with collaborators(client).journal as state:
        return comparable_fields(state)


class Watched:
    """A file that reports its operations."""

    def __init__(self, file: File, name: str, done: Callable[[str, str, int], None]) -> None:
        self._file, self._name, self._done = file, name, done
        self.identity, self.close = file.identity, file.close

    def read(self, start: int, size: int) -> bytes:
        self._done("read", self._name, size)
        return self._file.read(start, size)

    def append(self, data: bytes) -> None:
        self._file.append(data)
        self._done("append", self._name, len(data))

    def sync(self) -> None:
        self._file.sync()
        self._done("sync", self._name, 0)


class WatchedLock:
    def __init__(self, lock: Lock, on_change: Callable[[bool], None]) -> None:
        self._lock, self._on_change, self.close = lock, on_change, lock.close

    def acquire(self, *, wait: bool) -> bool:
        got = self._lock.acquire(wait=wait)
        self._on_change(got)
        return got

    def release(self) -> None:
        self._on_change(False)
        self._lock.release()


class WatchedDisk(SystemDisk):
    """A disk that reports its operations, and whether the journal's lock was held during each."""

    def __init__(self) -> None:
        self.done: Callable[[str, str, int], None] = lambda *_: None
        self.locked = False

    def open(self, path: Path) -> File:
        return Watched(super().open(path), path.name, lambda *what: self.done(*what))

    def open_new(self, path: Path) -> File:
        return Watched(super().open_new(path), path.name, lambda *what: self.done(*what))

    def replace(self, source: Path, target: Path) -> None:
        super().replace(source, target)
        self.done("replace", target.name, 0)

    def remove(self, path: Path) -> None:
        super().remove(path)
        self.done("remove", path.name, 0)

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        self.done("sync_directory", path.name, 0)

    def lock(self, path: Path) -> Lock:
        lock = super().lock(path)
        return WatchedLock(lock, self._on_change) if path.name == "lock" else lock

    def _on_change(self, held: bool) -> None:
        self.locked = held


def with_subjects(rig: Rig, disk: WatchedDisk, count: int = SUBJECTS) -> Client:
    client = rig.agreed(disk=disk)
    collaborators(client).uploader.start().stop(5)
    for number in range(count):
        client.subject(str(number)).record("homepage", str(number % 7))
    return client


def test_compaction_holds_the_lock_for_bounded_time(rig: Rig) -> None:
    """The snapshot is written, synced and read without the lock, in slices. With the lock, only names change and counters are written."""
    disk = WatchedDisk()
    client, other = with_subjects(rig, disk), rig.client(disk=disk)
    collaborators(other).uploader.start().stop(5)
    under: list[tuple[str, str, int]] = []
    pieces: list[int] = []

    def done(what: str, name: str, size: int) -> None:
        if disk.locked:
            under.append((what, name, size))
        elif (what, name) == ("append", f"{SNAPSHOT}.new"):
            pieces.append(size)
            recorder = threading.Thread(target=other.record, args=("homepage", "x"))
            recorder.start()  # would hang if the lock were held
            recorder.join(30)
            assert not recorder.is_alive()

    disk.done = done
    assert collaborators(client).compactor.compact(always=True)
    snapshot = (rig.state / SNAPSHOT).read_bytes()
    records = len(scan(snapshot).payloads)
    assert records > 2 * SUBJECTS  # the ledger twice, and the drafts
    assert len(pieces) >= records // EVENTS_PER_SLICE
    assert max(pieces) < 2 * EVENTS_PER_SLICE * len(snapshot) / records
    assert {what for what, _, _ in under} == {"append", "read", "replace", "remove"}
    assert max(size for _, _, size in under) < 4096
    assert other.accounting().recorded == SUBJECTS + len(pieces)
    disk.done = lambda *_: None
    assert state_of(rig.client()) == state_of(client) == state_of(other)


def test_start_reads_large_directory_without_lock(rig: Rig) -> None:
    disk = WatchedDisk()
    collaborators(with_subjects(rig, disk)).compactor.compact(always=True)
    read: list[tuple[bool, int]] = []
    disk.done = lambda what, _, size: read.append((disk.locked, size)) if what == "read" else None
    journal = Journal(rig.state, disk)
    with journal as state:
        assert len(state.accounts) == SUBJECTS + 1
    assert max(size for _, size in read) > MAX_LOCKED_READ_BYTES
    assert max((size for locked, size in read if locked), default=0) <= MAX_LOCKED_READ_BYTES
    journal.close()


def test_idle_process_follows_compaction_without_reading_snapshot(rig: Rig) -> None:
    disk = WatchedDisk()
    client, idle = with_subjects(rig, disk), Journal(rig.state, disk)
    with idle as before:
        pass
    client.record("homepage", "x")
    collaborators(client).compactor.compact(always=True)
    client.record("homepage", "x")
    with idle as state:
        assert state is before
    assert comparable_fields(state) == state_of(client)
    for _ in range(2):  # one more than it can follow
        collaborators(client).compactor.compact(always=True)
    client.record("homepage", "x")
    with idle as state:
        assert state is not before
    assert comparable_fields(state) == state_of(client)
    idle.close()


def lived(client: Client, rig: Rig, chance: random.Random) -> None:
    """Do something that writes, of every kind."""
    answers = (
        UploadResponse(413, problem="too-large"),
        UploadResponse(422, problem="wrong-size"),
        UploadResponse(503),
        UploadResponse(410, problem="period-closed"),
        NO_RESPONSE,
    )
    match chance.randrange(8):
        case 0 | 1 | 2:
            client.record("homepage", str(chance.randrange(4)))
        case 3:
            client.subject(str(chance.randrange(6))).record("survey", chance.random() < 0.5)
        case 4:
            rig.clock.move(hours=chance.randrange(30))
        case 5:
            collaborators(client).sender.attempt()
        case 6:
            rig.transport.responses = [chance.choice(answers)]
            deliver(client)
        case 7:
            client.record("nothing of ours", "x")


def test_start_during_compaction_reads_complete_state(rig: Rig, tmp_path: Path, unseen_seed: int) -> None:
    """As after a kill: the directory is copied after each operation of the compaction, and another process records in between."""
    chance, disk = random.Random(unseen_seed), WatchedDisk()  # noqa: S311
    client, other = rig.agreed(HOMEPAGE, SURVEY, disk=disk), rig.client(HOMEPAGE, SURVEY)
    for writer in (client, other):
        collaborators(writer).uploader.start().stop(5)
    places, inside = set(), False

    def found_now(what: str, name: str, _: int) -> None:
        nonlocal inside
        if inside or threading.current_thread() is not threading.main_thread():
            return
        inside = True
        places.add((what, name))
        shutil.copytree(rig.state, tmp_path / "copy", dirs_exist_ok=False)
        copied = Journal(tmp_path / "copy", SystemDisk())
        with copied as state:
            assert comparable_fields(state) == comparable_fields(collaborators(client).journal._state)
            assert state.damaged == 0
        assert comparable_fields(read_state(tmp_path / "copy")) == comparable_fields(state)
        copied.close()
        shutil.rmtree(tmp_path / "copy")
        inside = False

    def resting(_: float) -> None:
        nonlocal inside
        inside = True
        for _ in range(3):
            lived(other, rig, chance)
        state_of(client)
        inside = False
        found_now("rest", "", 0)

    collaborators(client).compactor._sleep = resting
    for _ in range(25):
        lived(other, rig, chance)
    for _ in range(12):
        state_of(client)
        disk.done = found_now
        assert collaborators(client).compactor.compact(always=True)
        disk.done = lambda *_: None
        require_balanced(client.accounting())
    assert {
        ("replace", ROTATED),
        ("replace", SNAPSHOT),
        ("remove", ROTATED),
        ("append", JOURNAL),
        ("rest", ""),
    } <= places


@pytest.mark.parametrize("closed_at", [1, 3])
def test_erasure_is_complete_though_an_upload_thread_ends_meanwhile(closed_at: int, rig: Rig) -> None:
    """The thread closes the journal, so the next access reads the state anew. The warning then had no cause."""
    client = with_subjects(rig, WatchedDisk())
    pauses = 0

    def close_journal(_: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses == closed_at:
            collaborators(client).journal.close()

    collaborators(client).compactor._sleep = close_journal
    assert client.set_consent("off")
    assert pauses > closed_at
    with collaborators(client).journal as state:
        assert not any((state.erasure_pending, state.drafts, state.queue))
    assert not (rig.state / ROTATED).exists()


def test_killed_compaction_is_finished_by_the_next(rig: Rig, tmp_path: Path) -> None:
    disk = WatchedDisk()
    client = with_subjects(rig, disk, 2)
    copies: list[dict[str, Any]] = []

    def killed(what: str, *_: object) -> None:
        if what != "read":
            shutil.copytree(rig.state, tmp_path / f"{len(copies)}")
            copies.append(comparable_fields(collaborators(client).journal._state))

    disk.done = killed
    collaborators(client).compactor.compact(always=True)
    left = set()
    for number, durable_state in enumerate(copies):
        place = tmp_path / f"{number}"
        left |= {path.name for path in place.iterdir()}
        journal = Journal(place, SystemDisk())
        with journal:
            pass
        due = (place / ROTATED).exists()
        compactor = Compactor(journal, SystemDisk())
        assert compactor.is_due() == due
        assert compactor.compact() == due
        assert not (place / ROTATED).exists()
        journal.close()
        assert comparable_fields(read_state(place)) == durable_state
    assert {ROTATED, f"{SNAPSHOT}.new"} <= left


def test_power_loss_during_compaction_keeps_durable_events(rig: Rig, unseen_seed: int) -> None:
    chance = random.Random(unseen_seed)  # noqa: S311

    class Failing(SimulatedDisk):
        left = 0

        def _refuse_if_full(self) -> None:
            self._step()
            super()._refuse_if_full()

        def _step(self) -> None:
            self.left -= 1
            if self.left == 0:
                raise OSError(5, "Input/output error")

        def replace(self, source: Path, target: Path) -> None:
            self._step()
            super().replace(source, target)

        def remove(self, path: Path) -> None:
            self._step()
            super().remove(path)

        def sync_directory(self, path: Path) -> None:
            self._step()
            super().sync_directory(path)

    ends = set()
    for number in range(180):
        disk = Failing()
        client = rig.agreed(disk=disk)
        collaborators(client).uploader.start().stop(5)
        client.record("homepage", "x")
        if number % 2:
            collaborators(client).compactor.compact(always=True)
            client.record("homepage", "y")
        collaborators(client).journal.sync()
        durable_state = state_of(client)
        if number % 3:
            client.record("homepage", "z")  # not durable yet
        disk.left = 1 + number // 9
        done = collaborators(client).compactor.compact(always=True)
        ends.add(done)
        disk.left = 0
        if done or number % 3 == 1:  # a client syncs the files
            last = client if number % 4 else rig.client(disk=disk)
            collaborators(last).uploader.start().stop(5)
            last.record("homepage", "")
            assert collaborators(last).journal.sync()
            durable_state = state_of(last)
        found = rig.client(disk=disk.after_power_loss(chance), environment={"DO_NOT_TRACK": "1"})
        if number % 3 == 2 and not done:  # unsynced events may be lost
            assert state_of(found)["accounts"] == durable_state["accounts"]
        else:
            assert state_of(found) == durable_state
    assert ends == {True, False}


def test_consent_withdrawal_erases_unfinished_snapshot(rig: Rig, tmp_path: Path) -> None:
    other = rig.agreed()
    collaborators(other).uploader.start().stop(5)  # its thread would compact the journal first
    client = with_subjects(rig, WatchedDisk())
    rows = [draft.report.bits.hex().encode() for draft in collaborators(client).journal._state.drafts.values()]
    assert any(row in (rig.state / JOURNAL).read_bytes() for row in rows)
    off = threading.Thread(target=other.set_consent, args=("off",))
    pieces = 0

    def resting(_: float) -> None:
        nonlocal pieces
        pieces += 1
        if pieces == 7:
            other.subject("late").record("homepage", "x")
            rows.append(list(collaborators(other).journal._state.drafts.values())[-1].report.bits.hex().encode())
            assert rows[-1] in (rig.state / JOURNAL).read_bytes()
        if pieces == 8:
            assert any(row in (rig.state / f"{SNAPSHOT}.new").read_bytes() for row in rows)
            shutil.copytree(rig.state, tmp_path / "killed")
            off.start()

    collaborators(client).compactor._sleep = resting
    collaborators(client).compactor.compact(always=True)
    off.join(30)
    rig.state, left = tmp_path / "killed", [rig.state]
    assert (rig.state / f"{SNAPSHOT}.new").exists()
    rig.client().set_consent("off")
    for place in (*left, rig.state):
        assert {path.name for path in place.iterdir()} <= {JOURNAL, SNAPSHOT, "lock", "compactor", "uploader"}
        text = b"".join(path.read_bytes() for path in place.iterdir())
        assert not any(row in text for row in rows)
        assert len(read_state(place).accounts) == SUBJECTS + 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_fork_during_compaction_disturbs_neither_process(rig: Rig) -> None:
    client = with_subjects(rig, WatchedDisk())
    children: list[int] = []

    def resting(seconds: float) -> None:
        time.sleep(seconds)
        if len(children) < 3:
            child = os.fork()
            if child == 0:
                client.record("homepage", "from a child")
                os._exit(int(client.accounting().recorded < SUBJECTS + 1))
            children.append(child)

    collaborators(client).compactor._sleep = resting
    assert collaborators(client).compactor.compact(always=True)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert client.accounting().recorded == SUBJECTS + 3
    assert rig.client().accounting().recorded == SUBJECTS + 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_killed_processes_lose_no_recordings_during_compaction(rig: Rig, tmp_path: Path, unseen_seed: int) -> None:
    """Every recording that was written is counted; those that wait in memory, and the last one of a killed process, may be."""
    chance, least, most = random.Random(unseen_seed), 0, 0  # noqa: S311
    rig.agreed().close()
    for _ in range(4):
        children = []
        for number in range(3):
            count_file = tmp_path / f"count {number}"
            count_file.write_bytes(b"")
            child = os.fork()
            if child == 0:
                recording_and_compacting(rig.client(), count_file)
            children.append((child, count_file))
        time.sleep(chance.random() / 2)  # whenever: no result depends on it
        for child, count_file in children:
            if chance.random() < 0.7:
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            recorded = count_file.read_bytes()
            least, most = least + recorded.rfind(WRITTEN) + 1, most + min(len(recorded) + 1, RECORDINGS)
    counts = rig.client(environment={"DO_NOT_TRACK": "1"}).accounting()
    assert least <= counts.recorded <= most
    assert counts.damaged_records <= 12
    require_balanced(counts)


def recording_and_compacting(client: Client, count_file: Path) -> None:
    def compact() -> None:
        while True:
            collaborators(client).compactor.compact(always=True)

    threading.Thread(target=compact, daemon=True).start()
    backlog = collaborators(client).recorder.backlog
    with count_file.open("ab", buffering=0) as file:
        for number in range(RECORDINGS):
            client.record("homepage", str(number))
            file.write(WAITS if backlog.recordings else WRITTEN)
    os._exit(0)
