"""Fixtures for tests of the files in deploy/: those of the aggregator's tests, and a certificate."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from tests.aggregator.conftest import (
    closed_last,
    definitions,
    make_batch,
    postgres_url,
    refusals_without_delay,
    sqlite_store,
    start,
)
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
