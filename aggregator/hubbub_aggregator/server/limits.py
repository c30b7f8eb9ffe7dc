"""Limits of a network: its rate (generic cell rate algorithm), in memory, where idle networks are forgotten; and its open connections."""

from __future__ import annotations

import ipaddress
import time
from collections import Counter
from collections.abc import Callable

from hubbub_aggregator.server.client_address import LOCAL, Proxies

_MAX_PREFIXES = 1 << 16
_PREFIX_LENGTH = {4: 24, 6: 48}


class RateLimit:
    """One bucket for each network prefix (IPv4 /24, IPv6 /48), measured in seconds of sending at the permitted rate.

    burst : seconds' worth that a network may send at once

    A request with n units of a limited quantity costs n / rate seconds. The state of a network is one time: when its
    bucket is full again.

    >>> limit = RateLimit(burst=1.0, clock=lambda: 0.0)
    >>> [limit.spend(host, 0.5) for host in ("192.0.2.1", "192.0.2.99", "192.0.2.1", "198.51.100.7")]
    [0.0, 0.0, 0.5, 0.0]
    """

    def __init__(self, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst = burst
        self._clock = clock
        self._full_at: dict[str, float] = {}

    def spend(self, address: str, seconds: float) -> float:
        """Charge a cost and return 0, or return the seconds until it would be accepted (then nothing is charged).

        A cost above the burst is accepted when the bucket is full.
        """
        prefix, now = network_prefix(address), self._clock()
        full_at = max(self._full_at.get(prefix, now), now)
        wait = full_at - now + min(seconds, self._burst) - self._burst
        if wait > 1e-9:  # seconds; rounding errors are smaller
            return wait
        if len(self._full_at) >= _MAX_PREFIXES:
            self._forget_idle(now)
        self._full_at[prefix] = full_at + seconds
        return 0.0

    def _forget_idle(self, now: float) -> None:
        self._full_at = {prefix: full_at for prefix, full_at in self._full_at.items() if full_at > now}
        if len(self._full_at) >= _MAX_PREFIXES:  # none is idle: reset all, so that memory stays bounded
            self._full_at.clear()


def network_prefix(address: str) -> str:
    """Return the first address of the network that an address is counted with; "" for a text that is no address.

    >>> network_prefix("2001:db8:1:2::3"), network_prefix("::ffff:192.0.2.7"), network_prefix("local"), network_prefix("x" * 99)
    ('2001:db8:1::', '192.0.2.0', 'local', '')
    """
    if address == LOCAL:
        return address
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped:
        ip = ip.ipv4_mapped
    drop = ip.max_prefixlen - _PREFIX_LENGTH[ip.version]
    return str(type(ip)(int(ip) >> drop << drop))


class ConnectionLimits:
    """Count of open connections, with a limit in total and one for each network.

    Parameters
    ----------
    total : int
        Largest number of open connections.
    per_network : int
        Largest number of a network other than a trusted proxy's.
    proxies : Proxies
        Addresses whose `X-Forwarded-For` is trusted.
    """

    def __init__(self, total: int, per_network: int, proxies: Proxies) -> None:
        self._total, self._per_network, self._proxies = total, per_network, proxies
        self._by_network: Counter[str] = Counter()
        self.num_open = 0

    def admit(self, host: str) -> str | None:
        """Count a new connection and return its network; None if a limit is reached, and the connection is not counted."""
        address = self._proxies.client_address(host, None)
        network = network_prefix(address)
        if self.num_open >= self._total or (address != LOCAL and self._by_network[network] >= self._per_network):
            return None
        self.num_open += 1
        self._by_network[network] += 1
        return network

    def release(self, network: str) -> None:
        """Stop counting a connection of this network."""
        self.num_open -= 1
        self._by_network[network] -= 1
        if not self._by_network[network]:
            del self._by_network[network]
