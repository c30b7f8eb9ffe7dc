"""What every route needs: settings, store, definitions, clock."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from functools import cache

from hubbub.metrics.definitions import Definitions
from hubbub.wire.problems import ProblemType
from hubbub_aggregator.api.bearer_auth import Doorkeeper
from hubbub_aggregator.api.body_memory import BodyMemory
from hubbub_aggregator.api.health import Readiness
from hubbub_aggregator.errors import RefusedWithHeaderError
from hubbub_aggregator.monitoring.disk_space import DiskSpace
from hubbub_aggregator.monitoring.job_health import JobHealth
from hubbub_aggregator.pipeline.active_definitions import ActiveDefinitions
from hubbub_aggregator.pipeline.credible_clock import ServiceClock
from hubbub_aggregator.pipeline.fold_progress import FoldProgress
from hubbub_aggregator.pipeline.outcome_counters import OutcomeCounters
from hubbub_aggregator.server.client_address import LOCAL, Proxies
from hubbub_aggregator.server.rate_limit import RateLimit
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.interface import Store

Address = tuple[str, int]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Service:
    """What the routes work with."""

    active_definitions: ActiveDefinitions
    store: Store
    settings: Settings
    clock: ServiceClock
    outcomes: OutcomeCounters
    proxies: Proxies
    rate: RateLimit
    bodies: BodyMemory
    disk: DiskSpace
    door: Doorkeeper
    progress: FoldProgress
    job_health: JobHealth
    local_address: Address | None
    readiness: Readiness

    @property
    def definitions(self) -> Definitions:
        """The definitions that hold now: take them once, and finish under what you took."""
        return self.active_definitions.current


def require_rate(service: Service, client: tuple[str, int] | None, forwarded_for: str | None) -> str:
    """Charge a request to its network, or refuse it; return the address that it is counted with."""
    address = LOCAL if client is None else service.proxies.peer(client[0], forwarded_for)
    charge(service, address, 1 / service.settings.client_rate)
    return address


@cache
def _warn_of_local_limit() -> None:
    """Log once in the life of the process: a limit that is met again and again is no event."""
    logger.warning(
        "requests from this machine without X-Forwarded-For exceed --local-rate-factor and are refused (429): if they come "
        "through a proxy, set X-Forwarded-For in it, so that each network is limited by itself"
    )


def charge(service: Service, address: str, seconds: float) -> None:
    """Charge what costs so many seconds at the permitted rate, or refuse it with the time when it will be accepted."""
    settings = service.settings
    wait = service.rate.spend(address, seconds / (settings.local_rate_factor if address == LOCAL else 1))
    if not wait:
        return
    if address == LOCAL:
        _warn_of_local_limit()
    raise RefusedWithHeaderError(
        ProblemType.TOO_MANY,
        f"one network may send {settings.client_rate:g} requests, {settings.client_report_rate:g} reports and "
        f"{settings.client_byte_rate} bytes a second: send the same again later",
        ("Retry-After", str(math.ceil(wait))),
    )
