"""Upload schedule: which queued batch is sent next, and when. Functions of the state, the time and random bytes."""

from __future__ import annotations

from datetime import UTC, datetime

from hubbub.randomness import RandomBytes, uniform
from hubbub.sdk.storage.events import QueuedBatch, Reschedule
from hubbub.sdk.storage.state import State
from hubbub.sdk.upload.retry_policy import BACKOFF_CAP_SECONDS, HOLD_SECONDS, MAX_RETRY_AFTER_SECONDS, PAUSE_SECONDS

MAX_DELAY_SECONDS = 40 * 86400.0
"""Longest time until an upload. A later `send_at` was set under a wrong clock and is ignored."""

_OVERDUE_AFTER_SECONDS, _RESCHEDULE_WITHIN_SECONDS = 60.0, 3600.0
_RESCHEDULE_UNTIL_SECONDS = 14 * 86400.0


def eligible_batches(state: State, now: float) -> list[str]:
    """Return the ids of the batches that may be sent once their time has come.

    Not among them: batches of paused metrics, of periods that the aggregator does not accept yet, and those made under consent `local`.
    """
    open_until = utc_day(now + 86400.0)
    return [
        batch_id
        for batch_id, queued in state.queue.items()
        if queued.batch.period <= open_until and not queued.local and not _is_paused(state, queued, now)
    ]


def next_batch(state: State, now: float, *, hurry: bool = False) -> tuple[str, float] | None:
    """Return the id of the batch to send next and the time of its upload (POSIX seconds), regardless of backoff.

    hurry : send overdue batches now, not at the second time that `reschedule_overdue` gave them
    """
    times = {batch_id: _send_time(state.queue[batch_id], now, hurry=hurry) for batch_id in eligible_batches(state, now)}
    return min(times.items(), key=lambda item: item[1], default=None)


def reschedule_overdue(state: State, now: float, random_bytes: RandomBytes) -> Reschedule | None:
    """Return the event that gives overdue batches random times within the next hour; None if no batch is overdue.

    A batch is overdue if no process ran at its time, or the machine slept. Sent at once, all reports of one person would leave together at
    the start of the app. A batch is rescheduled once, and only in the two weeks after its period. An app that never runs for an hour
    sends it at its next start. After an outage of the aggregator, `events_for_response` reschedules.
    """
    if state.failures:
        return None
    overdue = [batch_id for batch_id in eligible_batches(state, now) if _is_overdue(state.queue[batch_id], now)]
    if not overdue:
        return None
    send_at = {batch_id: now + uniform(random_bytes) * _RESCHEDULE_WITHIN_SECONDS for batch_id in overdue}
    return Reschedule(send_at, overdue=True)


def backoff_until(state: State, now: float) -> float:
    """Return the end of the backoff (POSIX seconds); 0 for an end that only a wrong clock can have set."""
    longest = BACKOFF_CAP_SECONDS + MAX_RETRY_AFTER_SECONDS
    return state.backoff_until if state.backoff_until <= now + longest else 0.0


def utc_day(moment: float) -> str:
    """Return the UTC date of a time in POSIX seconds, ISO 8601."""
    return datetime.fromtimestamp(moment, UTC).date().isoformat()


def _is_paused(state: State, queued: QueuedBatch, now: float) -> bool:
    digest = queued.batch.digest
    longest = HOLD_SECONDS if digest in state.held_digests else PAUSE_SECONDS
    return now < state.paused_metrics.get(digest, 0.0) <= now + longest


def _is_overdue(queued: QueuedBatch, now: float) -> bool:
    if queued.rescheduled or _send_time(queued, now) >= now - _OVERDUE_AFTER_SECONDS:
        return False
    return now < queued.period_end().timestamp() + _RESCHEDULE_UNTIL_SECONDS


def _send_time(queued: QueuedBatch, now: float, *, hurry: bool = False) -> float:
    if hurry and queued.rescheduled:
        return min(queued.send_at, now)
    return queued.send_at if queued.send_at <= now + MAX_DELAY_SECONDS else now
