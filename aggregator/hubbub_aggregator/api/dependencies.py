"""The collaborators of all routes, and checks of a request that need them: its rate, and reads without a token."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from functools import cache

from starlette.requests import Request

from hubbub.metrics.definitions import Definitions
from hubbub.wire.problems import ProblemType
from hubbub_aggregator.api.authentication import TokenAuthorizer
from hubbub_aggregator.api.health import ReadinessCheck
from hubbub_aggregator.api.request_body import BodyMemory
from hubbub_aggregator.errors import RefusedWithHeaderError
from hubbub_aggregator.monitoring.disk_space import DiskSpace
from hubbub_aggregator.monitoring.jobs import JobHealth
from hubbub_aggregator.pipeline.active_definitions import ActiveDefinitions
from hubbub_aggregator.pipeline.credible_clock import ServiceClock
from hubbub_aggregator.pipeline.folding import FoldProgress
from hubbub_aggregator.pipeline.outcome_counters import OutcomeCounters
from hubbub_aggregator.server.client_address import LOCAL, Proxies, is_direct_local_request
from hubbub_aggregator.server.limits import RateLimit
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.interface import PeriodStore, ReportStore
from hubbub_aggregator.store.tokens import TokenStore

Address = tuple[str, int]
"""Host and port of a listener."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Service:
    """Settings, stores, clock and the other collaborators of the routes."""

    active_definitions: ActiveDefinitions
    reports: ReportStore
    periods: PeriodStore
    tokens: TokenStore
    settings: Settings
    clock: ServiceClock
    outcomes: OutcomeCounters
    proxies: Proxies
    rate_limit: RateLimit
    body_memory: BodyMemory
    disk: DiskSpace
    authorizer: TokenAuthorizer
    progress: FoldProgress
    job_health: JobHealth
    local_address: Address | None
    readiness: ReadinessCheck

    @property
    def definitions(self) -> Definitions:
        """The definitions in force; read them once per request, because SIGHUP replaces them."""
        return self.active_definitions.current


def may_read_without_token(service: Service, request: Request) -> bool:
    """Return whether a request arrived at the local listener and names this machine as its host.

    The socket identifies the listener: headers cannot, because a reverse proxy on this machine may send none.
    The host name is checked against DNS rebinding, where a page of another site resolves its name to this machine.
    """
    arrived_at = tuple(request.scope.get("server") or ())
    return arrived_at == service.local_address and is_direct_local_request(request.headers)


def charge_request(service: Service, client: tuple[str, int] | None, forwarded_for: str | None) -> str:
    """Charge one request to its network, or refuse it; return the client's address."""
    address = LOCAL if client is None else service.proxies.client_address(client[0], forwarded_for)
    charge(service, address, 1 / service.settings.client_rate)
    return address


def charge(service: Service, address: str, seconds: float) -> None:
    """Charge a cost in seconds at the permitted rate; RefusedError with Retry-After beyond the limit of the network."""
    settings = service.settings
    wait = service.rate_limit.spend(address, seconds / (settings.local_rate_factor if address == LOCAL else 1))
    if not wait:
        return
    if address == LOCAL:
        warn_of_local_limit()
    raise RefusedWithHeaderError(
        ProblemType.TOO_MANY,
        f"one network may send {settings.client_rate:g} requests, {settings.client_report_rate:g} reports and "
        f"{settings.client_byte_rate} bytes per second: send the same request again after Retry-After",
        ("Retry-After", str(math.ceil(wait))),
    )


@cache
def warn_of_local_limit() -> None:
    """Log the warning once per process."""
    logger.warning(
        "requests from this machine without X-Forwarded-For exceed --local-rate-factor and are refused (429). If a reverse "
        "proxy sends them, set X-Forwarded-For in it, so that each client network has its own limit"
    )
