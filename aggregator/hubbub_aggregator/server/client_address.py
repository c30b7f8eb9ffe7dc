"""Addresses of clients: behind trusted reverse proxies, and of requests from this machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from hubbub.wire.urls import is_loopback

_LOOPBACK = ("127.0.0.0/8", "::1/128")
_CACHE_SIZE = 1024
_PROXY_HEADERS = ("x-forwarded-for", "x-forwarded-proto", "forwarded")
LOCAL = "local"
"""Client address of requests from this machine or a trusted proxy that name no client in X-Forwarded-For."""


class Proxies:
    """Networks of trusted reverse proxies: this machine, and those that the operator names.

    >>> proxies = Proxies(["10.0.0.0/8"])
    >>> proxies.client_address("127.0.0.1", "192.0.2.1, 10.1.2.3"), proxies.client_address("198.51.100.7", "192.0.2.1")
    ('192.0.2.1', '198.51.100.7')
    >>> proxies.client_address("10.1.2.3", None)
    'local'
    """

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks = [ipaddress.ip_network(text) for text in (*_LOOPBACK, *networks)]
        self._is_trusted = lru_cache(_CACHE_SIZE)(self._is_in_networks)

    def client_address(self, host: str, forwarded_for: str | None) -> str:
        """Return the nearest address that is not a trusted proxy's, or `LOCAL` if there is none.

        Each proxy appends the last entry of X-Forwarded-For, so entries that a client sends itself precede its own address.
        """
        if not self._is_trusted(host):
            return host
        for entry in reversed((forwarded_for or "").split(",")):
            address = without_port(entry.strip())
            if address and not self._is_trusted(address):
                return address if is_address(address) else LOCAL
        return LOCAL

    def names_client(self, host: str, forwarded_for: str | None) -> bool:
        """Return whether a request comes from a client directly, or its proxy wrote an address into X-Forwarded-For.

        >>> [Proxies().names_client("127.0.0.1", header) for header in (None, "unknown", "127.0.0.1")]
        [False, False, True]
        """
        nearest = (forwarded_for or "").rpartition(",")[2]
        return not self._is_trusted(host) or is_address(without_port(nearest.strip()))

    def _is_in_networks(self, host: str) -> bool:
        if not is_address(host):
            return False
        address = ipaddress.ip_address(host)
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)


def is_address(text: str) -> bool:
    """Return whether a text is an IPv4 or IPv6 address.

    >>> is_address("192.0.2.1"), is_address("unknown")
    (True, False)
    """
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def without_port(entry: str) -> str:
    """Return the address in an entry of X-Forwarded-For, to which some proxies append the port.

    >>> [without_port(entry) for entry in ("192.0.2.1:5678", "[2001:db8::1]:443", "2001:db8::1")]
    ['192.0.2.1', '2001:db8::1', '2001:db8::1']
    """
    if entry.startswith("["):
        return entry[1:].partition("]")[0]
    return entry.partition(":")[0] if entry.count(":") == 1 else entry


def is_direct_local_request(headers: Mapping[str, str]) -> bool:
    """Return whether a request has no headers of a proxy and names this machine, by a loopback name, as its host.

    >>> [is_direct_local_request({"host": host}) for host in ("localhost:8000", "[::1]:8000", "telemetry.example.org")]
    [True, True, False]
    >>> is_direct_local_request({"host": "localhost", "x-forwarded-for": "192.0.2.1"})
    False
    """
    if any(name in headers for name in _PROXY_HEADERS):
        return False
    try:
        return is_loopback(urlsplit(f"//{headers.get('host', '')}").hostname or "")
    except ValueError:
        return False
