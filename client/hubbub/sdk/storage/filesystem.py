"""The disk as the journal sees it: one seam, so that tests can lose power at any moment.

`fsync` makes a file's bytes durable, `sync_directory` the names in it; nothing else does.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import ClassVar, Protocol

from hubbub.sdk.runtime.safe_logging import log_when_unlocked


class File(Protocol):
    """An open file that grows at its end."""

    def identity(self) -> tuple[int, int]: ...
    def read(self, start: int, size: int) -> bytes: ...
    def append(self, data: bytes) -> None: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...


class Lock(Protocol):
    """A lock between processes, on an open file; the kernel releases it when its holder dies."""

    def acquire(self, *, wait: bool) -> bool: ...
    def release(self) -> None: ...
    def close(self) -> None: ...


class Disk(Protocol):
    """The few things that journal and secret ask of a disk; each may raise OSError.

    `link` gives a file a second name, FileExistsError if that is taken; `list_directory` of a directory that is not there are none.
    """

    def make_directory(self, path: Path) -> None: ...
    def open(self, path: Path) -> File: ...
    def open_new(self, path: Path) -> File: ...
    def identity(self, path: Path) -> tuple[int, int] | None: ...
    def list_directory(self, directory: Path) -> list[Path]: ...
    def link(self, source: Path, target: Path) -> None: ...
    def remove(self, path: Path) -> None: ...
    def replace(self, source: Path, target: Path) -> None: ...
    def sync_directory(self, path: Path) -> None: ...
    def lock(self, path: Path) -> Lock: ...


class _Descriptor:
    """A descriptor that is closed by `close`, or when the object is dropped.

    A signal handler may raise between any two calls of Python code, so a descriptor is never in a variable alone: `os.open` puts it
    into a list of this object within one call of C code, and one call takes it out and closes it. A handler that raises within `__del__` leaves it
    in the list; the next `_Descriptor` closes it, because `_lists` has the list too.
    """

    _lists: ClassVar[dict[int, tuple[weakref.ref[_Descriptor], list[int]]]] = {}
    _numbers = count()

    def __init__(self, path: Path, flags: int) -> None:
        self._close_dropped()
        self._descriptors: list[int] = []
        self._number = next(self._numbers)
        self._lists[self._number] = weakref.ref(self), self._descriptors
        self._descriptors.extend(map(os.open, (path,), (flags,), (0o600,)))

    @property
    def _descriptor(self) -> int:
        return self._descriptors[0] if self._descriptors else -1

    def close(self) -> None:
        _close(self._descriptors)
        self._lists.pop(self._number, None)

    def __del__(self) -> None:
        if hasattr(self, "_number"):  # else `__init__` did not come so far
            self.close()

    @classmethod
    def _close_dropped(cls) -> None:
        for number, (owner, descriptors) in list(cls._lists.items()):
            if owner() is None:
                _close(descriptors)
                cls._lists.pop(number, None)


def _close(descriptors: list[int]) -> None:
    """Take out and close; no Python code runs between the two."""
    with suppress(IndexError):  # another thread closed it
        deque(map(os.close, map(list.pop, [descriptors] * len(descriptors))), maxlen=0)


class _PrivateFile(_Descriptor):
    """A file that belongs to this user alone; it is made if it is not there."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _NEW)
        try:
            status = os.fstat(self._descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, f"{path.name} is not a file")
            if status.st_uid != os.geteuid():
                told = f"{path.name} belongs to user {status.st_uid}, and this is user {os.geteuid()}"
                raise PermissionError(errno.EPERM, told)
            if status.st_mode & 0o077:
                _restrict_mode(path, self._descriptor, status.st_mode)
        except BaseException:
            self.close()
            raise


class SystemFile(_PrivateFile):
    """A file of the operating system; `identity` is (inode, size)."""

    def identity(self) -> tuple[int, int]:
        status = os.fstat(self._descriptor)
        return status.st_ino, status.st_size

    def read(self, start: int, size: int) -> bytes:
        os.lseek(self._descriptor, start, os.SEEK_SET)
        parts = []
        while size > 0 and (part := os.read(self._descriptor, size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def append(self, data: bytes) -> None:
        """Write all of it or, as far as the disk lets us, nothing."""
        written = os.write(self._descriptor, data)
        if written != len(data):
            os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def truncate(self) -> None:
        os.ftruncate(self._descriptor, 0)


_OPTIONAL_FLAGS = ("O_BINARY", "O_CLOEXEC", "O_NOFOLLOW")
_NEW = os.O_RDWR | os.O_APPEND | os.O_CREAT | sum(getattr(os, flag, 0) for flag in _OPTIONAL_FLAGS)


class SystemDisk:
    """The disk of the operating system. What it makes is for its owner alone: files 0600, directories 0700.

    What it finds is held to that: no symbolic links, no file of another user; one that others could read is closed to them, and told.
    """

    def make_directory(self, path: Path) -> None:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def open(self, path: Path) -> File:
        return SystemFile(path)

    def open_new(self, path: Path) -> File:
        file = SystemFile(path)
        file.truncate()
        return file

    def identity(self, path: Path) -> tuple[int, int] | None:
        try:
            status = os.stat(path)  # noqa: PTH116  (twice as fast as Path.stat, and once for each recording)
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_size

    def list_directory(self, directory: Path) -> list[Path]:
        return list(directory.iterdir()) if directory.is_dir() else []

    def link(self, source: Path, target: Path) -> None:
        target.hardlink_to(source)

    def remove(self, path: Path) -> None:
        path.unlink()

    def replace(self, source: Path, target: Path) -> None:
        source.replace(target)

    def sync_directory(self, path: Path) -> None:
        directory = _Descriptor(path, os.O_RDONLY)
        try:
            os.fsync(directory._descriptor)
        finally:
            directory.close()

    def lock(self, path: Path) -> Lock:
        return SystemLock(path)


def _restrict_mode(path: Path, descriptor: int, mode: int) -> None:
    with suppress(OSError):  # a file system without modes
        os.fchmod(descriptor, 0o600)
    log_when_unlocked(
        "%s had mode %04o: it is for its owner alone. Whoever read a secret can remove the permanent noise: if somebody may have, "
        "withdraw consent and give it again",
        path,
        mode & 0o777,
    )


class SystemLock(_PrivateFile):
    """`flock`.

    It is released by name, not by closing: a child that was forked meanwhile has the same file open. `release` is no Python code,
    where it can be: no signal handler can come before it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.release: Callable[[], None] = _make_release(self._descriptor)

    def acquire(self, *, wait: bool) -> bool:
        return _acquire(self._descriptor, wait=wait)


def _acquire(descriptor: int, *, wait: bool) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _make_release(descriptor: int) -> Callable[[], None]:
    return partial(fcntl.flock, descriptor, fcntl.LOCK_UN)


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

    def list_directory(self, directory: Path) -> list[Path]:
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
