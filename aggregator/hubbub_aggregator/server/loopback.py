"""Whether an address, or who asks, is this machine."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from hubbub.wire.urls import is_loopback

_OF_A_PROXY = ("x-forwarded-for", "x-forwarded-proto", "forwarded")


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
