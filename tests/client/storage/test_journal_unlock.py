"""Calls of the disk that fail while files are locked or read: no call of the host raises, nothing stays locked, nothing is lost."""

from __future__ import annotations

import errno
import os
import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from hubbub import Client
from hubbub.client import collaborators
from hubbub.sdk.storage import journal
from hubbub.sdk.storage.events import JOURNAL, SNAPSHOT
from hubbub.sdk.storage.filesystem import File, Lock, SystemDisk, SystemFile
from hubbub.sdk.upload.uploader import UploadLoop
from hubbub.testing import deliver
from tests.client.conftest import Rig, require_balanced


class FailingLock:
    """A lock that sometimes fails to release, before or after it has unlocked."""

    def __init__(self, lock: Lock, fails: Callable[[], bool]) -> None:
        self._lock, self._fails = lock, fails
        self.close = lock.close

    def acquire(self, *, wait: bool) -> bool:
        return self._lock.acquire(wait=wait)

    def release(self) -> None:
        if self._fails():
            if self._fails():
                self._lock.release()
            raise OSError(37, "No locks available")
        self._lock.release()


class FailingDisk(SystemDisk):
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.how_often = 0.0

    def lock(self, path: Path) -> Lock:
        return FailingLock(super().lock(path), lambda: self._chance.random() < self.how_often)


CALLS: dict[str, Callable[[Client], object]] = {
    "record": lambda client: client.record("homepage", "x"),
    "subject": lambda client: client.subject("someone").record("homepage", "x"),
    "accounting": Client.accounting,
    "consent": lambda client: client.consent,
    "local": lambda client: client.set_consent("local"),
    "on": lambda client: client.set_consent("on"),
    "flush": lambda client: client.flush(0.01),
    "deliver": deliver,
    "compact": lambda client: collaborators(client).compactor.compact(always=True),
    "sync": lambda client: collaborators(client).journal.sync(),
    "close": Client.close,
}


def test_failed_unlock_does_not_raise_or_keep_lock(rig: Rig, unseen_seed: int) -> None:
    """300 calls in a random order; each unlocking fails with probability 1/4."""
    chance = random.Random(unseen_seed)  # noqa: S311
    disk = FailingDisk(chance)
    client = rig.agreed(disk=disk)
    collaborators(client).uploader.start().stop(5)
    recorded = 0
    for _ in range(300):
        name = chance.choice(list(CALLS))
        disk.how_often = 0.25
        CALLS[name](client)
        recorded += name in ("record", "subject")
        disk.how_often = 0.0
        if chance.random() < 0.1:
            other = rig.client(disk=SystemDisk(), environment={"DO_NOT_TRACK": "1"})
            done = threading.Thread(target=other.accounting, daemon=True)
            done.start()
            done.join(10)
            assert not done.is_alive(), f"{name} left the directory locked"
            assert not collaborators(other).journal.problem, f"{name} left the directory locked"
    client.set_consent("on")
    client.flush(5)  # a short flush goes on after its time, and may have met the last failure
    counts = client.accounting()
    require_balanced(counts)
    assert counts.recorded == recorded
    assert not collaborators(client).journal.problem
    collaborators(client).uploader.stop(5)  # a running thread holds the lease while it uploads
    lease, compactor = (SystemDisk().lock(rig.state / name) for name in ("uploader", "compactor"))
    assert lease.acquire(wait=False)
    assert compactor.acquire(wait=False)
    lease.close()
    compactor.close()


class UnreadableFile(SystemFile):
    """A file of which a read sometimes fails."""

    fails: Callable[[], bool]

    def read(self, start: int, size: int) -> bytes:
        if self.fails():
            raise OSError(5, "Input/output error")
        return super().read(start, size)


class OccupiedLock(FailingLock):
    """A lock that another process sometimes takes in between, and keeps too long."""

    def acquire(self, *, wait: bool) -> bool:
        return not self._fails() and super().acquire(wait=wait)

    def release(self) -> None:
        self._lock.release()


class UnreadableDisk(FailingDisk):
    def fails(self) -> bool:
        return self._chance.random() < self.how_often

    def open(self, path: Path) -> File:
        if self.fails():
            raise OSError(5, "Input/output error")
        file = UnreadableFile(path)
        file.fails = self.fails
        return file

    def identity(self, path: Path) -> tuple[int, int] | None:
        if self.fails():
            raise OSError(5, "Input/output error")
        return super().identity(path)

    def lock(self, path: Path) -> Lock:
        return OccupiedLock(SystemDisk.lock(self, path), self.fails)


@pytest.mark.parametrize("run", range(6))
def test_failed_reading_forgets_no_spent_budget(
    run: int, rig: Rig, unseen_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Restarts and calls in a random order, with reads, look-ups and locks that fail: the spent epsilon never falls.

    All files are read without the lock, as large ones are.
    """
    monkeypatch.setattr(journal, "MAX_LOCKED_READ_BYTES", 0)
    monkeypatch.setattr(journal, "LOCK_TIMEOUT_SECONDS", 0.0002)
    monkeypatch.setattr(UploadLoop, "start", lambda loop: loop)
    chance = random.Random(unseen_seed + run)  # noqa: S311
    disk, spent = UnreadableDisk(chance), 0.0
    names = ["record", "local", "on", "deliver", "compact", "sync", "accounting"]
    for _ in range(25):
        disk.how_often = chance.choice((0.02, 0.1, 0.3))
        client = rig.client(disk=disk)
        for _ in range(chance.randrange(8)):
            CALLS[chance.choice(names)](client)
            rig.clock.move(days=chance.randrange(2))
        disk.how_often = 0.0
        client.set_consent("on")
        client.record("homepage", str(chance.randrange(5)))
        deliver(client)
        before, spent = spent, sum(account.epsilon_spent for account in client.ledger().accounts)
        assert spent >= before
        require_balanced(client.accounting())
        client.close()
    assert spent > 0


class RefusingDisk(SystemDisk):
    """A disk that refuses one operation on the files of the journal."""

    refused = ""

    def _refuse(self, operation: str, path: Path, code: int) -> None:
        if operation == self.refused and path.name in (JOURNAL, SNAPSHOT, "lock"):
            raise OSError(code, os.strerror(code))

    def identity(self, path: Path) -> tuple[int, int] | None:
        self._refuse("stat", path, errno.EIO)
        return super().identity(path)

    def open(self, path: Path) -> File:
        self._refuse("open", path, errno.EMFILE)
        return super().open(path)

    def lock(self, path: Path) -> Lock:
        self._refuse("lock", path, errno.EACCES)
        return super().lock(path)


@pytest.mark.parametrize("refused", ["stat", "open", "lock"])
def test_process_that_cannot_read_the_journal_makes_no_report(
    refused: str, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes on one directory. One cannot read that the other has sent a period, and must not send the period again."""
    monkeypatch.setattr(UploadLoop, "start", lambda loop: loop)
    disk = RefusingDisk()
    one, other = rig.agreed(disk=disk), rig.agreed()
    one.record("homepage", "x")
    assert collaborators(other).compactor.compact(always=True)
    if refused == "lock":
        one.close()
    rig.clock.move(days=1)
    deliver(other)
    disk.refused = refused
    sent = len(rig.transport.bodies)
    one.record("homepage", "y")
    assert collaborators(one).sender.attempt() > 0
    assert deliver(one) == 0
    assert len(rig.transport.bodies) == sent
    disk.refused = ""
    assert collaborators(one).journal.sync()
    deliver(one)
    assert set(Counter(batch.period for batch in rig.transport.batches).values()) == {1}
    counts, (account,) = one.accounting(), one.ledger().accounts
    require_balanced(counts)
    assert account.reports == counts.formed == len(rig.transport.batches)
    assert (counts.recorded, counts.ignored["no-state"]) == (2, 0)
