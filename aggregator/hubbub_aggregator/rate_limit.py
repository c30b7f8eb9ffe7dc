"""How often one network may send: kept in memory only, by prefix, and forgotten as soon as it is idle."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable

_MOST_PREFIXES = 1 << 16
_PREFIX_LENGTH = {4: 24, 6: 48}


class RateLimit:
    """A bucket a network prefix (IPv4 /24, IPv6 /48): `burst` requests at once, `rate` a second in the long run.

    What is kept of a prefix is one moment: when its bucket will be full again.

    >>> limit = RateLimit(rate=2, burst=2, clock=lambda: 0.0)
    >>> [limit.wait("192.0.2.1"), limit.wait("192.0.2.99"), limit.wait("192.0.2.1"), limit.wait("198.51.100.7")]
    [0.0, 0.0, 0.5, 0.0]
    """

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._every = 1 / rate
        self._slack = (burst - 1) / rate
        self._clock = clock
        self._full_at: dict[str, float] = {}

    def wait(self, address: str) -> float:
        """Count a request; return 0, or in how many seconds it would be taken (then it is not counted)."""
        prefix, now = prefix_of(address), self._clock()
        full_at = max(self._full_at.get(prefix, now), now)
        if full_at - now > self._slack:
            return full_at - now - self._slack
        if len(self._full_at) >= _MOST_PREFIXES:
            self._forget(now)
        self._full_at[prefix] = full_at + self._every
        return 0.0

    def _forget(self, now: float) -> None:
        self._full_at = {prefix: full_at for prefix, full_at in self._full_at.items() if full_at > now}
        if len(self._full_at) >= _MOST_PREFIXES:  # that many are busy: all begin anew, rather than memory grow
            self._full_at.clear()


def prefix_of(address: str) -> str:
    """Return the network that an address is counted with.

    >>> prefix_of("2001:db8:1:2::3"), prefix_of("::ffff:192.0.2.7"), prefix_of("not an address")
    ('2001:db8:1::', '192.0.2.0', '')
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped:
        ip = ip.ipv4_mapped
    drop = ip.max_prefixlen - _PREFIX_LENGTH[ip.version]
    return str(type(ip)(int(ip) >> drop << drop))
