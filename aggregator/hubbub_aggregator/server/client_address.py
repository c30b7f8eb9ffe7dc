"""Whose requests come through our own proxies, and from where."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from hubbub.errors import ParameterError
from hubbub.wire.urls import is_loopback

_LOOPBACK = ("127.0.0.0/8", "::1/128")
_REMEMBERED = 1024
_OF_A_PROXY = ("x-forwarded-for", "x-forwarded-proto", "forwarded")
LOCAL = "local"
"""The network of requests that come from this machine or a trusted proxy and name no client."""


class Proxies:
    """The networks of our own proxies: this machine's, and those the operator names.

    >>> proxies = Proxies(["10.0.0.0/8"])
    >>> proxies.peer("127.0.0.1", "192.0.2.1, 10.1.2.3"), proxies.peer("198.51.100.7", "192.0.2.1"), proxies.peer("10.1.2.3", None)
    ('192.0.2.1', '198.51.100.7', 'local')
    """

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks = [network_of(text) for text in (*_LOOPBACK, *networks)]
        self._is_ours = lru_cache(_REMEMBERED)(self._look)

    def peer(self, host: str, forwarded_for: str | None) -> str:
        """Return the address that a request is counted with: the nearest one that is no proxy's, or `LOCAL` if there is none.

        Of `X-Forwarded-For` each proxy writes the last entry, so whatever a client writes there stands before its own address.
        """
        if not self._is_ours(host):
            return host
        for entry in reversed((forwarded_for or "").split(",")):
            address = without_port(entry.strip())
            if address and not self._is_ours(address):
                return address if is_address(address) else LOCAL
        return LOCAL

    def names_client(self, host: str, forwarded_for: str | None) -> bool:
        """Return whether a request is a client's own, or its nearest proxy wrote an address into `X-Forwarded-For`.

        >>> [Proxies().names_client("127.0.0.1", header) for header in (None, "unknown", "127.0.0.1")]
        [False, False, True]
        """
        nearest = (forwarded_for or "").rpartition(",")[2]
        return not self._is_ours(host) or is_address(without_port(nearest.strip()))

    def _look(self, host: str) -> bool:
        if not is_address(host):
            return False
        address = ipaddress.ip_address(host)
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)


def network_of(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Return a network, or an address alone; ParameterError if it is neither."""
    try:
        return ipaddress.ip_network(text)
    except ValueError as problem:
        raise ParameterError(f"trusted_proxy is a network, as 10.0.0.0/8, or an address: {problem}") from None


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
    """Return the address of an entry that some proxies write with its port.

    >>> [without_port(entry) for entry in ("192.0.2.1:5678", "[2001:db8::1]:443", "2001:db8::1")]
    ['192.0.2.1', '2001:db8::1', '2001:db8::1']
    """
    if entry.startswith("["):
        return entry[1:].partition("]")[0]
    return entry.partition(":")[0] if entry.count(":") == 1 else entry


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
