"""One attempt after another: form what is over, choose a batch, say on disk that it is tried, send it, write what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from threading import Lock as ThreadLock

from hubbub.consent import Consent
from hubbub.randomness import RandomBytes
from hubbub.sdk.recording.consent_changes import ConsentLimit
from hubbub.sdk.recording.recorder import UploadReadiness
from hubbub.sdk.runtime.error_guard import from_a_signal_handler
from hubbub.sdk.runtime.safe_logging import Once, tell
from hubbub.sdk.storage.filesystem import Disk, Lock
from hubbub.sdk.storage.journal import Journal
from hubbub.sdk.storage.sent_periods import SentPeriods
from hubbub.sdk.storage.state import State, Waiting
from hubbub.sdk.upload.response_handling import outcome
from hubbub.sdk.upload.retry_policy import clock_is_wrong
from hubbub.sdk.upload.schedule import first_of_all, paused_until, sendable, spread
from hubbub.sdk.upload.transport import Transport

LONGEST_SLEEP = 3600.0
OTHER_SENDS = 5.0


class Sender:
    """Delivers one directory's batches; of all its processes one at a time.

    prepare     : called inside `with journal` before each selection; it builds the batches that are due. None to send only
                  batches that another process built
    limit       : highest consent level that this process may use
    sends_after : seconds from `begin` until this process sends, unless `hurry` is called
    hurries     : whether overdue batches are sent at once after `begin`, and not at a random time within the hour
    overdue     : whether a batch was due at the last attempt
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
        self._coins = random_bytes
        self._limit = limit
        self._prepare = prepare
        self._sends_after = sends_after
        self._hurries = hurries
        self._sent_periods = SentPeriods(journal.directory, disk)
        self._lease: Lock | None = None
        self._sending = ThreadLock()
        self._is_new = Once()
        self.begin()

    def begin(self) -> None:
        """Begin a run of attempts: the delay before the first upload counts from now."""
        self._sends_from = time.monotonic() + self._sends_after
        self._hurry, self.overdue = self._hurries, False

    def hurry(self) -> None:
        """Send from now on, overdue batches at once; until no batch is due."""
        self._sends_from, self._hurry = 0.0, True

    def attempt(self) -> float:
        """Form what is over and send at most one batch; return how many seconds until there may be more to do."""
        chosen = self._choose()
        if isinstance(chosen, float):
            return chosen
        if not self._take_lease():
            return OTHER_SENDS
        try:
            return self._send(chosen)
        finally:
            self._give_lease()

    def send_now(self, batch_id: str) -> bool:
        """Try one batch whatever its time; for tests. Return whether it was tried: not on a disk that cannot be written."""
        until = time.monotonic() + OTHER_SENDS
        while not self._take_lease():
            if self._journal.degraded or time.monotonic() > until:
                return False
            time.sleep(0.01)
        try:
            with self._journal as state:
                waits = batch_id in sendable(state, self._clock().timestamp())
            if waits:
                self._send(batch_id)
            return waits
        finally:
            self._give_lease()

    def close(self) -> None:
        """Close the lease, unless a thread is sending."""
        if self._sending.acquire(blocking=False):
            try:
                self._close_lease()
            finally:
                self._sending.release()

    def after_fork_in_child(self) -> None:
        """Close the parent's lease: a child that kept its file open would prevent other processes from sending."""
        self._close_lease()
        self._sending = ThreadLock()
        self.begin()

    def _close_lease(self) -> None:
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    def _choose(self) -> str | float:
        """Return the batch to send now, or in how many seconds there may be one."""
        with self._journal as state:
            if self._journal.locked_out:
                return OTHER_SENDS
            ready = UploadReadiness(may_send=True, seconds=LONGEST_SLEEP)
            if self._prepare is not None:
                ready = self._prepare(state)
            self.overdue = False
            consent = self._limit.effective(state.consent)
            if consent is Consent.OFF:
                return LONGEST_SLEEP
            now, until_end = self._clock().timestamp(), min(ready.seconds, LONGEST_SLEEP)
            if not ready.may_send:
                first = first_of_all(state, now) if ready.seconds else None
                self.overdue = first is not None and first[1] <= now
                return until_end
            hurry = self._hurry
            first = first_of_all(state, now, hurry=hurry)
            if hurry and (first is None or first[1] > now):
                self._hurry = False
            if consent is not Consent.ON or first is None:
                return until_end
            batch_id, at = first
            self.overdue = at <= now
            wait = self._sends_from - time.monotonic()
            if wait > 0:
                return min(wait, until_end)
            late = None if hurry or self._prepare is None or at > now else spread(state, now, self._coins)
            if late is not None:
                self._journal.write(late)
                return 0.0
            at = max(at, paused_until(state, now))
            return batch_id if at <= now else min(at - now, until_end)

    def _send(self, batch_id: str) -> float:
        with self._journal as state:
            waiting = state.waiting.get(batch_id)
            if waiting is None or self._limit.effective(state.consent) is not Consent.ON:
                return 0.0
            doubted, batch = waiting.doubt, waiting.batch
            self._journal.write({"e": "trying", "id": batch_id, "m": batch.digest, "p": batch.period})
        if not (self._journal.sync() and self._add_to_sent_periods(waiting)):
            return OTHER_SENDS  # what a power loss could undo is not sent
        answer = self._transport.send(batch.to_json(), lambda: self._wanted(batch_id))
        with self._journal as state:
            waiting = state.waiting.get(batch_id)
            if waiting is None or self._limit.effective(state.consent) is not Consent.ON:
                return 0.0  # consent was withdrawn meanwhile
            now = self._clock().timestamp()
            if clock_is_wrong(answer.date, now) and self._is_new("clock"):
                tell("the clock is more than a day from the aggregator's: reports wait until they agree")
            self._journal.write(*outcome(state, waiting, answer, now, self._coins, doubted=doubted))
        return 0.0

    def _add_to_sent_periods(self, waiting: Waiting) -> bool:
        """Record the period of a batch that is to be sent; return whether the disk let us."""
        batch = waiting.batch
        try:
            self._sent_periods.add(batch.digest, batch.period, str(waiting.ends().date()))
        except OSError as problem:
            self._journal.degrade(problem, self._sent_periods.path)
            return False
        if self._journal.problem.startswith(f"{self._sent_periods.path} "):
            self._journal.recovered()
        return True

    def _wanted(self, batch_id: str) -> bool:
        """Say whether a batch may still be sent: any process of the directory may have withdrawn consent."""
        with self._journal as state:
            known = not self._journal.locked_out and batch_id in state.waiting
            return known and self._limit.effective(state.consent) is Consent.ON

    def _take_lease(self) -> bool:
        """Become the one thread of all processes that sends."""
        if not self._sending.acquire(blocking=False):
            return False
        try:
            if self._lease is None:
                self._lease = self._disk.lock(self._journal.directory / "uploader")
            if self._lease.acquire(wait=False):
                return True
        except OSError:
            pass  # the journal cannot be written either: nothing would be sent
        self._sending.release()
        return False

    def _give_lease(self) -> None:
        try:
            if self._lease is not None:
                self._lease.release()
        except OSError as problem:
            if from_a_signal_handler(problem):
                raise
            self._close_lease()  # which lets go of it, too
        finally:
            self._sending.release()
