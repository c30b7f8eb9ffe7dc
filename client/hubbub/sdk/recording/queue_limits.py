"""How much may wait to be sent, and how long: what is beyond that is given up, and counted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hubbub.errors import ParameterError
from hubbub.metrics.definitions import Definitions
from hubbub.metrics.metric import has_expired
from hubbub.sdk.storage.state import State
from hubbub.wire.batch import Batch

KEPT_FOR = timedelta(days=28)
"""How long after its period ends a report is worth sending: two days less than a period stays open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much may wait to be sent; beyond it the oldest goes, counted as `quota`.

    max_reports : reports          max_bytes : bytes on disk, roughly
    """

    max_reports: int = 10_000
    max_bytes: int = 4 << 20

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ParameterError(f"{name} must be a whole number, at least 1, got {value!r}")


def given_up(state: State, definitions: Definitions, limits: Limits, now: datetime) -> dict[str, str]:
    """Return why a batch is not sent any more, by its id: `age`, `expired` or `quota`."""
    gone, left = {}, []
    certain = min(now, datetime.fromtimestamp(state.confirmed, UTC))  # a clock that is ahead drops nothing
    for batch_id, waiting in state.waiting.items():
        metric = definitions.version(waiting.batch.metric, waiting.batch.digest)
        if certain >= waiting.ends() + KEPT_FOR:
            gone[batch_id] = "age"
        elif metric is not None and has_expired(metric, now.date()):
            gone[batch_id] = "expired"
        else:
            left.append(waiting.batch)
    reports, size = sum(map(len, left)), sum(map(_size, left))
    for batch in sorted(left, key=lambda batch: batch.period):
        if reports <= limits.max_reports and size <= limits.max_bytes:
            break
        gone[str(batch.batch_id)] = "quota"
        reports -= len(batch)
        size -= _size(batch)
    return gone


def _size(batch: Batch) -> int:
    return 512 + 2 * len(batch.rows) + 2 * len(batch.cohorts)
