"""Limits of open connections, in total and per network, and of outstanding requests per connection."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub_aggregator.server.client_address import Proxies
from hubbub_aggregator.server.limits import ConnectionLimits

if TYPE_CHECKING:
    from hubbub_aggregator.store.sql_store import SqlStore
    from tests.aggregator.conftest import Aggregator, StartAggregator

GET = b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n"


def connected(aggregator: Aggregator) -> socket.socket:
    host, port = aggregator.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def read_all(client: socket.socket) -> bytes:
    """Return the bytes received until the connection is closed or reset."""
    got = b""
    with suppress(ConnectionError):
        while data := client.recv(1 << 20):
            got += data
    return got


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["192.0.2.1", "192.0.2.2", "198.51.100.1", "127.0.0.1"]))))
def test_connection_limits_match_a_model(events: list[tuple[bool, str]]) -> None:
    limits = ConnectionLimits(5, 2, Proxies())
    held: list[str] = []
    for opens, host in events:
        if not opens:
            if held:
                limits.release(held.pop())
            continue
        same = sum(network == host.rpartition(".")[0] + ".0" for network in held)
        full = len(held) == 5 or (host != "127.0.0.1" and same == 2)
        network = limits.admit(host)
        assert (network is None) == full
        if network is not None:
            held.append(network)
    assert limits.num_open == len(held)


def test_closes_connection_with_more_than_8_outstanding_requests(
    start: StartAggregator, sqlite_store: SqlStore
) -> None:
    aggregator = start(sqlite_store)
    with connected(aggregator) as client:
        client.sendall(GET % b"livez" * 8)
        got = b""
        while got.count(b"alive") < 8:
            got += client.recv(1 << 16)
        client.sendall(GET % b"livez" * 1_000)
        assert read_all(client).count(b"alive") <= 8


def test_connection_beyond_the_limit_gets_503(start: StartAggregator, sqlite_store: SqlStore) -> None:
    aggregator = start(sqlite_store, max_connections=4)
    with ExitStack() as stack:
        stack.enter_context(connected(aggregator))
        answers = []
        for _ in range(6):
            client = stack.enter_context(connected(aggregator))
            client.settimeout(0.5)
            with suppress(TimeoutError):
                answers.append(client.recv(1 << 16))
        assert answers
        assert all(answer.startswith(b"HTTP/1.1 503 ") and b"retry-after: 5" in answer.lower() for answer in answers)
        assert aggregator.get("/livez").status == 200, "a connection that was open before"
    deadline = time.monotonic() + 20
    while True:
        with connected(aggregator) as client:
            client.sendall(GET % b"livez")
            if client.recv(1 << 16).startswith(b"HTTP/1.1 200 "):
                return
        assert time.monotonic() < deadline, "closed connections still count"


@pytest.mark.parametrize("sent", [b"", b"GET /li", b"POST /v1/reports HTTP/1.1\r\nContent-Length: 9\r\n\r\n{"])
def test_reset_connections_are_released(start: StartAggregator, sqlite_store: SqlStore, sent: bytes) -> None:
    aggregator = start(sqlite_store, max_connections=5)
    linger = b"\1\0\0\0\0\0\0\0"  # no lingering: a reset
    for _ in range(30):
        with connected(aggregator) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            client.sendall(sent)
    deadline = time.monotonic() + 20
    while True:
        with ExitStack() as stack:
            clients = [stack.enter_context(connected(aggregator)) for _ in range(3)]
            for client in clients:
                client.sendall(GET % b"livez")
            if all(client.recv(1 << 16).startswith(b"HTTP/1.1 200 ") for client in clients):
                return
        assert time.monotonic() < deadline
