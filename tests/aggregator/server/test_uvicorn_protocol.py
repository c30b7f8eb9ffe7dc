"""Invalid input on a connection: problem responses, limits on headers, pipelining."""

from __future__ import annotations

import json
import re
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO

import pytest

from hubbub import ProblemType
from hubbub_aggregator.store.sql_store import SqlStore

if TYPE_CHECKING:
    from tests.aggregator.conftest import Aggregator, MakeBatch, StartAggregator

GET = b"GET /livez HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /v1/reports HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


def connected(aggregator: Aggregator) -> socket.socket:
    host, port = aggregator.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def exchange(aggregator: Aggregator, sent: bytes) -> tuple[bytes, dict[str, str], Any]:
    """Send bytes, all of which the server reads before it closes the connection; return status line, headers and JSON."""
    got = b""
    with connected(aggregator) as client:
        client.sendall(sent)
        while data := client.recv(1 << 16):
            got += data
    head, _, body = got.partition(b"\r\n\r\n")
    status, *lines = head.split(b"\r\n")
    headers = dict(line.decode().lower().split(": ", 1) for line in lines)
    assert int(headers["content-length"]) == len(body)
    return status, headers, json.loads(body)


def status_of_next(answers: BinaryIO) -> bytes:
    """Return the status of the next response, read completely."""
    status = answers.readline().split(b" ")[1]
    length = 0
    while (line := answers.readline()) != b"\r\n":
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    answers.read(length)
    return status


@pytest.mark.parametrize(
    "sent",
    [
        b"hello world\r\n\r\n",
        b"get /livez HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /livez HTTP/3.7\r\nHost: x\r\n\r\n",
        GET + b"no colon\r\n\r\n",
        GET + b"a: \0\r\n\r\n",
        CHUNKED + b"zz\r\nab\r\n0\r\n\r\n",
        CHUNKED + b"2\r\nabcdef\r\n0\r\n\r\n",
        POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        POST + b"Content-Length: -3\r\n\r\n",
        POST + b"Content-Length: 1180591620717411303424\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        bytes.fromhex("1603010200010001fc0303") + bytes(500),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n\r\n",
        b"POST /v1/reports HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
        GET + b"Host: x\r\n\r\n",
        GET + b"hOST: y\r\n\r\n",
        b"GET /livez HTTP/1.0\r\nHost: x\r\nHost: x\r\n\r\n",
    ],
    ids=lambda sent: repr(sent[:60]),
)
def test_rejects_requests_other_than_http(aggregator: Aggregator, sent: bytes) -> None:
    status, headers, problem = exchange(aggregator, sent)
    assert status == b"HTTP/1.1 400 Bad Request"
    assert (headers["content-type"], headers["connection"]) == ("application/problem+json", "close")
    assert (problem["type"], problem["status"]) == ("/problems/not-http", ProblemType.NOT_HTTP.status)
    assert "server" not in headers


def test_accepts_http_1_0_without_host(aggregator: Aggregator) -> None:
    with connected(aggregator) as client:
        client.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "begun",
    [b"GET /", GET + b"a: ", GET, CHUNKED + b"2;"],
    ids=["a target without end", "one header without end", "headers without end", "a chunk's extension without end"],
)
def test_rejects_endless_headers(aggregator: Aggregator, begun: bytes) -> None:
    more = b"b: c\r\n" * 20_000 if begun == GET else b"x" * 100_000
    status, headers, problem = exchange(aggregator, (begun + more)[: (64 << 10) + 1])
    assert status.startswith(b"HTTP/1.1 431 ")
    assert (headers["content-type"], headers["connection"]) == ("application/problem+json", "close")
    assert (problem["type"], problem["status"]) == ("/problems/headers-too-large", ProblemType.HEADERS_TOO_LARGE.status)


def with_headers(number: int, framing: bytes = b"") -> bytes:
    """Return the beginning of a GET with so many headers, the request's own included."""
    request = GET + framing
    return request + b"a:\r\n" * (number - request.count(b":"))


@pytest.mark.parametrize(
    "before",
    [
        GET + b"\r\n",
        POST + b"Content-Length: 2\r\n\r\n{}",
        with_headers(200) + b"\r\n",
        with_headers(100, b"Transfer-Encoding: chunked\r\n") + b"\r\n0\r\n" + b"a:\r\n" * 100 + b"\r\n",
    ],
    ids=["a request", "a body", "200 headers", "100 headers and 100 trailers"],
)
def test_accepts_200_headers_in_each_request(aggregator: Aggregator, before: bytes) -> None:
    with connected(aggregator) as client, client.makefile("rb") as answers:
        client.sendall(before + with_headers(200) + b"\r\n")
        assert status_of_next(answers) != b"431"
        assert status_of_next(answers) == b"200"


@pytest.mark.parametrize(
    "begun",
    [with_headers(201), with_headers(200, b"Transfer-Encoding: chunked\r\n") + b"\r\n0\r\na:\r\n"],
    ids=["headers", "a trailer"],
)
@pytest.mark.parametrize("size", [1, 1_000, 1 << 16])
def test_refuses_the_201st_header_before_the_rest_arrives(aggregator: Aggregator, begun: bytes, size: int) -> None:
    with connected(aggregator) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sent = begun + b"b"  # a header ends where the next line begins
        for start in range(0, len(sent), size):
            client.sendall(sent[start : start + size])
        got = b""
        while data := client.recv(1 << 16):
            got += data
    status, _, problem = got.rpartition(b"HTTP/1.1 ")[2].partition(b"\r\n")
    assert status.startswith(b"431 ")
    assert json.loads(problem.rpartition(b"\r\n\r\n")[2])["detail"] == "a request may have 200 headers and trailers"


def test_rejects_endless_trailers(aggregator: Aggregator) -> None:
    got = b""
    with connected(aggregator) as client, suppress(ConnectionError):
        client.sendall(CHUNKED + b"2\r\n{}\r\n0\r\na: ")
        client.sendall(b"x" * 10_000_000)
        while data := client.recv(1 << 16):
            got += data
    assert b"HTTP/1.1 2" not in got


def test_header_limit_is_per_request(aggregator: Aggregator, make_batch: MakeBatch) -> None:
    body = make_batch(aggregator.definitions["homepage"]).to_json().ljust(29_000)
    request = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with connected(aggregator) as client, client.makefile("rb") as answers:
        for status in (b"202", *[b"200"] * 9):
            client.sendall(request)
            assert status_of_next(answers) == status
        for _ in range(2_000):
            client.sendall(GET + b"\r\n")
            assert status_of_next(answers) == b"200"


def test_accepts_bodies_beyond_the_header_limit(
    start: StartAggregator, sqlite_store: SqlStore, make_batch: MakeBatch
) -> None:
    aggregator = start(sqlite_store)
    assert aggregator.post(make_batch(aggregator.definitions["homepage"]).to_json().ljust(150_000)).status == 202


@pytest.mark.parametrize("upgrade", ["websocket", "h2c"])
def test_ignores_upgrade_requests(aggregator: Aggregator, upgrade: str) -> None:
    answer = aggregator.get("/livez", connection="Upgrade", upgrade=upgrade, sec_websocket_version="13")
    assert (answer.status, answer.json) == (200, {"status": "alive", "client_named": False})


def test_sends_100_continue(aggregator: Aggregator, make_batch: MakeBatch) -> None:
    body = make_batch(aggregator.definitions["homepage"]).to_json()
    with connected(aggregator) as client, client.makefile("rb") as answers:
        for status in (b"202", b"200"):
            client.sendall(POST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
            assert (answers.readline(), answers.readline()) == (b"HTTP/1.1 100 Continue\r\n", b"\r\n")
            client.sendall(body)
            assert status_of_next(answers) == status


def test_pipelined_requests_get_responses_in_order(aggregator: Aggregator, make_batch: MakeBatch) -> None:
    batches = [make_batch(aggregator.definitions["homepage"]) for _ in range(8)]
    bodies = [batch.to_json() for batch in batches]
    with connected(aggregator) as client, client.makefile("rb") as answers:
        client.sendall(b"".join(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body for body in bodies))
        got = b""
        while got.count(b"}") < len(bodies):
            got += answers.read1()
    assert re.findall(rb'"batch_id":"([^"]+)","status":"stored"', got) == [
        str(batch.batch_id).encode() for batch in batches
    ]
