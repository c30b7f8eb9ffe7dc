"""A real `hubbub serve`."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.paths import DATA

METRICS = DATA / "metrics.toml"
HUBBUB = Path(sys.executable).with_name("hubbub")


@contextmanager
def served(place: Path) -> Iterator[str]:
    """Run an aggregator with its database and log in a directory; yield the URL of its listener for reads."""
    log = place / "log"
    command = [str(HUBBUB), "serve", str(METRICS), "--port", "0", "--local-reads-without-token"]
    command += ["--local-port", "0", "--database", f"{place}/reports.db", "--create"]
    with log.open("wb") as errors, subprocess.Popen(command, stderr=errors) as serving:
        while not (found := re.search(r"without a token on (\S+)", log.read_text())):
            assert serving.poll() is None, log.read_text()
        try:
            yield found.group(1)
        finally:
            serving.terminate()
            serving.wait(30)
