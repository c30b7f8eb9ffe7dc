"""A snapshot of the state, written beside the journal's lock: who records waits for a piece of it at most.

    1  the journal is renamed, and goes on in a new file              under the lock
    2  the snapshot is written, `PIECE` things at a time              each as it is when its turn comes; no lock but between threads
    3  the new journal says the counts                                under the lock
    4  the snapshot takes its place, the renamed journal goes         under the lock

Why a fold of snapshot, renamed journal and journal is the state, wherever a kill comes: an event says what now is, so folding it again is
harmless, and after the last event about a thing it does not matter what was said before. A thing without an event since step 1 is as the
snapshot has it. Only counts are counted up, which is why they are said after everything that step 2 may have missed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from typing import TypeVar

from hubbub.sdk.storage.events import EARLIER, SNAPSHOT, Event
from hubbub.sdk.storage.filesystem import Disk, Lock
from hubbub.sdk.storage.journal import Journal
from hubbub.sdk.storage.state import State, account_event, batch_event

K = TypeVar("K")
V = TypeVar("V")
PIECE = 100
PAUSE = 0.001
"""Seconds between two pieces: those who wait for the lock, or for the interpreter's, get it."""

_ABOVE = 1 << 18


class Compactor:
    """Compacts the journal of one directory; of all its processes one at a time."""

    def __init__(self, journal: Journal, disk: Disk, rest: Callable[[float], None] = time.sleep) -> None:
        self._journal = journal
        self._disk = disk
        self._rest = rest
        self._snapshot = journal.directory / SNAPSHOT
        self._new = journal.directory / f"{SNAPSHOT}.new"
        self._earlier = journal.directory / EARLIER
        self._at_it = threading.Lock()
        self._lock: Lock | None = None

    def is_due(self) -> bool:
        """Say whether the journal is longer than its snapshot, or a kill ended a compaction."""
        if not self._journal.is_read:
            return False
        snapshot = self._disk.identity(self._snapshot)
        large = self._journal.size > max(_ABOVE, snapshot[1] if snapshot else 0)
        return large or self._disk.identity(self._earlier) is not None

    def compact(self, *, always: bool = False) -> bool:
        """Write the state anew, beside the lock, if the journal has outgrown its snapshot; durable when this returns True.

        always : wait for whoever is at it, and leave nothing behind of what was written before. Only outside `with journal`.
        """
        if always:
            with self._at_it:
                return self._compact(always=True)
        if not self.is_due() or not self._at_it.acquire(blocking=False):
            return False
        try:
            return self._compact(always=False)
        finally:
            self._at_it.release()

    def after_fork_in_child(self) -> None:
        """Let go of the lock: it would be the parent's."""
        self._at_it = threading.Lock()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _compact(self, *, always: bool) -> bool:
        lock = None
        try:
            lock = self._lock = self._disk.lock(self._journal.directory / "compactor")
            if always:
                self._journal.wait_for(lock)
            elif not lock.acquire(wait=False):
                return False
            return self._replace_all(always=always)
        except OSError as problem:
            self._journal.degrade(problem)
            return False
        finally:
            self._lock = None
            if lock is not None:
                try:
                    lock.release()
                except OSError as problem:
                    self._journal.degrade(problem)
                finally:
                    lock.close()

    def _replace_all(self, *, always: bool) -> bool:
        """Write a snapshot and drop what it replaces; False where the disk or a consent withdrawn meanwhile ends it.

        always : once more, if what a kill left of an earlier compaction came first
        """
        begun = False
        while not begun:
            started = self._journal.run(self._begin, always=always)
            if started is None:
                return False
            state, erased, begun = started
            try:
                if not (self._write(state, erased=erased) and self._put_in_place(state)):
                    return False
            finally:
                with suppress(OSError):
                    if self._disk.identity(self._new) is not None:
                        self._disk.remove(self._new)
        if always:
            state.erased = False
        return True

    def _begin(self, state: State, *, always: bool) -> tuple[State, bool, bool] | None:
        if not self._journal.write_the_unwritten():
            return None
        return state, state.erased, self._journal.begin_part() or not always

    def _write(self, state: State, *, erased: bool) -> bool:
        file = self._disk.open_new(self._new)
        try:
            # what protects people is said twice: one damage is none
            things = chain(protected(state), unprotected(state), protected(state))
            while piece := self._journal.some(things, PIECE):
                if state.erased != erased:
                    return False
                file.append(piece)
                self._rest(PAUSE)
            file.sync()
        finally:
            file.close()
        return True

    def _put_in_place(self, state: State) -> bool:
        journal = self._journal
        if not (journal.run(self._say_the_counts, state) and journal.sync() and journal.run(self._replace)):
            return False
        self._disk.sync_directory(journal.directory)
        return True

    def _say_the_counts(self, now: State, written: State) -> bool:
        if now is not written:
            return False  # somebody removed the directory
        self._journal.write(*counts(now), *counts(now))
        return True

    def _replace(self, _: State) -> bool:
        if self._journal.locked_out:
            return False
        self._disk.replace(self._new, self._snapshot)
        self._disk.remove(self._earlier)
        return True


def protected(state: State) -> Iterator[Event]:
    """Yield what protects people: consent and ledger. Here as below each is what it is when it is yielded."""
    yield state.consent_event()
    yield {"e": "enrollment", "number": state.enrollments, "tag": state.secret_tag}
    if state.ledger_key:
        yield {"e": "ledger_key", "key": state.ledger_key}
    yield {"e": "clock", "at": state.confirmed}
    for digest, runs in _still_in(state.tried):
        yield {"e": "tried", "m": digest, "runs": runs}
    for _, account in _still_in(state.accounts):
        yield account_event(account)


def unprotected(state: State) -> Iterator[Event]:
    """Yield the rest but for the counts."""
    for _, waiting in _still_in(state.waiting):
        yield {
            "e": "waiting",
            "batch": batch_event(waiting.batch),
            "kind": waiting.period,
            "at": waiting.at,
            "doubt": waiting.doubt,
            "late": waiting.late,
            "local": waiting.local,
        }
    for (subject, digest), draft in _still_in(state.drafts):
        yield {"e": "kept", "s": subject, "m": digest, "draft": draft.to_dict()}
    for _, (batch, problem) in _still_in(state.quarantine):
        yield {"e": "quarantined", "batch": batch_event(batch), "problem": problem}
    for digest, until in _still_in(state.held):
        yield {"e": "held", "m": digest, "until": until}
    yield {"e": "backoff", "failures": state.failures, "until": state.not_before, "told": state.trouble}
    yield {"e": "detached", "at": state.detached_at}
    yield {"e": "machines", "tags": state.machines}


def counts(state: State) -> Iterator[Event]:
    """Yield what later events count up from: right only where all that was counted is before it."""
    yield {
        "e": "head",
        "formed": state.formed,
        "acknowledged": state.acknowledged,
        "damaged": state.damaged,
        "chosen": state.chosen,
        "superseded": state.superseded,
        "stood_in": state.stood_in,
        "dropped": state.dropped,
        "ignored": state.ignored,
    }
    for batch in state.last_sent.values():
        yield {"e": "sent", "batch": batch_event(batch)}


def _still_in(things: dict[K, V]) -> Iterator[tuple[K, V]]:
    """Iterate over a dictionary that changes meanwhile: what is still in it when its turn comes."""
    for key in list(things):
        if key in things:
            yield key, things[key]
