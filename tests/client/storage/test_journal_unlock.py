"""An unlocking that fails: no call of the host raises, nothing stays locked, nothing is lost."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hubbub import Client
from hubbub.client import collaborators
from hubbub.sdk.storage.filesystem import Lock, SystemDisk
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


@pytest.mark.filterwarnings("ignore:consent is local:RuntimeWarning")
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
