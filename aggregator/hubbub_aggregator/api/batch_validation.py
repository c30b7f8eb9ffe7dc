"""A request's bytes -> a batch that may be stored, or the reason why not. Pure: no clock, network or database.

The checks, in order: media type, size as sent, size inflated, form; then those of `require_admissible`: metric,
digest, expiry, period, possibility.

**Which may come before looking the id up.** Once a batch is readable, no refusal is given without asking whether
its id is stored, and if it is the answer is 200. A client that never saw its 202 sends the same bytes again, and
meanwhile the period may have closed, the metric expired, or its definition or a limit changed: a refusal would
make it believe that its reports do not count, when they do. What comes before is a function of the bytes and the
limits on sizes alone, and cannot be otherwise: without a readable body there is no id to look up.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache

import numpy as np

from hubbub.metrics.definitions import Definitions
from hubbub.metrics.metric import Metric, has_expired
from hubbub.metrics.periods import Period, PeriodKind
from hubbub.summary.plausibility import plausible_ones
from hubbub.wire.batch import CONTENT_TYPE, Batch
from hubbub.wire.dates import parse_period
from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.errors import RefusedWithHeaderError
from hubbub_aggregator.settings import Settings

_DIGITS_OF_A_SIZE = 20
_GZIP = 16 + zlib.MAX_WBITS


def is_gzip(content_type: str | None, content_encoding: str | None) -> bool:
    """Check what the headers say the body is; return whether it is to be inflated."""
    media_type = (content_type or "").partition(";")[0].strip().lower()
    if media_type != CONTENT_TYPE:
        raise RefusedWithHeaderError(
            ProblemType.UNSUPPORTED_MEDIA_TYPE,
            f"Content-Type must be {CONTENT_TYPE}, got {media_type[:80]!r}",
            ("Accept", CONTENT_TYPE),
        )
    match (content_encoding or "identity").strip().lower():
        case "identity":
            return False
        case "gzip" | "x-gzip":
            return True
        case coding:
            raise RefusedWithHeaderError(
                ProblemType.UNSUPPORTED_MEDIA_TYPE,
                f"Content-Encoding must be gzip or none, got {coding[:80]!r}",
                ("Accept-Encoding", "gzip"),
            )


def announced(content_length: str | None) -> int:
    """Return the size that the body is said to have; 0: nothing is said."""
    text = content_length or "0"
    if not (text.isascii() and text.isdecimal() and len(text) < _DIGITS_OF_A_SIZE):
        raise RefusedError(ProblemType.MALFORMED, f"Content-Length must be a number of bytes, got {text[:80]!r}")
    return int(text)


def require_size(size: int, limit: int) -> None:
    """Refuse a body that is, or has already become, larger than `limit` bytes."""
    if size > limit:
        raise RefusedError(
            ProblemType.TOO_LARGE, f"a body is at most {limit} bytes, got {size} or more: send smaller batches"
        )


def inflated(body: bytes, limit: int) -> bytes:
    """Inflate one gzip member; more than `limit` bytes are refused and never made."""
    stream = zlib.decompressobj(_GZIP)
    try:
        data = stream.decompress(body, limit + 1)
    except zlib.error:
        raise RefusedError(ProblemType.MALFORMED, f"the body is not gzip ({len(body)} bytes)") from None
    if len(data) > limit:
        raise RefusedError(
            ProblemType.TOO_LARGE, f"a body of {len(body)} bytes inflates to at most {limit}: send smaller batches"
        )
    if not stream.eof or stream.unused_data:
        raise RefusedError(ProblemType.MALFORMED, f"the body is not exactly one gzip member ({len(body)} bytes)")
    return data


def require_admissible(batch: Batch, definitions: Definitions, now: datetime, settings: Settings) -> None:
    """Refuse a batch that must not be counted now, or never can be."""
    metric = _version(batch, definitions)
    if has_expired(metric, now.date()):
        raise RefusedError(ProblemType.METRIC_EXPIRED, f"{metric.name} has expired on {metric.expires}")
    _require_open(metric.period, batch.period, now)
    batch.require_fit(metric, settings.max_reports)
    if settings.reject_implausible:
        _require_usual(batch, metric)


def _require_usual(batch: Batch, metric: Metric) -> None:
    fewest, most = plausible_ones(metric.params)
    rows = np.frombuffer(batch.rows, np.uint8).reshape(len(batch), -1)
    ones = np.bitwise_count(rows).sum(axis=1, dtype=np.int64)
    odd = np.flatnonzero((ones < fewest) | (ones > most))
    if len(odd):
        raise RefusedError(
            ProblemType.IMPLAUSIBLE_REPORT,
            f"report {odd[0]} has {ones[odd[0]]} ones: an honest one of {metric.name} has {fewest} to {most}, but for one in a "
            "billion; this aggregator refuses the others (--reject-implausible)",
        )


def _version(batch: Batch, definitions: Definitions) -> Metric:
    current = definitions.get(batch.metric)
    if current is None:
        raise RefusedError(
            ProblemType.UNKNOWN_METRIC, f"{batch.metric[:64]!r} is not collected here; /v1/metrics has what is"
        )
    version = definitions.version(batch.metric, batch.digest)
    if version is None:
        raise RefusedError(
            ProblemType.DIGEST_MISMATCH,
            f"the batch was made under digest {batch.digest[:64]!r}, but {current.name} is now collected under "
            f"{current.digest}: the two definitions differ in what a bit means",
        )
    return version


def _require_open(kind: PeriodKind, text: str, now: datetime) -> None:
    period, opens, closes = _window(kind, text)
    if opens is not None and now < opens:
        raise RefusedError(
            ProblemType.PERIOD_NOT_STARTED, f"the {kind} {period} takes reports from {opens:%Y-%m-%d} on"
        )
    if closes is not None and now >= closes:
        raise RefusedError(ProblemType.PERIOD_CLOSED, f"the {kind} {period} took reports until {closes:%Y-%m-%d}")


@lru_cache(maxsize=1_024)
def _window(kind: PeriodKind, text: str) -> tuple[Period, datetime | None, datetime | None]:
    """Return a period and when it opens and closes; None: before or after all that the calendar has."""
    period = parse_period(kind, text)
    return period, _or_none(period.opens), _or_none(period.closes)


def _or_none(end: Callable[[], datetime]) -> datetime | None:
    try:
        return end()
    except OverflowError:
        return None
