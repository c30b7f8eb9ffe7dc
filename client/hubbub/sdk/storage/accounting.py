"""Counters of recordings and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hubbub.wire.json_values import json_value


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounting:
    """Counters of recordings and reports.

    Two identities hold after any kill:

        recorded = chosen + superseded + sum(ignored.values())
        formed   = acknowledged + queued + quarantined + sum(dropped.values())

    recorded        : recordings
    chosen          : recordings that became a draft          superseded : further recordings of a draft's period
    ignored         : ignored recordings, by reason
    formed          : reports that were made
    stood_in        : reports that repeat the value reported last, because the budget had no room for another one
    acknowledged    : reports that the aggregator stored      queued     : reports that wait to be sent
    quarantined     : reports that the aggregator refused     dropped    : reports that were deleted, by reason
    damaged_records : damaged records of the state; the figures in them are lost
    """

    recorded: int
    chosen: int
    superseded: int
    ignored: Mapping[str, int]
    formed: int
    stood_in: int
    acknowledged: int
    queued: int
    quarantined: int
    dropped: Mapping[str, int]
    damaged_records: int

    def to_dict(self) -> dict[str, Any]:
        """Return the counters as JSON values."""
        fields: dict[str, Any] = json_value(self)
        return fields
