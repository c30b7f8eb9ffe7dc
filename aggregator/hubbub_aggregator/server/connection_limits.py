"""Limits of open connections: in total, and for each network."""

from __future__ import annotations

from collections import Counter

from hubbub_aggregator.server.client_address import LOCAL, Proxies
from hubbub_aggregator.server.rate_limit import network_prefix


class ConnectionLimits:
    """Count of open connections: at most `total`, and `per_network` from a network other than a trusted proxy's."""

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
