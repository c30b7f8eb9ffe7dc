"""Errors of real proxies end no report of a client: nginx and Caddy answer with their own pages, and later forward as they should."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from socket import create_connection, create_server
from typing import TYPE_CHECKING, Any

import pytest

from hubbub import Client, Definitions, Metric, UnaryResponse
from hubbub.conformance.adapter import Adapter
from hubbub.testing import UNLIMITED, deliver
from hubbub_aggregator.settings import Settings
from tests.aggregator.conftest import running
from tests.deploy.conftest import Certificate
from tests.support.free_ports import free_ports
from tests.support.programs import installed
from tests.typescript.conftest import built, node_adapter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hubbub_aggregator.store.sql_store import SqlStore

__all__ = ["built", "node_adapter"]

NGINX_FAULTS = {
    "400, plain HTTP to the port of TLS": "ssl",
    "413": "location / {{ client_max_body_size 100; proxy_pass {upstream}; }}",
    "502": "location / {{ proxy_pass http://127.0.0.1:{closed}; }}",
    "503": "location / {{ limit_req zone=none; proxy_pass {upstream}; }}",
    "504": "location / {{ proxy_read_timeout 1s; proxy_pass http://127.0.0.1:{silent}; }}",
    "405, a folder of files": "location / {{ root {place}; }}",
    "301 to https": "return 301 https://127.0.0.1:{closed}$request_uri;",
    "200, a portal": 'default_type text/html; return 200 "<h1>Welcome</h1>";',
} | {f"{status}, a page": f"return {status};" for status in (400, 401, 403, 404, 410, 414, 421, 422, 429)}
CADDY_FAULTS = {
    "413": "request_body {{\n max_size 100\n}}\nreverse_proxy {upstream}",
    "502": "reverse_proxy 127.0.0.1:{closed}",
    "504": "reverse_proxy 127.0.0.1:{silent} {{\n transport http {{\n response_header_timeout 1s\n}}\n}}",
    "200, a portal": 'header Content-Type text/html\nrespond "<h1>Welcome</h1>" 200',
    "308 to https": "redir https://127.0.0.1:{closed}{{uri}} 308",
} | {f"{status}, a page": f'respond "<h1>{status}</h1>" {status}' for status in (400, 404, 414, 422, 503)}

Faults = Mapping[str, str]
METRICS = [
    Metric.boolean(
        f"question_{number}",
        UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.9),
        description="d",
        owner="o",
        expires=date(2100, 1, 1),
    )
    for number in range(6)
]
"""Of the reports of a day, at least one is due an hour before its end, except with probability below 1e-5."""


def nginx_file(place: Path, servers: Sequence[tuple[int, str]], certificate: Certificate) -> Path:
    """Write a configuration with a server for each port, and return its path."""
    pem, key = certificate
    tls = f"ssl_certificate {pem}; ssl_certificate_key {key};"
    parts = (
        f"server {{ listen 127.0.0.1:{port}{' ssl' if fault == 'ssl' else ''}; {tls if fault == 'ssl' else fault} }}"
        for port, fault in servers
    )
    paths = "".join(f"{of}_temp_path {place / of};" for of in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    config = place / "nginx.conf"
    config.write_text(
        f"daemon off; master_process off; pid {place / 'pid'}; error_log stderr emerg; events {{}} "
        f"http {{ {paths} access_log off; limit_req_zone $server_port zone=none:1m rate=1r/m; {' '.join(parts)} }}"
    )
    return config


def caddy_file(place: Path, servers: Sequence[tuple[int, str]], _: Certificate) -> Path:
    """Write a configuration with a site for each port, and return its path."""
    sites = (f"http://127.0.0.1:{port} {{\nbind 127.0.0.1\n{fault}\n}}\n" for port, fault in servers)
    config = place / "Caddyfile"
    config.write_text("{\nadmin off\nauto_https off\n}\n" + "".join(sites))
    return config


@contextmanager
def proxying(program: str, config: Path, ports: list[int]) -> Iterator[None]:
    """Run a proxy until the block ends."""
    place = str(config.parent)
    options = (
        ["-p", place, "-c", str(config), "-e", "stderr"] if "nginx" in program else ["run", "--config", str(config)]
    )
    with subprocess.Popen([program, *options], stderr=subprocess.PIPE, env=os.environ | {"HOME": place}) as popen:
        try:
            for port in ports:
                while True:
                    assert popen.poll() is None, popen.stderr and popen.stderr.read()
                    with suppress(OSError), create_connection(("127.0.0.1", port)):
                        break
                    time.sleep(0.02)
            yield
        finally:
            popen.terminate()
            popen.wait(30)


class PythonApp:
    """The Python client, with the machine's clock."""

    def __init__(self, state: Path, url: str) -> None:
        self._client = Client(Definitions(METRICS), state, url, policy=UNLIMITED, environment={})
        self._client.set_consent("on")
        self._client.record("question_0", True)

    def send(self) -> None:
        deliver(self._client)

    def counts(self) -> tuple[int, int, int]:
        """Reports that were formed and acknowledged, and attempts whose answer was not the aggregator's."""
        counts = self._client.accounting()
        return counts.formed, counts.acknowledged, counts.failed_uploads["unrecognized"]

    def close(self) -> None:
        self._client.close()


class NodeApp:
    """The TypeScript client in Node (fetch hides redirects and 421), whose clock goes from yesterday to the end of a day, and never far from the machine's."""

    def __init__(self, state: Path, url: str, command: Sequence[str]) -> None:
        self._adapter, self._now = Adapter(command, 30), datetime.now(UTC) - timedelta(hours=23, minutes=50)
        definitions = [metric.to_dict() for metric in METRICS]
        self._ask("start", definitions=definitions, directory=str(state), url=url, now=self._now.isoformat())
        self._ask("consent", level="on")
        self._ask("record", metric="question_0", value=True)
        self._now += timedelta(hours=44)

    def _ask(self, call: str, **fields: Any) -> Mapping[str, Any]:
        return self._adapter.ask({"call": call, **fields})

    def send(self) -> None:
        self._now += timedelta(hours=1, minutes=10)
        self._ask("advance", now=self._now.isoformat())
        self._ask("flush")

    def counts(self) -> tuple[int, int, int]:
        """Reports that were formed and acknowledged, and attempts that settled nothing."""
        counts = self._ask("inspect")["counts"]
        return counts["formed"], counts["acknowledged"], sum(counts.get("failedUploads", {}).values())

    def close(self) -> None:
        self._ask("stop")
        self._adapter.__exit__(None, None, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "package", "faults", "configure", "forward"),
    [
        ("nginx", "nginx-light", NGINX_FAULTS, nginx_file, "location / {{ proxy_pass {upstream}; }}"),
        ("caddy", "caddy", CADDY_FAULTS, caddy_file, "reverse_proxy {upstream}"),
    ],
    ids=["nginx", "caddy"],
)
def test_reports_outlast_every_error_of_a_proxy(
    program: str,
    package: str,
    faults: Faults,
    configure: Any,
    forward: str,
    certificate: Certificate,
    sqlite_store: SqlStore,
    node_adapter: Sequence[str],
    tmp_path: Path,
) -> None:
    tool, ports, (closed,) = installed(program, package), free_ports(len(faults)), free_ports(1)
    with ExitStack() as stack:
        aggregator = stack.enter_context(running(Definitions(METRICS), sqlite_store, Settings()))
        aggregator.clock.now = datetime.now(UTC)
        silent = stack.enter_context(create_server(("127.0.0.1", 0))).getsockname()[1]
        names = {"upstream": aggregator.url, "closed": closed, "silent": silent, "place": tmp_path}
        broken = [(port, fault.format(**names)) for port, fault in zip(ports, faults.values(), strict=True)]
        apps: dict[str, PythonApp | NodeApp] = {}
        with proxying(tool, configure(tmp_path, broken, certificate), ports):
            for port, fault in zip(ports, faults, strict=True):
                url = f"http://127.0.0.1:{port}"
                if fault == "503":
                    aggregator.http.request("POST", url)  # the one request of a minute
                apps[f"Python, {fault}"] = PythonApp(tmp_path / f"python-{port}", url)
                stack.callback(apps[f"Python, {fault}"].close)
                apps[f"Node, {fault}"] = NodeApp(tmp_path / f"node-{port}", url, node_adapter)
                stack.callback(apps[f"Node, {fault}"].close)
            for name, app in apps.items():
                app.send()
                formed, acknowledged, failed = app.counts()
                assert formed > acknowledged == 0, name
                assert failed > 0, name
        assert aggregator.stored() == 0
        right = [(port, forward.format(**names)) for port in ports]
        with proxying(tool, configure(tmp_path, right, certificate), ports):
            total = 0
            for name, app in apps.items():
                before, _, _ = app.counts()
                for _ in range(3):
                    app.send()
                formed, acknowledged, _ = app.counts()
                assert acknowledged > 0, name
                if isinstance(app, PythonApp):
                    assert acknowledged == formed >= before, name
                total += acknowledged
        assert aggregator.stored() == total
