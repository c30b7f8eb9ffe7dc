"""A disk that is forgotten with the process: the same journal, in memory."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from hubbub.sdk.storage.filesystem import File, Lock


class MemoryDisk:
    """Files by path; one process only, so its locks are always free."""

    def __init__(self) -> None:
        self._files: dict[Path, _MemoryFile] = {}
        self._numbers = count(1)

    def make_directory(self, path: Path) -> None:
        pass

    def open(self, path: Path) -> File:
        return self._files.setdefault(path, _MemoryFile(next(self._numbers)))

    def open_new(self, path: Path) -> File:
        file = self._files[path] = _MemoryFile(next(self._numbers))
        return file

    def identity(self, path: Path) -> tuple[int, int] | None:
        file = self._files.get(path)
        return None if file is None else file.identity()

    def names(self, directory: Path) -> list[Path]:
        return [path for path in self._files if path.parent == directory]

    def link(self, source: Path, target: Path) -> None:
        if target in self._files:
            raise FileExistsError(target)
        self._files[target] = self._files[source]

    def remove(self, path: Path) -> None:
        del self._files[path]

    def replace(self, source: Path, target: Path) -> None:
        self._files[target] = self._files.pop(source)

    def sync_directory(self, path: Path) -> None:
        pass

    def lock(self, path: Path) -> Lock:  # noqa: ARG002
        return FreeLock()


class _MemoryFile:
    def __init__(self, number: int) -> None:
        self._number = number
        self._data = bytearray()

    def identity(self) -> tuple[int, int]:
        return self._number, len(self._data)

    def read(self, start: int, size: int) -> bytes:
        return bytes(self._data[start : start + size])

    def append(self, data: bytes) -> None:
        self._data += data

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass


class FreeLock:
    """The lock of a disk that nobody else has."""

    def acquire(self, *, wait: bool) -> bool:  # noqa: ARG002
        return True

    def release(self) -> None:
        pass

    def close(self) -> None:
        pass
