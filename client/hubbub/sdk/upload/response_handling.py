"""Journal events for an upload result. `retry_policy.decide` maps a response to an action."""

from __future__ import annotations

import logging
from dataclasses import replace

from hubbub.randomness import RandomBytes, uniform
from hubbub.sdk.runtime.safe_logging import log_when_unlocked
from hubbub.sdk.storage.events import (
    Backoff,
    BatchRemoval,
    BatchSplit,
    ClockConfirmation,
    Event,
    MetricPause,
    QueuedBatch,
    Reschedule,
    ResponseReceipt,
)
from hubbub.sdk.storage.state import State
from hubbub.sdk.upload.retry_policy import (
    HOLD_SECONDS,
    PAUSE_SECONDS,
    Action,
    UploadResponse,
    backoff_seconds,
    decide,
    effective_status,
    is_clock_confirmed,
    is_clock_wrong,
    retry_after_seconds,
)
from hubbub.sdk.upload.schedule import utc_day
from hubbub.wire.batch import Batch, new_batch_id

OUTAGE_SPREAD_SECONDS = 86400.0
CONFIRM_INTERVAL_SECONDS = 3600.0


def events_for_response(
    state: State,
    queued: QueuedBatch,
    response: UploadResponse,
    now: float,
    random_bytes: RandomBytes,
    *,
    possibly_delivered: bool,
) -> list[Event]:
    """Return the journal events of the response to a batch.

    possibly_delivered : whether the aggregator may have stored the batch before this attempt
    """
    batch, batch_id = queued.batch, str(queued.batch.batch_id)
    status = effective_status(response, batch_id)
    action = decide(status, response.problem, possibly_delivered=possibly_delivered)
    other_clock = is_clock_wrong(response.date, now)
    if action is not Action.ACCEPT and other_clock:
        action = Action.PAUSE
    log_when_unlocked("%s: %s", batch.metric, response.description, level=logging.DEBUG)
    events: list[Event] = [
        ResponseReceipt(
            batch_id,
            possibly_delivered=possibly_delivered or (status is None and response.request_sent),
            request_sent=response.request_sent,
        )
    ]
    if is_clock_confirmed(response.date, now):
        events += _clock_events(state, now)
    if action not in (Action.RETRY, Action.PAUSE) and state.failures:
        events += [Backoff(0, 0.0, ""), _reschedule_after_outage(state, now, random_bytes, but=batch_id)]
    match action:
        case Action.ACCEPT:
            events.append(BatchRemoval(batch_id, "acknowledged"))
            if state.paused_metrics.get(batch.digest):
                events.append(MetricPause(batch.digest, until=0.0))
            if state.last_error and not state.failures:
                events.append(Backoff(0, 0.0, ""))
            if other_clock:
                events.append(Backoff(0, now + PAUSE_SECONDS, ""))
        case Action.RETRY:
            failures = state.failures + 1
            wait = backoff_seconds(failures, retry_after_seconds(response.retry_after, now), random_bytes)
            events.append(Backoff(failures, now + wait, response.description))
        case Action.PAUSE:
            if not state.failures:
                log_when_unlocked(
                    "the aggregator answered %s. Reports are kept, and the upload is tried again in an hour. Check the url and the "
                    "aggregator's log",
                    response.description,
                )
            events.append(Backoff(state.failures + 1, now + PAUSE_SECONDS, response.description))
        case Action.PAUSE_METRIC:
            if not state.paused_metrics.get(batch.digest):
                log_when_unlocked(
                    "%s: the aggregator has no metric of this name. Reports are kept and tried again in an hour. Add the metric to the "
                    "aggregator's definitions.",
                    batch.metric,
                )
            events.append(Backoff(0, 0.0, f"{response.description} ({batch.metric})"))
            events.append(MetricPause(batch.digest, until=now + PAUSE_SECONDS))
        case Action.HOLD_METRIC:
            if batch.digest not in state.held_digests:
                log_when_unlocked(
                    "%s: the aggregator's definition differs from this app's. Reports are held and tried again in a day. Add this app's "
                    "definition to every process of the aggregator, or ship the current definition with the app.",
                    batch.metric,
                )
            events.append(MetricPause(batch.digest, until=now + HOLD_SECONDS, is_held=True))
        case Action.SPLIT if len(batch) > 1:
            halves = (
                QueuedBatch(half, queued.period_kind, queued.send_at, rescheduled=True)
                for half in split_batch(batch, random_bytes)
            )
            events.append(BatchSplit(batch_id, tuple(halves)))
        case Action.SPLIT | Action.QUARANTINE:
            problem = response.problem or str(status)
            log_when_unlocked(
                "%s: the aggregator refused a batch (%s). It is not sent again; `hubbub inspect` shows it",
                batch.metric,
                problem,
            )
            events.append(BatchRemoval(batch_id, "quarantined", problem))
        case Action.DROP_BATCH:
            events.append(BatchRemoval(batch_id, "refused"))
        case Action.DROP_METRIC:
            same_metric = (other for other, each in state.queue.items() if each.batch.digest == batch.digest)
            events += [BatchRemoval(other, "expired") for other in same_metric]
    return events


def split_batch(batch: Batch, random_bytes: RandomBytes) -> tuple[Batch, Batch]:
    """Return two halves of a batch, with new ids. Only for a batch that the aggregator cannot have stored."""
    n = len(batch)
    width, cut = len(batch.rows) // n, n // 2

    def part(start: int, end: int) -> Batch:
        rows = batch.rows[start * width : end * width]
        return replace(batch, batch_id=new_batch_id(random_bytes), cohorts=batch.cohorts[start:end], rows=rows)

    return part(0, cut), part(cut, n)


def _clock_events(state: State, now: float) -> list[Event]:
    """Events of a clock that an aggregator confirmed: batches of future periods that were never sent are dropped."""
    events: list[Event] = []
    if abs(now - state.clock_confirmed_at) > CONFIRM_INTERVAL_SECONDS:
        events.append(ClockConfirmation(now))
    latest = utc_day(now + 2 * 86400.0)
    return events + [
        BatchRemoval(batch_id, "clock")
        for batch_id, queued in state.queue.items()
        if queued.batch.period > latest and not queued.possibly_delivered
    ]


def _reschedule_after_outage(state: State, now: float, random_bytes: RandomBytes, *, but: str) -> Reschedule:
    """Event that gives each overdue batch its own random time within the next day, so that the end of an outage causes no burst."""
    overdue = [batch_id for batch_id, queued in state.queue.items() if queued.send_at <= now and batch_id != but]
    send_at = {batch_id: now + uniform(random_bytes) * OUTAGE_SPREAD_SECONDS for batch_id in overdue}
    return Reschedule(send_at, overdue=False)
