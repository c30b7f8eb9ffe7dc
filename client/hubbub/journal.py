"""The journal: events appended to one file that all processes of a client share, and the state they fold to.

    with journal as state:            # locked against threads and processes, and up to date
        journal.write({...})          # appended in one write, and folded in

What is written survives the process at once, and a power loss once `sync` returned True.
"""

from __future__ import annotations

import errno
import json
import logging
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from hubbub.disk import Disk, File, Lock
from hubbub.framing import record, scan
from hubbub.state import Event, State

logger = logging.getLogger("hubbub")

NAME = "journal"
MAX_UNWRITTEN = 10_000
_COMPACT_ABOVE = 1 << 18
_encode = json.JSONEncoder(separators=(",", ":")).encode


class Journal:
    """The state of one directory.

    A disk that is full, read-only or broken makes it `degraded`: it goes on in memory, says so once, keeps what it could not write
    (the last event of each kind for each thing), and tries again whenever it is synchronized.
    """

    def __init__(self, directory: Path, disk: Disk) -> None:
        self.directory = directory
        self._disk = disk
        self._path = directory / NAME
        self._held = threading.RLock()
        self._depth = 0
        self._state = State()
        self._file: File | None = None
        self._lock: Lock | None = None
        self._inode = 0
        self._end = 0
        self._compacted = 0
        self._unwritten: dict[tuple[object, ...], Event] = {}
        self._unsynced = False
        self._warned = False
        self.problem = ""

    @property
    def degraded(self) -> bool:
        """Whether something waits to be written that the disk refused."""
        return bool(self._unwritten)

    @property
    def unsynced(self) -> bool:
        """Whether a power loss now would lose something."""
        return self._unsynced or self.degraded

    def __enter__(self) -> State:
        self._held.acquire()
        self._depth += 1
        if self._depth == 1:
            try:
                self._enter()
            except OSError as problem:
                self._degrade(problem)
            except BaseException:
                self.__exit__(None, None, None)
                raise
        return self._state

    def _enter(self) -> None:
        if self._lock is None:
            self._disk.make_directory(self.directory)
            self._lock = self._disk.lock(self.directory / "lock")
        self._lock.acquire(wait=True)
        self._catch_up()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._depth == 1 and self._lock is not None:
                self._lock.release()
        finally:
            self._depth -= 1
            self._held.release()

    def write(self, *events: Event) -> None:
        """Append events in one write and fold them in; to be called inside `with journal`."""
        for event in events:
            self._state.apply(event)
        if self.degraded or self._file is None:
            self._keep(events)
            return
        data = _records(events)
        try:
            self._file.append(data)
        except OSError as problem:
            self._keep(events)
            self._degrade(problem)
            return
        self._end += len(data)
        self._unsynced = True

    def sync(self) -> bool:
        """Make everything written so far survive a power loss; False where the disk does not let us.

        It waits for the disk without holding any lock.
        """
        with self:
            if not self._write_the_unwritten():
                return False
            file, self._unsynced = self._file, False
        try:
            if file is None:
                return False
            file.sync()
        except OSError as problem:
            self._unsynced = True
            self._degrade(problem)
            return False
        return True

    def compact(self, *, always: bool = False) -> bool:
        """Write the state anew where the journal has grown far beyond it; durable when this returns True."""
        with self:
            if not always and self._end < max(_COMPACT_ABOVE, 4 * self._compacted):
                return False
            if not self._write_the_unwritten():
                return False
            draft = self._path.with_suffix(".new")
            protected = _records(self._state.protected())
            data = protected + _records(self._state.unprotected()) + protected  # said twice: one damage is none
            try:
                file = self._disk.open_new(draft)
                try:
                    file.append(data)
                    file.sync()
                    self._disk.replace(draft, self._path)
                    self._disk.sync_directory(self.directory)
                finally:
                    file.close()
                self._reopen()
            except OSError as problem:
                self._degrade(problem)
                return False
            self._compacted = len(data)
            return True

    def close(self) -> None:
        """Let go of the files; the next use opens them again."""
        with self._held:
            if self._file is not None:
                self._file.close()
            if self._lock is not None:
                self._lock.close()
            self._file = self._lock = None
            self._inode = self._end = 0

    def before_fork(self) -> None:
        """Wait until no thread is in the middle of something: a child would find it half done."""
        self._held.acquire()

    def after_fork_in_parent(self) -> None:
        self._held.release()

    def after_fork_in_child(self) -> None:
        """Open the files anew: a lock on a file that was inherited would be the parent's."""
        self._held = threading.RLock()
        self._depth = 0
        self._unwritten.clear()  # the parent has them, and writes them
        self.close()

    def _catch_up(self) -> None:
        """Fold in what other processes appended, or start again where one of them compacted."""
        found = self._disk.identity(self._path)
        if self._file is None or found is None or found[0] != self._inode or found[1] < self._end:
            self._reopen()
        elif found[1] > self._end:
            self._fold(self._file.read_from(self._end))

    def _reopen(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        new = self._disk.identity(self._path) is None
        self._file = self._disk.open(self._path)
        if new:
            self._disk.sync_directory(self.directory)
        self._inode = self._file.identity()[0]
        self._state, self._end = State(), 0
        self._state.settle(self._fold(self._file.read_from(0)))
        for event in self._unwritten.values():
            self._state.apply(event)

    def _fold(self, data: bytes) -> int:
        """Fold in records and return how many were damaged."""
        found = scan(data)
        damaged = found.damaged
        for payload in found.payloads:
            try:
                self._state.apply(json.loads(payload))
            except (KeyError, TypeError, ValueError):
                damaged += 1
        self._end += len(data)
        return damaged

    def _keep(self, events: tuple[Event, ...]) -> None:
        for event in events:
            about = event.get("id") or event.get("batch", {}).get("id") or event.get("account", {}).get("digest")
            key = (event["e"], event.get("s"), event.get("m"), event.get("p"), about)
            self._unwritten.pop(key, None)
            self._unwritten[key] = event
        while len(self._unwritten) > MAX_UNWRITTEN:
            self._unwritten.pop(next(iter(self._unwritten)))

    def _write_the_unwritten(self) -> bool:
        if not self._unwritten:
            return self._file is not None
        if self._file is None:
            return False
        data = _records(self._unwritten.values())
        try:
            self._file.append(data)
        except OSError:
            return False
        self._unwritten.clear()
        self._end += len(data)
        self._unsynced = True
        self._warned = False
        self.problem = ""
        logger.warning("%s takes what hubbub writes again", self.directory)
        return True

    def _degrade(self, problem: OSError) -> None:
        if not self._warned:
            self._warned = True
            self.problem = f"{self.directory} {_what_is_wrong(problem)}"
            logger.warning("%s; hubbub goes on in memory and sends nothing until it can write there", self.problem)


def _records(events: Iterable[Event]) -> bytes:
    return b"".join(record(_encode(event).encode()) for event in events)


def _what_is_wrong(problem: OSError) -> str:
    told = problem.strerror or type(problem).__name__
    match problem.errno:
        case errno.EEXIST | errno.ENOTDIR:
            return f"is not a directory ({told}): give Client a directory of its own as `state`"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return f"cannot be written ({told}): give Client a directory that this user may write as `state`"
        case errno.ENOSPC | errno.EDQUOT:
            return f"is on a full disk ({told}): make room"
        case _:
            return f"cannot be used ({told}): see what this disk says"
