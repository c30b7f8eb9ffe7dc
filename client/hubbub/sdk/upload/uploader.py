"""Upload worker: `Sender` sends one due batch at a time, `UploadLoop` is the thread that calls it, `Uploader` starts and stops the thread.

The thread syncs recordings, builds and sends due batches, and starts the thread that compacts the journal.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial

from hubbub.consent import Consent
from hubbub.randomness import RandomBytes
from hubbub.sdk.recording.consent_changes import ConsentLimit
from hubbub.sdk.recording.recorder import UploadReadiness
from hubbub.sdk.runtime.error_guard import call_safely, is_from_signal_handler
from hubbub.sdk.runtime.safe_logging import OncePerKey, log_when_unlocked
from hubbub.sdk.storage.compaction import Compactor
from hubbub.sdk.storage.events import QueuedBatch, RequestStart
from hubbub.sdk.storage.filesystem import Disk, Lock
from hubbub.sdk.storage.journal import Journal
from hubbub.sdk.storage.sent_periods import SentPeriods
from hubbub.sdk.storage.state import State
from hubbub.sdk.upload.retry_policy import (
    aggregator_date,
    backoff_until,
    eligible_batches,
    events_for_response,
    is_clock_wrong,
    next_batch,
    reschedule_overdue,
)
from hubbub.sdk.upload.transport import Transport

SYNC_WITHIN_SECONDS = 0.5
EXIT_TIMEOUT_SECONDS = 0.05
MAX_SLEEP_SECONDS = 3600.0
LEASE_RETRY_SECONDS = 5.0


class Uploader:
    """The upload thread of a client: started by the first call that needs it, stopped by `stop`, started again on demand.

    drain : saves what is in memory alone
    """

    def __init__(self, journal: Journal, compactor: Compactor, sender: Sender, drain: Callable[[], None]) -> None:
        self._journal = journal
        self._compactor = compactor
        self._sender = sender
        self._drain = drain
        self._starting = threading.RLock()
        self._loop: UploadLoop | None = None

    @property
    def is_started(self) -> bool:
        """Whether the thread was started and not stopped since."""
        return self._loop is not None

    def start(self) -> UploadLoop:
        """Start the thread, unless it is started; return its loop."""
        with self._starting:
            if self._loop is None:
                self._sender.begin()
                loop = UploadLoop(self._journal, self._compactor, self._sender, self._drain)
                try:
                    loop.start()
                    self._loop = loop if loop.is_alive else None
                except BaseException:  # a signal handler's exception; the thread may have begun
                    self._loop = None
                    loop.end()
                    raise
                return loop
            return self._loop

    def wake(self) -> None:
        """Report a write: the thread makes it durable within `SYNC_WITHIN_SECONDS`."""
        (self._loop or self.start()).wake()

    def flush(self, timeout: float) -> bool:
        """Wait until no batch is due, at most `timeout` seconds; return whether none is."""
        return self.start().flush(timeout)

    def stop(self, timeout: float = EXIT_TIMEOUT_SECONDS) -> None:
        """End the thread and wait for it, at most `timeout` seconds. Data on disk is safe if it does not end in time."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.stop(timeout)

    def end(self) -> None:
        """Ask the thread to end. Takes no lock, so a finalizer may call it."""
        if self._loop is not None:
            self._loop.end()


def is_uwsgi_master() -> bool:
    """Return whether this process is uwsgi before it forks its workers: a thread that runs then may hold the interpreter's lock for ever in one."""
    uwsgi = sys.modules.get("uwsgi")
    return uwsgi is not None and getattr(uwsgi, "worker_id", lambda: 1)() == 0


class UploadLoop:
    """One run of the upload thread: calls `Sender.attempt` when woken and when a batch is due."""

    def __init__(self, journal: Journal, compactor: Compactor, sender: Sender, drain: Callable[[], None]) -> None:
        self._journal = journal
        self._compactor = compactor
        self._sender = sender
        self._drain = drain
        self._wakeups: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._flush_requested = self._dirty = self._stopped = False
        self._rounds_begun = self._rounds_ended = 0
        self._flushes: list[queue.SimpleQueue[None]] = []
        self._pause = 0.0
        self._thread: threading.Thread | None = None
        self._compacting: threading.Thread | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start the thread, unless it runs. At the interpreter's end a new thread would never begin, so none is started."""
        if not self.is_alive and not sys.is_finalizing() and not is_uwsgi_master():
            self._stopped = False
            self._thread, thread = None, threading.Thread(target=self._run, name="hubbub", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the interpreter is shutting down; the next start continues with the data on disk
                return
            self._thread = thread  # `stop` joins only what has started

    def wake(self) -> None:
        """Report a write."""
        if not self._dirty:
            self._dirty = True
            self._wakeups.put(None)

    def flush(self, timeout: float) -> bool:
        """Wait until no batch is due, at most `timeout` seconds; return whether none is."""
        deadline = time.monotonic() + timeout
        self._sender.hurry()
        self.start()
        wanted, ended = self._rounds_begun + 1, queue.SimpleQueue[None]()
        self._flushes.append(ended)
        try:
            while self._rounds_ended < wanted or self._pause == 0:
                self._flush_requested = True
                self._wakeups.put(None)
                left = deadline - time.monotonic()
                if left <= 0 or self._thread is None:
                    return False
                try:
                    ended.get(timeout=left)
                except queue.Empty:  # the time is over, also if a test has frozen the clock
                    return False
            return not self._sender.overdue
        finally:
            self._flushes.remove(ended)

    def stop(self, timeout: float) -> None:
        """Ask the thread to end; wait for it and for a compaction, at most `timeout` seconds."""
        deadline = time.monotonic() + timeout
        self.end()
        for name in ("_thread", "_compacting"):  # the first may start the second
            thread: threading.Thread | None = getattr(self, name)
            if thread is not None and thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    def end(self) -> None:
        """Ask the thread to end. Takes no lock, so a finalizer may call it."""
        self._stopped = True
        self._wakeups.put(None)

    def _run(self) -> None:
        while not (self._stopped or self._journal.is_inherited):
            self._flush_requested = self._dirty = False
            self._rounds_begun += 1
            pause = call_safely(self._round, LEASE_RETRY_SECONDS)
            self._pause, self._rounds_ended = pause, self._rounds_begun
            for ended in tuple(self._flushes):
                ended.put(None)
            self._sleep(min(pause, MAX_SLEEP_SECONDS))
        if not self._journal.is_inherited:
            call_safely(self._drain, None)
        self._sender.close()
        self._journal.close()

    def _sleep(self, seconds: float) -> None:
        """Wait for a flush or the end; after a write at most `SYNC_WITHIN_SECONDS` more."""
        until, noticed = time.monotonic() + seconds, False
        while not (self._flush_requested or self._stopped):
            if self._dirty and not noticed:
                until, noticed = time.monotonic() + SYNC_WITHIN_SECONDS, True
            try:
                self._wakeups.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return

    def _round(self) -> float:
        self._drain()
        if self._journal.has_unsynced:
            self._journal.sync()
        pause = self._sender.attempt()
        self._start_compactor()
        return pause

    def _start_compactor(self) -> None:
        """Compact in another thread, so that this one continues to sync and send."""
        if self._compactor.is_due() and (self._compacting is None or not self._compacting.is_alive()):
            compact = partial(call_safely, self._compactor.compact, False)
            thread = threading.Thread(target=compact, name="hubbub-compactor", daemon=True)
            thread.start()
            self._compacting = thread


class Sender:
    """Uploads the batches of one directory; one process at a time.

    prepare     : called inside `with journal` before each selection; it builds the batches that are due. None to send only
                  batches that another process built
    limit       : highest consent level that this process may use
    sends_after : seconds from `begin` until this process sends, unless `hurry` is called
    hurries     : whether overdue batches are sent at once after `begin`, and not at a random time within the hour
    overdue     : whether a batch was due, or waited after a failure, at the last attempt
    """

    def __init__(
        self,
        journal: Journal,
        transport: Transport,
        *,
        disk: Disk,
        clock: Callable[[], datetime],
        random_bytes: RandomBytes,
        limit: ConsentLimit,
        prepare: Callable[[State], UploadReadiness] | None = None,
        sends_after: float = 0.0,
        hurries: bool = False,
    ) -> None:
        self._journal = journal
        self._transport = transport
        self._disk = disk
        self._clock = clock
        self._random_bytes = random_bytes
        self._limit = limit
        self._prepare = prepare
        self._sends_after = sends_after
        self._hurries = hurries
        self._sent_periods = SentPeriods(journal.directory, disk)
        self._lease: Lock | None = None
        self._sending = threading.Lock()
        self._is_new = OncePerKey()
        self.begin()

    def begin(self) -> None:
        """Begin a run of attempts: the delay before the first upload counts from now."""
        self._sends_from = time.monotonic() + self._sends_after
        self._hurry, self.overdue = self._hurries, False

    def hurry(self) -> None:
        """Send from now on, overdue batches at once; until no batch is due."""
        self._sends_from, self._hurry = 0.0, True

    def attempt(self) -> float:
        """Build one slice of the due batches, and send at most one batch; return the seconds until the next attempt."""
        selected = self._select()
        if isinstance(selected, float):
            return selected
        if not self._take_lease():
            return LEASE_RETRY_SECONDS
        try:
            return self._send(selected)
        finally:
            self._release_lease()

    def send_now(self, batch_id: str) -> bool:
        """Send one batch regardless of its time; for tests. Return whether it was attempted: not if the disk cannot be written."""
        deadline = time.monotonic() + LEASE_RETRY_SECONDS
        while not self._take_lease():
            if self._journal.is_degraded or time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        try:
            with self._journal as state:
                is_eligible = batch_id in eligible_batches(state, self._clock().timestamp())
            if is_eligible:
                self._send(batch_id)
            return is_eligible
        finally:
            self._release_lease()

    def close(self) -> None:
        """Close the lease, unless a thread is sending."""
        if self._sending.acquire(blocking=False):
            try:
                self._close_lease()
            finally:
                self._sending.release()

    def _close_lease(self) -> None:
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    def _select(self) -> str | float:
        """Return the id of the batch to send now, or the seconds until there may be one."""
        with self._journal as state:
            if self._journal.is_outdated:
                self.overdue = True  # for all that is known
                return LEASE_RETRY_SECONDS
            ready = UploadReadiness(may_send=True, seconds=MAX_SLEEP_SECONDS)
            if self._prepare is not None:
                ready = self._prepare(state)
            self.overdue = False
            consent = self._limit.effective(state.consent)
            if consent is Consent.OFF:
                return MAX_SLEEP_SECONDS
            now, until_build = self._clock().timestamp(), min(ready.seconds, MAX_SLEEP_SECONDS)
            if not ready.may_send:
                first = next_batch(state, now) if ready.seconds else None
                self.overdue = first is not None and first[1] <= now
                return until_build
            hurry = self._hurry
            first = next_batch(state, now, hurry=hurry)
            if hurry and (first is None or first[1] > now):
                self._hurry = False
            if consent is not Consent.ON or first is None:
                return until_build
            batch_id, send_at = first
            is_due = send_at <= now
            self.overdue = is_due or state.failures > 0  # a batch that failed waits behind the others
            delay = self._sends_from - time.monotonic()
            if delay > 0:
                return min(delay, until_build)
            if self._prepare is not None and not hurry and is_due:
                rescheduled = reschedule_overdue(state, now, self._random_bytes)
                if rescheduled is not None:
                    self._journal.write(rescheduled)
                    return 0.0
            send_at = max(send_at, backoff_until(state, now))
            return batch_id if send_at <= now else min(send_at - now, until_build)

    def _send(self, batch_id: str) -> float:
        with self._journal as state:
            queued = state.queue.get(batch_id)
            if self._journal.is_outdated:
                return LEASE_RETRY_SECONDS
            if queued is None or self._limit.effective(state.consent) is not Consent.ON:
                return 0.0
            possibly_delivered, batch = queued.possibly_delivered, queued.batch
            self._journal.write(RequestStart(batch_id, batch.digest, batch.period))
        if not (self._journal.sync() and self._add_to_sent_periods(queued)):
            return LEASE_RETRY_SECONDS  # an upload that a power loss could undo is not started
        response = self._transport.send(batch.to_json(), lambda: self._may_continue(batch_id))
        with self._journal as state:
            queued = state.queue.get(batch_id)
            if queued is None or self._limit.effective(state.consent) is not Consent.ON:
                return 0.0  # consent was withdrawn meanwhile
            now = self._clock().timestamp()
            if is_clock_wrong(aggregator_date(response, batch), now) and self._is_new("clock"):
                log_when_unlocked(
                    "the system clock differs from the aggregator's by more than a day. Reports are kept until they agree; set the clock"
                )
            events = events_for_response(
                state, queued, response, now, self._random_bytes, possibly_delivered=possibly_delivered
            )
            self._journal.write(*events)
        return 0.0

    def _add_to_sent_periods(self, queued: QueuedBatch) -> bool:
        """Record the period of a batch before its upload; return whether the disk did."""
        batch = queued.batch
        try:
            self._sent_periods.add(batch.digest, batch.period, str(queued.period_end().date()))
        except OSError as problem:
            self._journal.degrade(problem, self._sent_periods.path)
            return False
        self._journal.clear_problem(self._sent_periods.path)
        return True

    def _may_continue(self, batch_id: str) -> bool:
        """Return whether a batch may still be sent: any process of the directory may have withdrawn consent."""
        with self._journal as state:
            is_queued = not self._journal.is_outdated and batch_id in state.queue
            return is_queued and self._limit.effective(state.consent) is Consent.ON

    def _take_lease(self) -> bool:
        """Take the lease that lets one thread of all processes send."""
        if not self._sending.acquire(blocking=False):
            return False
        try:
            if self._lease is None:
                self._lease = self._disk.lock(self._journal.directory / "uploader")
            if self._lease.acquire(wait=False):
                return True
        except OSError:
            pass  # the journal cannot be written either, so no batch would be sent
        self._sending.release()
        return False

    def _release_lease(self) -> None:
        try:
            if self._lease is not None:
                self._lease.release()
        except OSError as problem:
            if is_from_signal_handler(problem):
                raise
            self._close_lease()  # closing releases it, too
        finally:
            self._sending.release()
