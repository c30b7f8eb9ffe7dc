"""The two listeners of `hubbub serve`: the public one, and the local one that serves reads without a token."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import urllib3
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hubbub import Definitions
from hubbub_aggregator.api.dependencies import Address
from hubbub_aggregator.app import create_app
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.sql_store import SqlStore
from tests.aggregator.conftest import DEFINITIONS
from tests.support.asgi import Caller, started

pytestmark = pytest.mark.slow  # starts services

HUBBUB = str(Path(sys.executable).parent / "hubbub")
READING = ("/", "/metrics", "/v1/metrics/homepage/summary")
HEADER_NAMES = ("host", "forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-port", "x-real-ip", "via")
HEADER_VALUES = ("localhost", "127.0.0.1:8001", "127.0.0.1", "[::1]", "for=127.0.0.1", "8001", "unknown", "")
OTHER_ADDRESSES = (("127.0.0.1", 8_001), ("127.0.0.2", 8_000), ("::1", 8_000), ("0.0.0.0", 8_000))  # noqa: S104


@contextmanager
def serving(place: Path, *options: str) -> Iterator[str]:
    """Run the command; yield its output until it listens."""
    (definitions := place / "metrics.toml").write_text(DEFINITIONS.replace("2030-01-01", "9000-01-01"))
    log = place / "log"
    command = [HUBBUB, "serve", str(definitions), "--port", "0", "--local-port", "0"]
    command += ["--database", str(place / "reports.db"), "--create", *options]
    with log.open("wb") as errors, subprocess.Popen(command, stderr=errors) as process:
        try:
            while not re.search(r"listening.*\n", log.read_text()):
                assert process.poll() is None, log.read_text()
            yield log.read_text()
        finally:
            process.terminate()
            assert process.wait(60) == 0


def statuses(url: str, **headers: str) -> list[int]:
    with urllib3.PoolManager(retries=False) as http:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return [http.request("GET", url + path, headers=named, redirect=False).status for path in READING]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])  # noqa: S104  (the test needs it)
def test_only_the_local_listener_serves_reads_without_token(tmp_path: Path, host: str) -> None:
    with serving(tmp_path, "--local-reads-without-token", "--host", host) as printed:
        found = re.search(
            r"listening on http://[\d.]+:(\d+)\n.*without a token on (http://127\.0\.0\.1:(\d+)) ", printed
        )
        assert found
        forwarded, local, local_port = f"http://127.0.0.1:{found[1]}", found[2], found[3]
        assert statuses(local) == [200, 200, 200]
        assert statuses(local, host=f"localhost:{local_port}") == [200, 200, 200]
        for header in ({"host": "telemetry.example.org"}, {"x_forwarded_for": "127.0.0.1"}, {"forwarded": "for=::1"}):
            assert statuses(local, **header) == [401, 401, 401], "through a proxy, or by another site's name"
        for header in ({}, {"host": f"127.0.0.1:{local_port}"}, {"host": "localhost"}):
            assert statuses(forwarded, **header) == [401, 401, 401]


def test_no_local_listener_by_default(tmp_path: Path) -> None:
    with serving(tmp_path) as printed:
        assert "without a token" not in printed
        found = re.search(r"listening on (\S+)", printed)
        assert found
        assert statuses(found[1]) == [401, 401, 401]


def test_json_log_contains_both_addresses(tmp_path: Path) -> None:
    with serving(tmp_path, "--local-reads-without-token", "--log-format", "json") as printed:
        line = json.loads(printed.splitlines()[-1])
        assert statuses(line["local_url"]) == [200, 200, 200]
        assert statuses(line["url"]) == [401, 401, 401]


def test_local_port_in_use_names_the_option(tmp_path: Path) -> None:
    with serving(tmp_path, "--local-reads-without-token") as printed:
        found = re.search(r"without a token on http://127\.0\.0\.1:(\d+) ", printed)
        assert found
        command = [
            HUBBUB,
            "serve",
            str(tmp_path / "metrics.toml"),
            "--port",
            "0",
            "--local-port",
            found[1],
            "--local-reads-without-token",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
        assert done.returncode == 1
        assert (
            f"cannot listen on 127.0.0.1:{found[1]}: Address already in use. Choose another --local-port" in done.stderr
        )


@pytest.fixture
def forwarded_port(definitions: Definitions, sqlite_store: SqlStore) -> Iterator[Callable[[Address | None], Caller]]:
    """The application with a local listener at another address than the one at which requests arrive."""
    settings = Settings(local_reads_without_token=True, keep_reports={"homepage": 1})
    with ExitStack() as stack:
        apps = {
            address: stack.enter_context(
                started(create_app(definitions, sqlite_store, settings, local_address=address))
            )
            for address in (*OTHER_ADDRESSES, None)
        }
        yield apps.__getitem__


@given(
    headers=st.dictionaries(st.sampled_from(HEADER_NAMES), st.sampled_from(HEADER_VALUES)),
    address=st.sampled_from([*OTHER_ADDRESSES, None]),
    path=st.sampled_from([*READING, "/v1/metrics/homepage/reports"]),
    method=st.sampled_from(["GET", "HEAD"]),
)
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_header_allows_reads_without_token_at_the_public_listener(
    forwarded_port: Callable[[Address | None], Caller],
    headers: dict[str, str],
    address: Address | None,
    path: str,
    method: str,
) -> None:
    """The socket identifies the local listener; no header of a proxy or client replaces the token at the public one."""
    sent = [(name.encode(), value.encode()) for name, value in headers.items()]
    assert forwarded_port(address).call(method, path, sent).status == 401
