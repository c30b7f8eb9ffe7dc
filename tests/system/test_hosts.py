"""Servers that fork in C or replace Python's threads: every recording is counted, every report is charged, and workers send."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import urllib3

from hubbub.sdk.storage.state_reader import read_state
from tests.support.http_server import METRICS
from tests.support.recording_server import RecordingServer, recording_server

APP = """
import os
from datetime import datetime
from pathlib import Path
from hubbub import Client
from hubbub.testing import UNLIMITED, Seams

def clock():
    return datetime.fromisoformat(Path("clock").read_text())

client = Client(os.environ["METRICS"], "state", os.environ["AGGREGATOR"], seams=Seams(clock=clock), per_subject=True, policy=UNLIMITED)
client.set_consent("on")

def app(environ, start_response):
    call, _, subject = environ["PATH_INFO"].lstrip("/").partition("/")
    if call == "record":
        client.subject(subject).record("homepage", "https://example.org/")
    else:
        client.flush(1)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getpid()).encode()]
"""
WORKERS, SUBJECTS, DAYS = 3, 20, 3
UWSGI = {
    "default": (),
    "enable-threads": ("--enable-threads",),
    "lazy-apps": ("--lazy-apps",),
    "py-call-osafterfork": ("--py-call-osafterfork",),
    "py-call-uwsgi-fork-hooks": ("--py-call-uwsgi-fork-hooks",),
}


def require(package: str, program: str | None = None) -> None:
    """Skip the test if a package is missing, or fail if $HUBBUB_TEST_REQUIRE contains its name."""
    path = Path(sys.executable).with_name(program or package)
    if importlib.util.find_spec(package) is None and not path.exists():
        reason = f"{package} is not installed: pip install '.[dev]' in a checkout of hubbub"
        if package in os.environ.get("HUBBUB_TEST_REQUIRE", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)


@contextmanager
def serving(command: list[str], pattern: str, place: Path, url: str) -> Iterator[str]:
    """Run a server of `APP`; yield its URL."""
    (place / "served.py").write_text(APP)
    (place / "clock").write_text("2026-11-21T12:00:00+00:00")
    environment = {**os.environ, "METRICS": str(METRICS), "AGGREGATOR": url, "HUBBUB_CONSENT": "on"}
    environment.pop("DO_NOT_TRACK", None)
    log = place / "log"
    with (
        log.open("wb") as output,
        subprocess.Popen(command, cwd=place, env=environment, stdout=output, stderr=output) as server,
    ):
        try:
            deadline = time.monotonic() + 60
            while not (found := re.search(pattern, log.read_text())):
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            yield found.group(1)
        finally:
            server.terminate()
            try:
                server.wait(20)
            finally:
                server.kill()
    assert "Traceback" not in log.read_text(), log.read_text()
    assert "internal error" not in log.read_text(), log.read_text()


def require_counted_and_charged(address: str, state: Path, aggregator: RecordingServer) -> None:
    """Record for subjects on several days in all workers, let them send, and compare journal, ledger and what arrived."""
    made = 0
    with urllib3.PoolManager(maxsize=1, retries=urllib3.Retry(total=20, backoff_factor=0.05)) as http:

        def call(path: str) -> bytes:
            return http.request("GET", f"http://{address}/{path}", headers={"Connection": "close"}, timeout=30).data

        for day in range(DAYS):
            (state.parent / "clock").write_text(f"2026-11-{21 + day}T12:00:00+00:00")
            workers: Counter[bytes] = Counter()
            while len(workers) < WORKERS or workers.total() < 5 * SUBJECTS:
                workers[call(f"record/user{workers.total() % SUBJECTS}")] += 1
                assert workers.total() < 3000, f"{len(workers)} of {WORKERS} workers answer"
            made += workers.total()
        (state.parent / "clock").write_text("2026-11-26T12:00:00+00:00")
        deadline = time.monotonic() + 60
        while sum(map(len, aggregator.batches)) < SUBJECTS * DAYS and time.monotonic() < deadline:
            call("flush")
    found = read_state(state)
    counts = found.accounting()
    assert (counts.recorded, sum(counts.ignored.values()), counts.damaged_records) == (made, 0, 0)
    arrived = sum(map(len, aggregator.batches))
    assert SUBJECTS * DAYS <= arrived <= counts.formed == sum(account.reports for account in found.accounts.values())


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(UWSGI))
def test_every_report_of_uwsgi_workers_is_charged(mode: str, tmp_path: Path) -> None:
    require("pyuwsgi", "uwsgi")
    command = [str(Path(sys.executable).with_name("uwsgi")), "--http-socket", "127.0.0.1:0", "--module", "served:app"]
    command += ["--master", "--processes", str(WORKERS), "--die-on-term", "--need-app", *UWSGI[mode]]
    with (
        recording_server() as aggregator,
        serving(command, r"bound to TCP address (\S+)", tmp_path, aggregator.url) as address,
    ):
        require_counted_and_charged(address, tmp_path / "state", aggregator)


@pytest.mark.slow
def test_every_report_of_preloaded_gevent_workers_is_charged(tmp_path: Path) -> None:
    """gunicorn loads the app in the master, forks, and lets the worker replace Python's threads."""
    require("gunicorn")
    require("gevent")
    command = [sys.executable, "-m", "gunicorn", "--preload", "--workers", str(WORKERS), "--worker-class", "gevent"]
    command += ["--bind", "127.0.0.1:0", "served:app"]
    with (
        recording_server() as aggregator,
        serving(command, r"Listening at: http://(\S+)", tmp_path, aggregator.url) as address,
    ):
        require_counted_and_charged(address, tmp_path / "state", aggregator)


PATCH = {
    "gevent": "import gevent.monkey; gevent.monkey.patch_all(); from gevent import sleep, spawn",
    "eventlet": "import eventlet; eventlet.monkey_patch(); from eventlet import sleep, spawn",
}
PATCHED = """
import os, sys, time, warnings
warnings.simplefilter("ignore")  # that threads are replaced late, and that eventlet is deprecated
from datetime import date
from hubbub import Client
from hubbub.testing import ManualClock, Seams
clock = ManualClock(date(2026, 11, 21))
client = Client(*sys.argv[1:4], seams=Seams(clock=clock), durability=sys.argv[4])
if sys.argv[5] == "used":  # its upload thread runs
    client.set_consent("on")
    client.record("homepage", "before")
{patch}
ticks = 0
def tick():
    global ticks
    while True:
        sleep(0.05)
        ticks += 1
spawn(tick)
client.set_consent("on")
for n in range(20):
    client.record("homepage", "after")
    sleep(0.05)
clock.move(days=2)
deadline = time.monotonic() + 30
while client.accounting().acknowledged == 0 and time.monotonic() < deadline:
    client.flush(1)
counts = client.accounting()
print(counts.recorded, counts.acknowledged)
started, before = time.monotonic(), ticks
client.set_consent("off")
client.set_consent("on")
sleep(0.5)
assert ticks > before + 2
client.close()
print(min(ticks, 15), flush=True)
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["process", "memory"])
@pytest.mark.parametrize("client", ["unused", "used"])
@pytest.mark.parametrize("library", list(PATCH))
def test_client_made_before_threads_are_replaced(library: str, client: str, durability: str, tmp_path: Path) -> None:
    """The client records, sends and erases, and other greenlets run meanwhile."""
    require(library)
    with recording_server() as aggregator:
        program = PATCHED.replace("{patch}", PATCH[library])
        command = [sys.executable, "-c", program, str(METRICS), str(tmp_path / "state")]
        command += [aggregator.url, durability, client]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        recorded, acknowledged, ticks = map(int, done.stdout.split())
        assert (recorded, ticks, acknowledged >= 1) == (20 + (client == "used"), 15, True)
        assert "internal error" not in done.stderr
