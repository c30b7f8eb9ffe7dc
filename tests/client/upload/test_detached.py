"""Detached uploads: a program that ends at once, and the process that sends its due batches."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from hubbub import Client, Consent, ParameterError
from hubbub.client import collaborators
from hubbub.sdk.storage.events import Reschedule
from hubbub.sdk.storage.state_reader import read_state
from hubbub.sdk.upload.detached import child_environment, is_python
from hubbub.testing import ManualClock, Seams
from hubbub.wire.batch import Batch
from tests.client.runtime.test_fork import counted
from tests.client.upload.test_request_length import Capture
from tests.client.upload.test_transport import server, silent
from tests.support.http_server import METRICS, served

PROGRAM = """
import sys
from hubbub import Client
client = Client(sys.argv[1], sys.argv[2], sys.argv[3], detached=True)
client.record("homepage", "x")
"""
STAYS = (
    PROGRAM
    + """
import os, time
from pathlib import Path
children = lambda: [stat for stat in Path("/proc").glob("[0-9]*/stat")
                    if stat.exists() and stat.read_text().rpartition(")")[2].split()[1] == str(os.getpid())]
assert len(children()) == 1
deadline = time.monotonic() + 30
while children() and time.monotonic() < deadline:
    time.sleep(0.05)
assert not children()
"""
)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with served(tmp_path) as url:
        yield url


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A directory with a report of yesterday, due now; on a Monday also that of last week, from the weekly metric."""
    clock = ManualClock((datetime.now(UTC) - timedelta(days=1)).date())
    with Client(
        METRICS,
        tmp_path / "state",
        "http://127.0.0.1:1",
        seams=Seams(clock=clock),
        environment={"HUBBUB_CONSENT": "local"},
    ) as client:
        client.set_consent("on")
        client.record("homepage", "x")
        clock.now = datetime.now(UTC)
        with collaborators(client).journal as client_state:
            collaborators(client).builder.build_due(client_state)
            collaborators(client).journal.write(Reschedule(dict.fromkeys(client_state.queue, 0.0), overdue=False))
    return tmp_path / "state"


def run(program: str, state: Path, url: str, **options: object) -> float:
    """Run a program; return the seconds until its output was closed."""
    began = time.monotonic()
    environment = {name: value for name, value in os.environ.items() if name != "DO_NOT_TRACK"}
    done = subprocess.run(
        [sys.executable, "-c", program, str(METRICS), str(state), url],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return time.monotonic() - began


def wait_until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_detached_process_delivers_reports_once(url: str, state: Path) -> None:
    formed = read_state(state).formed
    run(PROGRAM, state, url)
    wait_until(lambda: read_state(state).acknowledged == formed)
    assert counted(url) == 1
    client_state = read_state(state)
    assert (client_state.formed, client_state.queued_reports) == (formed, 0)


def test_detached_process_runs_once_a_day_and_alone(state: Path) -> None:
    with server(silent) as url:
        run(PROGRAM, state, url)
        first = read_state(state).detached_started_at
        assert abs(first - time.time()) < 60
        run(PROGRAM, state, url)
        assert read_state(state).detached_started_at == first
        second = subprocess.run(
            [sys.executable, "-m", "hubbub.sdk.upload.detached", str(state), url],
            check=True,
            timeout=20,
            capture_output=True,
        )
        assert second.returncode == 0  # the first one holds the lock: it does not wait for the silent server
        with Client(METRICS, state, url) as client:
            client.set_consent("off")


def test_consent_withdrawal_ends_detached_process(state: Path) -> None:
    """The server never answers: the program's output is closed long before the sender's ten seconds are over."""
    ended: list[bool] = []
    formed = read_state(state).formed

    def watching(connection: object) -> None:
        with suppress(ConnectionResetError):
            silent(connection)  # type: ignore[arg-type]
        ended.append(True)

    with server(watching) as url:
        assert run(PROGRAM, state, url) < 5
        wait_until(lambda: any(waiting.possibly_delivered for waiting in read_state(state).queue.values()))
        began = time.monotonic()
        with Client(METRICS, state, url) as client:
            client.set_consent("off")
        wait_until(lambda: bool(ended))
        assert time.monotonic() - began < 5
    assert read_state(state).dropped["consent"] == formed


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_detached_process_leaves_no_zombie(url: str, state: Path) -> None:
    run(STAYS, state, url)


@pytest.mark.parametrize("consent", ["off", "local"])
def test_no_detached_process_without_consent(consent: str, state: Path) -> None:
    with Client(METRICS, state, "http://127.0.0.1:1") as client:
        client.set_consent(Consent(consent))
    run(PROGRAM, state, "http://127.0.0.1:1")
    assert read_state(state).detached_started_at == 0


def test_detached_process_inherits_only_needed_variables() -> None:
    parent = {"http_proxy": "a", "NO_PROXY": "b", "SSL_CERT_FILE": "c", "HUBBUB_CONSENT": "on", "AWS_SECRET": "d"}
    kept = child_environment(parent, ["", "/app"])
    assert kept == {
        **{name: parent[name] for name in ("http_proxy", "NO_PROXY", "SSL_CERT_FILE", "HUBBUB_CONSENT")},
        "PYTHONPATH": "/app",
    }


def test_rejects_detached_with_memory_transport_or_disk(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="it cannot be combined with"):
        Client(METRICS, tmp_path, "http://127.0.0.1:1", durability="memory", detached=True)


FROZEN = """
import sys, time
from datetime import date
from hubbub import Client
from hubbub.testing import ManualClock, Seams

sys.frozen, sys.executable = {frozen}, {stand_in!r}
client = Client(sys.argv[1], sys.argv[2], sys.argv[3], detached=True, seams=Seams(clock=ManualClock(date.fromisoformat({day!r}))))
client.set_consent("on")
client.record("homepage", "x")
time.sleep(1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("frozen", [True, False])
def test_frozen_program_sends_due_batches_itself(frozen: bool, tmp_path: Path) -> None:
    """One start of a second a day, nine days: every report of a day that is over arrives, and nothing else is started.

    A frozen program's executable is the program and not Python, so it would start itself. `sys.frozen` is set by PyInstaller and
    others; an embedded interpreter does not set it.
    """
    stand_in, started = tmp_path / "my-app", tmp_path / "started"
    stand_in.write_text(f"#!/bin/sh\ntouch {started}\n")
    stand_in.chmod(0o700)
    capture, days = Capture(), [date(2026, 11, day) for day in range(1, 10)]
    with server(capture) as url:
        for day in days:
            run(FROZEN.format(frozen=frozen, stand_in=str(stand_in), day=str(day)), tmp_path / "state", url)
    sent = [Batch.from_json(request.partition(b"\r\n\r\n")[2]) for request in capture.requests]
    periods = sorted(batch.period for batch in sent if batch.metric == "homepage")
    # chance decides when yesterday's is due
    assert periods in ([str(day) for day in days[:-2]], [str(day) for day in days[:-1]])
    assert not started.exists()


@pytest.mark.parametrize(
    ("executable", "frozen", "expected"),
    [
        ("/usr/bin/python3.11", False, True),
        ("C:\\Python\\pythonw.exe", False, True),
        ("/opt/pypy3", False, True),
        ("/usr/bin/python3", True, False),
        ("/usr/bin/uwsgi", False, False),
        ("/opt/my-app", True, False),
        ("", False, False),
        (None, False, False),
    ],
)
def test_only_python_interpreters_are_started(executable: str | None, frozen: bool, expected: bool) -> None:
    assert is_python(executable, frozen=frozen) is expected
