"""Leases on metric definitions: which definitions are in use by other live processes of the directory.

    lease.<random>    the digests of one process's metrics; the process keeps the file locked

The kernel releases the lock when the process ends, however it ends. The next process that reads the leases removes the file.
Call every method but `release` and `after_fork_in_child` inside `with journal`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from hubbub.sdk.storage.filesystem import Disk, Lock

LEASE_PREFIX = "lease."


class DefinitionLease:
    """One process's lease on the definitions that it runs with."""

    def __init__(self, directory: Path, disk: Disk, digests: Iterable[str]) -> None:
        self._directory = directory
        self._disk = disk
        self.digests = frozenset(digests)
        self._path: Path | None = None
        self._lock: Lock | None = None

    @property
    def is_held(self) -> bool:
        """Whether this process holds its lease."""
        return self._lock is not None

    def take(self) -> None:
        """Take the lease, unless it is held. If the disk refuses the file, this process has no lease."""
        with suppress(OSError):
            if self._path is not None and self._disk.identity(self._path) is not None:
                return
            self.release()
            path = self._directory / f"{LEASE_PREFIX}{os.urandom(8).hex()}"
            file = self._disk.open_new(path)
            try:
                file.append("\n".join(sorted(self.digests)).encode())
            finally:
                file.close()
            self._path, self._lock = path, self._disk.lock(path)
            self._lock.acquire(wait=False)

    def in_use_elsewhere(self) -> frozenset[str]:
        """Return the digests of other live processes' leases, and remove the leases of ended processes."""
        digests: set[str] = set()
        for path in self._names():
            if path.name.startswith(LEASE_PREFIX) and path != self._path:
                with suppress(OSError):  # its process removed it meanwhile
                    digests.update(self._read(path))
        return frozenset(digests)

    def release(self) -> None:
        """End the lease: this process does not report any more."""
        path, lock, self._path, self._lock = self._path, self._lock, None, None
        if path is not None:
            with suppress(OSError, KeyError):
                self._disk.remove(path)
        if lock is not None:
            lock.close()

    def after_fork_in_child(self) -> None:
        """Close the parent's lease, which the parent keeps; the child takes its own."""
        lock, self._path, self._lock = self._lock, None, None
        if lock is not None:
            lock.close()

    def _names(self) -> list[Path]:
        try:
            return self._disk.list_directory(self._directory)
        except OSError:
            return []

    def _read(self, path: Path) -> list[str]:
        lock = self._disk.lock(path)
        try:
            if lock.acquire(wait=False):
                self._disk.remove(path)
                return []
        finally:
            lock.close()
        file = self._disk.open(path)
        try:
            return file.read(0, file.identity()[1]).decode("ascii", "replace").split()
        finally:
            file.close()
