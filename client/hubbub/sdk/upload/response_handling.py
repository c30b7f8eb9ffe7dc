"""What one attempt changes: answer -> events. What an answer means is said in `delivery.action`."""

from __future__ import annotations

import logging
from dataclasses import replace

from hubbub.randomness import RandomBytes, uniform
from hubbub.sdk.runtime.safe_logging import tell
from hubbub.sdk.storage.events import Event
from hubbub.sdk.storage.state import State, Waiting, batch_event
from hubbub.sdk.upload.retry_policy import (
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
from hubbub.sdk.upload.schedule import day_of
from hubbub.wire.batch import Batch, new_batch_id

SPREAD = 86400.0
CONFIRMED_WITHIN = 3600.0


def outcome(
    state: State, waiting: Waiting, answer: Answer, now: float, random_bytes: RandomBytes, *, doubted: bool
) -> list[Event]:
    """Return the events that an answer to a batch is.

    doubted : whether the batch may have been stored before this attempt
    """
    batch, batch_id = waiting.batch, str(waiting.batch.batch_id)
    status = understood(answer, batch_id)
    in_doubt = doubted or (status is None and answer.sent)
    decided = action(status, answer.problem, in_doubt=doubted)
    other_clock = clock_is_wrong(answer.date, now)
    if decided is not Action.ACCEPT and other_clock:
        decided = Action.PAUSE
    tell("%s: %s", batch.metric, answer.told, level=logging.DEBUG)
    events: list[Event] = [{"e": "answered", "id": batch_id, "doubt": in_doubt, "sent": answer.sent}]
    if clock_is_right(answer.date, now):
        events += _confirming(state, now)
    if decided not in (Action.RETRY, Action.PAUSE) and state.failures:
        events += [{"e": "backoff", "failures": 0, "until": 0.0}, _spread(state, now, random_bytes, but=batch_id)]
    match decided:
        case Action.ACCEPT:
            events.append({"e": "gone", "id": batch_id, "why": "acknowledged"})
            if other_clock:
                events.append({"e": "backoff", "failures": 0, "until": now + PAUSE})
        case Action.RETRY:
            failures = state.failures + 1
            wait = backoff(failures, retry_after(answer.retry_after, now), random_bytes)
            events.append({"e": "backoff", "failures": failures, "until": now + wait, "told": answer.told})
        case Action.PAUSE:
            if not state.failures:
                tell("reports wait: the aggregator answered %s", answer.told)
            events.append({"e": "backoff", "failures": state.failures + 1, "until": now + PAUSE, "told": answer.told})
        case Action.PAUSE_METRIC:
            events.append({"e": "held", "m": batch.digest, "until": now + PAUSE})
        case Action.HOLD_METRIC:
            tell(
                "%s: the aggregator collects it under another definition: it waits until the app's changes",
                batch.metric,
            )
            events.append({"e": "held", "m": batch.digest, "until": None})
        case Action.SPLIT if len(batch) > 1:
            halves = [batch_event(half) for half in halved(batch, random_bytes)]
            events.append({"e": "split", "id": batch_id, "halves": halves, "kind": waiting.period, "at": waiting.at})
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


def halved(batch: Batch, random_bytes: RandomBytes) -> tuple[Batch, Batch]:
    """Cut a batch in two under new ids; only ever one that is not in doubt."""
    n = len(batch)
    width, cut = len(batch.rows) // n, n // 2

    def part(start: int, end: int) -> Batch:
        rows = batch.rows[start * width : end * width]
        return replace(batch, batch_id=new_batch_id(random_bytes), cohorts=batch.cohorts[start:end], rows=rows)

    return part(0, cut), part(cut, n)


def _confirming(state: State, now: float) -> list[Event]:
    """An aggregator agrees that it is now: what was made for days to come, and surely never left, goes."""
    events: list[Event] = []
    if abs(now - state.confirmed) > CONFIRMED_WITHIN:
        events.append({"e": "clock", "at": now})
    to_come = day_of(now + 2 * 86400.0)
    return events + [
        {"e": "gone", "id": batch_id, "why": "clock"}
        for batch_id, waiting in state.waiting.items()
        if waiting.batch.period > to_come and not waiting.doubt
    ]


def _spread(state: State, now: float, random_bytes: RandomBytes, *, but: str) -> Event:
    """An outage is over: what is overdue goes out at separate random times of the next day, not in one burst."""
    overdue = [batch_id for batch_id, waiting in state.waiting.items() if waiting.at <= now and batch_id != but]
    return {"e": "later", "at": {batch_id: now + uniform(random_bytes) * SPREAD for batch_id in overdue}}
