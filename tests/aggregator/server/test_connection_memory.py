"""Memory of connections that hold as much as they may: `hubbub serve` with 100 of them, whose first batch is never stored."""

from __future__ import annotations

import random
import re
import socket
import time
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING

import pytest

from hubbub import parse_definitions
from tests.aggregator.conftest import DEFINITIONS
from tests.support.paths import DOCS
from tests.support.s3_server import environment
from tests.support.segment_service import resident_bytes, served

if TYPE_CHECKING:
    from pathlib import Path

    from tests.aggregator.conftest import MakeBatch

CONNECTIONS, SECONDS = 100, 3.0
GET = b"GET /livez HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /v1/reports HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
UNFINISHED = POST + b"Content-Encoding: gzip\r\nContent-Length: 1000000\r\n\r\n" + bytes(900_000)


def documented_kib() -> int:
    """Return the memory of a connection that docs/how-to/overload.md states."""
    page = (DOCS / "how-to" / "overload.md").read_text(encoding="utf-8")
    found = re.search(r"at most (\d+) KiB for each of `max_connections`", page)
    assert found
    return int(found[1])


def random_head(rng: random.Random) -> bytes:
    """Return the head of a request without its end: some short headers, or few long ones."""
    number = rng.choice([1, 10, 150, 199, 12_800])
    size = rng.choice([0, min(60_000 // number, 60_000)])
    return GET + b"".join(b"%x:%s\r\n" % (n, b"x" * size) for n in range(number))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["random", "pipelined bodies", "unfinished bodies"])
def test_memory_of_a_connection_is_as_documented(
    kind: str, make_batch: MakeBatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unseen_seed: int
) -> None:
    rng = random.Random(unseen_seed)  # noqa: S311  (what to send)
    full = GET + b"".join(b"%03d:%s\r\n" % (n, b"x" * 315) for n in range(199)) + b"\r\n"
    metric, today = parse_definitions(DEFINITIONS)["homepage"], time.strftime("%Y-%m-%d", time.gmtime())
    bodies = [make_batch(metric, period=today).to_json() for _ in range(CONNECTIONS + 2)]
    stored = [POST + b"Content-Length: %d\r\n\r\n" % len(body) + body for body in bodies]

    def sent(number: int) -> bytes:
        return {
            "random": random_head(rng),
            "pipelined bodies": stored[number] + (POST + b"Content-Length: 60000\r\n\r\n" + bytes(60_000)) * 7,
            "unfinished bodies": UNFINISHED,
        }[kind]

    (tmp_path / "metrics.toml").write_text(DEFINITIONS.replace("2030-01-01", "9000-01-01"))
    with ExitStack() as stack:
        silent = stack.enter_context(closing(socket.create_server(("127.0.0.1", 0))))
        for name, value in environment(f"http://127.0.0.1:{silent.getsockname()[1]}").items():
            monkeypatch.setenv(name, value)
        url, pid = stack.enter_context(served(tmp_path / "metrics.toml", tmp_path / "reports.db"))
        host, port = url.removeprefix("http://").split(":")

        def hold(data: bytes) -> list[socket.socket | bytes]:
            client = stack.enter_context(closing(socket.create_connection((host, int(port)))))
            client.setblocking(False)
            return [client, data]

        def largest(held: list[list[socket.socket | bytes]]) -> float:
            """Send what the service takes; return its largest resident memory, in KiB."""
            until, most = time.monotonic() + SECONDS, 0.0
            while time.monotonic() < until:
                for connection in held:
                    client, left = connection
                    assert isinstance(client, socket.socket)
                    assert isinstance(left, bytes)
                    with suppress(BlockingIOError, ConnectionError):
                        connection[1] = left[client.send(left) :] if left else left
                most = max(most, resident_bytes(pid) / 1024)
                time.sleep(0.02)
            for _ in range(3):  # until the service has parsed what it took
                with socket.create_connection((host, int(port))) as client:
                    client.sendall(GET + b"\r\n")
                    client.recv(1)
                most = max(most, resident_bytes(pid) / 1024)
            return most

        before = largest([hold(request) for request in (stored[-1], stored[-2], full, UNFINISHED, UNFINISHED)])
        after = largest([hold(sent(number)) for number in range(CONNECTIONS)])
    assert (after - before) / CONNECTIONS <= documented_kib(), f"KiB for each connection, seed {unseen_seed}"
