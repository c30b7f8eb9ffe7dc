"""The journal: events appended to one file that all processes of a client share, and the state they fold to.

    with journal as state:            # locked against threads and processes, and up to date
        journal.write({...})          # appended in one write, and folded in

What is written survives the process at once, and a power loss once `sync` returned True. A start folds the three files of `events.py`, in
their order.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from hubbub.sdk.runtime.error_guard import from_a_signal_handler
from hubbub.sdk.runtime.safe_logging import inside, say, tell
from hubbub.sdk.storage.events import EARLIER, JOURNAL, SNAPSHOT, Event, after, fold, records
from hubbub.sdk.storage.filesystem import Disk, File, Lock
from hubbub.sdk.storage.pending_events import Unwritten, what_is_wrong
from hubbub.sdk.storage.record_format import is_foreign
from hubbub.sdk.storage.sent_periods import SentPeriods
from hubbub.sdk.storage.state import State

READ_UNDER_THE_LOCK = 1 << 16
"""What others wrote is folded in under the lock if it is no more than this many bytes; more of it beside the lock."""

PATIENCE = 5.0
"""So many seconds a process waits for others on its directory; whoever waited in vain does not wait again before the lock is free."""

_CHUNK = 1 << 20
T = TypeVar("T")
P = ParamSpec("P")


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
        self._sections: list[Generator[State, None, None]] = []
        self._entered = self._locked = self._torn = False
        self._patience = PATIENCE
        self._state = State()
        self._file: File | None = None
        self._earlier: dict[int, File] = {}
        """Files, by inode, that a synchronization must still reach: one for each, however often the journal was read anew."""
        self._lock: Lock | None = None
        self._inode = 0
        self._end = 0
        self._unwritten = Unwritten()
        self._unsynced = self._names_unsynced = False
        self.problem = ""

    @property
    def is_read(self) -> bool:
        """Whether the state is what the disk says; without it nobody knows what was spent."""
        return self._file is not None

    @property
    def size(self) -> int:
        """How many bytes of the journal are read."""
        return self._end

    @property
    def degraded(self) -> bool:
        """Whether something waits to be written that the disk refused."""
        return bool(self._unwritten.events)

    @property
    def unsynced(self) -> bool:
        """Whether a power loss now would lose something."""
        return self._unsynced or self.degraded

    @property
    def locked_out(self) -> bool:
        """Whether another process holds the directory, so that nobody knows what it does; to be asked inside."""
        return self._lock is not None and not self._locked

    def run(self, step: Callable[Concatenate[State, P], T], *arguments: P.args, **named: P.kwargs) -> T:
        """Return step(state, ...), locked and up to date: as `with journal`, for the host's threads.

        A signal handler may raise wherever Python code goes on, even as an `__exit__` begins. Here nothing is left held: only this frame
        has the section, whatever ends it drops it, and a generator that is dropped closes itself before any handler's turn.
        """
        for state in self._section():
            result = step(state, *arguments, **named)
        return result

    def __enter__(self) -> State:
        section = self._section()
        state = next(section)
        self._sections.append(section)
        return state

    def __exit__(self, *_: object) -> None:
        next(self._sections.pop(), None)

    def _section(self) -> Generator[State, None, None]:
        me = threading.get_ident()
        try:
            inside.append(me)
            with self._held:
                within = self._entered
                try:
                    self._entered = True
                    if not within:
                        self._enter()
                    yield self._state
                finally:
                    self._entered = within
                    if not within and self._lock is not None:
                        self._locked = False
                        try:
                            self._lock.release()
                        except OSError as problem:
                            self._give_up_lock(problem)
        finally:
            inside.remove(me)
            say()

    def _give_up_lock(self, problem: OSError) -> None:
        """Close what cannot be unlocked, which unlocks it; the next call opens and reads everything anew."""
        lock, self._lock = self._lock, None
        self._let_go()
        self.degrade(problem)
        if lock is not None:
            with suppress(OSError):
                lock.close()

    def _enter(self) -> None:
        try:
            if self._lock is None:
                self._disk.make_directory(self.directory)
                self._lock = self._disk.lock(self.directory / "lock")
            self.wait_for(self._lock)
            self._locked = True
            if self._torn:  # by what interrupted it
                self._load()
                self._torn = False
            while self._disk.identity(self._path) != (self._inode, self._end):
                self._catch_up()
        except OSError as problem:
            self.degrade(problem)

    def wait_for(self, lock: Lock) -> None:
        """Wait for another process, for as long as there is patience."""
        waited, pause = 0.0, 0.0001
        while not lock.acquire(wait=False):
            if waited >= self._patience:
                self._patience = 0.0
                raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            self._rest(pause)
            waited, pause = waited + pause, min(1.5 * pause, 0.02)
        if self._patience == 0:
            self._patience = PATIENCE
            self.recovered()

    def write(self, *events: Event) -> None:
        """Append events in one write and fold them in; to be called inside `with journal`."""
        data = records(*events)  # before it counts: what cannot be written must not hold
        self._torn = True
        for event in events:
            self._state.apply(event)
        if self.degraded or self._file is None or not self._locked:
            self._unwritten.keep(events)
        else:
            self._append(self._file, data, events)
        self._torn = False

    def _append(self, file: File, data: bytes, events: tuple[Event, ...]) -> None:
        try:
            file.append(data)
        except OSError as problem:
            self.degrade(problem)
            self._unwritten.keep(events)
            return
        self._end += len(data)
        self._unsynced = True

    def sync(self) -> bool:
        """Make what this process wrote, and what it had read by then, survive a power loss; False where the disk does not let us.

        It waits for the disk without a lock that those who record wait for; to be called outside `with journal`.
        """
        me = threading.get_ident()
        try:
            inside.append(me)
            with self._syncing:
                return self._sync()
        finally:
            inside.remove(me)
            say()

    def _sync(self) -> bool:
        if not self.run(lambda _: self.write_the_unwritten()):
            return False
        with self._held:
            if not self._unsynced or self._file is None:
                return self._file is not None  # by whom we waited for
            files, names = (*self._earlier.values(), self._file), self._names_unsynced
            self._unsynced = self._names_unsynced = done = False
        try:
            for each in files:
                each.sync()
            if names:
                self._disk.sync_directory(self.directory)
            done = True
        except OSError as problem:
            self.degrade(problem)
            return False
        finally:
            if not done:
                self._unsynced, self._names_unsynced = True, names
        with self._held:
            self._earlier = {inode: each for inode, each in self._earlier.items() if each not in files}
        return True

    def begin_part(self) -> bool:
        """Go on in a new file; to be called inside `with journal`. False if an earlier part is still there."""
        earlier = self.directory / EARLIER
        if self._disk.identity(earlier) is not None:
            return False
        self._disk.replace(self._path, earlier)
        before = self._inode
        self._go_on_in(self._disk.open(self._path))
        self.write(after(before))
        return True

    def some(self, events: Iterator[Event], most: int) -> bytes:
        """Take so many events of the state, while no thread of this process changes it; return their records."""
        with self._held:
            taken = list(islice(events, most))
        return records(*taken)

    def close(self) -> None:
        """Let go of the files; the next use opens them again."""
        with self._held:
            self._let_go()
            if self._lock is not None:
                self._lock.close()
                self._lock = None

    def _let_go(self) -> None:
        """Forget the files, and so what was read of them; they close themselves once nobody synchronizes them."""
        self._file, self._earlier = None, {}
        self._inode = self._end = 0
        self._torn = False

    def still(self) -> Generator[None, None, None]:
        """Hold on from `next` to `close`: a child that is forked meanwhile finds nothing half done."""
        with self._held:
            yield

    def after_fork_in_child(self) -> None:
        """Open the files anew: a lock on a file that was inherited would be the parent's."""
        self._held = threading.RLock()
        self._syncing = threading.Lock()
        self._entered = False
        self._sections.clear()
        inside[:] = [thread for thread in inside if thread == threading.get_ident()]
        self._unwritten = Unwritten()  # the parent has them, and writes them
        self.close()

    def _catch_up(self) -> None:
        """Take one step towards what is on the disk."""
        self._torn = True
        size = 0 if self._file is None else self._file.identity()[1]
        if self._file is not None and size > self._end:
            with self._beside_the_lock(size - self._end):
                self._fold(self._state, self._file, self._end, size)
                self._end = size
        elif not self._follow():
            self._load()
        self._torn = False

    def _follow(self) -> bool:
        """Go on in the part after the one that was read to its end, if that is what the journal is now."""
        if self._file is None or self._disk.identity(self._path) is None:
            return False
        file = self._disk.open(self._path)
        first = records(after(self._inode))
        if file.read(0, len(first)) != first:
            file.close()
            return False
        self._go_on_in(file)
        return True

    def _go_on_in(self, file: File) -> None:
        inode = file.identity()[0]
        if self._file is not None and self._inode != inode:
            self._earlier[self._inode] = self._file
        self._file, self._inode, self._end = file, inode, 0
        self._names_unsynced = True

    def _load(self) -> None:
        """Fold everything from the start; what is there under the lock does not change any more, so it is read beside it."""
        paths = [path for path in map(self.directory.joinpath, (SNAPSHOT, EARLIER)) if self._disk.identity(path)]
        before = [self._disk.open(path) for path in paths]
        journal = self._disk.open(self._path)
        if any(_is_foreign(file) for file in (*before, journal)):
            for file in (*before, journal):
                file.close()
            raise OSError(errno.EBADMSG, "what is there as journal or snapshot is somebody else's")
        self._go_on_in(journal)
        files = [(file, file.identity()[1]) for file in (*before, self._file) if file is not None]
        state = State()
        with self._beside_the_lock(sum(end for _, end in files)):
            state.settle(sum(self._fold(state, file, 0, end) for file, end in files))
            state.recall(SentPeriods(self.directory, self._disk).read())
        for event in self._unwritten.events.values():
            state.apply(event)
        # others have no name any more: a compaction synchronized what they said, and removed them
        self._earlier = {file.identity()[0]: file for file in before}
        self._state, self._end = state, files[-1][1]
        self.recovered()

    @contextmanager
    def _beside_the_lock(self, size: int) -> Iterator[None]:
        """Let other processes go on while much is read; our own threads wait, for they need what is read."""
        if size <= READ_UNDER_THE_LOCK or self._lock is None:
            yield
            return
        self._locked = False
        self._lock.release()
        try:
            yield
        finally:
            self.wait_for(self._lock)
            self._locked = True

    @staticmethod
    def _fold(state: State, file: File, start: int, end: int) -> int:
        """Fold in records and return how many were damaged."""
        return fold(state.apply, (file.read(at, min(_CHUNK, end - at)) for at in range(start, end, _CHUNK)))

    def write_the_unwritten(self) -> bool:
        """Write what the disk had refused; False where it refuses still. To be called inside `with journal`."""
        if self._file is None or not self._locked:
            return False
        if not self.degraded:
            return True
        data = records(*self._unwritten.events.values())
        try:
            self._file.append(data)
        except OSError:
            return False
        self._unwritten.events.clear()
        self._end += len(data)
        self._unsynced = True
        self.recovered()
        return True

    def degrade(self, problem: OSError, path: Path | None = None) -> None:
        """Say once that the directory, or this file of it, cannot be used; an error that a signal handler raised is not ours."""
        if from_a_signal_handler(problem):
            raise problem
        if not self.problem:
            self.problem = f"{path or self.directory} {what_is_wrong(problem)}"
            tell("%s; hubbub goes on in memory and sends nothing until it can use it", self.problem)

    def recovered(self) -> None:
        """Say that what could not be used can be used again, once nothing waits to be written."""
        if self.problem and not self.degraded:
            self.problem = ""
            tell("hubbub can use %s again", self.directory)


def _is_foreign(file: File) -> bool:
    """Say whether a file is somebody else's: its start says it, or much more of it where the start is damaged."""
    return all(is_foreign(file.read(0, size)) for size in (512, _CHUNK))
