"""The disk as the journal sees it: one seam, so that tests can lose power at any moment.

`fsync` makes a file's bytes durable, `sync_directory` the names in it; nothing else does.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol

from hubbub.telling import tell


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

    `link` gives a file a second name, FileExistsError if that is taken; `names` of a directory that is not there are none.
    """

    def make_directory(self, path: Path) -> None: ...
    def open(self, path: Path) -> File: ...
    def open_new(self, path: Path) -> File: ...
    def identity(self, path: Path) -> tuple[int, int] | None: ...
    def names(self, directory: Path) -> list[Path]: ...
    def link(self, source: Path, target: Path) -> None: ...
    def remove(self, path: Path) -> None: ...
    def replace(self, source: Path, target: Path) -> None: ...
    def sync_directory(self, path: Path) -> None: ...
    def lock(self, path: Path) -> Lock: ...


class _Open:
    """What is open until it is closed, or nobody has it any more."""

    _descriptor = -1

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


class SystemFile(_Open):
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


_WHERE_THERE_ARE = ("O_BINARY", "O_CLOEXEC", "O_NOFOLLOW")


class SystemDisk:
    """The disk of the operating system. What it makes is for its owner alone: files 0600, directories 0700.

    What it finds is held to that: no symbolic links, no file of another user; one that others could read is closed to them, and told.
    """

    _NEW = os.O_RDWR | os.O_APPEND | os.O_CREAT | sum(getattr(os, flag, 0) for flag in _WHERE_THERE_ARE)

    def make_directory(self, path: Path) -> None:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def open(self, path: Path) -> File:
        return SystemFile(self._own(path))

    def open_new(self, path: Path) -> File:
        descriptor = self._own(path)
        os.ftruncate(descriptor, 0)
        return SystemFile(descriptor)

    def _own(self, path: Path) -> int:
        """Open a file that is this user's own, or make it."""
        descriptor = os.open(path, self._NEW, 0o600)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, f"{path.name} is not a file")
            if status.st_uid != os.geteuid():
                told = f"{path.name} belongs to user {status.st_uid}, and this is user {os.geteuid()}"
                raise PermissionError(errno.EPERM, told)
            if status.st_mode & 0o077:
                _close_to_others(path, descriptor, status.st_mode)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def identity(self, path: Path) -> tuple[int, int] | None:
        try:
            status = os.stat(path)  # noqa: PTH116  (twice as fast as Path.stat, and once for each recording)
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_size

    def names(self, directory: Path) -> list[Path]:
        return list(directory.iterdir()) if directory.is_dir() else []

    def link(self, source: Path, target: Path) -> None:
        target.hardlink_to(source)

    def remove(self, path: Path) -> None:
        path.unlink()

    def replace(self, source: Path, target: Path) -> None:
        source.replace(target)

    def sync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: Path) -> Lock:
        return SystemLock(self._own(path))


def _close_to_others(path: Path, descriptor: int, mode: int) -> None:
    with suppress(OSError):  # a file system without modes
        os.fchmod(descriptor, 0o600)
    tell(
        "%s had mode %04o: it is for its owner alone. Whoever read a secret can remove the permanent noise: if somebody may have, "
        "withdraw consent and give it again",
        path,
        mode & 0o777,
    )


class SystemLock(_Open):
    """`flock`.

    It is released by name, not by closing: a child that was forked meanwhile has the same file open. `release` is no Python code,
    where it can be: no signal handler can come before it.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self.release: Callable[[], None] = _releasing(descriptor)

    def acquire(self, *, wait: bool) -> bool:
        return _acquire(self._descriptor, wait=wait)


def _acquire(descriptor: int, *, wait: bool) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _releasing(descriptor: int) -> Callable[[], None]:
    return partial(fcntl.flock, descriptor, fcntl.LOCK_UN)
