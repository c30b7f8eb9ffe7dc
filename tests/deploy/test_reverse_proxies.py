"""The reverse proxy configurations of deploy/, run with nginx and Caddy where these are installed."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import urllib3

from hubbub import parse_definitions
from hubbub.metrics.metric import folder_of
from hubbub.summary import write_summary
from hubbub_aggregator.pipeline.folding import read_summary
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_aggregator.store.tokens import Scope
from hubbub_decoder import simulate
from tests.aggregator.api.test_tokens import given
from tests.aggregator.conftest import DEFINITIONS
from tests.deploy.conftest import NAME, Certificate, Nginx, free_port, replaced, serving
from tests.support.paths import DEPLOY
from tests.support.programs import installed

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch, StartAggregator


def test_nginx_forwards_batches_and_logs_no_requests(
    nginx: Nginx,
    certificate: Certificate,
    start: StartAggregator,
    sqlite_store: SqlStore,
    make_batch: MakeBatch,
    tmp_path: Path,
) -> None:
    program, port, config = nginx
    aggregator = start(sqlite_store, client_burst_seconds=20_000, client_rate=0.001, local_rate_factor=1)
    ours = aggregator.url.removeprefix("http://")
    config.write_text(
        replaced(config.read_text(), ("127.0.0.1:8000", ours), ("server 127.0.0.1:8001 max_fails=0;", ""))
    )
    json = {"Content-Type": "application/json", "X-Forwarded-For": "192.0.2.7", "X-Test-Client": "198.51.100.7"}
    with serving(program, port, certificate[0]) as proxy:
        assert proxy.request("GET", "/livez").json()["client_named"] is True
        body = make_batch(aggregator.definitions["homepage"]).to_json()
        assert proxy.request("POST", "/v1/reports", body=body, headers=json).status == 202
        for data in (b" " * 1_500_000, b"{}"):
            refused = proxy.request("POST", "/v1/reports", body=data, headers=json)
            assert refused.headers["content-type"] == "application/problem+json"
        too_large = proxy.request("POST", "/v1/reports", body=b" " * 2_100_000, headers=json)
        assert too_large.status == 413
        for response in (proxy.request("GET", "/livez"), refused, too_large):
            assert "max-age=63072000" in response.headers["strict-transport-security"], response.status
        statuses = {
            proxy.request("POST", "/v1/reports", body=body, headers=json | {"X-Forwarded-For": str(n)}).status
            for n in range(40)
        }
        assert statuses == {200, 429}, "a header of the client changed the address of the rate limit"
    assert (tmp_path / "hubbub.log").read_text() == ""


READING = ("/", "/metrics", "/v1/metrics/homepage/summary", "/v1/metrics/homepage/reports")
MINIMAL = """
daemon off; master_process off; pid {place}/pid; error_log stderr emerg; events {{}}
http {{ {paths} access_log off; server {{
    listen 127.0.0.1:{port} ssl; ssl_certificate {pem}; ssl_certificate_key {key};
    location / {{ proxy_pass {url}; {more} }}
}} }}
"""


@pytest.mark.slow
@pytest.mark.parametrize("more", ["", "proxy_set_header Host $host;", "proxy_set_header Host localhost;"])
def test_minimal_nginx_exposes_no_reads_without_token(
    certificate: Certificate, tmp_path: Path, make_batch: MakeBatch, more: str
) -> None:
    """`proxy_pass` alone sets no client address, and sends the aggregator's own address as Host."""
    tool, port, (pem, key) = installed("nginx", "nginx-light"), free_port(), certificate
    (definitions := tmp_path / "metrics.toml").write_text(DEFINITIONS.replace("2030-01-01", "9000-01-01"))
    command = [
        str(Path(sys.executable).parent / "hubbub"),
        "serve",
        str(definitions),
        "--port",
        "0",
        "--local-port",
        "0",
    ]
    command += [
        "--local-reads-without-token",
        "--keep-reports",
        "homepage=1",
        "--database",
        str(tmp_path / "x.db"),
        "--create",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as service:
        assert service.stderr
        try:
            printed = "".join(service.stderr.readline() for _ in range(3))
            urls = re.search(r"listening on (\S+)\n.*without a token on (\S+)", printed)
            assert urls, printed
            paths = "".join(
                f"{of}_temp_path {tmp_path / of};" for of in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
            )
            config = tmp_path / "nginx.conf"
            config.write_text(
                MINIMAL.format(place=tmp_path, paths=paths, port=port, pem=pem, key=key, url=urls[1], more=more)
            )
            with serving([tool, "-p", str(tmp_path), "-c", str(config), "-e", "stderr"], port, pem) as proxy:
                metric = parse_definitions(definitions.read_text())["homepage"]
                body = make_batch(metric, period=time.strftime("%Y-%m-%d", time.gmtime())).to_json()
                json = {"Content-Type": "application/json"}
                assert proxy.request("POST", "/v1/reports", body=body, headers=json).status == 202
                for path in READING:
                    for headers in ({}, {"Host": "localhost"}, {"X-Forwarded-For": "127.0.0.1"}):
                        assert proxy.request("GET", path, headers=headers).status == 401, (path, headers)
                assert proxy.request("GET", "/livez").json()["client_named"] is False, "hubbub doctor --url warns"
                with urllib3.PoolManager(retries=False) as direct:
                    assert [direct.request("GET", urls[2] + path).status for path in READING] == [200] * 4
        finally:
            service.terminate()
            assert service.wait(60) == 0


@pytest.mark.slow
def test_nginx_switches_between_services_without_errors(
    nginx: Nginx, certificate: Certificate, tmp_path: Path, make_batch: MakeBatch
) -> None:
    """The restart procedure of docs/how-to/upgrading.md, on one SQLite file, while clients send continuously."""
    program, port, config = nginx
    definitions, database = tmp_path / "metrics.toml", tmp_path / "reports.db"
    definitions.write_text(DEFINITIONS.replace("2030-01-01", "9000-01-01"))
    metric, today = parse_definitions(definitions.read_text())["homepage"], time.strftime("%Y-%m-%d", time.gmtime())
    ports = (free_port(), free_port())
    config.write_text(
        replaced(
            config.read_text(),
            ("127.0.0.1:8000", f"127.0.0.1:{ports[0]}"),
            ("127.0.0.1:8001", f"127.0.0.1:{ports[1]}"),
            ("rate=50r/s", "rate=100000r/s"),  # all clients of the test have one address
        )
    )

    def service(port: int) -> subprocess.Popen[str]:
        where = ("--database", str(database), "--create", "--port", str(port))
        command = [str(Path(sys.executable).parent / "hubbub"), "serve", str(definitions), *where]
        popen = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert popen.stderr is not None
        while "listening" not in (line := popen.stderr.readline()):
            assert line.startswith("WARNING"), line
        return popen

    answers: list[int] = []
    stop = threading.Event()

    def send(proxy: urllib3.HTTPSConnectionPool) -> None:
        while not stop.is_set():
            body = make_batch(metric, n=1, period=today).to_json()
            answers.append(
                proxy.request("POST", "/v1/reports", body=body, headers={"Content-Type": "application/json"}).status
            )

    old = service(ports[0])
    with serving(program, port, certificate[0]) as proxy:
        sender = threading.Thread(target=send, args=(proxy,))
        sender.start()
        try:
            while len(answers) < 50:
                time.sleep(0.01)
            new = service(ports[1])
            old.terminate()
            assert old.wait(timeout=60) == 0
            after = len(answers) + 50
            while len(answers) < after and sender.is_alive():
                time.sleep(0.01)
        finally:
            stop.set()
            sender.join()
    new.terminate()
    assert new.wait(timeout=60) == 0
    for popen in (old, new):
        popen.communicate()
    assert set(answers) == {202}
    store = SqlStore.open(database)
    assert read_summary(store, metric).num_reports == len(answers)
    store.close()


def caddy(place: Path, certificate: Certificate, server: str, results: str = "127.0.0.1:8200") -> tuple[list[str], int]:
    """Caddy's command and port; server, results : addresses of an aggregator and of `hubbub explore`."""
    (pem, key), port, config = certificate, free_port(), place / "Caddyfile"
    config.write_text(
        replaced(
            (DEPLOY / "caddy" / "Caddyfile").read_text(),
            (f"{NAME} {{", f"https://{NAME}:{port} {{\n\ttls {pem} {key}\n\tbind 127.0.0.1"),
            ("{\n\tlog default", "{\n\tadmin off\n\tauto_https off\n\tlog default"),
            ("127.0.0.1:8000 127.0.0.1:8001", server),
            ("127.0.0.1:8200", results),
        )
    )
    return [installed("caddy"), "run", "--config", str(config)], port


def test_caddy_forwards_batches_and_logs_no_requests(
    certificate: Certificate,
    start: StartAggregator,
    sqlite_store: SqlStore,
    make_batch: MakeBatch,
    tmp_path: Path,
) -> None:
    aggregator = start(sqlite_store, client_burst_seconds=20_000, client_rate=0.001, local_rate_factor=1)
    program, port = caddy(tmp_path, certificate, aggregator.url.removeprefix("http://"))
    json = {"Content-Type": "application/json", "Host": NAME}
    with serving(program, port, certificate[0]) as proxy:
        body = make_batch(aggregator.definitions["homepage"]).to_json()
        assert proxy.request("POST", "/v1/reports", body=body, headers=json).status == 202
        refused = proxy.request("POST", "/v1/reports", body=b" " * 1_500_000, headers=json)
        assert (refused.status, refused.headers["content-type"]) == (413, "application/problem+json")
        too_large = proxy.request("POST", "/v1/reports", body=b" " * 2_100_000, headers=json)
        for response in (proxy.request("GET", "/livez", headers={"Host": NAME}), refused, too_large):
            assert "max-age=63072000" in response.headers["strict-transport-security"], response.status
        statuses = {
            proxy.request("POST", "/v1/reports", body=body, headers=json | {"X-Forwarded-For": str(n)}).status
            for n in range(40)
        }
        assert statuses == {200, 429}


@contextmanager
def proxied(
    proxy: str, nginx: Nginx, certificate: Certificate, server: str, results: str
) -> Iterator[urllib3.HTTPSConnectionPool]:
    """Run nginx or Caddy of deploy/ before an aggregator and the pages of results."""
    program, port, config = nginx
    if proxy == "nginx":
        pairs = ("127.0.0.1:8000", server), ("server 127.0.0.1:8001 max_fails=0;", ""), ("127.0.0.1:8200", results)
        config.write_text(replaced(config.read_text(), *pairs))
    else:
        program, port = caddy(config.parent, certificate, server, results)
    with serving(program, port, certificate[0]) as pool:
        pool.headers = {"Host": f"{NAME}:{port}", "Accept": "text/html"}
        yield pool


def signed_in_at(proxy: urllib3.HTTPSConnectionPool, store: SqlStore, to: str) -> str:
    """Sign in as a browser that came to an address; return the session's cookie."""
    refused = proxy.request("GET", to, redirect=False)
    assert (refused.status, refused.headers["location"]) == (303, f"/sign-in?to={to}")
    form = re.search(r'name="to" value="([^"]+)"', proxy.request("GET", refused.headers["location"]).data.decode())
    assert form
    fields = {"token": given(store, Scope.READ).removeprefix("Bearer "), "to": unescape(form[1])}
    answer = proxy.request("POST", "/sign-in", fields=fields, encode_multipart=False, redirect=False)
    assert (answer.status, answer.headers["location"]) == (303, to)
    return answer.headers["set-cookie"].partition(";")[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nginx", "caddy"])
def test_one_sign_in_leads_from_the_service_to_shares(
    name: str, nginx: Nginx, certificate: Certificate, start: StartAggregator, sqlite_store: SqlStore, tmp_path: Path
) -> None:
    """`hubbub serve` and `hubbub explore` of deploy/ behind one proxy: sign in, follow a link of the first page, add strings, sign out."""
    aggregator = start(sqlite_store, local_reads_without_token=False, results_url="/results/")
    metric = aggregator.definitions["homepage"]
    (tmp_path / "summaries").mkdir()
    counts = simulate(metric, {"https://a.example/": 900, "b": 100}, np.random.default_rng(1), periods=["2024-06-10"])
    write_summary(counts, tmp_path / "summaries" / "homepage.parquet")
    (tmp_path / "strings.txt").write_text("https://a.example/\n")
    command = [str(Path(sys.executable).with_name("hubbub")), "explore", str(tmp_path / "summaries"), "--port", "0"]
    command += ["--hostname", NAME, "--candidates", str(tmp_path / "strings.txt"), "--jobs", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as explore:
        try:
            assert explore.stdout
            [results] = re.findall(r"^http://([0-9.:]+)/ shows", explore.stdout.readline())
            with proxied(name, nginx, certificate, aggregator.url.removeprefix("http://"), results) as proxy:
                view = f"/results/{folder_of(metric)}/?from=2024-06-10&to=2024-06-10"
                cookie = dict(proxy.headers) | {"Cookie": signed_in_at(proxy, sqlite_store, view)}
                first = proxy.request("GET", "/", headers=cookie).data.decode()
                [link] = re.findall(r'href="(/results/homepage@[0-9a-f]{8}/)"', first)
                while (page := proxy.request("GET", link, headers=cookie)).status == 202:
                    time.sleep(0.1)
                assert (page.status, b"https://a.example/" in page.data) == (200, True)
                assert "max-age=63072000" in page.headers["strict-transport-security"]
                assert proxy.request("GET", "/results/", headers=cookie).status == 200
                origin = {"Origin": f"https://{proxy.headers['Host']}"}
                posted = proxy.request(
                    "POST",
                    f"{link}strings",
                    fields={"strings": "b"},
                    encode_multipart=False,
                    headers=cookie | origin,
                    redirect=False,
                )
                assert (posted.status, posted.headers["location"][:4]) == (303, "./?s")
                assert proxy.request("POST", "/sign-out", headers=cookie, redirect=False).status == 303
                assert proxy.request("GET", link, headers=cookie, redirect=False).status == 303
        finally:
            explore.terminate()
            explore.wait(60)


@pytest.mark.parametrize("name", ["nginx", "caddy"])
def test_pages_of_results_get_no_token_and_no_session(
    name: str, nginx: Nginx, certificate: Certificate, start: StartAggregator, sqlite_store: SqlStore
) -> None:
    received: list[dict[str, str]] = []

    class Results(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            received.append(dict(self.headers))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    aggregator = start(sqlite_store, local_reads_without_token=False, results_url="/results/")
    with HTTPServer(("127.0.0.1", 0), Results) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            results, ours = f"127.0.0.1:{server.server_port}", aggregator.url.removeprefix("http://")
            with proxied(name, nginx, certificate, ours, results) as proxy:
                cookie = signed_in_at(proxy, sqlite_store, "/results/")
                cookies = f"a=b; {cookie}; hubbub_explore=browser"
                headers = dict(proxy.headers)
                assert proxy.request("GET", "/results/x", headers=headers | {"Cookie": cookies}).status == 204
                token = {"Authorization": given(sqlite_store, Scope.READ, name="programs")}
                assert proxy.request("GET", "/results/x", headers=headers | token).status == 204
                wrong = {"Authorization": "Bearer wrong"}
                assert proxy.request("GET", "/results/x", headers=headers | wrong, redirect=False).status == 303
        finally:
            server.shutdown()
    found = [headers.get("Cookie", "").removeprefix("hubbub_explore=") for headers in received]
    assert found == ["browser", ""], "explore gives a browser without its cookie a new one"
    assert not [headers for headers in received if "Authorization" in headers]
    assert {headers["Host"] for headers in received} == {proxy.headers["Host"]}
