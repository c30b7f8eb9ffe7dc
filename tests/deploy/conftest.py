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
    short_waits,
    sqlite_store,
    start,
)
from tests.support.nginx import NAME, Certificate, make_certificate, nginx_command, replaced, write_configuration
from tests.support.programs import installed

__all__ = [
    "NAME",
    "Certificate",
    "closed_last",
    "definitions",
    "make_batch",
    "postgres_url",
    "replaced",
    "short_waits",
    "sqlite_store",
    "start",
]

Nginx = tuple[list[str], int, Path]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return make_certificate(installed("openssl"), tmp_path)


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
    port = free_port()
    config = write_configuration(
        tmp_path, certificate, port, "set_real_ip_from 127.0.0.0/8; real_ip_header X-Test-Client;"
    )
    return nginx_command(installed("nginx", "nginx-light"), config), port, config
