"""Limits of open connections: in total, and for each network."""

from __future__ import annotations

from collections import Counter

from hubbub_aggregator.server.client_address import LOCAL, Proxies
from hubbub_aggregator.server.rate_limit import prefix_of


class ConnectionLimits:
    """Count of the open connections: at most `total`, of which `per_network` from a network that is no proxy's."""

    def __init__(self, total: int, per_network: int, proxies: Proxies) -> None:
        self._total, self._per_network, self._proxies = total, per_network, proxies
        self._by_network: Counter[str] = Counter()
        self.open = 0

    def admit(self, host: str) -> str | None:
        """Count a connection and return its network; None: there are too many, and it is not counted."""
        address = self._proxies.peer(host, None)
        network = prefix_of(address)
        if self.open >= self._total or (address != LOCAL and self._by_network[network] >= self._per_network):
            return None
        self.open += 1
        self._by_network[network] += 1
        return network

    def release(self, network: str) -> None:
        """Count a connection of this network no more."""
        self.open -= 1
        self._by_network[network] -= 1
        if not self._by_network[network]:
            del self._by_network[network]
