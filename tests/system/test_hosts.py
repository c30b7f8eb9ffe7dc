"""Servers that fork in C or replace Python's threads: every recording is counted, every report is charged, and workers send."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import urllib3

from hubbub.sdk.storage.state_reader import read_state
from tests.support.hosts import HOSTS, WORKERS, Host, require, serving, set_clock, uwsgi
from tests.support.http_server import METRICS
from tests.support.recording_server import recording_server

FIRST = datetime(2026, 11, 21, 12, tzinfo=UTC)
SUBJECTS, DAYS = 20, 3
UWSGI = {
    "default": (),
    "enable-threads": ("--enable-threads",),
    "lazy-apps": ("--lazy-apps",),
    "py-call-osafterfork": ("--py-call-osafterfork",),
    "py-call-uwsgi-fork-hooks": ("--py-call-uwsgi-fork-hooks",),
}


def require_counted_and_charged(host: Host, place: Path) -> None:
    """Record for subjects on several days in all workers, let them send, and compare journal, ledger and what arrived."""
    made = 0
    set_clock(place, FIRST)
    with (
        urllib3.PoolManager(maxsize=1, retries=urllib3.Retry(total=20, backoff_factor=0.05)) as http,
        recording_server() as aggregator,
        serving(host, place, aggregator.url) as address,
    ):

        def call(path: str) -> bytes:
            return http.request("GET", f"http://{address}/{path}", headers={"Connection": "close"}, timeout=30).data

        for day in range(DAYS):
            set_clock(place, FIRST + timedelta(days=day))
            workers: Counter[bytes] = Counter()
            while len(workers) < WORKERS or workers.total() < 5 * SUBJECTS:
                workers[call(f"record/user{workers.total() % SUBJECTS}")] += 1
                assert workers.total() < 3000, f"{len(workers)} of {WORKERS} workers answer"
            made += workers.total()
        set_clock(place, FIRST + timedelta(days=DAYS + 2))
        deadline = time.monotonic() + 60
        while sum(map(len, aggregator.batches)) < SUBJECTS * DAYS and time.monotonic() < deadline:
            call("flush")
    found = read_state(place / "state")
    counts = found.accounting()
    assert (counts.recorded, sum(counts.ignored.values()), counts.damaged_records) == (made, 0, 0)
    arrived = sum(map(len, aggregator.batches))
    assert SUBJECTS * DAYS <= arrived <= counts.formed == sum(account.reports for account in found.accounts.values())


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(UWSGI))
def test_every_report_of_uwsgi_workers_is_charged(mode: str, tmp_path: Path) -> None:
    if mode == "py-call-osafterfork" and sys.version_info >= (3, 13):
        pytest.skip("uwsgi 2.0.30 ends each worker: docs/how-to/embedding.md, uwsgi")
    require_counted_and_charged(uwsgi(*UWSGI[mode]), tmp_path)


@pytest.mark.slow
def test_every_report_of_preloaded_gevent_workers_is_charged(tmp_path: Path) -> None:
    """gunicorn loads the app in the master, forks, and lets the worker replace Python's threads."""
    require_counted_and_charged(HOSTS["gunicorn-gevent"], tmp_path)


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
