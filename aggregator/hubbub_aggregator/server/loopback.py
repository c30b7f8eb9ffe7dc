"""Whether an address, or who asks, is this machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

_OF_A_PROXY = ("x-forwarded-for", "x-forwarded-proto", "forwarded")


def is_loopback(host: str) -> bool:
    """Say whether nobody but this machine reaches an address.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def asked_directly(headers: Mapping[str, str]) -> bool:
    """Say whether a program or browser on this machine asks by its own name for it: through no proxy, and of no site that has its name changed to our address.

    >>> [asked_directly({"host": host}) for host in ("localhost:8000", "[::1]:8000", "telemetry.example.org")]
    [True, True, False]
    >>> asked_directly({"host": "localhost", "x-forwarded-for": "192.0.2.1"})
    False
    """
    if any(name in headers for name in _OF_A_PROXY):
        return False
    try:
        return is_loopback(urlsplit(f"//{headers.get('host', '')}").hostname or "")
    except ValueError:
        return False
