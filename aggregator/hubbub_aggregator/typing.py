"""Types that occur in public signatures, for the annotations of programs that embed the aggregator."""

from __future__ import annotations

from hubbub_aggregator.api.dependencies import Address
from hubbub_aggregator.pipeline.credible_clock import ServiceClock
from hubbub_aggregator.server.limits import ConnectionLimits
from hubbub_aggregator.store.clock_state import StoredClock
from hubbub_aggregator.store.interface import AppendResult, Store, StoredPeriod, StoredReports
from hubbub_aggregator.store.period_figures import PeriodFigures, StoredFigures, VersionTotals
from hubbub_aggregator.store.tokens import Token

__all__ = [
    "Address",
    "AppendResult",
    "ConnectionLimits",
    "PeriodFigures",
    "ServiceClock",
    "Store",
    "StoredClock",
    "StoredFigures",
    "StoredPeriod",
    "StoredReports",
    "Token",
    "VersionTotals",
]
