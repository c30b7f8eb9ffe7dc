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
from datetime import datetime

from hubbub.batch import CONTENT_TYPE, Batch
from hubbub.definitions import Definitions
from hubbub.errors import RefusedError
from hubbub.metric import Metric
from hubbub.periods import Period
from hubbub.refusals import Refusal
from hubbub_aggregator.settings import Settings

_ALWAYS_INFLATED = 1 << 16
_GZIP = 16 + zlib.MAX_WBITS


class UnsupportedMediaError(RefusedError):
    """A media type or coding that is not taken; `header` is the one that says what is (RFC 9110, 15.5.16)."""

    def __init__(self, detail: str, header: tuple[str, str]) -> None:
        super().__init__(Refusal.UNSUPPORTED_MEDIA_TYPE, detail)
        self.header = header


def is_gzip(content_type: str | None, content_encoding: str | None) -> bool:
    """Check what the headers say the body is; return whether it is to be inflated."""
    media_type = (content_type or "").partition(";")[0].strip().lower()
    if media_type != CONTENT_TYPE:
        raise UnsupportedMediaError(
            f"Content-Type must be {CONTENT_TYPE}, got {media_type[:80]!r}", ("Accept", CONTENT_TYPE)
        )
    match (content_encoding or "identity").strip().lower():
        case "identity":
            return False
        case "gzip" | "x-gzip":
            return True
        case coding:
            raise UnsupportedMediaError(
                f"Content-Encoding must be gzip or none, got {coding[:80]!r}", ("Accept-Encoding", "gzip")
            )


def require_size(size: int, settings: Settings) -> None:
    """Refuse a body that is, or has already become, too large."""
    if size > settings.max_body:
        raise RefusedError(
            Refusal.TOO_LARGE, f"a body is at most {settings.max_body} bytes, got {size} or more: send smaller batches"
        )


def inflated(body: bytes, settings: Settings) -> bytes:
    """Inflate one gzip member, never beyond the limit.

    limit = min(max_inflated, max(64 KiB, max_ratio * sent))
    """
    limit = min(settings.max_inflated, max(_ALWAYS_INFLATED, settings.max_ratio * len(body)))
    stream = zlib.decompressobj(_GZIP)
    try:
        data = stream.decompress(body, limit + 1)
    except zlib.error:
        raise RefusedError(Refusal.MALFORMED, f"the body is not gzip ({len(body)} bytes)") from None
    if len(data) > limit:
        raise RefusedError(
            Refusal.TOO_LARGE, f"a body of {len(body)} bytes inflates to at most {limit}: send smaller batches"
        )
    if not stream.eof or stream.unused_data:
        raise RefusedError(Refusal.MALFORMED, f"the body is not exactly one gzip member ({len(body)} bytes)")
    return data


def require_admissible(batch: Batch, definitions: Definitions, now: datetime, settings: Settings) -> None:
    """Refuse a batch that must not be counted now, or never can be."""
    metric = _version(batch, definitions)
    if metric.expires is not None and now.date() >= metric.expires:
        raise RefusedError(Refusal.METRIC_EXPIRED, f"{metric.name} has expired on {metric.expires}")
    _require_open(Period.parse(metric.period, batch.period), now)
    batch.require_fit(metric, settings.max_reports)


def _version(batch: Batch, definitions: Definitions) -> Metric:
    current = definitions.get(batch.metric)
    if current is None:
        raise RefusedError(
            Refusal.UNKNOWN_METRIC, f"{batch.metric[:64]!r} is not collected here; /v1/metrics has what is"
        )
    version = definitions.version(batch.metric, batch.digest)
    if version is None:
        raise RefusedError(
            Refusal.DIGEST_MISMATCH,
            f"the batch was made under digest {batch.digest[:64]!r}, but {current.name} is now collected under "
            f"{current.digest}: the two definitions differ in what a bit means",
        )
    return version


def _require_open(period: Period, now: datetime) -> None:
    # Only the end that is near is computed: the other may lie outside the calendar (years 1 to 9999).
    if period.start > now.date():
        if now < period.opens():
            raise RefusedError(
                Refusal.PERIOD_NOT_STARTED,
                f"the {period.kind} {period} takes reports from {period.opens():%Y-%m-%d} on",
            )
    elif now >= period.closes():
        raise RefusedError(
            Refusal.PERIOD_CLOSED, f"the {period.kind} {period} took reports until {period.closes():%Y-%m-%d}"
        )
