"""Limits on queued batches: size and age."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hubbub.errors import ParameterError
from hubbub.metrics.definitions import Definitions
from hubbub.metrics.metric import has_expired
from hubbub.sdk.storage.state import State
from hubbub.wire.batch import Batch

MAX_BATCH_AGE = timedelta(days=28)
"""A batch is sent until this long after the end of its period: two days less than the aggregator accepts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on queued batches. Beyond them the oldest batches are dropped and counted as `quota`.

    max_reports : number of reports
    max_bytes   : approximate bytes on disk
    """

    max_reports: int = 10_000
    max_bytes: int = 4 << 20

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ParameterError(f"{name} must be an integer >= 1, got {value!r}")


def find_discarded(state: State, definitions: Definitions, limits: Limits, now: datetime) -> dict[str, str]:
    """Return the batches that are not sent any more: the reason `age`, `expired` or `quota` by batch id."""
    reasons, kept = {}, []
    certain = min(now, datetime.fromtimestamp(state.clock_confirmed_at, UTC))  # a clock that is ahead discards no batch
    for batch_id, queued in state.queue.items():
        metric = definitions.version(queued.batch.metric, queued.batch.digest)
        if certain >= queued.period_end() + MAX_BATCH_AGE:
            reasons[batch_id] = "age"
        elif metric is not None and has_expired(metric, now.date()):
            reasons[batch_id] = "expired"
        else:
            kept.append(queued.batch)
    reports, size = sum(map(len, kept)), sum(map(_size_bytes, kept))
    for batch in sorted(kept, key=lambda batch: batch.period):
        if reports <= limits.max_reports and size <= limits.max_bytes:
            break
        reasons[str(batch.batch_id)] = "quota"
        reports -= len(batch)
        size -= _size_bytes(batch)
    return reasons


def _size_bytes(batch: Batch) -> int:
    return 512 + 2 * len(batch.rows) + 2 * len(batch.cohorts)
