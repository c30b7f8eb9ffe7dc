"""Plain objects for tests of hosts that embed hubbub, and for our own.

    SeededCoins         repeatable noise              ManualClock   a clock that is set
    RecordingTransport  an aggregator that remembers  deliver       do not wait for tomorrow
    UNLIMITED           a policy without limits       nothing_swallowed   our bugs fail your test
    SimulatedDisk       a disk that can lose power

Never for production: noise that can be repeated can be removed.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from hubbub.privacy.policy import Policy
from hubbub.sdk.runtime import error_guard
from hubbub.sdk.storage.filesystem import File, Lock
from hubbub.sdk.storage.memory_filesystem import FreeLock
from hubbub.sdk.upload.retry_policy import Answer
from hubbub.wire.batch import Batch

if TYPE_CHECKING:
    from hubbub.client import Client

__all__ = [
    "UNLIMITED",
    "ManualClock",
    "RecordingTransport",
    "SeededBytes",
    "SimulatedDisk",
    "deliver",
    "raise_internal_errors",
]

UNLIMITED = Policy(
    epsilon_report=math.inf, epsilon_enrollment=math.inf, epsilon_metric=math.inf, epsilon_total=math.inf
)


class SeededBytes:
    """Coins that repeat: a SHAKE-256 stream of a seed, read from its start.

    >>> SeededBytes(b"a seed")(4) == SeededBytes(b"a seed")(4)
    True
    """

    _BLOCK = 1 << 16

    def __init__(self, seed: bytes | str | int) -> None:
        self._seed = repr(seed).encode()
        self._blocks = 0
        self._left = b""

    def __call__(self, num_bytes: int) -> bytes:
        while len(self._left) < num_bytes:
            block = hashlib.shake_256(self._blocks.to_bytes(8, "little") + self._seed).digest(self._BLOCK)
            self._left += block
            self._blocks += 1
        drawn, self._left = self._left[:num_bytes], self._left[num_bytes:]
        return drawn


class ManualClock:
    """A clock that stands still until it is moved; give it to `Client(clock=...)`.

    >>> clock = ManualClock(date(2026, 11, 21))
    >>> clock.move(days=1)
    >>> str(clock())
    '2026-11-22 12:00:00+00:00'
    """

    def __init__(self, day: date) -> None:
        self.now = datetime.combine(day, time(12), tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def move(self, **by: float) -> None:
        """Move on, by what timedelta takes: days=1, hours=2."""
        self.now += timedelta(**by)


class RecordingTransport:
    """An aggregator that remembers: `batches` as they were taken, `bodies` of all attempts.

    answers : what it says, in this order; once they are used up it takes every batch
    """

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.bodies: list[bytes] = []
        self.batches: list[Batch] = []

    def send(self, body: bytes, wanted: Callable[[], bool] = lambda: True) -> Answer:  # noqa: ARG002
        self.bodies.append(body)
        batch = Batch.from_json(body)
        answer = self.answers.pop(0) if self.answers else Answer(202, batch_id=str(batch.batch_id))
        if answer.status in (200, 202):
            self.batches.append(batch)
        return answer


def deliver(client: Client) -> int:
    """End every period now and send all reports at once, without their random delays; return how many batches were tried.

    A period's report is formed by it: what is recorded afterwards belongs to the next period.
    """
    return client._deliver()


@contextmanager
def raise_internal_errors() -> Iterator[None]:
    """Let hubbub's own failures through to the test, instead of into a log."""
    error_guard.swallowed = False
    try:
        yield
    finally:
        error_guard.swallowed = True


class SimulatedDisk:
    """A disk in memory that knows what a power loss would leave: `after_power_loss` is that disk.

    What was synchronized survives. Of the rest, each write may be lost, torn or kept on its own (a later one without an earlier: the
    hole is zeros), and each change of a directory is kept or not in the order they were made.
    """

    def __init__(self) -> None:
        self.full = False
        self.files: dict[int, SimulatedFile] = {}
        self._names: dict[Path, int] = {}
        self._durable_names: dict[Path, int] = {}
        self._changes: list[dict[Path, int | None]] = []
        self._numbers = count(1)

    def make_directory(self, path: Path) -> None:  # noqa: ARG002  (there is one)
        self._refuse_if_full()

    def open(self, path: Path) -> File:
        if path not in self._names:
            self._refuse_if_full()
            number = next(self._numbers)
            self.files[number] = SimulatedFile(self, number)
            self._name(path, number)
        return self.files[self._names[path]]

    def open_new(self, path: Path) -> File:
        self._names.pop(path, None)
        return self.open(path)

    def identity(self, path: Path) -> tuple[int, int] | None:
        return self.files[self._names[path]].identity() if path in self._names else None

    def names(self, directory: Path) -> list[Path]:
        return [path for path in self._names if path.parent == directory]

    def link(self, source: Path, target: Path) -> None:
        if target in self._names:
            raise FileExistsError(target)
        self._refuse_if_full()
        self._name(target, self._names[source])

    def remove(self, path: Path) -> None:
        del self._names[path]
        self._changes.append({path: None})

    def replace(self, source: Path, target: Path) -> None:
        number = self._names[target] = self._names.pop(source)
        self._changes.append({source: None, target: number})

    def sync_directory(self, path: Path) -> None:  # noqa: ARG002  (there is one)
        self._durable_names = dict(self._names)
        self._changes.clear()

    def lock(self, path: Path) -> Lock:  # noqa: ARG002
        return FreeLock()

    def after_power_loss(self, chance: random.Random) -> SimulatedDisk:
        """Return the disk as it may be found when power is back."""
        found = SimulatedDisk()
        found._numbers = count(max(self.files, default=0) + 1)
        names: dict[Path, int | None] = dict(self._durable_names)
        for change in self._changes[: chance.randint(0, len(self._changes))]:
            names |= change
        for path, number in names.items():
            if number is None:
                continue
            found._names[path] = found._durable_names[path] = number
            found.files[number] = self.files[number].after_power_loss(found, chance)
        return found

    def _name(self, path: Path, number: int) -> None:
        self._names[path] = number
        self._changes.append({path: number})

    def _refuse_if_full(self) -> None:
        if self.full:
            raise OSError(28, "No space left on device")


class SimulatedFile:
    """A file of a SimulatedDisk: what is durable, and the writes that are not."""

    def __init__(self, disk: SimulatedDisk, number: int, data: bytes = b"") -> None:
        self._disk = disk
        self._number = number
        self._durable = data
        self._writes: list[bytes] = []

    def identity(self) -> tuple[int, int]:
        return self._number, len(self._durable) + sum(map(len, self._writes))

    def read(self, start: int, size: int) -> bytes:
        return (self._durable + b"".join(self._writes))[start : start + size]

    def append(self, data: bytes) -> None:
        self._disk._refuse_if_full()
        self._writes.append(data)

    def sync(self) -> None:
        self._disk._refuse_if_full()
        self._durable += b"".join(self._writes)
        self._writes.clear()

    def close(self) -> None:
        pass

    def after_power_loss(self, disk: SimulatedDisk, chance: random.Random) -> SimulatedFile:
        data = bytearray(self._durable)
        at = len(data)
        for write in self._writes:
            kept = write[: chance.choice((0, len(write), chance.randint(0, len(write))))]
            if kept:
                data.extend(bytes(max(0, at - len(data))))
                data[at : at + len(kept)] = kept
            at += len(write)
        return SimulatedFile(disk, self._number, bytes(data))
