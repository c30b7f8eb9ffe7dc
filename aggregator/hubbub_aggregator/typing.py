"""Types that occur in public signatures, for the annotations of programs that embed the aggregator."""

from __future__ import annotations

from hubbub_aggregator.api.dependencies import Address
from hubbub_aggregator.pipeline.credible_clock import ServiceClock
from hubbub_aggregator.server.limits import ConnectionLimits
from hubbub_aggregator.store.append import Appender
from hubbub_aggregator.store.interface import Store

__all__ = ["Address", "Appender", "ConnectionLimits", "ServiceClock", "Store"]
