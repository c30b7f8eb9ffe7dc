"""Random headers and connection events on all routes: no 5xx except the documented 503 and 507, no log line above INFO."""

from __future__ import annotations

import itertools
import logging
import random
import re
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hubbub import Definitions
from hubbub_aggregator.app import create_app
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_aggregator.store.tokens import Scope, Token, hash_secret
from tests.aggregator.conftest import FakeClock
from tests.support.asgi import ADDRESS, Caller, started

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch, StartAggregator

TOKEN = b"hubbub_known"
PATHS = (
    "/v1/reports",
    "/v1/metrics",
    "/v1/metrics/homepage/summary",
    "/v1/metrics/homepage/reports?period=2024-06-15",
    "/v1/metrics/carrier/summary?kind=patterns&period=%00&digest=%ff",
    "/metrics",
    "/livez",
    "/readyz",
    "/problems/malformed",
    "/openapi.json",
    "/",
    "/sign-in",
    "/sign-out",
    "/nowhere",
)
METHODS = ("GET", "HEAD", "POST", "PUT", "OPTIONS", "DELETE", "PATCH")
VALUES: dict[str, tuple[bytes, ...]] = {
    "origin": (b"http://[", b"http://x", b"null", b"https://localhost", b"http://[::1]:99999", b"http://a:b:c", b"//"),
    "host": (b"localhost", b"[", b"[::1", b"x:port", b"127.0.0.1:8000", b"a@b", b"\xe2\x98\x83", b""),
    "forwarded": (b"for=192.0.2.1", b'for="[2001:db8::1', b"for=unknown;;;=", b","),
    "x-forwarded-for": (b"192.0.2.1", b"[2001:db8::1]:443", b"[", b"]", b"local", b"::ffff:", b"1.2.3.4.5", b",,,"),
    "x-forwarded-proto": (b"https", b"", b"\xff"),
    "cookie": (b"hubbub=a", b"__Host-hubbub=" + TOKEN, b'a="', b"=;=;", b"hubbub=\xff\xfe", b'hubbub="\\777"'),
    "content-length": (b"0", b"-1", b"1e3", b"+5", b"99999999999999999999", b"\xb2", b"5, 5", b"1"),
    "authorization": (b"Bearer " + TOKEN, b"Bearer", b"Bearer \xff", b"Basic Og==", b"bearer  a b", b"\x80"),
    "accept": (b"text/html", b"*/*;q=x", b"text/html;q=-1", b"\xc3\x28", b"application/json"),
    "referer": (b"http://[", b"x", b"\xff"),
    "sec-fetch-site": (b"same-origin", b"cross-site", b"none", b"\xff"),
    "sec-fetch-mode": (b"navigate", b"cors"),
    "content-type": (b"application/json", b"application/json; charset=\xff", b"application/x-www-form-urlencoded"),
    "content-encoding": (b"gzip", b"identity", b"br", b"gzip, gzip", b"\xff"),
    "access-control-request-method": (b"POST", b"\xff"),
    "access-control-request-headers": (b"content-type", b"\xff"),
    "expect": (b"100-continue", b"200-ok"),
    "upgrade": (b"websocket", b"h2c", b"\xff"),
    "connection": (b"close", b"keep-alive, upgrade", b"upgrade"),
    "transfer-encoding": (b"chunked", b"gzip, chunked", b"chunked, chunked", b"x"),
    "range": (b"bytes=0-1", b"bytes=9-0"),
    "if-none-match": (b"*", b'"'),
}
BODIES = (b"", b"token=hubbub_known", b"token=%ff&token=", b"{}", b"[" * 50, b"\x1f\x8b", b"\xff" * 40)
DOCUMENTED = {503, 507}


@pytest.fixture
def caller(definitions: Definitions, sqlite_store: SqlStore) -> Iterator[Caller]:
    sqlite_store.add_token(Token("known", frozenset(Scope)), hash_secret(TOKEN.decode()))
    limits = Settings(cors_origin=("https://localhost",), keep_reports={"homepage": 1}, client_burst_seconds=1e9)
    with started(create_app(definitions, sqlite_store, limits, FakeClock(), local_address=ADDRESS)) as caller:
        yield caller


HEADERS = st.lists(
    st.sampled_from(sorted(VALUES)).flatmap(
        lambda name: st.tuples(
            st.just(name.encode()),
            st.sampled_from(VALUES[name])
            | st.binary(max_size=20).map(lambda value: re.sub(rb"[\x00-\x08\x0a-\x1f\x7f]", b"[", value)),
        )
    ),
    max_size=5,
)


@pytest.mark.slow
@given(method=st.sampled_from(METHODS), path=st.sampled_from(PATHS), headers=HEADERS, body=st.sampled_from(BODIES))
@hypothesis_settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_headers_get_documented_responses_and_no_log(
    caller: Caller,
    caplog: pytest.LogCaptureFixture,
    method: str,
    path: str,
    headers: list[tuple[bytes, bytes]],
    body: bytes,
) -> None:
    answer = caller.call(method, path, headers, [body])
    assert answer.status < 500 or answer.status in DOCUMENTED
    assert lines_above_info(caplog) == []


@pytest.mark.slow
def test_each_single_header_gets_documented_responses_and_no_log(
    caller: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    """Every value of every header, on every route, with its methods and one other."""
    documented = {
        re.sub(r"\{\w+\}", "homepage", path): set(how)
        for path, how in caller.call("GET", "/openapi.json").json["paths"].items()
    }
    for path in PATHS:
        methods = {method.upper() for method in documented.get(path.partition("?")[0], ())} | {"PUT"}
        for method, (name, values) in itertools.product(sorted(methods), VALUES.items()):
            for value in values:
                answer = caller.call(method, path, [(name.encode(), value)], [b"token=x"])
                assert answer.status < 500 or answer.status in DOCUMENTED, (method, path, name, value)
    assert lines_above_info(caplog) == []


def test_invalid_origin_counts_as_another_site(caller: Caller, caplog: pytest.LogCaptureFixture) -> None:
    for path in ("/sign-in", "/sign-out"):
        assert caller.call("POST", path, [(b"origin", b"http://[")], [b"token=x"]).status == 403
    assert lines_above_info(caplog) == []


def lines_above_info(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        f"{record.levelname} {record.name}: {record.getMessage()} {record.exc_info or ''}"
        for record in caplog.records
        if record.levelno > logging.INFO and not record.name.startswith("urllib3")
    ]


CONNECTIONS = 1_200
MOST_PIPELINED = 8


def random_request(rng: random.Random, batches: list[bytes]) -> bytes:
    """Return the bytes of a valid or nearly valid request."""
    method, path = rng.choice(METHODS), rng.choice(PATHS)
    headers = [(b"host", b"localhost")] * (rng.random() < 0.9)
    names = rng.sample(sorted(VALUES), rng.choice((0, 0, 0, 1, 2, 4)))
    headers += [(name.encode(), rng.choice(VALUES[name])) for name in names]
    body = rng.choice(BODIES)
    if rng.random() < 0.5:
        method, path, body = "POST", "/v1/reports", rng.choice(batches)
        headers += [(b"content-type", b"application/json")]
    if body and rng.random() < 0.9:
        headers += [(b"content-length", str(len(body)).encode())]
    rng.shuffle(headers)
    version = rng.choice(("1.1",) * 9 + ("1.0",))
    head = b"".join(b"%b: %b\r\n" % header for header in headers)
    return f"{method} {path} HTTP/{version}\r\n".encode() + head + b"\r\n" + body


def reset(client: socket.socket) -> None:
    """Close a connection with RST."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def use_connection(address: tuple[str, int], rng: random.Random, batches: list[bytes]) -> tuple[str, list[int]]:
    """Send pipelined requests, fast or slowly, and end the connection in one of several ways. Return the way and the statuses."""
    sent = b"".join(random_request(rng, batches) for _ in range(rng.randint(1, MOST_PIPELINED)))
    ending = rng.choice(("read", "read", "half-close", "reset", "reset after some answers", "close"))
    if ending in ("reset", "close") and rng.random() < 0.5:
        sent = sent[: rng.randrange(len(sent) + 1)]
    got = b""
    with socket.create_connection(address, timeout=0.3) as client, suppress(OSError):
        while sent:
            size = rng.choice((1, 7, 100, 1 << 16))
            client.sendall(sent[:size])
            sent = sent[size:]
            if size < 100 and rng.random() < 0.01:
                time.sleep(0.002)
        match ending:
            case "reset":
                if rng.random() < 0.5:
                    time.sleep(rng.random() * 0.01)
                reset(client)
            case "reset after some answers":
                got = client.recv(1)
                reset(client)
            case "half-close":
                client.shutdown(socket.SHUT_WR)
        if ending in ("read", "half-close"):
            if ending == "read":
                client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            while data := client.recv(1 << 16):
                got += data
    return ending, [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", got)]


@pytest.mark.slow
def test_random_connection_events_get_documented_responses_and_no_log(
    start: StartAggregator,
    sqlite_store: SqlStore,
    make_batch: MakeBatch,
    caplog: pytest.LogCaptureFixture,
    unseen_seed: int,
) -> None:
    aggregator = start(sqlite_store, cors_origin=("https://localhost",), keep_reports={"homepage": 1})
    sqlite_store.add_token(Token("known", frozenset(Scope)), hash_secret(TOKEN.decode()))
    batches = [make_batch(aggregator.definitions["homepage"]).to_json() for _ in range(50)]
    host, port = aggregator.url.removeprefix("http://").split(":")
    rngs = [random.Random(f"{unseen_seed} {number}") for number in range(CONNECTIONS)]  # noqa: S311
    with caplog.at_level(logging.INFO), ThreadPoolExecutor(8) as pool:
        ended = list(pool.map(lambda rng: use_connection((host, int(port)), rng, batches), rngs))
    assert aggregator.get("/livez").status == 200
    assert lines_above_info(caplog) == []
    statuses = Counter(status for _, answers in ended for status in answers)
    assert {status for status in statuses if status >= 500} <= DOCUMENTED
    assert {200, 202, 400, 404, 405} <= set(statuses), "the generator makes no accepted or no refused request"
    assert len({ending for ending, _ in ended}) == 5
