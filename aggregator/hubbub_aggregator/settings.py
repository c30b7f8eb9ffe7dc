"""Settings of one aggregator process: names, defaults, help texts and validation.

`hubbub serve` makes its options, and this module the docstring of `Settings`, from the fields; `--max-body` is `max_body` here and in
the configuration file.
"""

from __future__ import annotations

import inspect
import ipaddress
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, cast

from hubbub.errors import ParameterError
from hubbub_aggregator.server.client_address import Proxies
from hubbub_aggregator.server.limits import ConnectionLimits

_ORIGIN = re.compile(r"https?://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
NETWORKS_SHARE = 8
"""One network may use this fraction (1 / 8) of the memory for arriving bodies."""
_RESULTS_URL = re.compile(r"(https?://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?)?/([A-Za-z0-9._~-]+/)*")
_MAX_PERIODS = 10_000  # of days: 27 years


LISTENING = "Addresses and access"
STORAGE = "Storage"
_REQUESTS = "Limits of requests and connections"
_RATES = "Rates of one network"
"""Sections of the options in `hubbub serve --help`."""


def _setting(section: str, default: Any, help_text: str, metavar: str | None = None, is_size: bool = False) -> Any:
    """Return a field with the section, the help text, and the metavar with the unit of its option."""
    about = {"section": section, "help": help_text, "metavar": metavar, "is_size": is_size}
    return field(default_factory=dict, metadata=about) if default == {} else field(default=default, metadata=about)


class SettingError(ParameterError):
    """Setting outside its range, or settings that contradict each other.

    rule     : with {} for each name
    settings : the names
    """

    def __init__(self, rule: str, got: str, *settings: str) -> None:
        super().__init__(rule.format(*settings), got)
        self._template, self._settings = rule, settings

    def message(self, name_of: Callable[[str], str]) -> str:
        """Return the message with other names for the settings, such as those of their options."""
        return str(ParameterError(self._template.format(*map(name_of, self._settings)), self.got))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Limits of one aggregator process, and its intervals.

    Sizes are in bytes, durations in seconds. Each field is an option of `hubbub serve` with the same help text.

    Raises
    ------
    ParameterError
        A limit is out of range, or the limits contradict each other.
    """

    keep_counts: Mapping[str, int] = _setting(
        STORAGE,
        {},
        "Drop this metric's counts, and reports that are still retained, N periods after their period's end; may be repeated. "
        "Default: keep all.",
        metavar="NAME=N",
    )
    keep_reports: Mapping[str, int] = _setting(
        STORAGE,
        {},
        "Also keep this metric's reports, until N periods after their period's end; 0 keeps none, and deletes those that are "
        "retained; may be repeated. Default: new reports are not kept, and retained ones stay.",
        metavar="NAME=N",
    )
    cors_origin: tuple[str, ...] = _setting(
        LISTENING,
        (),
        "Let pages of this origin, https://host, send batches and read /v1/metrics; may be repeated.",
        metavar="URL",
    )
    trusted_proxy: tuple[str, ...] = _setting(
        LISTENING,
        (),
        "Network of proxies on other machines, such as 10.0.0.0/8; their X-Forwarded-For is trusted; may be repeated.",
        metavar="NETWORK",
    )
    max_body: int = _setting(
        _REQUESTS, 1 << 20, "Largest body of a request, as sent (compressed).", is_size=True, metavar="BYTES"
    )
    max_body_seconds: float = _setting(
        _REQUESTS, 30.0, "Longest time for a body to arrive; beyond it: 408.", metavar="SECONDS"
    )
    min_body_rate: float = _setting(
        _REQUESTS,
        1_024.0,
        "Lowest rate of an arriving body, measured every 5 seconds; below it: 408.",
        metavar="BYTES/S",
    )
    max_body_memory: int = _setting(
        _REQUESTS,
        32 << 20,
        "Memory for bodies that are arriving, an eighth of it for one network; beyond it: 503.",
        is_size=True,
        metavar="BYTES",
    )
    max_connections: int = _setting(_REQUESTS, 1_000, "Open connections; beyond it: 503.", metavar="N")
    max_network_connections: int = _setting(
        _REQUESTS, 200, "Open connections from one network, trusted proxies excepted; beyond it: 503.", metavar="N"
    )
    max_reports: int = _setting(_REQUESTS, 10_000, "Most reports in one batch.", metavar="N")
    max_queue_bytes: int = _setting(
        STORAGE,
        32 << 20,
        "Largest size of batches that wait for their commit; beyond it: 503.",
        is_size=True,
        metavar="BYTES",
    )
    max_commit_bytes: int = _setting(
        STORAGE,
        1 << 20,
        "A commit takes waiting batches until they have this size, each counted with 1 KiB more.",
        is_size=True,
        metavar="BYTES",
    )
    fold_interval: float = _setting(
        STORAGE, 10.0, "Time between two rounds of folding segments and closing periods.", metavar="SECONDS"
    )
    client_rate: float = _setting(
        _RATES,
        50.0,
        "Requests from one network (IPv4 /24, IPv6 /48), on average; beyond it: 429.",
        metavar="REQUESTS/S",
    )
    client_report_rate: float = _setting(
        _RATES, 500.0, "Reports from one network; beyond it: 429.", metavar="REPORTS/S"
    )
    client_byte_rate: int = _setting(
        _RATES, 256 << 10, "Decompressed batches from one network; beyond it: 429.", is_size=True, metavar="BYTES/S"
    )
    client_burst_seconds: float = _setting(
        _RATES,
        40.0,
        "Burst of one network: so much time of the three rates above may arrive at once.",
        metavar="SECONDS",
    )
    local_rate_factor: float = _setting(
        _RATES,
        100.0,
        "Multiple of the three rates that this machine may send without X-Forwarded-For.",
        metavar="FACTOR",
    )
    min_free_disk: int = _setting(
        STORAGE, 256 << 20, "Free space to keep on the database's disk; below it: 507.", is_size=True, metavar="BYTES"
    )
    local_reads_without_token: bool = _setting(
        LISTENING,
        False,
        "Answer reads without a token on a second port, --local-port, that only this machine reaches. "
        "Do not forward that port.",
    )
    reject_implausible: bool = _setting(
        LISTENING,
        False,
        "Refuse batches that contain a report with a number of ones that a genuine client produces with probability "
        "below 1e-9. Refuses a few genuine clients permanently and biases shares by up to 1e-9 / (q* - p*).",
    )
    results_url: str = _setting(
        LISTENING,
        "",
        "Link each metric of the pages to its results in `hubbub explore`, which a proxy shows at this address: https://host/, "
        "or a path of this host, such as /results/. Default: no link.",
        metavar="URL",
    )
    require_report_token: bool = _setting(
        LISTENING,
        False,
        "Require a token with scope `report` to send batches. Clients get one from the app (Client(authorization=...)) or a reverse proxy adds it.",
    )

    def __post_init__(self) -> None:
        for setting in fields(self):
            _check_value(setting.name, str(setting.type), getattr(self, setting.name))
        if self.max_body > self.max_body_memory // NETWORKS_SHARE:
            raise SettingError(
                f"{{}} must be at least {NETWORKS_SHARE} times {{}}",
                f"{self.max_body_memory} and {self.max_body}: one network may use an eighth of it, so a larger body could never be accepted",
                "max_body_memory",
                "max_body",
            )
        for name in ("keep_counts", "keep_reports"):
            for metric, periods in getattr(self, name).items():
                if not 0 <= periods <= _MAX_PERIODS:
                    raise SettingError(f"{{}} must be 0 to {_MAX_PERIODS} periods", f"{periods} for {metric}", name)
        for metric in self.keep_counts.keys() & self.keep_reports.keys():
            if self.keep_reports[metric] > self.keep_counts[metric]:
                raise SettingError(
                    "{} must not exceed {}",
                    f"{self.keep_reports[metric]} and {self.keep_counts[metric]} periods for {metric}: reports do not outlive their counts",
                    "keep_reports",
                    "keep_counts",
                )
        for network in self.trusted_proxy:
            try:
                ipaddress.ip_network(network)
            except ValueError as problem:
                rule = "{} must be a network, such as 10.0.0.0/8, or an address"
                raise SettingError(rule, f"{network!r}: {problem}", "trusted_proxy") from None
        for origin in self.cors_origin:
            if not _ORIGIN.fullmatch(origin):
                raise SettingError(
                    "{} must be https://host or https://host:port, in lower case and without a path",
                    repr(origin),
                    "cors_origin",
                )
        if self.results_url == "/" or not _RESULTS_URL.fullmatch(self.results_url or "/results/"):
            raise SettingError(
                "{} must be https://host/ or a path below / that ends in /, such as /results/",
                repr(self.results_url),
                "results_url",
            )

    def connection_limits(self) -> ConnectionLimits:
        """Return the limits of open connections.

        Returns
        -------
        ConnectionLimits
            Limits of one server process, with no connection counted yet.
        """
        return ConnectionLimits(self.max_connections, self.max_network_connections, Proxies(self.trusted_proxy))


def _docstring_with_fields() -> str:
    """Return the docstring of `Settings` with a section of its fields, whose texts are those of the options."""
    entries = [f"{setting.name}\n    {setting.metadata['help']}" for setting in fields(Settings)]
    before, _, errors = inspect.cleandoc(Settings.__doc__ or "").partition("Raises\n")
    return "\n".join([f"{before}Parameters\n----------", *entries, f"\nRaises\n{errors}", ""])


Settings.__doc__ = _docstring_with_fields()


def _check_value(name: str, annotation: str, value: object) -> None:
    """Raise SettingError unless a value has the type of its setting; numbers must be above 0 and finite."""
    match annotation:
        case "bool":
            is_valid, rule = isinstance(value, bool), "True or False"
        case "int":
            is_valid, rule = type(value) is int, "an integer"
        case "float":
            is_valid, rule = type(value) in (int, float), "a number"
        case "str":
            is_valid, rule = isinstance(value, str), "a text"
        case "tuple[str, ...]":
            is_valid = isinstance(value, (tuple, list)) and all(isinstance(text, str) for text in value)
            rule = "a tuple of texts"
        case _:
            is_valid = isinstance(value, Mapping) and all(
                isinstance(metric, str) and type(periods) is int for metric, periods in value.items()
            )
            rule = "a mapping of metric names to integers"
    if not is_valid:
        raise SettingError(f"{{}} must be {rule}", repr(value), name)
    if type(value) in (int, float) and not 0 < cast(float, value) < math.inf:
        raise SettingError(f"{{}} must be above 0{' and finite' if annotation == 'float' else ''}", str(value), name)
