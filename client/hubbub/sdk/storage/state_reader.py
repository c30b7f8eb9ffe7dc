"""Read a state directory without locking it."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from pathlib import Path

from hubbub.errors import HubbubError
from hubbub.files.regular_files import open_regular
from hubbub.sdk.storage.event_codec import replay
from hubbub.sdk.storage.events import JOURNAL, ROTATED, SNAPSHOT
from hubbub.sdk.storage.record_format import describe_version, is_foreign, other_version
from hubbub.sdk.storage.state import State


class UnreadableStateError(HubbubError):
    """Directory without a state that this version reads: `observation` and `next_step`."""

    def __init__(self, observation: str, next_step: str) -> None:
        super().__init__(f"{observation}: {next_step}")
        self.observation = observation
        self.next_step = next_step


def read_state(directory: Path) -> State:
    """Return the state of a directory on disk. It takes no lock, so a record that is being written may be missing.

    Raises UnreadableStateError if the directory holds no state, or one of another format.
    """
    next_step = "give the directory that the app passes to Client as `state`"
    try:
        contents = _contents(directory)
    except PermissionError as problem:
        raise UnreadableStateError(
            f"{directory} cannot be read ({problem.strerror})", "run the command as the user of the app"
        ) from None
    except OSError as problem:
        reason = problem.strerror
        if isinstance(problem, NotADirectoryError):
            reason = "it is a file"
        elif isinstance(problem, FileNotFoundError) and directory.is_dir():
            reason = "there is no journal in it"
        raise UnreadableStateError(f"{directory} holds no client's state ({reason})", next_step) from None
    version = next(filter(None, map(other_version, contents)), None)
    if version is not None:
        differs, next_step = describe_version(version)
        raise UnreadableStateError(f"{directory} {differs}", next_step)
    if any(is_foreign(content) for content in contents):
        raise UnreadableStateError(
            f"{directory} is not a client's state (its journal or snapshot belongs to another program)", next_step
        )
    state = State()
    state.account_for_losses(sum(replay(state.apply, (content,)) for content in contents))
    return state


def _contents(directory: Path) -> list[bytes]:
    """Read the files of one moment: again, if a compaction renamed one meanwhile.

    A compaction moves events from the journal to the renamed journal, then into the snapshot. Files are opened in this direction, so
    one of them is found at every moment. An open file keeps its inode, so no new file has the same one.
    """
    paths = [directory / name for name in (JOURNAL, ROTATED, SNAPSHOT)]
    while True:
        with ExitStack() as stack:
            files = {}
            for path in paths:
                with suppress(FileNotFoundError):
                    files[path] = stack.enter_context(open_regular(path))
            if not files:
                paths[0].stat()  # raises the error with the reason
            contents = [file.read() for file in files.values()]
            if files and {path: os.fstat(file.fileno()).st_ino for path, file in files.items()} == _inodes(paths):
                return contents[::-1]


def _inodes(paths: list[Path]) -> dict[Path, int]:
    """Return the inode of each existing file."""
    inodes = {}
    for path in paths:
        with suppress(FileNotFoundError):
            inodes[path] = path.stat().st_ino
    return inodes
