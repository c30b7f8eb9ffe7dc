"""Fixtures for tests of the files in deploy/: those of the aggregator's tests, a certificate, and nginx."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import urllib3

from tests.aggregator.conftest import (
    closed_last,
    definitions,
    make_batch,
    postgres_url,
    refusals_without_delay,
    sqlite_store,
    start,
)
from tests.support.paths import DEPLOY
from tests.support.programs import installed

__all__ = [
    "closed_last",
    "definitions",
    "make_batch",
    "postgres_url",
    "refusals_without_delay",
    "sqlite_store",
    "start",
]

NAME = "telemetry.example.org"
Certificate = tuple[Path, Path]
Nginx = tuple[list[str], int, Path]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    tool = installed("openssl")
    pem, key = tmp_path / "telemetry.pem", tmp_path / "telemetry.key"
    request = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    subprocess.run(
        [tool, *request, "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}", "-keyout", key, "-out", pem],
        check=True,
        capture_output=True,
    )
    return pem, key


def replaced(text: str, *pairs: tuple[str, str]) -> str:
    """Replace the parts that depend on the machine; each must occur."""
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


@contextmanager
def serving(program: list[str], port: int, ca: Path) -> Iterator[urllib3.HTTPSConnectionPool]:
    """Run a proxy during the test; yield its URL."""
    popen = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    pool = urllib3.HTTPSConnectionPool("127.0.0.1", port, server_hostname=NAME, ca_certs=str(ca), retries=False)
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                assert popen.poll() is None, popen.communicate()[0]
                time.sleep(0.05)
        yield pool
    finally:
        pool.close()
        popen.terminate()
        log = popen.communicate(timeout=30)[0]
    assert "remote" not in log
    assert "client:" not in log


@pytest.fixture
def nginx(tmp_path: Path, certificate: Certificate) -> Nginx:
    """nginx's command, address and configuration, with placeholders for two aggregators.

    nginx uses the header X-Test-Client as the client's address, because all clients of these tests are on this machine.
    """
    pem, key = certificate
    port, config = free_port(), tmp_path / "nginx.conf"
    example = replaced(
        "".join((DEPLOY / "nginx" / name).read_text() for name in ("hubbub.conf", "upstream.conf")),
        ("listen 443", f"listen 127.0.0.1:{port}"),
        ("/etc/ssl/telemetry.pem", str(pem)),
        ("/etc/ssl/telemetry.key", str(key)),
        ("/var/log/nginx/hubbub.log", str(tmp_path / "hubbub.log")),
    )
    paths = "".join(f"{of}_temp_path {tmp_path / of};" for of in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    config.write_text(
        f"daemon off; master_process off; pid {tmp_path / 'pid'}; error_log stderr emerg; events {{}} "
        f"http {{ set_real_ip_from 127.0.0.0/8; real_ip_header X-Test-Client; {paths} {example} }}"
    )
    return [installed("nginx", "nginx-light"), "-p", str(tmp_path), "-c", str(config), "-e", "stderr"], port, config
