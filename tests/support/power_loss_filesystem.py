"""A file system in memory that simulates power losses."""

from __future__ import annotations

import random
from itertools import count
from pathlib import Path

from hubbub.sdk.storage.filesystem import File, FreeLock, Lock


class SimulatedDisk:
    """A disk in memory that simulates a power loss: `after_power_loss` returns the disk afterwards.

    Synced data survives. Each other write may be lost, torn or kept; a gap before a kept write is filled with zeros. The changes of a
    directory are kept up to a random one.
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

    def list_directory(self, directory: Path) -> list[Path]:
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
    """A file of a SimulatedDisk: its durable bytes, and the writes since the last sync."""

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
