"""Upload policy: which batch is sent next and when, and what a response means for it.

    next_batch           the batch to send next, and its time
    decide               response -> action: accept, retry, split, quarantine, pause or drop; only an aggregator's own answer is final
    backoff_seconds      delay after failed uploads
    events_for_response  the action as journal events

The functions use no clock, no network and no disk.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from enum import Enum

from hubbub.metrics.periods import OPEN_BEFORE, from_timestamp
from hubbub.randomness import RandomBytes, uniform
from hubbub.sdk.recording.batch_builder import LATE_WITHIN_SECONDS
from hubbub.sdk.runtime.clock import CLOCK_TOLERANCE, MAX_SEND_DELAY
from hubbub.sdk.runtime.safe_logging import log_when_unlocked
from hubbub.sdk.storage.events import (
    Backoff,
    BatchRemoval,
    BatchSplit,
    ClockConfirmation,
    Event,
    FailedUploads,
    MetricPause,
    QueuedBatch,
    Reschedule,
    ResponseReceipt,
)
from hubbub.sdk.storage.state import State
from hubbub.wire.answers import ACCEPTANCES
from hubbub.wire.batch import Batch, new_batch_id
from hubbub.wire.problems import ProblemType

BACKOFF_BASE_SECONDS = 30.0
BACKOFF_CAP_SECONDS = 3600.0
PAUSE_SECONDS = 3600.0
HOLD_SECONDS = 86400.0
MAX_RETRY_AFTER_SECONDS = 3600.0
UNAUTHORIZED_HINT = (
    "the aggregator requires a report token (--require-report-token): pass Client(authorization=...) with a function that returns a valid one, "
    "or let a proxy add it"
)
OUTAGE_SPREAD_SECONDS = 86400.0
CONFIRM_INTERVAL_SECONDS = 3600.0

_CLIENT_ERRORS = range(400, 500)
_OVERDUE_AFTER_SECONDS = 60.0
_RESCHEDULE_UNTIL_SECONDS = 14 * 86400.0


class Action(Enum):
    """Action for a batch after one upload attempt."""

    ACCEPT = "the aggregator stored it: remove it"
    RETRY = "send the same bytes again, after a backoff"
    SPLIT = "send its halves under new ids; quarantine a single report"
    QUARANTINE = "keep it for the developer, do not send it again"
    PAUSE = "the deployment is misconfigured: keep all batches, try again in an hour"
    PAUSE_METRIC = "keep this metric's batches, try again in an hour"
    HOLD_METRIC = "keep this metric's batches, try again in a day"
    DROP_BATCH = "the aggregator will never accept it: drop it"
    DROP_METRIC = "the aggregator will never accept batches of this metric: drop them"


_UNSETTLED = (Action.RETRY, Action.PAUSE, Action.PAUSE_METRIC, Action.HOLD_METRIC)


@dataclass(frozen=True, slots=True)
class UploadResponse:
    """Response to one upload request.

    Parameters
    ----------
    status
        HTTP status. None: there was no response that could be read.
    problem
        Slug of the problem type of an aggregator's refusal.
    batch_id
        Id of the batch that an aggregator's acceptance names.
    retry_after
        Header Retry-After.
    date
        Header Date.
    request_sent
        Whether any byte of the request may have left. If not, the batch was not delivered.
    failure
        Reason for a missing response, in words.
    """

    status: int | None
    problem: str | None = None
    batch_id: str | None = None
    retry_after: str | None = None
    date: str | None = None
    request_sent: bool = True
    failure: str = field(default="", compare=False)

    @property
    def description(self) -> str:
        """Status and problem type in words, for logs and `hubbub inspect`."""
        if self.status is None:
            return f"no response: {self.failure}" if self.failure else "no response"
        if self.batch_id is not None:
            return str(self.status)  # an acceptance
        if problem_type(self) is None:
            return f"unrecognized answer: status {self.status}"
        text = f"{self.status} {self.problem}"
        return f"{text}: {UNAUTHORIZED_HINT}" if self.problem in ("unauthorized", "forbidden") else text


NO_RESPONSE = UploadResponse(None)
NOT_SENT = UploadResponse(None, request_sent=False)


def problem_type(response: UploadResponse) -> ProblemType | None:
    """Return the problem type of an aggregator's refusal; None for a type or status that no aggregator of this version sends."""
    return next((kind for kind in ProblemType if (kind.slug, kind.status) == (response.problem, response.status)), None)


def is_acceptance(response: UploadResponse, batch: Batch) -> bool:
    """Return whether an aggregator stored the batch, now or before."""
    return response.status in ACCEPTANCES and response.batch_id == str(batch.batch_id)


def is_recognized(response: UploadResponse, batch: Batch) -> bool:
    """Return whether a response to a batch is an aggregator's own. All others, such as a captive portal's, decide nothing."""
    return is_acceptance(response, batch) or problem_type(response) is not None


def aggregator_date(response: UploadResponse, batch: Batch) -> str | None:
    """Return the `Date` of an aggregator's own response; None for any other, because the clock of another machine means nothing."""
    return response.date if is_recognized(response, batch) else None


def decide(response: UploadResponse, batch: Batch, *, possibly_delivered: bool) -> Action:
    """Return the action for the response to a batch.

    possibly_delivered : whether the aggregator may have stored the batch in an earlier attempt. Such a batch is not split, because
                         its reports would count again under the ids of its halves
    """
    if is_acceptance(response, batch):
        return Action.ACCEPT
    match problem_type(response):
        case None:
            return Action.RETRY
        case (
            ProblemType.TOO_SLOW
            | ProblemType.PERIOD_NOT_STARTED
            | ProblemType.TOO_MANY
            | ProblemType.INTERNAL_ERROR
            | ProblemType.UNAVAILABLE
            | ProblemType.DISK_FULL
        ):
            return Action.RETRY
        case (
            ProblemType.NOT_HTTP  # a proxy damages requests; the batch is valid
            | ProblemType.UNSUPPORTED_MEDIA_TYPE
            | ProblemType.HEADERS_TOO_LARGE
            | ProblemType.UNAUTHORIZED
            | ProblemType.FORBIDDEN
            | ProblemType.CROSS_SITE  # this and the next three: the url is wrong
            | ProblemType.NOT_FOUND
            | ProblemType.METHOD_NOT_ALLOWED
            | ProblemType.INVALID_QUERY
        ):
            return Action.PAUSE
        case ProblemType.UNKNOWN_METRIC:
            return Action.PAUSE_METRIC
        case ProblemType.DIGEST_MISMATCH:
            return Action.HOLD_METRIC
        case ProblemType.PERIOD_CLOSED:
            return Action.DROP_BATCH
        case ProblemType.METRIC_EXPIRED:
            return Action.DROP_METRIC
        case ProblemType.TOO_LARGE | ProblemType.TOO_MANY_REPORTS:
            return Action.QUARANTINE if possibly_delivered or len(batch) == 1 else Action.SPLIT
        case (
            ProblemType.MALFORMED
            | ProblemType.COHORT_OUT_OF_RANGE
            | ProblemType.WRONG_GROUP
            | ProblemType.WRONG_SIZE
            | ProblemType.PADDING_SET
            | ProblemType.NO_REPORTS
            | ProblemType.PERIOD_MISALIGNED
            | ProblemType.IMPLAUSIBLE_REPORT
        ):
            return Action.QUARANTINE


def retry_after_seconds(header: str | None, now: float) -> float:
    """Return the delay of a Retry-After header (seconds or a date), clamped to [0, 1 hour]; 0 if it is missing or invalid.

    >>> retry_after_seconds("120", now=0), retry_after_seconds("Thu, 01 Jan 1970 00:01:00 GMT", now=20), retry_after_seconds("9" * 30, now=0)
    (120.0, 40.0, 3600.0)
    """
    if header is None:
        return 0.0
    text = header.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), MAX_RETRY_AFTER_SECONDS)
    moment = parse_http_date(text)
    return 0.0 if moment is None else min(max(moment - now, 0.0), MAX_RETRY_AFTER_SECONDS)


def is_clock_wrong(date: str | None, now: float) -> bool:
    """Return whether the aggregator's `Date` differs from the system clock by more than a day."""
    theirs = None if date is None else parse_http_date(date)
    return theirs is not None and abs(theirs - now) > CLOCK_TOLERANCE.total_seconds()


def is_clock_confirmed(date: str | None, now: float) -> bool:
    """Return whether there is a `Date` header within a day of the system clock."""
    return date is not None and parse_http_date(date) is not None and not is_clock_wrong(date, now)


def parse_http_date(text: str) -> float | None:
    """Return an HTTP date as POSIX seconds; None if it is invalid."""
    from email.utils import parsedate_to_datetime  # 2 ms that a start does not need

    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


def backoff_seconds(failures: int, at_least: float, random_bytes: RandomBytes) -> float:
    """Return the delay in seconds after `failures` failed uploads in a row, with full jitter.

        delay = at_least + U,    U uniform in [0, min(1 h, 30 s * 2**(failures - 1))]

    Source: Brooker 2015, "Exponential backoff and jitter".

    >>> backoff_seconds(3, 0.0, lambda n: b"\\xff" * n) < 120.0, backoff_seconds(99, 7.0, lambda n: bytes(n))
    (True, 7.0)
    """
    longest = min(BACKOFF_CAP_SECONDS, BACKOFF_BASE_SECONDS * 2.0 ** min(max(failures - 1, 0), 20))
    return at_least + uniform(random_bytes) * longest


def eligible_batches(state: State, now: float) -> list[str]:
    """Return the ids of the batches that may be sent once their time has come.

    Not among them: batches of paused metrics, of periods that the aggregator does not accept yet, and those made under consent `local`.
    """
    open_until = utc_day(now + OPEN_BEFORE.total_seconds())
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
    send_at = {batch_id: now + uniform(random_bytes) * LATE_WITHIN_SECONDS for batch_id in overdue}
    return Reschedule(send_at, overdue=True)


def backoff_until(state: State, now: float) -> float:
    """Return the end of the backoff (POSIX seconds); 0 for an end that only a wrong clock can have set."""
    longest = BACKOFF_CAP_SECONDS + MAX_RETRY_AFTER_SECONDS
    return state.backoff_until if state.backoff_until <= now + longest else 0.0


def utc_day(moment: float) -> str:
    """Return the UTC date of a time in POSIX seconds, ISO 8601."""
    return from_timestamp(moment).date().isoformat()


def _is_paused(state: State, queued: QueuedBatch, now: float) -> bool:
    digest = queued.batch.digest
    longest = HOLD_SECONDS if digest in state.held_digests else PAUSE_SECONDS
    return now < state.paused_metrics.get(digest, 0.0) <= now + longest


def _is_overdue(queued: QueuedBatch, now: float) -> bool:
    if queued.rescheduled or _send_time(queued, now) >= now - _OVERDUE_AFTER_SECONDS:
        return False
    return now < queued.period_end().timestamp() + _RESCHEDULE_UNTIL_SECONDS


def _send_time(queued: QueuedBatch, now: float, *, hurry: bool = False) -> float:
    is_over = queued.period_end().timestamp() <= now  # else the clock was ahead when the batch was made
    if hurry and queued.rescheduled and is_over:
        return min(queued.send_at, now)
    return queued.send_at if queued.send_at <= now + MAX_SEND_DELAY.total_seconds() else now


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
    recognized, date = is_recognized(response, batch), aggregator_date(response, batch)
    action = decide(response, batch, possibly_delivered=possibly_delivered)
    other_clock = is_clock_wrong(date, now)
    if action is not Action.ACCEPT and other_clock:
        action = Action.PAUSE
    _log_response(state, batch, response, action, other_clock=other_clock)
    events: list[Event] = [
        ResponseReceipt(
            batch_id,
            possibly_delivered=possibly_delivered or (response.request_sent and not recognized),
            request_sent=response.request_sent,
        )
    ]
    if is_clock_confirmed(date, now):
        events += _clock_events(state, now)
    if action in _UNSETTLED:
        reason = "postponed" if recognized else "no-response" if response.status is None else "unrecognized"
        events.append(FailedUploads({**state.failed_uploads, reason: state.failed_uploads[reason] + 1}))
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
            events += _backoff_events(queued, failures, now + wait, response)
        case Action.PAUSE:
            events += _backoff_events(queued, state.failures + 1, now + PAUSE_SECONDS, response)
        case Action.PAUSE_METRIC:
            events.append(Backoff(0, 0.0, f"{response.description} ({batch.metric})"))
            events.append(MetricPause(batch.digest, until=now + PAUSE_SECONDS))
        case Action.HOLD_METRIC:
            events.append(MetricPause(batch.digest, until=now + HOLD_SECONDS, is_held=True))
        case Action.SPLIT:
            halves = (
                QueuedBatch(half, queued.period_kind, queued.send_at, rescheduled=True)
                for half in split_batch(batch, random_bytes)
            )
            events.append(BatchSplit(batch_id, tuple(halves)))
        case Action.QUARANTINE:
            events.append(BatchRemoval(batch_id, "quarantined", response.problem or ""))
        case Action.DROP_BATCH:
            events.append(BatchRemoval(batch_id, "refused"))
        case Action.DROP_METRIC:
            same_metric = (other for other, queued in state.queue.items() if queued.batch.digest == batch.digest)
            events += [BatchRemoval(other, "expired") for other in same_metric]
    return events


def _backoff_events(queued: QueuedBatch, failures: int, until: float, response: UploadResponse) -> list[Event]:
    """Events of a backoff, after which the other due batches come first: a batch that always fails does not hold them up."""
    moved = Reschedule({str(queued.batch.batch_id): until}, overdue=queued.rescheduled)
    return [moved, Backoff(failures, until, response.description)]


def _log_response(state: State, batch: Batch, response: UploadResponse, action: Action, *, other_clock: bool) -> None:
    """Log a response that the app's developer or the operator can do something about, once for each pause.

    other_clock : whether the client's clock is wrong. The sender logs it, and it is the reason of the pause
    """
    log_when_unlocked("%s: %s", batch.metric, response.description, level=logging.DEBUG)
    match action:
        case Action.RETRY if (
            not state.failures and response.status in _CLIENT_ERRORS and problem_type(response) is None
        ):
            log_when_unlocked(
                "an answer with status %s is not the aggregator's. Reports are kept and sent again. Check the url, and the proxies on "
                "the way to the aggregator",
                response.status,
            )
        case Action.PAUSE if not (state.failures or other_clock):
            log_when_unlocked(
                "the aggregator answered %s. Reports are kept, and the upload is tried again in an hour. Check the url and the "
                "aggregator's log",
                response.description,
            )
        case Action.PAUSE_METRIC if not state.paused_metrics.get(batch.digest):
            log_when_unlocked(
                "%s: the aggregator has no metric of this name. Reports are kept and tried again in an hour. Add the metric to the "
                "aggregator's definitions.",
                batch.metric,
            )
        case Action.HOLD_METRIC if batch.digest not in state.held_digests:
            log_when_unlocked(
                "%s: the aggregator's definition differs from this app's. Reports are held and tried again in a day. Add this app's "
                "definition to every process of the aggregator, or ship the current definition with the app.",
                batch.metric,
            )
        case Action.QUARANTINE:
            log_when_unlocked(
                "%s: the aggregator refused a batch (%s). It is not sent again; `hubbub inspect` shows it",
                batch.metric,
                response.problem,
            )


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
