"""What an answer means for a batch, and when to try again: pure functions, no clock, no network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from enum import Enum

from hubbub.randomness import RandomBytes, uniform

BACKOFF_BASE = 30.0
BACKOFF_CAP = 3600.0
PAUSE = 3600.0
MAX_RETRY_AFTER = 3600.0
CLOCK_TOLERANCE = 86400.0


class Action(Enum):
    """What to do with a batch after one attempt."""

    ACCEPT = "it is stored: forget it"
    RETRY = "send the same bytes again, after a backoff"
    SPLIT = "send its halves under new ids; a single report is set aside"
    QUARANTINE = "set it aside for the developer"
    PAUSE = "an operator's mistake: keep everything, try again in an hour"
    PAUSE_METRIC = "keep this metric's batches, try again in an hour"
    HOLD_METRIC = "keep this metric's batches until the app's definition changes"
    DROP_BATCH = "it will never be taken"
    DROP_METRIC = "nothing of this metric will ever be taken"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for one request. `status` None: nothing came that could be understood.

    sent    : whether anything of the request may have reached the other side; without it the batch is not in doubt
    failure : why there is no answer, in words
    """

    status: int | None
    problem: str | None = None
    batch_id: str | None = None
    retry_after: str | None = None
    date: str | None = None
    sent: bool = True
    failure: str = field(default="", compare=False)

    @property
    def told(self) -> str:
        """What it was, for those who ask why reports wait."""
        if self.status is None:
            return f"no answer ({self.failure})" if self.failure else "no answer"
        return f"{self.status} {self.problem}" if self.problem else str(self.status)


NO_ANSWER = Answer(None)
NOT_SENT = Answer(None, sent=False)


def action(status: int | None, problem: str | None, *, in_doubt: bool) -> Action:
    """Decide what an answer means.

    status   : 200 and 202 only if the answer repeated the batch's id; None for no answer, and that is what every other 2xx, every
               redirect and every 1xx is: captive portals exist
    problem  : the last part of an RFC 9457 `type`
    in_doubt : an earlier attempt went unanswered, so the batch may be stored: it is resent whole or given up, nothing else

    >>> action(413, "too-large", in_doubt=False), action(413, "too-large", in_doubt=True)
    (<Action.SPLIT: 'send its halves under new ids; a single report is set aside'>, <Action.RETRY: 'send the same bytes again, after a backoff'>)
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
            return Action.RETRY if in_doubt else Action.SPLIT
        case 400, "not-http":
            return Action.PAUSE  # something on the way damages requests: no fault of the batch
        case ((400 | 422), _):
            return Action.RETRY if in_doubt else Action.QUARANTINE
        case int(), _ if 400 <= status < 500:
            return Action.PAUSE
        case _:
            return Action.RETRY


def understood(answer: Answer, batch_id: str) -> int | None:
    """Return the status, or None where the answer is none: only 200 and 202 that repeat the id, and 4xx and 5xx, are."""
    if answer.status in (200, 202):
        return answer.status if answer.batch_id == batch_id else None
    return answer.status if answer.status is not None and answer.status >= 400 else None


def retry_after(header: str | None, now: float) -> float:
    """Read Retry-After, in seconds or as a date, clamped to [0, 1 hour]; 0 for none and for nonsense.

    >>> retry_after("120", now=0), retry_after("Thu, 01 Jan 1970 00:01:00 GMT", now=20), retry_after("9" * 30, now=0)
    (120.0, 40.0, 3600.0)
    """
    if header is None:
        return 0.0
    text = header.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), MAX_RETRY_AFTER)
    moment = posix_time(text)
    return 0.0 if moment is None else min(max(moment - now, 0.0), MAX_RETRY_AFTER)


def clock_is_wrong(date: str | None, now: float) -> bool:
    """Say whether the other side's `Date` is more than a day from here."""
    theirs = None if date is None else posix_time(date)
    return theirs is not None and abs(theirs - now) > CLOCK_TOLERANCE


def clock_is_right(date: str | None, now: float) -> bool:
    """Say whether the other side's `Date` is there, and no more than a day from here."""
    return date is not None and posix_time(date) is not None and not clock_is_wrong(date, now)


def posix_time(text: str) -> float | None:
    """Read an HTTP date; None for what is none."""
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


def backoff(failures: int, at_least: float, random_bytes: RandomBytes) -> float:
    """Return how long to wait after so many failures in a row: full jitter, uniform in [0, min(1 h, 30 s 2^(failures-1))],
    on top of what the server asked for.

    Source: Brooker 2015, "Exponential backoff and jitter".

    >>> backoff(3, 0.0, lambda n: b"\\xff" * n) < 120.0, backoff(99, 7.0, lambda n: bytes(n))
    (True, 7.0)
    """
    longest = min(BACKOFF_CAP, BACKOFF_BASE * 2.0 ** min(max(failures - 1, 0), 20))
    return at_least + uniform(random_bytes) * longest


def slug(problem: Mapping[str, object]) -> str | None:
    """Return the reason of an RFC 9457 document: the last part of its `type`."""
    kind = problem.get("type")
    return kind.rstrip("/").rpartition("/")[2] if isinstance(kind, str) else None
