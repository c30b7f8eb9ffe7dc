"""Bound the memory of request bodies that are being received: in total, and for each network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.server.rate_limit import prefix_of

_FREE = 4_096
"""Bytes of each body that are not counted, so that single reports have room whatever others send.

The number of connections bounds their sum.
"""


@dataclass(slots=True)
class ReceivedBody:
    """One body: the bytes of it that are counted."""

    _memory: BodyMemory
    _address: str
    _held: int = 0

    def hold(self, size: int) -> None:
        """Count a body that has this size by now; RefusedError if there is no room for it."""
        more = max(0, size - _FREE) - self._held
        if more:
            self._memory.add(prefix_of(self._address), more)
            self._held += more

    def release(self) -> None:
        """Give the bytes back."""
        if self._held:
            self._memory.add(prefix_of(self._address), -self._held)
            self._held = 0


class BodyMemory:
    """Bytes of bodies in memory: at most `total`, of which one network has at most `share`.

    Used in one event loop, by one thread.
    """

    def __init__(self, total: int, share: int) -> None:
        self._total, self._share = total, share
        self._by_network: Counter[str] = Counter()
        self.held = 0

    @contextmanager
    def receive(self, address: str | None) -> Iterator[ReceivedBody]:
        """Count one body until the block ends."""
        body = ReceivedBody(self, address or "")
        try:
            yield body
        finally:
            body.release()

    def add(self, network: str, size: int) -> None:
        """Count more bytes of a network, or fewer; RefusedError if that is beyond its share or the total."""
        if size > 0 and self._by_network[network] + size > self._share:
            raise RefusedError(
                ProblemType.UNAVAILABLE,
                f"bodies of one network may hold {self._share} bytes while they arrive: send the same batch again later",
            )
        if size > 0 and self.held + size > self._total:
            raise RefusedError(
                ProblemType.UNAVAILABLE,
                f"bodies that arrive hold {self._total} bytes already: send the same batch again later",
            )
        self.held += size
        self._by_network[network] += size
        if not self._by_network[network]:
            del self._by_network[network]
