"""Refusals while the body still arrives: the client receives the response, and the aggregator's limits hold."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from hubbub_aggregator.http import middlewares
from hubbub_aggregator.server import uvicorn_protocol

if TYPE_CHECKING:
    from hubbub_aggregator.store.sql_store import SqlStore
    from tests.aggregator.conftest import Aggregator, StartAggregator

LARGE = 1_500_000  # bytes: more than `--max-body`, and less than what is discarded
POST = b"POST /v1/reports HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
GET = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
FOREVER = 1e6


@pytest.fixture
def no_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only bytes, and what the client does, end a phase."""
    monkeypatch.setattr(middlewares, "DISCARD_SECONDS", FOREVER)
    monkeypatch.setattr(uvicorn_protocol, "LINGER_SECONDS", FOREVER)


@pytest.fixture
def early_response(monkeypatch: pytest.MonkeyPatch, no_timeouts: None) -> None:
    """Send a refusal before any of the body is discarded."""
    monkeypatch.setattr(middlewares, "DISCARD_SECONDS", 0.0)


def connected(aggregator: Aggregator) -> socket.socket:
    host, port = aggregator.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def until_closed(client: socket.socket) -> bytes:
    got = b""
    while data := client.recv(1 << 16):
        got += data
    return got


def until_complete(client: socket.socket) -> bytes:
    """Return the next response, which ends with a JSON object."""
    got = b""
    while not got.endswith(b"}"):
        got += client.recv(1 << 16)
    return got


@pytest.mark.parametrize(("path", "status"), [(b"/v1/reports", b"413"), (b"/v1/nothing", b"404"), (b"/livez", b"405")])
@pytest.mark.usefixtures("no_timeouts")
def test_connection_stays_open_after_a_refused_body(aggregator: Aggregator, path: bytes, status: bytes) -> None:
    head = POST.replace(b"/v1/reports", path) + b"Content-Length: %d\r\n\r\n" % LARGE
    with connected(aggregator) as client:
        for _ in range(2):
            client.sendall(head)
            client.sendall(b" " * LARGE)
            response = until_complete(client)
            assert response.startswith(b"HTTP/1.1 " + status)
            assert b"connection: close" not in response.lower()
        client.sendall(GET)
        assert until_complete(client).startswith(b"HTTP/1.1 200")


@pytest.mark.usefixtures("no_timeouts")
def test_exceeded_rate_keeps_the_connection_of_a_body(start: StartAggregator, sqlite_store: SqlStore) -> None:
    aggregator = start(sqlite_store, client_burst_seconds=1, client_rate=1e-6, local_rate_factor=1)
    with connected(aggregator) as client:
        for status in (b"413", b"429", b"429"):
            client.sendall(POST + b"Content-Length: %d\r\n\r\n" % LARGE)
            client.sendall(b" " * LARGE)
            assert until_complete(client).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize("framing", [b"Content-Length: %d\r\n\r\n" % LARGE, b"Transfer-Encoding: chunked\r\n\r\n"])
@pytest.mark.usefixtures("early_response")
def test_early_response_survives_a_body_that_is_still_sent(aggregator: Aggregator, framing: bytes) -> None:
    """The connection is not reset: not during the body, and not before the client reads."""
    body = b"%x\r\n" % LARGE + b" " * LARGE + b"\r\n0\r\n\r\n" if b"chunked" in framing else b" " * LARGE
    with connected(aggregator) as client:
        client.sendall(POST.replace(b"application/json", b"text/plain") + framing)
        early = client.recv(12)
        assert early == b"HTTP/1.1 415"
        client.sendall(body)
        assert b"connection: close" in until_closed(client).lower()


@pytest.mark.usefixtures("no_timeouts")
def test_client_that_sends_on_after_an_invalid_request_receives_the_response(aggregator: Aggregator) -> None:
    with connected(aggregator) as client:
        client.sendall(b"GET /livez HTTP/3.7\r\n\r\n")
        client.sendall(b"x" * LARGE)
        assert until_closed(client).startswith(b"HTTP/1.1 400")


@pytest.mark.usefixtures("no_timeouts")
def test_body_that_waits_for_100_continue_is_refused_at_once(aggregator: Aggregator) -> None:
    with connected(aggregator) as client:
        client.sendall(POST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % LARGE)
        response = until_closed(client)
    assert response.startswith(b"HTTP/1.1 413")
    assert b"connection: close" in response.lower()


def test_stalled_body_delays_its_refusal_no_longer_than_the_limit(
    aggregator: Aggregator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middlewares, "DISCARD_SECONDS", 0.1)
    with connected(aggregator) as client:
        client.sendall(POST + b"Content-Length: %d\r\n\r\n {" % LARGE)
        assert until_closed(client).startswith(b"HTTP/1.1 413")


@pytest.mark.usefixtures("no_timeouts")
def test_endless_body_is_cut_off_by_its_bytes(aggregator: Aggregator) -> None:
    with connected(aggregator) as client:
        client.sendall(POST + b"Content-Length: %d\r\n\r\n" % 10**12)
        with pytest.raises(ConnectionError):
            client.sendall(bytes(1 << 28))


def test_connection_that_lingers_is_closed_after_the_limit(
    start: StartAggregator, sqlite_store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client reads its response and does not close its side."""
    monkeypatch.setattr(middlewares, "DISCARD_SECONDS", 0.0)
    monkeypatch.setattr(uvicorn_protocol, "LINGER_SECONDS", 0.1)
    aggregator = start(sqlite_store)
    with connected(aggregator) as client:
        client.sendall(POST + b"Content-Length: %d\r\n\r\n" % LARGE)
        assert until_closed(client).startswith(b"HTTP/1.1 413")
        deadline = time.monotonic() + 20
        with suppress(ConnectionError):
            while time.monotonic() < deadline:
                client.send(b" ")
                time.sleep(0.01)
    assert time.monotonic() < deadline, "the connection is still open"
