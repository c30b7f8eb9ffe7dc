"""Validate the URL of an aggregator."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from hubbub.errors import ParameterError
from hubbub.wire.url_masking import mask_url


def check_url(url: str) -> str:
    """Return the URL of an aggregator without trailing slashes.

    Raises ParameterError unless the URL is https, or http to a loopback address.

    >>> check_url("https://telemetry.example.org/"), check_url("http://127.0.0.1:8000")
    ('https://telemetry.example.org', 'http://127.0.0.1:8000')
    >>> check_url("http://telemetry.example.org")
    Traceback (most recent call last):
    hubbub.errors.ParameterError: url must be https, got 'http://telemetry.example.org': http is allowed for loopback addresses only
    """
    try:
        parts = urlsplit(url) if isinstance(url, str) and url.isprintable() and " " not in url else urlsplit("")
        is_valid = parts.hostname and parts.scheme in ("http", "https") and parts.port != 0
    except ValueError:  # unbalanced brackets, or an invalid port
        is_valid = False
    if is_valid and "@" in url:
        raise ParameterError(
            f"url must have no user name and password, got {mask_url(url)}: delete the part before the @"
        )
    if not is_valid or "?" in url or "#" in url:
        raise ParameterError(
            f"url must be an address such as https://telemetry.example.org, without query and fragment, got {mask_url(str(url))!r}"
        )
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ParameterError(f"url must be https, got {url!r}: http is allowed for loopback addresses only")
    return url.rstrip("/")


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is a loopback address, which only this machine can reach.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
