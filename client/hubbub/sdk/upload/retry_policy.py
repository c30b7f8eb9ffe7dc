"""Retry policy: map an upload response to accept, retry, split, quarantine or drop; backoff. No clock and no network are used here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from enum import Enum

from hubbub.randomness import RandomBytes, uniform

BACKOFF_BASE_SECONDS = 30.0
BACKOFF_CAP_SECONDS = 3600.0
PAUSE_SECONDS = 3600.0
HOLD_SECONDS = 86400.0
MAX_RETRY_AFTER_SECONDS = 3600.0
CLOCK_TOLERANCE_SECONDS = 86400.0
UNAUTHORIZED_HINT = (
    "the aggregator requires a report token (--require-report-token), which this client cannot send; let a proxy add it "
    "or start the aggregator without the option"
)


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


@dataclass(frozen=True, slots=True)
class UploadResponse:
    """Response to one upload request.

    status       : HTTP status; None without a response that could be read
    problem      : last part of an RFC 9457 `type`
    batch_id     : id that the aggregator confirmed
    retry_after  : header Retry-After                       date : header Date
    request_sent : whether any byte of the request may have left; if not, the batch was not delivered
    failure      : reason for a missing response, in words
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
        text = f"{self.status} {self.problem}" if self.problem else str(self.status)
        needs_token = self.status in (401, 403) and self.problem != "cross-site"
        return f"{text}: {UNAUTHORIZED_HINT}" if needs_token else text


NO_RESPONSE = UploadResponse(None)
NOT_SENT = UploadResponse(None, request_sent=False)


def decide(status: int | None, problem: str | None, *, possibly_delivered: bool) -> Action:
    """Return the action for a response.

    status             : as `effective_status` returns it
    problem            : last part of an RFC 9457 `type`
    possibly_delivered : whether the aggregator may have stored the batch in an earlier attempt. Such a batch is sent again
                         unchanged, or dropped; it is neither split nor quarantined

    >>> decide(413, "too-large", possibly_delivered=False), decide(413, "too-large", possibly_delivered=True)
    (<Action.SPLIT: 'send its halves under new ids; quarantine a single report'>, <Action.RETRY: 'send the same bytes again, after a backoff'>)
    """
    match status, problem:
        case ((200 | 202), _):
            return Action.ACCEPT
        case None | 408 | 425 | 429, _:
            return Action.RETRY
        case 409, "digest-mismatch":
            return Action.HOLD_METRIC
        case 410, "period-closed":
            return Action.DROP_BATCH
        case 410, "metric-expired":
            return Action.DROP_METRIC
        case 404, "unknown-metric":
            return Action.PAUSE_METRIC
        case 422, "period-not-started":
            return Action.RETRY
        case (413, _) | (422, "too-many-reports"):
            return Action.RETRY if possibly_delivered else Action.SPLIT
        case 400, "not-http":
            return Action.PAUSE  # a proxy damages requests; the batch is valid
        case ((400 | 422), _):
            return Action.RETRY if possibly_delivered else Action.QUARANTINE
        case int(), _ if 400 <= status < 500:
            return Action.PAUSE
        case _:
            return Action.RETRY


def effective_status(response: UploadResponse, batch_id: str) -> int | None:
    """Return the status of a response from an aggregator; None for any other response, such as a captive portal's.

    Accepted are 200 and 202 with the batch's id, and all 4xx and 5xx.
    """
    if response.status in (200, 202):
        return response.status if response.batch_id == batch_id else None
    return response.status if response.status is not None and response.status >= 400 else None


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
    return theirs is not None and abs(theirs - now) > CLOCK_TOLERANCE_SECONDS


def is_clock_confirmed(date: str | None, now: float) -> bool:
    """Return whether there is a `Date` header within a day of the system clock."""
    return date is not None and parse_http_date(date) is not None and not is_clock_wrong(date, now)


def parse_http_date(text: str) -> float | None:
    """Return an HTTP date as POSIX seconds; None if it is invalid."""
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


def problem_slug(problem: Mapping[str, object]) -> str | None:
    """Return the problem type of an RFC 9457 document: the last part of its `type`."""
    kind = problem.get("type")
    return kind.rstrip("/").rpartition("/")[2] if isinstance(kind, str) else None
