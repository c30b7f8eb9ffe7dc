"""Reading a state directory without touching it: for the ledger, the inspection and support."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from hubbub.errors import HubbubError
from hubbub.sdk.storage.events import EARLIER, JOURNAL, SNAPSHOT, fold
from hubbub.sdk.storage.record_format import is_foreign
from hubbub.sdk.storage.state import State


def read_state(directory: Path) -> State:
    """Fold a directory's journal as it is on disk, without a lock: a record that is just being written is not seen."""
    try:
        contents = _contents(directory)
    except OSError as problem:
        told = problem.strerror
        if isinstance(problem, NotADirectoryError):
            told = "it is a file"
        elif isinstance(problem, FileNotFoundError) and directory.is_dir():
            told = "there is no journal in it"
        raise HubbubError(
            f"{directory} holds no client's state ({told}): give the directory that the app passes to Client as `state`"
        ) from None
    if any(is_foreign(content) for content in contents):
        raise HubbubError(
            f"{directory} is not a client's state: what is there as journal or snapshot is somebody else's; "
            "give the directory that the app passes to Client as `state`"
        )
    state = State()
    state.settle(sum(fold(state.apply, (content,)) for content in contents))
    return state


def _contents(directory: Path) -> list[bytes]:
    """Read the files together: again, if a compaction renamed one meanwhile."""
    paths = [directory / name for name in (SNAPSHOT, EARLIER, JOURNAL)]
    while True:
        inodes = _inodes(paths)
        if not inodes:
            paths[-1].stat()  # raises the error that says why
        with suppress(FileNotFoundError):
            contents = [path.read_bytes() for path in inodes]
            if inodes and inodes == _inodes(paths):
                return contents


def _inodes(paths: list[Path]) -> dict[Path, int]:
    """Return the inode of each file that is there."""
    inodes = {}
    for path in paths:
        with suppress(FileNotFoundError):
            inodes[path] = path.stat().st_ino
    return inodes
