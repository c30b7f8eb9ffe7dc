"""Run `hubbub serve` as a subprocess with a free port and a temporary database."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from hubbub.errors import HubbubError

_STOP_TIMEOUT_SECONDS = 20
_LISTENING = re.compile(r"listening on (http://\S+)\n.*without a token on (http://\S+)")


class Addresses(NamedTuple):
    """Addresses of an aggregator: for reports, and for reads without a token."""

    reports: str
    reads: str


class ServiceError(HubbubError):
    """The aggregator process did not start."""


@contextmanager
def running_aggregator(definitions: str) -> Iterator[Addresses]:
    """Start an aggregator for the definitions (TOML text) and yield its addresses; stop it and delete its database afterwards."""
    with TemporaryDirectory(prefix="hubbub-demo-") as directory:
        file = Path(directory) / "metrics.toml"
        file.write_text(definitions, encoding="utf-8")
        log = Path(directory) / "serve.log"
        command = [sys.executable, "-m", "hubbub", "serve", str(file), "--port", "0", "--create"]
        command += [
            "--local-reads-without-token",
            "--local-port",
            "0",
            "--database",
            str(Path(directory) / "hubbub.db"),
        ]
        with log.open("wb") as errors, subprocess.Popen(command, stdout=errors, stderr=errors) as process:  # noqa: S603
            try:
                yield _wait_for_addresses(process, log)
            finally:
                process.terminate()
                try:
                    process.wait(_STOP_TIMEOUT_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()


def _wait_for_addresses(process: subprocess.Popen[bytes], log: Path) -> Addresses:
    while True:
        text = log.read_text(encoding="utf-8", errors="replace")
        if match := _LISTENING.search(text):
            return Addresses(match.group(1), match.group(2))
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
        last_line = text.strip().splitlines()[-1:] or ["no output"]
        raise ServiceError(f"The aggregator did not start: {last_line[0].removeprefix('Error: ')}")
