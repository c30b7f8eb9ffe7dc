"""Append-only journal shared by all processes of a client, and the state that its events add up to.

    with journal as state:            # locked against threads and processes, and up to date
        journal.write(event)          # appended in one write, and applied to the state

A written event survives the process at once, and a power loss once `sync` has returned True. A start replays the three files of
`events.py`, in their order.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from hubbub.consent import Consent
from hubbub.sdk.runtime.error_guard import is_from_signal_handler
from hubbub.sdk.runtime.process import noticed_process, this_process
from hubbub.sdk.runtime.safe_logging import flush_pending_logs, journal_threads, log_when_unlocked
from hubbub.sdk.storage.event_codec import encode_records, item, replay
from hubbub.sdk.storage.events import (
    JOURNAL,
    ROTATED,
    SNAPSHOT,
    Continuation,
    Event,
    IgnoredRecordings,
    Reschedule,
)
from hubbub.sdk.storage.filesystem import Disk, File, Lock, MissingDiskError
from hubbub.sdk.storage.record_format import OtherFormatError, describe_version, is_foreign, other_version
from hubbub.sdk.storage.sent_periods import SentPeriods
from hubbub.sdk.storage.state import State

MAX_LOCKED_READ_BYTES = 1 << 16
"""Up to this many bytes of other processes are read with the lock held; more are read after the lock is released."""

LOCK_TIMEOUT_SECONDS = 5.0
"""Longest wait for the lock of the directory. After a timeout a process does not wait again until the lock was free once."""

MAX_PENDING_EVENTS = 10_000
"""Events kept in memory while the disk refuses them."""

_PATIENT_AFTER_SECONDS = 1.0
_READ_CHUNK_BYTES = 1 << 20
T = TypeVar("T")
P = ParamSpec("P")


class _BusyLockError(TimeoutError):
    """Another process has the lock for longer than this call may wait, which is no problem of the directory."""


class Journal:
    """The journal of one state directory.

    If the disk is full, read-only or broken, the journal continues in memory and logs one warning. It keeps the events that it could not
    write (the last of each kind for each item), and tries to write them at each `sync`.

    problem : why the directory cannot be used, in words; empty if it can

    A journal belongs to the process that made it. A forked child makes its own, because its parent's locks and files are shared with the parent.
    A call that a fork interrupted, in a signal handler, ends in the child in memory: the parent does and counts it.
    """

    def __init__(self, directory: Path, disk: Disk) -> None:
        self.directory = directory
        self._disk = disk
        self._sleep: Callable[[float], None] = time.sleep
        self._process = this_process()
        self._path = directory / JOURNAL
        self.thread_lock = threading.RLock()
        """Excludes the other threads of this process. `with journal` holds it, and the lock between processes."""
        self._sync_lock = threading.RLock()
        self._is_syncing = False
        self._depth = 0
        """Number of sections that the thread with the lock is inside of."""
        self._locked = self._has_partial_record = self._closes_after_section = False
        self._was_read = self._is_reading_refused = False
        self._lock_timeout = LOCK_TIMEOUT_SECONDS
        self._wait_seconds = math.inf
        """How long the current section may wait for the lock."""
        self._is_last_wait = False
        self._state = State()
        self._file: File | None = None
        self._unsynced_files: dict[int, File] = {}
        """Earlier journal files by inode that are not synced yet."""
        self._lock: Lock | None = None
        self._inode = 0
        self._end = 0
        self._pending = PendingEvents()
        self._unsynced = self._names_unsynced = False
        self.problem = ""
        self._path_of_problem = directory

    @property
    def is_read(self) -> bool:
        """Whether the state was read from the disk; otherwise the spent epsilon is unknown."""
        return self._file is not None

    @property
    def is_known_off(self) -> bool:
        """Whether consent was off when the state was read last. It takes no lock."""
        return self.is_read and self._state.consent is Consent.OFF

    @property
    def known_consent(self) -> tuple[Consent, str] | None:
        """`State.consent_identity` of the state that was read last; None if none was. It takes no lock."""
        return self._state.consent_identity if self._was_read else None

    @property
    def is_inherited(self) -> bool:
        """Whether this process is a forked child of the one that made the journal."""
        return self._process is not this_process()

    @property
    def size(self) -> int:
        """Number of bytes of the journal that are read."""
        return self._end

    @property
    def is_degraded(self) -> bool:
        """Whether there are events that the disk refused."""
        return bool(self._pending.events)

    @property
    def has_unsynced(self) -> bool:
        """Whether a power loss now would lose events."""
        return self._unsynced or self.is_degraded

    @property
    def is_outdated(self) -> bool:
        """Whether the state may lack events of other processes, because the lock or the files refuse. Read it inside `with journal`.

        A report that is made of such a state may be the second one of its period under one charge of the ledger.
        """
        return (self._lock is not None and not self._holds_lock) or (self._was_read and self._is_reading_refused)

    @property
    def _holds_lock(self) -> bool:
        return self._locked and self._process is noticed_process()

    def run(self, step: Callable[Concatenate[State, P], T], *arguments: P.args, **named: P.kwargs) -> T:
        """Return step(state, ...), locked and up to date.

        The host's signal handlers may raise anywhere in it. The interpreter releases `thread_lock`, and the next call of this process
        repairs the rest, see docs/decisions/0132.
        """
        if self._process is not noticed_process():
            return step(self._state, *arguments, **named)
        me = self._process, threading.get_ident()
        try:
            journal_threads.append(me)
            with self.thread_lock:
                return self._run(math.inf, step, arguments, named)
        finally:
            journal_threads.remove(me)
            flush_pending_logs()

    def run_within(
        self, seconds: float, step: Callable[Concatenate[State, P], T], *arguments: P.args, **named: P.kwargs
    ) -> T | None:
        """Return what `run` does, but wait no longer than this for other threads and processes.

        None if another thread does not leave the journal. If another process does not, the step sees an outdated state.
        """
        if self._process is not noticed_process():
            return step(self._state, *arguments, **named)
        me = self._process, threading.get_ident()
        try:
            journal_threads.append(me)
            try:
                if not self.thread_lock.acquire(blocking=False):
                    began = time.monotonic()
                    if not self.thread_lock.acquire(timeout=seconds):
                        return None
                    seconds -= time.monotonic() - began
                return self._run(seconds, step, arguments, named)
            finally:
                # The exception of a signal handler may come just after the lock was acquired. `suppress` would let another one come first.
                try:  # noqa: SIM105
                    self.thread_lock.release()
                except RuntimeError:  # it was not acquired
                    pass
        finally:
            journal_threads.remove(me)
            flush_pending_logs()

    def _run(
        self, wait_seconds: float, step: Callable[..., T], arguments: tuple[object, ...], named: dict[str, object]
    ) -> T:
        depth = self._depth
        try:
            self._depth = depth + 1
            self._enter(wait_seconds)
            return step(self._state, *arguments, **named)
        finally:
            self._depth = depth
            self._leave()

    def __enter__(self) -> State:
        """Begin what `run` does for one step. Only for threads of hubbub, which no signal handler interrupts.

        A greenlet survives a fork. In the child it ends here, without a trace.
        """
        if self.is_inherited:
            raise SystemExit
        journal_threads.append((self._process, threading.get_ident()))
        self.thread_lock.acquire()
        self._depth += 1
        try:
            self._enter()
        except BaseException:
            self.__exit__()
            raise
        return self._state

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        try:
            self._leave()
        finally:
            self.thread_lock.release()
            journal_threads.remove((self._process, threading.get_ident()))
            flush_pending_logs()

    def _leave(self) -> None:
        """Release the lock between processes at the end of the outermost section."""
        if self._depth:
            return
        lock, self._locked = self._lock, False
        try:
            if lock is not None:
                lock.release()
            if self._closes_after_section:
                self.close()
        except OSError as problem:
            if self._lock is lock:  # a signal handler has not closed it
                self._give_up_lock(problem)

    def _give_up_lock(self, problem: OSError) -> None:
        """Close a lock that cannot be released, which releases it. The next call opens and reads all files again."""
        lock, self._lock = self._lock, None
        self._forget_files()
        self.degrade(problem)
        if lock is not None:
            with suppress(OSError):
                lock.close()

    def _enter(self, wait_seconds: float = math.inf) -> None:
        """At the start of the outermost section: lock, repair what an exception interrupted, and read what other processes wrote."""
        if self._depth > 1:
            return
        self._wait_seconds = wait_seconds
        try:
            if self._lock is None:
                self._disk.make_directory(self.directory)
                self._lock = self._disk.lock(self.directory / "lock")
            self.acquire_lock(self._lock, wait_seconds)
            self._locked = True
            if self._has_partial_record:  # an exception interrupted a write or a replay
                self._load()
                self._has_partial_record = False
            while self._disk.identity(self._path) != (self._inode, self._end):
                self._catch_up()
            self._is_reading_refused = False
        except OSError as problem:
            # the state lacks events: nothing is written on it, and the next call reads all files again
            self._is_reading_refused = True
            if self._has_partial_record:
                self._forget_files()
            if not isinstance(problem, _BusyLockError):
                self.degrade(problem)

    def limit_wait(self, seconds: float) -> None:
        """Wait for the lock no longer than this, also in a wait that has begun, until the lock was free once."""
        self._lock_timeout = min(self._lock_timeout, seconds)

    def limit_last_wait(self, seconds: float) -> None:
        """Before the program ends: wait for the lock no longer than this."""
        self.limit_wait(seconds)
        self._is_last_wait = True

    def acquire_lock(self, lock: Lock, seconds: float = math.inf) -> None:
        """Acquire a lock between processes; raise TimeoutError after `seconds`, at most `LOCK_TIMEOUT_SECONDS`."""
        if not lock.acquire(wait=False):
            self._wait_for(lock, seconds)
        if self._lock_timeout == 0:
            self.clear_problem()
        self._lock_timeout = LOCK_TIMEOUT_SECONDS

    def _wait_for(self, lock: Lock, seconds: float) -> None:
        began, waited, pause = time.monotonic(), 0.0, 0.0001
        while True:
            if waited >= min(seconds, self._lock_timeout):
                if self._lock_timeout <= seconds:
                    self._lock_timeout = 0.0
                kind = TimeoutError if seconds == math.inf else _BusyLockError
                raise kind(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            self._sleep(pause)
            if self.is_inherited:
                raise OSError(errno.EBADF, "the lock belongs to the parent process")
            if lock.acquire(wait=False):
                return
            # the pauses alone, if a test has frozen the clock
            waited = max(waited + pause, time.monotonic() - began)
            # processes that record without pause leave short gaps, which long pauses miss
            pause = min(1.5 * pause, 0.001 if waited < _PATIENT_AFTER_SECONDS else 0.02)

    def write(self, *events: Event) -> None:
        """Append events in one write and apply them to the state. Call it inside `with journal`."""
        data = encode_records(*events)  # first: an event that JSON does not take must not change the state
        self._has_partial_record = True
        for event in events:
            self._state.apply(event)
        if self.is_degraded or self._file is None or self._is_reading_refused or not self._holds_lock:
            self._pending.keep(events)
        else:
            self._append(self._file, data, events)
        self._has_partial_record = False

    def _append(self, file: File, data: bytes, events: tuple[Event, ...]) -> None:
        try:
            file.append(data)
        except OSError as problem:
            self.degrade(problem)
            self._pending.keep(events)
            return
        self._end += len(data)
        self._unsynced = True

    def sync(self) -> bool:
        """Make the events that this process wrote or read survive a power loss; return whether the disk did.

        Recordings do not wait for it. Call it outside `with journal`.
        """
        if self._process is not noticed_process():
            return False
        me = self._process, threading.get_ident()
        try:
            journal_threads.append(me)
            with self._sync_lock:
                outer = self._is_syncing
                try:
                    self._is_syncing = True
                    if outer:  # a signal handler interrupted it: what it syncs is not synced yet
                        self._unsynced = self._names_unsynced = True
                    return self._sync()
                finally:
                    self._is_syncing = outer
        finally:
            journal_threads.remove(me)
            flush_pending_logs()

    def _sync(self) -> bool:
        if not self.run(lambda _: self.write_pending()):
            return False
        with self.thread_lock:
            if not self._unsynced or self._file is None:
                return self._file is not None  # another thread synced meanwhile
            files, names = (*self._unsynced_files.values(), self._file), self._names_unsynced
            self._unsynced = self._names_unsynced = done = False
        try:
            for file in files:
                file.sync()
            if names:
                self._disk.sync_directory(self.directory)
            done = True
        except OSError as problem:
            self.degrade(problem)
            return False
        finally:
            if not done:
                self._unsynced, self._names_unsynced = True, names or self._names_unsynced
        with self.thread_lock:
            self._unsynced_files = {inode: file for inode, file in self._unsynced_files.items() if file not in files}
        return True

    def rotate(self) -> bool:
        """Rename the journal and continue in a new file; False if a renamed journal is still there. Call it inside `with journal`."""
        earlier = self.directory / ROTATED
        if self._disk.identity(earlier) is not None:
            return False
        self._disk.replace(self._path, earlier)
        before = self._inode
        self._continue_in(self._disk.open(self._path))
        self.write(Continuation(before))
        return True

    def take_records(self, events: Iterator[Event], count: int) -> bytes:
        """Return the records of the next `count` events, taken while no thread of this process changes the state."""
        with self.thread_lock:
            taken = list(islice(events, count))
        return encode_records(*taken)

    def close(self) -> None:
        """Close the files; the next use opens them again. In a signal handler, the section that it interrupted closes them at its end."""
        with self.thread_lock:
            self._closes_after_section = self._depth > 0
            if self._closes_after_section:
                return
            self._forget_files()
            lock, self._lock = self._lock, None
            if lock is not None:
                lock.close()

    def _forget_files(self) -> None:
        """Forget the files and the position in them. They are closed when no sync uses them any more."""
        self._file, self._unsynced_files = None, {}
        self._inode = self._end = 0
        self._has_partial_record = False

    def _catch_up(self) -> None:
        """Read one step of the events that other processes wrote."""
        self._has_partial_record = True
        size = 0 if self._file is None else self._file.identity()[1]
        if self._file is not None and size > self._end:
            self._without_lock(size - self._end, self._replay, self._state, [(self._file, self._end, size)])
            self._end = size
        elif not self._follow_rotation():
            self._load()
        self._has_partial_record = False

    def _follow_rotation(self) -> bool:
        """Continue in the new journal, if it follows the file that was read to its end."""
        if self._file is None or self._disk.identity(self._path) is None:
            return False
        file = self._disk.open(self._path)
        first = encode_records(Continuation(self._inode))
        if file.read(0, len(first)) != first:
            file.close()
            return False
        self._continue_in(file)
        return True

    def _continue_in(self, file: File) -> None:
        inode = file.identity()[0]
        if self._file is not None and self._inode != inode:
            self._unsynced_files[self._inode] = self._file
        self._file, self._inode, self._end = file, inode, 0
        self._names_unsynced = True

    def _load(self) -> None:
        """Replay all files. Existing records do not change any more, so they are read without the lock."""
        paths = [path for path in map(self.directory.joinpath, (SNAPSHOT, ROTATED)) if self._disk.identity(path)]
        before = [self._disk.open(path) for path in paths]
        journal = self._disk.open(self._path)
        objection = next(filter(None, map(_objection, (*before, journal))), None)
        if objection is not None:
            for file in (*before, journal):
                file.close()
            raise objection
        self._continue_in(journal)
        parts = [(file, 0, file.identity()[1]) for file in (*before, journal)]
        state = State()
        state.account_for_losses(self._without_lock(sum(end for _, _, end in parts), self._replay, state, parts))
        state.restore_sent_periods(SentPeriods(self.directory, self._disk).read())
        for event in self._pending.events.values():
            state.apply(event)
        # other files have no name any more: a compaction synced their events and removed them
        self._unsynced_files = {file.identity()[0]: file for file in before}
        self._state, self._end = state, parts[-1][2]
        self._was_read = True
        self.clear_problem()

    def _without_lock(self, size: int, read: Callable[P, int], *arguments: P.args, **named: P.kwargs) -> int:
        """Return read(...), without the lock if it reads many bytes. Threads of this process wait, because they need the result."""
        if size <= MAX_LOCKED_READ_BYTES or self._lock is None:
            return read(*arguments, **named)
        self._locked = False
        self._lock.release()
        try:
            return read(*arguments, **named)
        finally:
            self.acquire_lock(self._lock, self._wait_seconds)
            self._locked = True

    @staticmethod
    def _replay(state: State, parts: Iterable[tuple[File, int, int]]) -> int:
        """Apply the records of parts of files, each [start, end); return the number of damaged ones."""
        damaged = 0
        for file, start, end in parts:
            starts = range(start, end, _READ_CHUNK_BYTES)
            damaged += replay(state.apply, (file.read(at, min(_READ_CHUNK_BYTES, end - at)) for at in starts))
        return damaged

    def write_pending(self) -> bool:
        """Write the events that the disk refused; return whether it took them. Call it inside `with journal`."""
        if self._file is None or self._is_reading_refused or not self._holds_lock:
            return False
        if not self.is_degraded:
            return True
        data = encode_records(*self._pending.events.values())
        try:
            self._file.append(data)
        except OSError:
            return False
        self._pending.events.clear()
        self._end += len(data)
        self._unsynced = True
        self.clear_problem()
        return True

    def degrade(self, problem: OSError, path: Path | None = None) -> None:
        """Log once that the directory, or one file of it, cannot be used. An error raised by a signal handler is raised again."""
        if is_from_signal_handler(problem):
            raise problem
        if not (self.problem or self.is_inherited):
            self._path_of_problem = path or self.directory
            is_missing = isinstance(problem, MissingDiskError)
            where = "state" if is_missing else path or self.directory
            self.problem = f"{where} {describe_os_error(problem)}"
            if self._is_last_wait and isinstance(problem, TimeoutError):
                log_when_unlocked(
                    "%s: another process was using the directory when this program ended, so its last recordings are not saved. "
                    "Call close() before the end: it waits up to %g seconds",
                    where,
                    LOCK_TIMEOUT_SECONDS,
                )
                return
            log_when_unlocked(
                "%s. Until the directory is usable, hubbub keeps recording in memory and sends nothing."
                if self._file is not None or self.is_outdated
                else "%s. Until the directory is usable, hubbub ignores recordings (`no-state`) and sends nothing. "
                'durability="memory" needs no directory.',
                self.problem,
            )

    def clear_problem(self, path: Path | None = None) -> None:
        """Log that the directory, or one file of it, can be used again, once no event waits to be written."""
        if self.problem and self._path_of_problem == (path or self.directory) and not self.is_degraded:
            self.problem = ""
            log_when_unlocked("%s is usable again; uploads continue", self.directory, level=logging.INFO)


def _objection(file: File) -> OSError | None:
    """Return the error of a file that is not a journal of this format. Its start decides, or more of it if the start is damaged."""
    if not is_foreign(file.read(0, 512)):
        return None
    start = file.read(0, _READ_CHUNK_BYTES)
    version = other_version(start)
    if version is not None:
        return OtherFormatError(errno.EPROTO, ": ".join(describe_version(version)))
    if is_foreign(start):
        return OSError(errno.EBADMSG, "its journal or snapshot belongs to another program")
    return None


class PendingEvents:
    """The last event about each item, the oldest first. Most events hold new values, so the last one is enough."""

    def __init__(self) -> None:
        self.events: dict[tuple[object, ...], Event] = {}

    def keep(self, events: Iterable[Event]) -> None:
        """Keep events; beyond `MAX_PENDING_EVENTS` the oldest are dropped."""
        for event in events:
            about = item(event)
            earlier = self.events.pop(about, None)
            self.events[about] = event if earlier is None else _combine(earlier, event)
        while len(self.events) > MAX_PENDING_EVENTS:
            self.events.pop(next(iter(self.events)))


def _combine(earlier: Event, event: Event) -> Event:
    """Return one event with the effect of two about the same item."""
    match earlier, event:
        case IgnoredRecordings(), IgnoredRecordings():
            return IgnoredRecordings(dict(Counter(earlier.counts) + Counter(event.counts)))
        case Reschedule(), Reschedule():
            return event._replace(send_at=earlier.send_at | event.send_at)
        case _:
            return event


def describe_os_error(problem: OSError) -> str:
    """Return the reason why a state directory cannot be used, and the next step, in words."""
    reason = problem.strerror or type(problem).__name__
    if isinstance(problem, OtherFormatError | MissingDiskError):
        return reason
    own_directory = "give Client a directory of its own as `state`"
    match problem.errno:
        case errno.EBADMSG:
            return f"is not a client's state ({reason}): {own_directory}"
        case errno.ELOOP:
            return f"is or contains a symbolic link, which hubbub does not follow ({reason}): {own_directory}"
        case errno.EEXIST | errno.ENOTDIR:
            return f"is not a directory ({reason}): {own_directory}"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return f"cannot be used ({reason}): give Client a directory that this user may read and write as `state`"
        case errno.ETIMEDOUT:
            return f"is locked by another process that does not continue ({reason}): find that process and resume or end it"
        case errno.ENOSPC | errno.EDQUOT:
            return f"is on a full disk ({reason}): free some space"
        case _:
            return f"cannot be used ({reason}): check the disk and the system log"
