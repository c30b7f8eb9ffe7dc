"""Compact the journal into a snapshot without blocking recordings: a recording waits for one slice of the snapshot at most.

    1  rename the journal, and continue in a new file                 with the journal's lock
    2  write the snapshot, `EVENTS_PER_SLICE` events at a time        without the lock; each event has the values of its moment
    3  write the counters to the new journal                          with the lock
    4  put the snapshot in place, remove the renamed journal          with the lock

A replay of snapshot, renamed journal and journal gives the state, at whatever step the process is killed. Events hold new values, so
applying one twice is harmless, and the last event about an item decides. An item without an event since step 1 is complete in the
snapshot. Only counters are added up, so they are written after all events that step 2 may have missed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import TypeVar

from hubbub.sdk.runtime.error_guard import is_from_signal_handler
from hubbub.sdk.storage.events import (
    ROTATED,
    SNAPSHOT,
    AccountChange,
    AttemptedPeriods,
    Backoff,
    BatchSnapshot,
    ClockConfirmation,
    Counters,
    DetachedStart,
    DraftSnapshot,
    EnrollmentStart,
    Event,
    FailedUploads,
    GroupLabels,
    LedgerKey,
    MachineTags,
    MetricPause,
    QuarantineSnapshot,
    SentSnapshot,
)
from hubbub.sdk.storage.filesystem import Disk
from hubbub.sdk.storage.journal import Journal
from hubbub.sdk.storage.state import State

K = TypeVar("K")
V = TypeVar("V")
EVENTS_PER_SLICE = 100
SLICE_PAUSE_SECONDS = 0.001
"""Pause between two slices, in which waiting threads and processes get the lock."""

COMPACT_ABOVE_BYTES = 1 << 18


class Compactor:
    """Compacts the journal of one directory; one process at a time."""

    def __init__(self, journal: Journal, disk: Disk) -> None:
        self._journal = journal
        self._disk = disk
        self._sleep: Callable[[float], None] = time.sleep
        self._snapshot = journal.directory / SNAPSHOT
        self._new = journal.directory / f"{SNAPSHOT}.new"
        self._earlier = journal.directory / ROTATED
        self._thread_lock = threading.RLock()
        self._is_compacting = self._is_repeated = False

    def is_due(self) -> bool:
        """Return whether the journal is larger than its snapshot, or a kill interrupted a compaction."""
        if not self._journal.is_read:
            return False
        snapshot = self._disk.identity(self._snapshot)
        large = self._journal.size > max(COMPACT_ABOVE_BYTES, snapshot[1] if snapshot else 0)
        return large or self._disk.identity(self._earlier) is not None

    def compact(self, *, always: bool = False) -> bool:
        """Write a snapshot, if the journal has outgrown the last one; return whether a durable snapshot was written.

        always : wait for a running compaction, then compact in any case, so that no earlier record is left. Call it outside `with journal`.
                 In a signal handler that interrupts a compaction of this thread, the interrupted one is repeated, and the result is False
        """
        if always:
            with self._thread_lock:
                self._is_repeated = self._is_compacting
                if self._is_compacting:
                    return False
                try:
                    self._is_compacting = True
                    return self._compact(always=True)
                finally:
                    self._is_compacting = False
        if not self.is_due() or not self._thread_lock.acquire(blocking=False):
            return False
        try:
            return self._compact(always=False)
        finally:
            self._thread_lock.release()

    def _compact(self, *, always: bool) -> bool:
        lock = None
        try:
            lock = self._disk.lock(self._journal.directory / "compactor")
            if always:
                self._journal.acquire_lock(lock)
            elif not lock.acquire(wait=False):
                return False
            return self._replace_all(always=always)
        except OSError as problem:
            self._journal.degrade(problem)
            return False
        finally:
            if lock is not None:
                try:
                    lock.release()
                except OSError as problem:  # closing releases it, too
                    if is_from_signal_handler(problem):
                        raise
                finally:
                    lock.close()

    def _replace_all(self, *, always: bool) -> bool:
        """Write a snapshot and remove the records that it replaces; False if the disk failed or consent was withdrawn meanwhile.

        always : repeat it, if the first pass finished a compaction that a kill interrupted, or if the state was read anew meanwhile,
                 as after an upload thread that ends
        """
        is_complete = False
        while not is_complete or self._is_repeated:
            self._is_repeated = False
            started = self._journal.run(self._begin, always=always)
            if started is None:
                return False
            state, erased, is_complete = started
            try:
                written = self._write(state, erased=erased) and self._put_in_place(state)
            finally:
                with suppress(OSError):
                    if not self._journal.is_inherited and self._disk.identity(self._new) is not None:
                        self._disk.remove(self._new)
            if not written:
                if not always or self._journal.run(self._is_current, state):
                    return False
                is_complete = False
        if always:
            state.erasure_pending = False
        return True

    def _begin(self, state: State, *, always: bool) -> tuple[State, bool, bool] | None:
        if not self._journal.write_pending():
            return None
        return state, state.erasure_pending, self._journal.rotate() or not always

    @staticmethod
    def _is_current(now: State, written: State) -> bool:
        """Return whether the state was not read anew: the directory was not removed, and no thread closed the journal."""
        return now is written

    def _write(self, state: State, *, erased: bool) -> bool:
        file = self._disk.open_new(self._new)
        try:
            # consent and ledger are written twice, so that one damaged record loses neither
            events = chain(protected_events(state), other_events(state), protected_events(state))
            while data := self._journal.take_records(events, EVENTS_PER_SLICE):
                if state.erasure_pending != erased or self._journal.is_inherited:
                    return False
                file.append(data)
                self._sleep(SLICE_PAUSE_SECONDS)
            file.sync()
        finally:
            file.close()
        return True

    def _put_in_place(self, state: State) -> bool:
        journal = self._journal
        if not (journal.run(self._write_counters, state) and journal.sync() and journal.run(self._replace)):
            return False
        self._disk.sync_directory(journal.directory)
        return True

    def _write_counters(self, now: State, written: State) -> bool:
        if self._journal.is_outdated or not self._is_current(now, written):
            return False
        self._journal.write(*counter_events(now), *counter_events(now))
        return True

    def _replace(self, _: State) -> bool:
        if self._journal.is_outdated:
            return False
        self._disk.replace(self._new, self._snapshot)
        self._disk.remove(self._earlier)
        return True


def protected_events(state: State) -> Iterator[Event]:
    """Yield consent and ledger, which protect privacy. Each event has the values of the moment when it is yielded, as below."""
    yield state.consent_event()
    yield EnrollmentStart(state.enrollments, state.secret_tag)
    if state.ledger_key:
        yield LedgerKey(state.ledger_key)
    yield ClockConfirmation(state.clock_confirmed_at)
    for digest, runs in _live_items(state.attempted_periods):
        yield AttemptedPeriods(digest, runs)
    for digest, steps in _live_items(state.group_labels):
        yield GroupLabels(digest, steps)
    for _, account in _live_items(state.accounts):
        yield AccountChange(account)


def other_events(state: State) -> Iterator[Event]:
    """Yield queue, drafts, quarantine, pauses and backoff: all of the state except `protected_events` and the counters."""
    for _, queued in _live_items(state.queue):
        yield BatchSnapshot(queued)
    for (subject, digest), draft in _live_items(state.drafts):
        yield DraftSnapshot(subject, digest, draft)
    for _, (batch, problem) in _live_items(state.quarantine):
        yield QuarantineSnapshot(batch, problem)
    for digest, until in _live_items(state.paused_metrics):
        yield MetricPause(digest, until, is_held=digest in state.held_digests)
    yield Backoff(state.failures, state.backoff_until, state.last_error)
    yield FailedUploads(state.failed_uploads)
    yield DetachedStart(state.detached_started_at)
    yield MachineTags(state.machine_tags)


def counter_events(state: State) -> Iterator[Event]:
    """Yield the counters that later events add to: correct only after all events that they count."""
    yield Counters(
        state.formed,
        state.acknowledged,
        state.damaged,
        state.chosen,
        state.superseded,
        state.stood_in,
        state.dropped,
        state.ignored,
    )
    for batch in state.last_sent.values():
        yield SentSnapshot(batch)


def _live_items(items: Mapping[K, V]) -> Iterator[tuple[K, V]]:
    """Yield the items of a dictionary that may change meanwhile; removed items are skipped."""
    # accounts and drafts may change while they are iterated over
    keys: Iterable[K] = list(items) if isinstance(items, dict) else items
    for key in keys:
        if key in items:
            yield key, items[key]
