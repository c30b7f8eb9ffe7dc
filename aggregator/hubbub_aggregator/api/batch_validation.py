"""Checks of a decoded batch: metric, digest, expiry, period, sizes, plausibility.

These functions are pure: the definitions, the clock and the settings are arguments.

A refusal of `admit` is sent only if the batch is not stored (`ingest._store`); otherwise the response is 200.
A client that missed its 202 sends the same bytes again. Meanwhile the period may have closed, the metric expired, or its
definition or a limit changed. A refusal would make the client believe that its reports do not count, although they do.
Checks before the batch is decoded depend on the bytes and the size limits only, and have no batch id to look up.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hubbub.metrics.definitions import Definitions
from hubbub.metrics.metric import Metric, has_expired
from hubbub.metrics.periods import Period, PeriodKind
from hubbub.summary.plausibility import plausible_ones
from hubbub.wire.batch import Batch
from hubbub.wire.dates import parse_period
from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.errors import RefusedWithHeaderError
from hubbub_aggregator.pipeline.credible_clock import Reading
from hubbub_aggregator.settings import Settings

_FINAL_PROBLEMS = {ProblemType.PERIOD_CLOSED, ProblemType.METRIC_EXPIRED}
"""Problems after which a client drops its reports."""
_CLOCK_RETRY_AFTER_SECONDS = 3600


def admit(batch: Batch, definitions: Definitions, clock: Reading, settings: Settings) -> None:
    """Raise the RefusedError of `check_admissible`; while the clock is in doubt, 503 instead of a final one."""
    try:
        check_admissible(batch, definitions, clock.now, settings)
    except RefusedError as refused:
        if clock.may_delete or refused.problem_type not in _FINAL_PROBLEMS:
            raise
        raise RefusedWithHeaderError(
            ProblemType.UNAVAILABLE,
            f"the aggregator's clock is in doubt, and by this clock the period {batch.period} is closed or the metric has expired. "
            "Send the same batch again later",
            ("Retry-After", str(_CLOCK_RETRY_AFTER_SECONDS)),
        ) from None


def check_admissible(batch: Batch, definitions: Definitions, now: datetime, settings: Settings) -> None:
    """Raise RefusedError if a batch must not be counted at this time, or never."""
    metric = _metric_version(batch, definitions)
    if has_expired(metric, now.date()):
        raise RefusedError(ProblemType.METRIC_EXPIRED, f"{metric.name} expired on {metric.expires}")
    _check_period_open(metric.period, batch.period, now)
    batch.require_fit(metric, settings.max_reports)
    _check_ones(batch, metric, refuse_rare=settings.reject_implausible)


def _metric_version(batch: Batch, definitions: Definitions) -> Metric:
    current = definitions.get(batch.metric)
    if current is None:
        raise RefusedError(
            ProblemType.UNKNOWN_METRIC, f"no metric {batch.metric[:64]!r} is defined here; /v1/metrics lists all"
        )
    version = definitions.version(batch.metric, batch.digest)
    if version is None:
        raise RefusedError(
            ProblemType.DIGEST_MISMATCH,
            f"the batch has digest {batch.digest[:64]!r}, but {current.name} is defined with digest {current.digest}: "
            "the meaning of a bit differs between the two definitions. Ship the app with the aggregator's definition, or "
            "add this version to the aggregator's definitions",
        )
    return version


def _check_period_open(kind: PeriodKind, text: str, now: datetime) -> None:
    period, opens, closes = _window(kind, text)
    if opens is not None and now < opens:
        raise RefusedError(
            ProblemType.PERIOD_NOT_STARTED, f"the {kind} {period} accepts reports from {opens:%Y-%m-%d} on"
        )
    if now >= closes:
        raise RefusedError(ProblemType.PERIOD_CLOSED, f"the {kind} {period} accepted reports until {closes:%Y-%m-%d}")


@lru_cache(maxsize=1_024)
def _window(kind: PeriodKind, text: str) -> tuple[Period, datetime | None, datetime]:
    """Return a period and the times at which it opens and closes; None: before the calendar."""
    period = parse_period(kind, text)
    try:
        return period, period.opens(), period.closes()
    except OverflowError:
        return period, None, period.closes()


def _check_ones(batch: Batch, metric: Metric, *, refuse_rare: bool) -> None:
    """Raise RefusedError for a number of ones that a genuine report never has, or if wanted, has with a probability below 1e-9."""
    rows = np.frombuffer(batch.rows, np.uint8).reshape(len(batch), -1)
    for start, part in zip(metric.kind.first_bits, metric.components, strict=True):
        fewest, most = plausible_ones(part.blocks)
        if fewest == most:
            bits = np.unpackbits(rows, axis=1, bitorder="little")[:, start : start + part.num_bits]
            place = "" if part is metric else f" in part {part.name}"
            rule = f"Every genuine report of {metric.name} has {most}{' there' if place else ''}"
            _refuse_ones(bits.sum(axis=1, dtype=np.int64), most, most, f"ones{place}. {rule}")
    if refuse_rare:
        fewest, most = plausible_ones(metric.blocks)
        rule = (
            f"A genuine report of {metric.name} has {fewest} to {most}, except with probability below 1e-9. "
            "This aggregator refuses others (--reject-implausible)"
        )
        _refuse_ones(np.bitwise_count(rows).sum(axis=1, dtype=np.int64), fewest, most, f"ones. {rule}")


def _refuse_ones(ones: NDArray[np.int64], fewest: int, most: int, rule: str) -> None:
    implausible = np.flatnonzero((ones < fewest) | (ones > most))
    if len(implausible):
        first = implausible[0]
        raise RefusedError(ProblemType.IMPLAUSIBLE_REPORT, f"report {first} has {ones[first]} {rule}")
