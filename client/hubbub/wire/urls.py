"""Check an aggregator's address."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from hubbub.errors import ParameterError


def check_url(url: str) -> str:
    """Return an aggregator's address without a slash at its end; https, except to this machine.

    >>> check_url("https://telemetry.example.org/"), check_url("http://127.0.0.1:8000")
    ('https://telemetry.example.org', 'http://127.0.0.1:8000')
    >>> check_url("http://telemetry.example.org")
    Traceback (most recent call last):
    hubbub.errors.ParameterError: url must be https, got 'http://telemetry.example.org': plain http is for this machine alone
    """
    try:
        parts = urlsplit(url) if isinstance(url, str) and url.isprintable() and " " not in url else urlsplit("")
        whole = parts.hostname and parts.scheme in ("http", "https") and parts.port != 0
    except ValueError:  # a bracket that is not closed, a port that is none
        whole = False
    if not whole or parts.query or parts.fragment:
        raise ParameterError(f"url must be an address such as https://telemetry.example.org, got {url!r}")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ParameterError(f"url must be https, got {url!r}: plain http is for this machine alone")
    return url.rstrip("/")


def is_loopback(host: str) -> bool:
    """Say whether nobody but this machine reaches an address.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
