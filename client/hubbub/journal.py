"""The journal: events appended to one file that all processes of a client share, and the state they fold to.

    with journal as state:            # locked against threads and processes, and up to date
        journal.write({...})          # appended in one write, and folded in

What is written survives the process at once, and a power loss once `sync` returned True. A start folds three files, in this order:

    snapshot          what `compaction.py` said of the state, while others went on writing
    journal.earlier   the events that this was to replace: there while a snapshot is written, and after a kill meanwhile
    journal           the events since
"""

from __future__ import annotations

import errno
import json
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import TracebackType

from hubbub.disk import Disk, File, Lock
from hubbub.framing import is_foreign, payloads, record
from hubbub.state import Event, State

logger = logging.getLogger("hubbub")

JOURNAL, EARLIER, SNAPSHOT = "journal", "journal.earlier", "snapshot"
MAX_UNWRITTEN = 10_000
READ_UNDER_THE_LOCK = 1 << 16
"""What others wrote is folded in under the lock if it is no more than this many bytes; more of it beside the lock."""

_COMPACT_ABOVE = 1 << 18
_CHUNK = 1 << 20
_encoder = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def _encode_once_made() -> Callable[[Event], str]:
    """Return `_encoder.encode` without what that makes anew for each call: half the time."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return _encoder.encode
    chunks = make(None, _encoder.default, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, True)
    return lambda event: "".join(chunks(event, 0))


_encode = _encode_once_made()


class Journal:
    """The state of one directory.

    A disk that is full, read-only or broken makes it `degraded`: it goes on in memory, says so once, keeps what it could not write
    (the last event of each kind for each thing), and tries again whenever it is synchronized.
    """

    def __init__(self, directory: Path, disk: Disk, rest: Callable[[float], None] = time.sleep) -> None:
        self.directory = directory
        self._disk = disk
        self._rest = rest
        self._path = directory / JOURNAL
        self._held = threading.RLock()
        self._syncing = threading.Lock()
        self._compacting = threading.Lock()
        self._depth = 0
        self._state = State()
        self._file: File | None = None
        self._earlier: list[File] = []
        self._lock: Lock | None = None
        self._compactor: Lock | None = None
        self._inode = 0
        self._end = 0
        self._unwritten: dict[tuple[object, ...], Event] = {}
        self._unsynced = self._names_unsynced = False
        self._warned = False
        self.problem = ""

    @property
    def is_read(self) -> bool:
        """Whether the state is what the disk says; without it nobody knows what was spent."""
        return self._file is not None

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
                self.degrade(problem)
            except BaseException:
                self.__exit__(None, None, None)
                raise
        return self._state

    def _enter(self) -> None:
        if self._lock is None:
            self._disk.make_directory(self.directory)
            self._lock = self._disk.lock(self.directory / "lock")
        self._lock.acquire(wait=True)
        while self._disk.identity(self._path) != (self._inode, self._end):
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
        data = records(events)  # before it counts: what cannot be written must not hold
        for event in events:
            self._state.apply(event)
        if self.degraded or self._file is None:
            self._keep(events)
            return
        try:
            self._file.append(data)
        except OSError as problem:
            self._keep(events)
            self.degrade(problem)
            return
        self._end += len(data)
        self._unsynced = True

    def sync(self) -> bool:
        """Make what this process wrote, and what it had read by then, survive a power loss; False where the disk does not let us.

        It waits for the disk without a lock that those who record wait for; to be called outside `with journal`.
        """
        with self._syncing:
            with self:
                if not self.write_the_unwritten() or self._file is None:
                    return False
                if not self._unsynced:
                    return True  # by whom we waited for
                earlier, file = tuple(self._earlier), self._file
                names, self._unsynced, self._names_unsynced = self._names_unsynced, False, False
            try:
                for each in (*earlier, file):
                    each.sync()
                if names:
                    self._disk.sync_directory(self.directory)
            except OSError as problem:
                self._unsynced, self._names_unsynced = True, names
                self.degrade(problem)
                return False
            with self._held:
                for each in earlier:
                    self._earlier.remove(each)
                    each.close()
            return True

    def compact(self, *, always: bool = False) -> bool:
        """Write the state anew, beside the lock, if the journal has outgrown its snapshot; durable when this returns True.

        always : wait for whoever is at it, and leave nothing behind of what was written before. Only outside `with journal`.
        """
        from hubbub.compaction import write_snapshot

        if not (always or self.is_due_for_compaction()) or not self._compacting.acquire(blocking=always):
            return False
        try:
            if self._compactor is None:
                self._compactor = self._disk.lock(self.directory / "compactor")
            if not self._compactor.acquire(wait=always):
                return False
            try:
                done = write_snapshot(self, self._disk, self._rest, always=always)
            finally:
                self._compactor.release()
        except OSError as problem:
            self.degrade(problem)
            return False
        finally:
            self._compacting.release()
        return done

    def is_due_for_compaction(self) -> bool:
        """Say whether the journal is longer than its snapshot, or a kill ended a compaction."""
        with self._held:
            if self._file is None:
                return False
            snapshot = self._disk.identity(self.directory / SNAPSHOT)
            large = self._end > max(_COMPACT_ABOVE, snapshot[1] if snapshot else 0)
            return large or self._disk.identity(self.directory / EARLIER) is not None

    def begin_part(self) -> bool:
        """Go on in a new file; to be called inside `with journal`. False if an earlier part is still there."""
        earlier = self.directory / EARLIER
        if self._disk.identity(earlier) is not None:
            return False
        self._disk.replace(self._path, earlier)
        before = self._inode
        self._go_on_in(self._disk.open(self._path))
        self.write({"e": "after", "inode": before})
        return True

    def some(self, events: Iterator[Event], most: int) -> bytes:
        """Take so many events of the state, while no thread of this process changes it; return their records."""
        with self._held:
            taken = list(islice(events, most))
        return records(taken)

    def close(self) -> None:
        """Let go of the files; the next use opens them again."""
        with self._held:
            for file in (*self._earlier, self._file, self._lock, self._compactor):
                if file is not None:
                    file.close()
            self._file = self._lock = self._compactor = None
            self._earlier.clear()
            self._inode = self._end = 0

    def still(self) -> Generator[None, None, None]:
        """Hold on from `next` to `close`: a child that is forked meanwhile finds nothing half done."""
        with self._held:
            yield

    def after_fork_in_child(self) -> None:
        """Open the files anew: a lock on a file that was inherited would be the parent's."""
        self._held = threading.RLock()
        self._syncing, self._compacting = threading.Lock(), threading.Lock()
        self._depth = 0
        self._unwritten.clear()  # the parent has them, and writes them
        self.close()

    def _catch_up(self) -> None:
        """Take one step towards what is on the disk."""
        size = 0 if self._file is None else self._file.identity()[1]
        if self._file is not None and size > self._end:
            with self._beside_the_lock(size - self._end):
                self._fold(self._state, self._file, self._end, size)
                self._end = size
        elif not self._follow():
            self._load()

    def _follow(self) -> bool:
        """Go on in the part after the one that was read to its end, if that is what the journal is now."""
        if self._file is None or self._disk.identity(self._path) is None:
            return False
        file = self._disk.open(self._path)
        if next(payloads((file.read(0, 256),)), None) != _after(self._inode):
            file.close()
            return False
        self._go_on_in(file)
        return True

    def _go_on_in(self, file: File) -> None:
        if self._file is not None:
            self._earlier.append(self._file)
        self._file, self._inode, self._end = file, file.identity()[0], 0
        self._names_unsynced = True

    def _load(self) -> None:
        """Fold everything from the start; what is there under the lock does not change any more, so it is read beside it."""
        paths = [path for path in map(self.directory.joinpath, (SNAPSHOT, EARLIER)) if self._disk.identity(path)]
        before = [self._disk.open(path) for path in paths]
        journal = self._disk.open(self._path)
        if any(is_foreign(file.read(0, READ_UNDER_THE_LOCK)) for file in (*before, journal)):
            for file in (*before, journal):
                file.close()
            raise OSError(errno.EBADMSG, "what is there as journal or snapshot is somebody else's")
        self._go_on_in(journal)
        files = [(file, file.identity()[1]) for file in (*before, self._file) if file is not None]
        state = State()
        with self._beside_the_lock(sum(end for _, end in files)):
            state.settle(sum(self._fold(state, file, 0, end) for file, end in files))
        for event in self._unwritten.values():
            state.apply(event)
        self._earlier += before
        self._state, self._end = state, files[-1][1]
        self.recovered()

    @contextmanager
    def _beside_the_lock(self, size: int) -> Iterator[None]:
        """Let other processes go on while much is read; our own threads wait, for they need what is read."""
        if size <= READ_UNDER_THE_LOCK or self._lock is None:
            yield
            return
        self._lock.release()
        try:
            yield
        finally:
            self._lock.acquire(wait=True)

    @staticmethod
    def _fold(state: State, file: File, start: int, end: int) -> int:
        """Fold in records and return how many were damaged."""
        return fold(state, (file.read(at, min(_CHUNK, end - at)) for at in range(start, end, _CHUNK)))

    def _keep(self, events: tuple[Event, ...]) -> None:
        for event in events:
            about = event.get("id") or event.get("batch", {}).get("id") or event.get("account", {}).get("digest")
            key = (event["e"], event.get("s"), event.get("m"), event.get("p"), about)
            self._unwritten.pop(key, None)
            self._unwritten[key] = event
        while len(self._unwritten) > MAX_UNWRITTEN:
            self._unwritten.pop(next(iter(self._unwritten)))

    def write_the_unwritten(self) -> bool:
        """Write what the disk had refused; False where it refuses still. To be called inside `with journal`."""
        if not self._unwritten:
            return self._file is not None
        if self._file is None:
            return False
        data = records(self._unwritten.values())
        try:
            self._file.append(data)
        except OSError:
            return False
        self._unwritten.clear()
        self._end += len(data)
        self._unsynced = True
        self.recovered()
        return True

    def degrade(self, problem: OSError, path: Path | None = None) -> None:
        """Say once that the directory, or this file of it, cannot be used."""
        if not self._warned:
            self._warned = True
            self.problem = f"{path or self.directory} {_what_is_wrong(problem)}"
            logger.warning("%s; hubbub goes on in memory and sends nothing until it can use it", self.problem)

    def recovered(self) -> None:
        """Say that what could not be used can be used again, once nothing waits to be written."""
        if self._warned and not self.degraded:
            self._warned, self.problem = False, ""
            logger.warning("hubbub can use %s again", self.directory)


def records(events: Iterable[Event]) -> bytes:
    """Return events as the journal holds them."""
    return b"".join(record(_encode(event).encode()) for event in events)


def fold(state: State, chunks: Iterable[bytes]) -> int:
    """Fold in records and return how many were damaged."""
    damaged = 0
    for payload in payloads(chunks):
        try:
            state.apply(json.loads(payload or b""))
        except (KeyError, TypeError, ValueError):
            damaged += 1
    return damaged


def _after(inode: int) -> bytes:
    """Return the first payload of the part that follows a file."""
    return _encode({"e": "after", "inode": inode}).encode()


def _what_is_wrong(problem: OSError) -> str:
    told = problem.strerror or type(problem).__name__
    match problem.errno:
        case errno.EBADMSG:
            return f"is not a client's state ({told}): give Client a directory of its own as `state`"
        case errno.ELOOP:
            return f"has a symbolic link where a file of its own belongs ({told}): give Client a directory of its own as `state`"
        case errno.EEXIST | errno.ENOTDIR:
            return f"is not a directory ({told}): give Client a directory of its own as `state`"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return f"cannot be used ({told}): give Client a directory that this user may read and write as `state`"
        case errno.ENOSPC | errno.EDQUOT:
            return f"is on a full disk ({told}): make room"
        case _:
            return f"cannot be used ({told}): see what this disk says"
