"""The background thread: makes recordings durable, forms what is over, sends what is due.

One attempt is `Uploader.attempt`; everything it decides is in `delivery.action`.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from queue import Empty, SimpleQueue

from hubbub.batch import Batch
from hubbub.coins import Coins, uniform
from hubbub.consent import Consent, lesser
from hubbub.delivery import (
    BACKOFF_CAP,
    MAX_RETRY_AFTER,
    PAUSE,
    Action,
    Answer,
    action,
    backoff,
    clock_is_right,
    clock_is_wrong,
    retry_after,
    understood,
)
from hubbub.disk import Disk, Lock
from hubbub.failures import report_failure
from hubbub.journal import Journal
from hubbub.ledger import Event
from hubbub.recorder import Recorder
from hubbub.state import State, Waiting, batch_event
from hubbub.telling import tell
from hubbub.transport import Transport

SYNC_WITHIN = 0.5
LONGEST_SLEEP = 3600.0
OTHER_SENDS = 5.0
WITHOUT_SECRET = 60.0
SPREAD = 86400.0
LONGEST_WAIT = 40 * 86400.0
"""No report waits longer than a month and its day for its time: what says more was written by a clock that was ahead."""
CONFIRMED_WITHIN = 3600.0


class Uploader:
    """Delivers one directory's batches; of all its processes one at a time.

    recorder    : forms what is over; None to send only what another process formed
    allowed     : the most that this process may do now, whatever was agreed
    sends_after : seconds that this process must have lived, or been asked to `flush`, before it sends
    """

    def __init__(
        self,
        journal: Journal,
        recorder: Recorder | None,
        transport: Transport,
        *,
        disk: Disk,
        clock: Callable[[], datetime],
        coins: Coins,
        allowed: Callable[[], Consent],
        sends_after: float = 0.0,
    ) -> None:
        self._journal = journal
        self._recorder = recorder
        self._transport = transport
        self._disk = disk
        self._clock = clock
        self._coins = coins
        self._allowed = allowed
        self._sends_from = time.monotonic() + sends_after
        self._lease: Lock | None = None
        self._sending = threading.Lock()
        self._warned_of_clock = False
        self._calls: SimpleQueue[None] = SimpleQueue()
        self._asked = self._dirty = self._stopped = False
        self._begun = self._ended = 0
        self._waiting: list[SimpleQueue[None]] = []
        self._pause = 0.0
        self._overdue = False
        self._thread: threading.Thread | None = None
        self._compactor: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, if it does not run."""
        if self._thread is None or not self._thread.is_alive():
            self._stopped = False
            self._thread = threading.Thread(target=self._run, name="hubbub", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the interpreter is shutting down; what is on disk waits for the next start
                self._thread = None

    def wake(self) -> None:
        """Say that something was written; within half a second it is made durable."""
        if not self._dirty:
            self._dirty = True
            self._calls.put(None)

    def flush(self, timeout: float) -> bool:
        """Wait until nothing that is due waits any more, at most so many seconds; return whether that is so."""
        deadline = time.monotonic() + timeout
        self._sends_from = 0.0
        self.start()
        wanted, ended = self._begun + 1, SimpleQueue[None]()
        self._waiting.append(ended)
        try:
            while self._ended < wanted or self._pause == 0:
                self._asked = True
                self._calls.put(None)
                left = deadline - time.monotonic()
                if left <= 0 or self._thread is None:
                    return False
                with suppress(Empty):
                    ended.get(timeout=left)
            return not self._overdue
        finally:
            self._waiting.remove(ended)

    def stop(self, timeout: float) -> None:
        """Ask the thread to end and wait so many seconds, for a compaction too; what is on disk is safe without them."""
        deadline = time.monotonic() + timeout
        self.end()
        for name in ("_thread", "_compactor"):  # the first may start the second
            thread: threading.Thread | None = getattr(self, name)
            if thread is not None and thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    def end(self) -> None:
        """Ask the thread to end; without a lock, for a finalizer may ask."""
        self._stopped = True
        self._calls.put(None)

    def after_fork_in_child(self) -> None:
        """Let go of the parent's lease: whoever has its file open keeps others from sending, even when the parent is dead."""
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    def _run(self) -> None:
        while not self._stopped:
            self._asked = self._dirty = False
            self._begun += 1
            pause = self._round()
            self._pause, self._ended = pause, self._begun
            for ended in tuple(self._waiting):
                ended.put(None)
            self._sleep(min(pause, LONGEST_SLEEP))
        self._journal.close()

    def _sleep(self, seconds: float) -> None:
        """Wait for somebody who asks; or, once something was written, a little for more of it."""
        until, noticed = time.monotonic() + seconds, False
        while not (self._asked or self._stopped):
            if self._dirty and not noticed:
                until, noticed = time.monotonic() + SYNC_WITHIN, True
            try:
                self._calls.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                return

    def _round(self) -> float:
        try:
            if self._journal.unsynced:
                self._journal.sync()
            pause = self.attempt()
            self._start_compactor()
        except Exception as failure:  # noqa: BLE001  (nothing may end in the host's lap)
            report_failure(failure)
            return OTHER_SENDS
        return pause

    def _start_compactor(self) -> None:
        """Let another thread compact: syncing and sending go on."""
        if self._journal.is_due_for_compaction() and (self._compactor is None or not self._compactor.is_alive()):
            self._compactor = threading.Thread(target=self._compact, name="hubbub-compactor", daemon=True)
            self._compactor.start()

    def _compact(self) -> None:
        try:
            self._journal.compact()
        except Exception as failure:  # noqa: BLE001  (nothing may end in the host's lap)
            report_failure(failure)

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

    def _choose(self) -> str | float:
        with self._journal as state:
            if self._journal.locked_out:
                return OTHER_SENDS
            if self._recorder is not None:
                self._recorder.record_postponed(state)
                self._recorder.save_ignored(state)
            consent = lesser(state.consent, self._allowed())
            self._overdue = False
            if state.consent is Consent.OFF and self._recorder is not None:
                self._recorder.channels.forget_secret()
            if consent is Consent.OFF:
                return LONGEST_SLEEP
            now = self._clock().timestamp()
            end = None
            if self._recorder is not None:
                if self._recorder.channels.secret(state) is None:
                    self._overdue = any(sent_from(waiting, now) <= now for waiting in sendable(state, now))
                    return WITHOUT_SECRET
                if self._recorder.former.form(state):
                    return 0.0
                end = self._recorder.former.next_end(state)
            until_end = LONGEST_SLEEP if end is None else max(end.timestamp() - now, 0.001)
            if consent is not Consent.ON:
                return until_end
            free = sendable(state, now)
            if not free:
                return until_end
            self._overdue = any(sent_from(waiting, now) <= now for waiting in free)
            first = min(free, key=lambda waiting: sent_from(waiting, now))
            at = max(sent_from(first, now), paused_until(state, now))
            wait = self._sends_from - time.monotonic()
            if wait > 0:
                return min(wait, until_end)
            return str(first.batch.batch_id) if at <= now else min(at - now, until_end)

    def send_now(self, batch_id: str) -> bool:
        """Try one batch whatever its time; for tests. Return whether it was tried: not on a disk that cannot be written."""
        until = time.monotonic() + OTHER_SENDS
        while not self._take_lease():
            if self._journal.degraded or time.monotonic() > until:
                return False
            time.sleep(0.01)
        try:
            with self._journal as state:
                now = self._clock().timestamp()
                waits = any(str(waiting.batch.batch_id) == batch_id for waiting in sendable(state, now))
            if waits:
                self._send(batch_id)
            return waits
        finally:
            self._give_lease()

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
        if self._lease is not None:
            self._lease.release()
        self._sending.release()

    def _send(self, batch_id: str) -> float:
        with self._journal as state:
            waiting = state.waiting.get(batch_id)
            if waiting is None or lesser(state.consent, self._allowed()) is not Consent.ON:
                return 0.0
            doubted, batch = waiting.doubt, waiting.batch
            self._journal.write({"e": "trying", "id": batch_id, "m": batch.digest, "p": batch.period})
        if not self._journal.sync():
            return OTHER_SENDS  # what a power loss could undo is not sent
        answer = self._transport.send(batch.to_json(), lambda: self._wanted(batch_id))
        with self._journal as state:
            waiting = state.waiting.get(batch_id)
            if waiting is None or lesser(state.consent, self._allowed()) is not Consent.ON:
                return 0.0  # consent was withdrawn meanwhile
            self._journal.write(*self._outcome(state, waiting, answer, doubted=doubted))
        return 0.0

    def _wanted(self, batch_id: str) -> bool:
        """Say whether a batch may still be sent: any process of the directory may have withdrawn consent."""
        with self._journal as state:
            known = not self._journal.locked_out and batch_id in state.waiting
            return known and lesser(state.consent, self._allowed()) is Consent.ON

    def _outcome(self, state: State, waiting: Waiting, answer: Answer, *, doubted: bool) -> list[Event]:
        now = self._clock().timestamp()
        batch, batch_id = waiting.batch, str(waiting.batch.batch_id)
        status = understood(answer, batch_id)
        in_doubt = doubted or (status is None and answer.sent)
        decided = action(status, answer.problem, in_doubt=doubted)
        if decided is not Action.ACCEPT and clock_is_wrong(answer.date, now):
            self._warn_of_clock()
            decided = Action.PAUSE
        tell("%s: %s", batch.metric, answer.told, level=logging.DEBUG)
        events: list[Event] = [{"e": "answered", "id": batch_id, "doubt": in_doubt, "sent": answer.sent}]
        if clock_is_right(answer.date, now):
            events += confirming(state, now)
        if decided not in (Action.RETRY, Action.PAUSE) and state.failures:
            events += [{"e": "backoff", "failures": 0, "until": 0.0}, self._spread(state, now, but=batch_id)]
        match decided:
            case Action.ACCEPT:
                events.append({"e": "gone", "id": batch_id, "why": "acknowledged"})
                if clock_is_wrong(answer.date, now):
                    self._warn_of_clock()
                    events.append({"e": "backoff", "failures": 0, "until": now + PAUSE})
            case Action.RETRY:
                failures = state.failures + 1
                wait = backoff(failures, retry_after(answer.retry_after, now), self._coins)
                events.append({"e": "backoff", "failures": failures, "until": now + wait, "told": answer.told})
            case Action.PAUSE:
                if not state.failures:
                    tell("reports wait: the aggregator answered %s", answer.told)
                events.append(
                    {"e": "backoff", "failures": state.failures + 1, "until": now + PAUSE, "told": answer.told}
                )
            case Action.PAUSE_METRIC:
                events.append({"e": "held", "m": batch.digest, "until": now + PAUSE})
            case Action.HOLD_METRIC:
                tell(
                    "%s: the aggregator collects it under another definition: it waits until the app's changes",
                    batch.metric,
                )
                events.append({"e": "held", "m": batch.digest, "until": None})
            case Action.SPLIT if len(batch) > 1:
                halves = [batch_event(half) for half in halved(batch, self._coins)]
                events.append(
                    {"e": "split", "id": batch_id, "halves": halves, "kind": waiting.period, "at": waiting.at}
                )
            case Action.SPLIT | Action.QUARANTINE:
                told = answer.problem or str(status)
                tell("%s: a batch was refused (%s): `hubbub inspect` shows it", batch.metric, told)
                events.append({"e": "gone", "id": batch_id, "why": "quarantined", "problem": told})
            case Action.DROP_BATCH:
                events.append({"e": "gone", "id": batch_id, "why": "refused"})
            case Action.DROP_METRIC:
                events += [
                    {"e": "gone", "id": other, "why": "expired"}
                    for other, each in state.waiting.items()
                    if each.batch.digest == batch.digest
                ]
        return events

    def _spread(self, state: State, now: float, *, but: str) -> Event:
        """An outage is over: what is overdue goes out at separate random times of the next day, not in one burst."""
        overdue = [batch_id for batch_id, waiting in state.waiting.items() if waiting.at <= now and batch_id != but]
        return {"e": "later", "at": {batch_id: now + uniform(self._coins) * SPREAD for batch_id in overdue}}

    def _warn_of_clock(self) -> None:
        if not self._warned_of_clock:
            self._warned_of_clock = True
            tell("the clock is more than a day from the aggregator's: reports wait until they agree")


def halved(batch: Batch, coins: Coins) -> tuple[Batch, Batch]:
    """Cut a batch in two under new ids; only ever one that is not in doubt."""
    n = len(batch)
    width, cut = len(batch.rows) // n, n // 2

    def part(start: int, end: int) -> Batch:
        return Batch(
            uuid.UUID(bytes=coins(16), version=4),
            batch.metric,
            batch.digest,
            batch.period,
            batch.cohorts[start:end],
            batch.rows[start * width : end * width],
        )

    return part(0, cut), part(cut, n)


def sendable(state: State, now: float) -> list[Waiting]:
    """Return the batches whose metric is not held and whose period takes reports; each has its own time."""
    free, open_until = [], _day(now + 86400.0)
    for waiting in state.waiting.values():
        digest = waiting.batch.digest
        until = state.held.get(digest, 0.0)
        if until is not None and not now < until <= now + PAUSE and waiting.batch.period <= open_until:
            free.append(waiting)
    return free


def sent_from(waiting: Waiting, now: float) -> float:
    """Return when a batch is to be sent."""
    return waiting.at if waiting.at <= now + LONGEST_WAIT else now


def paused_until(state: State, now: float) -> float:
    """Return until when the aggregator is left alone."""
    return state.not_before if state.not_before <= now + BACKOFF_CAP + MAX_RETRY_AFTER else 0.0


def confirming(state: State, now: float) -> list[Event]:
    """An aggregator agrees that it is now: what was made for days to come, and surely never left, goes."""
    events: list[Event] = []
    if abs(now - state.confirmed) > CONFIRMED_WITHIN:
        events.append({"e": "clock", "at": now})
    to_come = _day(now + 2 * 86400.0)
    return events + [
        {"e": "gone", "id": batch_id, "why": "clock"}
        for batch_id, waiting in state.waiting.items()
        if waiting.batch.period > to_come and not waiting.doubt
    ]


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).date().isoformat()
