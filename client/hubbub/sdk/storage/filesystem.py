"""File-system operations of the journal, replaceable in tests: on the system's disk, and in memory for durability="memory".

`File.sync` makes a file's bytes durable, `Disk.sync_directory` the names in a directory; no other operation does.
"""

from __future__ import annotations

import errno
import os
import stat
import weakref
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NoReturn, Protocol

from hubbub.files.posix import current_user, lock_file, require_posix, restrict_mode, unlock_file
from hubbub.files.private_file import make_private_directory
from hubbub.sdk.runtime.process import noticed_process, this_process
from hubbub.sdk.runtime.safe_logging import log_when_unlocked


class File(Protocol):
    """An open append-only file; `identity` is (inode, size)."""

    def identity(self) -> tuple[int, int]: ...
    def read(self, start: int, size: int) -> bytes: ...
    def append(self, data: bytes) -> None: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...


class Lock(Protocol):
    """A lock between processes, on an open file; the kernel releases it when its process ends."""

    def acquire(self, *, wait: bool) -> bool: ...
    def release(self) -> None: ...
    def close(self) -> None: ...


class Disk(Protocol):
    """Disk operations of the journal and the secret file. Each may raise OSError.

    Paths are those of existing files and directories, except where a method creates one, and `target`.
    """

    def make_directory(self, path: Path) -> None:
        """Create a directory with mode 0700, and its parents, if it does not exist."""

    def open(self, path: Path) -> File:
        """Return a file that is open to read and append; create it with mode 0600 if it does not exist."""

    def open_new(self, path: Path) -> File:
        """Return an open empty file with mode 0600, which is created, or emptied if it exists."""

    def identity(self, path: Path) -> tuple[int, int] | None:
        """Return the inode of a file and its size in bytes; None: there is no such file."""

    def list_directory(self, directory: Path) -> list[Path]:
        """Return the paths in a directory, in any order; none if the directory does not exist."""

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name; raise FileExistsError if that name exists."""

    def remove(self, path: Path) -> None:
        """Delete a file."""

    def replace(self, source: Path, target: Path) -> None:
        """Rename a file, and replace the target if it exists."""

    def sync_directory(self, path: Path) -> None:
        """Wait until the names in a directory are durable."""

    def lock(self, path: Path) -> Lock:
        """Return a lock between processes on this file, not yet acquired."""


_opened: dict[int, weakref.ref[_PrivateFile]] = {}
"""Open files of the clients, by their `id`."""


def close_inherited() -> None:
    """Close the files that the parent of this forked process opened.

    A lock that a killed parent held would stay locked as long as a child has its file open.
    """
    for reference in list(_opened.values()):
        file = reference()
        if file is not None and file.is_inherited:
            file.close()


if hasattr(os, "register_at_fork"):
    # a fork in C may not call it: then the first call of a client does
    os.register_at_fork(after_in_child=close_inherited)


class _PrivateFile:
    """An open file of this user with mode 0600; created if it does not exist. It is closed by `close`, or when the object is deleted.

    It belongs to the process that opened it: in a forked child every operation but `close` raises OSError (EBADF).
    """

    _descriptor = -1

    def __init__(self, path: Path) -> None:
        require_posix()
        self._process = this_process()
        self._descriptor = os.open(path, _NEW, 0o600)
        _opened[id(self)] = weakref.ref(self)
        try:
            status = os.fstat(self._descriptor)
            self._device_and_inode = status.st_dev, status.st_ino
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, f"{path.name} is not a regular file")
            if status.st_uid != current_user():
                owners = f"{path.name} belongs to user {status.st_uid}, this process runs as user {current_user()}"
                raise PermissionError(errno.EPERM, owners)
            if status.st_mode & 0o077:
                _restrict_mode(path, self._descriptor, status.st_mode)
        except BaseException:
            self.close()
            raise

    @property
    def is_inherited(self) -> bool:
        """Whether this process is a forked child of the one that opened the file."""
        return self._process is not this_process()

    @property
    def descriptor(self) -> int:
        """Descriptor of the file, for one operation; OSError if it is closed or inherited."""
        if self._descriptor < 0 or self._process is not noticed_process():
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._descriptor

    def close(self) -> None:
        """Close the file once. A descriptor of the parent that the host has closed, and that stands for another file now, stays open."""
        descriptor = vars(self).pop("_descriptor", -1)  # one thread alone gets it
        _opened.pop(id(self), None)
        if descriptor < 0:
            return
        if not self.is_inherited:
            os.close(descriptor)
            return
        with suppress(OSError):
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) == self._device_and_inode:
                os.close(descriptor)

    def __del__(self) -> None:
        self.close()


class SystemFile(_PrivateFile):
    """A file of the operating system; `identity` is (inode, size)."""

    def identity(self) -> tuple[int, int]:
        status = os.fstat(self.descriptor)
        return status.st_ino, status.st_size

    def read(self, start: int, size: int) -> bytes:
        descriptor = self.descriptor
        os.lseek(descriptor, start, os.SEEK_SET)
        parts = []
        while size > 0 and (part := os.read(descriptor, size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def append(self, data: bytes) -> None:
        """Write all bytes; if the disk is full, remove the written part and raise OSError."""
        written = os.write(self.descriptor, data)
        if written != len(data):
            os.ftruncate(self.descriptor, os.fstat(self.descriptor).st_size - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync(self) -> None:
        os.fsync(self.descriptor)

    def truncate(self) -> None:
        os.ftruncate(self.descriptor, 0)


_OPTIONAL_FLAGS = ("O_BINARY", "O_CLOEXEC", "O_NOFOLLOW")
_NEW = os.O_RDWR | os.O_APPEND | os.O_CREAT | sum(getattr(os, flag, 0) for flag in _OPTIONAL_FLAGS)


class SystemDisk:
    """The operating system's disk. New files have mode 0600, new directories 0700.

    Symbolic links and files of another user are refused. A file with a wider mode is restricted to 0600, with a warning.
    """

    def make_directory(self, path: Path) -> None:
        require_posix()
        make_private_directory(path)

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
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: Path) -> Lock:
        return SystemLock(path)


def _restrict_mode(path: Path, descriptor: int, mode: int) -> None:
    with suppress(OSError):  # a file system without modes
        restrict_mode(descriptor, 0o600)
    log_when_unlocked(
        "%s had mode %04o and was changed to 0600. Anyone who read the secret can remove the permanent noise from this client's reports. "
        'If that is possible, call set_consent("off") and then "on" to create a new secret.',
        path,
        mode & 0o777,
    )


class SystemLock(_PrivateFile):
    """A lock by `flock`. It is released explicitly, because a child that was forked meanwhile has the same file open."""

    def acquire(self, *, wait: bool) -> bool:
        try:
            lock_file(self.descriptor, wait=wait)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        unlock_file(self.descriptor)


class MissingDiskError(OSError):
    """The machine has no absolute path for the state directory."""


class MissingDisk:
    """A disk of which nothing can be used.

    reason : why, and what to do
    """

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def _raise(self, *_: object) -> NoReturn:
        raise MissingDiskError(errno.ENOENT, self._reason)

    make_directory = open = open_new = identity = list_directory = _raise
    link = remove = replace = sync_directory = lock = _raise


class MemoryDisk:
    """A disk in memory, for one process. Its locks are always free, and its files end with the process."""

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
    """A lock that is always free."""

    def acquire(self, *, wait: bool) -> bool:  # noqa: ARG002
        return True

    def release(self) -> None:
        pass

    def close(self) -> None:
        pass
