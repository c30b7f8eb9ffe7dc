"""Memory of arriving bodies: bounded in total and for each network, and always released."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.api.request_body import BodyMemory, BodyReservation

if TYPE_CHECKING:
    from hubbub_aggregator.store.sql_store import SqlStore
    from tests.aggregator.conftest import Aggregator, MakeBatch, StartAggregator

TOTAL, SHARE, FREE = 40_000, 30_000, 4_096
HOSTS = ["192.0.2.1", "192.0.2.99", "198.51.100.7", "2001:db8::1", "203.0.113.5", "local"]


class Bodies(RuleBasedStateMachine):
    """Bodies begin, grow and end in any order; a model has their sizes."""

    @initialize()
    def start(self) -> None:
        self.memory = BodyMemory(TOTAL, SHARE)
        self.open: list[tuple[ExitStack, BodyReservation, str, int]] = []

    def counted(self, hosts: set[str]) -> int:
        return sum(max(0, size - FREE) for *_, host, size in self.open if host in hosts)

    @rule(host=st.sampled_from(HOSTS))
    def begin(self, host: str) -> None:
        stack = ExitStack()
        self.open.append((stack, stack.enter_context(self.memory.reserve(host)), host, 0))

    @rule(data=st.data(), more=st.integers(1, 20_000))
    def grow(self, data: st.DataObject, more: int) -> None:
        if not self.open:
            return
        at = data.draw(st.integers(0, len(self.open) - 1))
        stack, body, host, size = self.open[at]
        network = {"192.0.2.1", "192.0.2.99"} if host.startswith("192") else {host}
        fits = max(0, size + more - FREE) - max(0, size - FREE)
        refused = fits and (self.counted(network) + fits > SHARE or self.counted(set(HOSTS)) + fits > TOTAL)
        if refused:
            with pytest.raises(RefusedError) as problem:
                body.grow_to(size + more)
            assert problem.value.problem_type is ProblemType.UNAVAILABLE
            stack.close()
            del self.open[at]
        else:
            body.grow_to(size + more)
            self.open[at] = stack, body, host, size + more

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if self.open:
            self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))[0].close()

    @invariant()
    def counts_what_is_held(self) -> None:
        if hasattr(self, "memory"):
            assert self.memory.used == self.counted(set(HOSTS)) <= TOTAL

    def teardown(self) -> None:
        for stack, *_ in getattr(self, "open", []):
            stack.close()
        assert not hasattr(self, "memory") or self.memory.used == 0


TestBodies = Bodies.TestCase


def test_a_byte_beyond_either_limit_is_refused() -> None:
    memory = BodyMemory(total=10, per_network=8)
    memory.add("192.0.2.0/24", 8)
    memory.add("198.51.100.0/24", 2)
    for network in ("192.0.2.0/24", "198.51.100.0/24"):
        with pytest.raises(RefusedError, match="bytes of memory"):
            memory.add(network, 1)
    memory.add("192.0.2.0/24", -8)
    memory.add("198.51.100.0/24", 6)
    assert memory.used == 8


HEAD = b"POST /v1/reports HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-Forwarded-For: %s\r\n"


def unfinished(aggregator: Aggregator, network: bytes, sent: int) -> socket.socket:
    """Return a connection that has sent `sent` of the 100,000 bytes of its body."""
    host, port = aggregator.url.removeprefix("http://").split(":")
    client = socket.create_connection((host, int(port)), timeout=30)
    client.sendall(HEAD % network + b"Content-Encoding: gzip\r\nContent-Length: 100000\r\n\r\n")
    with suppress(ConnectionError):  # refused during that time
        client.sendall(b" " * sent)
    return client


def test_unfinished_bodies_of_one_network_leave_memory_for_others(
    start: StartAggregator, sqlite_store: SqlStore, make_batch: MakeBatch
) -> None:
    """32 bodies of 90 kB, from 8 networks: the second of each network is refused, and single reports are accepted."""
    aggregator = start(sqlite_store, max_body=100_000, max_body_memory=800_000)
    with ExitStack() as attack:
        clients = [attack.enter_context(unfinished(aggregator, b"198.51.%d.1" % (n % 8), 90_000)) for n in range(32)]
        answers = []
        for client in clients[8:16]:
            client.settimeout(10)
            answers.append(client.recv(12))
        assert set(answers) == {b"HTTP/1.1 503"}, "more than an eighth of the memory, from one network"
        batch = make_batch(aggregator.definitions["homepage"], n=1)
        assert aggregator.post(batch, x_forwarded_for="203.0.113.9").status == 202


@pytest.mark.slow
def test_rejects_body_that_arrives_too_slowly(start: StartAggregator, sqlite_store: SqlStore) -> None:
    """The test waits for the real window of five seconds, because sockets do not use a fake clock."""
    aggregator = start(sqlite_store, min_body_rate=10_000)
    began = time.monotonic()
    with unfinished(aggregator, b"198.51.100.1", 30_000) as client:
        assert client.recv(12) == b"HTTP/1.1 408"
    assert time.monotonic() - began >= 4.9


@pytest.mark.parametrize("network", ["198.51.100.1", ""])
def test_body_memory_is_released_when_a_client_disconnects(
    start: StartAggregator, sqlite_store: SqlStore, make_batch: MakeBatch, network: str
) -> None:
    aggregator = start(sqlite_store, max_body=100_000, max_body_memory=8 * 100_000)
    batch = make_batch(aggregator.definitions["homepage"], n=500).to_json().ljust(60_000)
    for _ in range(30):
        unfinished(aggregator, network.encode(), 90_000).close()
    deadline = time.monotonic() + 20
    while aggregator.post(batch, x_forwarded_for=network).status != 202:
        assert time.monotonic() < deadline, "the bodies of clients that left still count"
        time.sleep(0.05)
