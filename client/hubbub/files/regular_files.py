"""Regular files: open one, or find those below a directory, without waiting for a FIFO and without stopping at an odd entry."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

_KINDS = {
    stat.S_IFDIR: "it is a directory",
    stat.S_IFIFO: "it is a FIFO",
    stat.S_IFSOCK: "it is a socket",
    stat.S_IFCHR: "it is a device",
    stat.S_IFBLK: "it is a device",
}
_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # Windows has no FIFOs, and converts line ends


def open_regular(path: str | Path) -> BufferedReader:
    """Open a regular file for reading; links are followed.

    Raises OSError with the path and the reason for anything else. A FIFO without a writer does not block.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | _FLAGS)
    except OSError as problem:
        if problem.errno == errno.ENXIO:  # of a socket
            raise OSError(errno.EINVAL, "it is a socket, not a file", str(path)) from None
        raise
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"{_KINDS.get(stat.S_IFMT(mode), 'it is no file')}, not a file", str(path))
    return os.fdopen(descriptor, "rb")


def read_regular(path: str | Path) -> bytes:
    """Return the content of a regular file; raises OSError for anything else."""
    with open_regular(path) as file:
        return file.read()


@dataclass(frozen=True, slots=True)
class OddEntry:
    """Entry of a directory that is no file that can be read, with the reason."""

    path: Path
    reason: str


def files_below(directory: Path, suffix: str) -> Iterator[Path | OddEntry]:
    """Yield what has a suffix in a directory and below it, in the order of paths, and the directories that cannot be read.

    Links to directories are not followed. An entry that vanishes meanwhile is odd when it is opened.
    """
    found: list[Path | OddEntry] = []

    def add(problem: OSError) -> None:
        reason = f"the directory cannot be read: {problem.strerror}. Run the command as a user who can read it"
        found.append(OddEntry(Path(problem.filename), reason))

    for place, folders, names in os.walk(directory, onerror=add):  # Path.rglob skips directories that it cannot read
        for name in (entry for entry in (*folders, *names) if entry.endswith(suffix)):
            path = Path(place, name)
            reason = _oddity(path)
            found.append(path if reason is None else OddEntry(path, reason))
        folders[:] = [name for name in folders if not name.endswith(suffix)]
    yield from sorted(found, key=lambda entry: entry if isinstance(entry, Path) else entry.path)


def _oddity(path: Path) -> str | None:
    """Why a path is no regular file; None: it is one."""
    try:
        mode = path.stat().st_mode
    except OSError as problem:
        link = "a link, and its target " if path.is_symlink() else ""
        return f"{link}cannot be read: {problem.strerror}"
    return None if stat.S_ISREG(mode) else f"{_KINDS.get(stat.S_IFMT(mode), 'it is no file')}, not a file"
