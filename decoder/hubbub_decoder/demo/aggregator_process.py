"""`hubbub serve` as a subprocess: a free port, a temporary database, gone when the demo is."""

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

_STOP_WITHIN = 20
_LISTENING = re.compile(r"listening on (http://\S+)\n.*without a token on (http://\S+)")


class Addresses(NamedTuple):
    """Where an aggregator takes reports, and where it answers reads without a token."""

    reports: str
    reads: str


class ServiceError(HubbubError):
    """An aggregator that did not start."""


@contextmanager
def running_aggregator(definitions: str) -> Iterator[Addresses]:
    """Run an aggregator for these definitions and give its addresses; it stops, and its database goes, on leaving."""
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
                yield _address(process, log)
            finally:
                process.terminate()
                try:
                    process.wait(_STOP_WITHIN)
                except subprocess.TimeoutExpired:
                    process.kill()


def _address(process: subprocess.Popen[bytes], log: Path) -> Addresses:
    while True:
        said = log.read_text(encoding="utf-8", errors="replace")
        if found := _LISTENING.search(said):
            return Addresses(found.group(1), found.group(2))
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
        last = said.strip().splitlines()[-1:] or ["it said nothing"]
        raise ServiceError(f"the aggregator did not start: {last[0].removeprefix('Error: ')}")
