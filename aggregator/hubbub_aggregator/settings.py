"""The limits of one aggregator: every setting, its default and what it is for, in one place.

The command line's options and their help are made from these fields.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from hubbub.errors import ParameterError
from hubbub_aggregator.server.client_address import Proxies, network_of
from hubbub_aggregator.server.connection_limits import ConnectionLimits

_ORIGIN = re.compile(r"https?://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
NETWORKS_SHARE = 8
"""One network may hold this part of the memory for bodies that are arriving."""
_MOST_PERIODS = 10_000  # of days: 27 years


def _setting(default: float, about: str, *, is_size: bool = False) -> Any:
    return field(default=default, metadata={"about": about, "is_size": is_size})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Limits of one aggregator process, and how often it folds. Sizes are in bytes, times in seconds."""

    max_body: int = _setting(1 << 20, "Largest body of a request as sent.", is_size=True)
    max_body_seconds: float = _setting(30.0, "Longest time that a body may take to arrive; beyond it: 408.")
    min_body_rate: float = _setting(
        1_024.0, "Bytes a second that an unfinished body must bring, measured every 5 seconds; below it: 408."
    )
    max_body_memory: int = _setting(
        32 << 20, "Memory for bodies that are arriving, an eighth of it for one network; beyond it: 503.", is_size=True
    )
    max_connections: int = _setting(1_000, "Open connections; beyond it: 503.")
    max_network_connections: int = _setting(
        200, "Open connections from one network, trusted proxies excepted; beyond it: 503."
    )
    max_reports: int = _setting(10_000, "Most reports in one batch.")
    max_queue_bytes: int = _setting(32 << 20, "Batches waiting for their commit; beyond it: 503.", is_size=True)
    max_batches_per_commit: int = _setting(1_000, "Most batches in one commit.")
    fold_interval: float = _setting(10.0, "Seconds between two rounds of folding segments and closing periods.")
    client_rate: float = _setting(
        50.0, "Requests a second, in the long run, from one network (IPv4 /24, IPv6 /48); beyond it: 429."
    )
    client_report_rate: float = _setting(500.0, "Reports a second from one network; beyond it: 429.")
    client_byte_rate: int = _setting(
        256 << 10, "Bytes of batches a second from one network, once inflated; beyond it: 429.", is_size=True
    )
    client_burst_seconds: float = _setting(40.0, "Seconds' worth of the three rates that one network may send at once.")
    local_rate_factor: float = _setting(
        100.0, "How many times the three rates this machine may send without X-Forwarded-For."
    )
    min_free_disk: int = _setting(256 << 20, "What stays free on the disk; below it: 507.", is_size=True)
    keep_counts: Mapping[str, int] = field(
        default_factory=dict,
        metadata={"about": "NAME=N: drop a metric's counts N periods after their period's end; may be repeated."},
    )
    keep_reports: Mapping[str, int] = field(
        default_factory=dict,
        metadata={"about": "NAME=N: keep a metric's reports, too, until N periods after their period's end."},
    )
    cors_origin: tuple[str, ...] = ()
    trusted_proxy: tuple[str, ...] = ()
    local_reads_without_token: bool = field(
        default=False,
        metadata={
            "about": "Answer reads without a token on a second port, --local-port, that only this machine reaches. "
            "Do not forward that port."
        },
    )
    reject_implausible: bool = field(
        default=False,
        metadata={
            "about": "Refuse batches with a report that has more or fewer ones than one honest report in a billion. Biases "
            "the shares, by at most so much, and some honest clients are refused for ever."
        },
    )
    require_report_token: bool = field(
        default=False, metadata={"about": "Ask for a token with scope `report` to send batches, too."}
    )

    def __post_init__(self) -> None:
        for setting in limits():
            if not 0 < getattr(self, setting.name) < math.inf:
                raise ParameterError(f"{setting.name} must be above 0 and finite, got {getattr(self, setting.name)}")
        if self.max_body > self.max_body_memory // NETWORKS_SHARE:
            raise ParameterError(
                f"max_body_memory must be at least {NETWORKS_SHARE} times max_body, got {self.max_body_memory} and {self.max_body}: "
                "one network may hold an eighth of it, and a larger body could never be accepted"
            )
        for option, asked in (("keep_counts", self.keep_counts), ("keep_reports", self.keep_reports)):
            for name, periods in asked.items():
                if not 0 <= periods <= _MOST_PERIODS:
                    raise ParameterError(f"{option} must be 0 to {_MOST_PERIODS} periods, got {periods} for {name}")
        for name in self.keep_counts.keys() & self.keep_reports.keys():
            if self.keep_reports[name] > self.keep_counts[name]:
                raise ParameterError(
                    f"keep_reports must not exceed keep_counts, got {self.keep_reports[name]} and {self.keep_counts[name]} periods for {name}: "
                    "reports do not outlive their counts"
                )
        for network in self.trusted_proxy:
            network_of(network)
        for origin in self.cors_origin:
            if not _ORIGIN.fullmatch(origin):
                raise ParameterError(
                    f"cors_origin is https://host or https://host:port, lower-case and without a path; got {origin!r}"
                )

    def connection_limits(self) -> ConnectionLimits:
        """Return the limits of open connections for one server process, with no connection counted yet."""
        return ConnectionLimits(self.max_connections, self.max_network_connections, Proxies(self.trusted_proxy))


def limits() -> tuple[Field[Any], ...]:
    """Return the settings that are one number above 0."""
    return tuple(
        setting for setting in fields(Settings) if isinstance(setting.default, (int, float)) and not _is_switch(setting)
    )


def switches() -> tuple[Field[Any], ...]:
    """Return the settings that are on or off."""
    return tuple(setting for setting in fields(Settings) if _is_switch(setting))


def _is_switch(setting: Field[Any]) -> bool:
    return isinstance(setting.default, bool)
