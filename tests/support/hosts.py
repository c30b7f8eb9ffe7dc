"""Servers that run a client in several processes, and the app that they run.

The app answers three paths: `record/SUBJECT`, `flush` and `inspect`. Its clock is the file `clock`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest

from hubbub.metrics.definitions import parse_definitions
from tests.support.paths import REPOSITORY
from tests.support.programs import installed

WORKERS = 3
DEFINITIONS = """
[[metric]]
name = "homepage"
kind = "string"
description = "The page a browser opens first"
owner = "telemetry@example.org"
num_bits = 32
num_hashes = 1
num_cohorts = 8
prob_p = 0.25
prob_q = 0.75
prob_f = 0
expires = 2099-01-01
"""
"""A metric whose reports cost a unit each."""
APP = """
import json, os
from datetime import datetime
from pathlib import Path
from hubbub import Client
from hubbub.sdk.storage.state_reader import read_state
from hubbub.testing import UNLIMITED, Seams

def clock():
    return datetime.fromisoformat(Path("clock").read_text())

client = Client("metrics.toml", "state", os.environ["AGGREGATOR"], seams=Seams(clock=clock), per_subject=True, policy=UNLIMITED)
client.set_consent("on")

def inspect():
    counts, found = client.accounting(), read_state(Path("state"))
    gone = sum(counts.dropped.values()) + counts.quarantined
    assert counts.recorded == counts.chosen + counts.superseded + sum(counts.ignored.values()), counts
    assert counts.formed == counts.acknowledged + counts.queued + gone, counts
    return {
        "recorded": counts.recorded,
        "ignored": counts.ignored,
        "formed": counts.formed,
        "acknowledged": counts.acknowledged,
        "queued": counts.queued,
        "charged": sum(account.reports for account in found.accounts.values()),
    }

def app(environ, start_response):
    call, _, subject = environ["PATH_INFO"].lstrip("/").partition("/")
    answer = os.getpid()
    if call == "record":
        client.subject(subject).record("homepage", "https://example.org/")
        assert client.accounting().waiting == 0  # a kill loses recordings that wait in memory
    elif call == "flush":
        answer = client.flush(1)
    else:
        answer = inspect()
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]
"""


@dataclass(frozen=True)
class Host:
    """A server.

    command : function of no argument that returns its command, or skips the test if the server is not installed
    address : pattern of the address in its log
    """

    command: Callable[[], list[str]]
    address: str


def require(package: str, program: str | None = None) -> None:
    """Skip the test if a package is missing, or fail if $HUBBUB_TEST_REQUIRE contains its name."""
    path = Path(sys.executable).with_name(program or package)
    if importlib.util.find_spec(package) is None and not path.exists():
        reason = f"{package} is not installed: pip install --group dev in a checkout of hubbub"
        if package in os.environ.get("HUBBUB_TEST_REQUIRE", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)


def uwsgi(*options: str) -> Host:
    """Return a uwsgi with a master and workers, which it forks in C."""

    def command() -> list[str]:
        require("pyuwsgi", "uwsgi")
        words = [str(Path(sys.executable).with_name("uwsgi")), "--http-socket", "127.0.0.1:0", "--module", "served:app"]
        return [*words, "--master", "--processes", str(WORKERS), "--die-on-term", "--need-app", *options]

    return Host(command, r"bound to TCP address (\S+)")


def _gunicorn_gevent() -> list[str]:
    require("gunicorn")
    require("gevent")
    command = [sys.executable, "-m", "gunicorn", "--preload", "--workers", str(WORKERS), "--worker-class", "gevent"]
    return [*command, "--bind", "127.0.0.1:0", "served:app"]


def _node() -> list[str]:
    bundle = REPOSITORY / "clients" / "typescript" / "dist" / "node.js"
    if not bundle.exists():
        pytest.skip("the TypeScript client is not built: make typescript (it needs node and npm)")
    return [installed("node", "nodejs"), str(Path(__file__).with_name("served.mjs")), str(bundle), str(WORKERS)]


HOSTS = {
    "uwsgi": uwsgi(),
    "gunicorn-gevent": Host(_gunicorn_gevent, r"Listening at: http://(\S+)"),
    "node": Host(_node, r"listening on (\S+)"),
}


def set_clock(place: Path, now: datetime) -> None:
    """Set the clock of a server; a process that reads it meanwhile reads the one time or the other."""
    following = place / "clock.new"
    following.write_text(now.isoformat())
    following.replace(place / "clock")


class Running:
    """A server that was started in a directory, in a process group of its own.

    address : host and port
    """

    def __init__(self, host: Host, place: Path, url: str) -> None:
        definitions = [metric.to_dict() for metric in parse_definitions(DEFINITIONS).values()]
        (place / "definitions.json").write_text(json.dumps(definitions))
        (place / "metrics.toml").write_text(DEFINITIONS)
        (place / "served.py").write_text(APP)
        environment = {**os.environ, "AGGREGATOR": url, "HUBBUB_CONSENT": "on"}
        environment.pop("DO_NOT_TRACK", None)
        # a log of its own: workers whose master was killed still write to theirs
        self._log = place / f"log{len(list(place.glob('log*')))}"
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                host.command(), cwd=place, env=environment, stdout=output, stderr=output, start_new_session=True
            )
        try:
            self.address = self._find(host.address)
        except BaseException:
            self.kill()
            raise

    def _find(self, address: str) -> str:
        deadline = time.monotonic() + 60
        while not (found := re.search(address, self._log.read_text())):
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.05)
        return found.group(1)

    @property
    def workers(self) -> list[int]:
        """Process ids of the workers that run now."""
        pid = self.process.pid
        with suppress(FileNotFoundError):
            return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return []

    def terminate(self) -> None:
        """End the server in its own way."""
        self.process.terminate()
        try:
            self.process.wait(20)
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill all processes of the server at once, also workers whose master is dead."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def require_no_errors(self) -> None:
        """The log has no error of the app or of the client."""
        log = self._log.read_text()
        assert "Traceback" not in log, log
        assert "internal error" not in log, log


@contextmanager
def serving(host: Host, place: Path, url: str) -> Iterator[str]:
    """Run a server; yield its address."""
    server = Running(host, place, url)
    try:
        yield server.address
    finally:
        server.terminate()
    server.require_no_errors()
