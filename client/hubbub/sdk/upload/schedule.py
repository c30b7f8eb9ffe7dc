"""Which of the batches that wait is to be sent first, and when: functions of the state, the time and coins."""

from __future__ import annotations

from datetime import UTC, datetime

from hubbub.randomness import RandomBytes, uniform
from hubbub.sdk.storage.events import Event
from hubbub.sdk.storage.state import State, Waiting
from hubbub.sdk.upload.retry_policy import BACKOFF_CAP, MAX_RETRY_AFTER, PAUSE

LONGEST_WAIT = 40 * 86400.0
"""No report waits longer than a month and its day for its time: what says more was written by a clock that was ahead."""

_LATE, _SPREAD = 60.0, 3600.0
_SPREAD_UNTIL = 14 * 86400.0


def sendable(state: State, now: float) -> list[str]:
    """Return the batches, by id, whose metric is not held and whose period takes reports; each has its own time.

    A batch that was made under consent `local` is never among them.
    """
    open_until = day_of(now + 86400.0)
    return [
        batch_id
        for batch_id, waiting in state.waiting.items()
        if waiting.batch.period <= open_until and not waiting.local and not _is_held(state, waiting, now)
    ]


def first_of_all(state: State, now: float, *, hurry: bool = False) -> tuple[str, float] | None:
    """Return the batch that is to be sent before all others, by its id, and when, if nothing else holds it up.

    hurry : what is late does not wait for its second time
    """
    times = {batch_id: _sent_from(state.waiting[batch_id], now, hurry=hurry) for batch_id in sendable(state, now)}
    return min(times.items(), key=lambda item: item[1], default=None)


def spread(state: State, now: float, random_bytes: RandomBytes) -> Event | None:
    """Give what is late random times of their own in the next hour, if anything is: nobody ran when their time came, or the machine slept.

    Sent at once, all of one person's reports would leave together, when their program starts. Only once, and not after two weeks: a program that
    never lives for an hour sends them at its next start. What an outage held up is spread by `outcome`.
    """
    if state.failures:
        return None
    late = [batch_id for batch_id in sendable(state, now) if _is_late(state.waiting[batch_id], now)]
    return (
        {"e": "later", "at": {each: now + uniform(random_bytes) * _SPREAD for each in late}, "late": True}
        if late
        else None
    )


def paused_until(state: State, now: float) -> float:
    """Return until when the aggregator is left alone."""
    return state.not_before if state.not_before <= now + BACKOFF_CAP + MAX_RETRY_AFTER else 0.0


def day_of(moment: float) -> str:
    """Return the UTC date of a moment."""
    return datetime.fromtimestamp(moment, UTC).date().isoformat()


def _is_held(state: State, waiting: Waiting, now: float) -> bool:
    until = state.held.get(waiting.batch.digest, 0.0)
    return until is None or now < until <= now + PAUSE


def _is_late(waiting: Waiting, now: float) -> bool:
    return (
        not waiting.late and _sent_from(waiting, now) < now - _LATE and now < waiting.ends().timestamp() + _SPREAD_UNTIL
    )


def _sent_from(waiting: Waiting, now: float, *, hurry: bool = False) -> float:
    if hurry and waiting.late:
        return min(waiting.at, now)
    return waiting.at if waiting.at <= now + LONGEST_WAIT else now
