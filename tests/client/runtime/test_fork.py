"""Processes that fork, spawn and are killed: a real aggregator counts every report exactly once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from hubbub import Client
from hubbub.client import collaborators
from hubbub.testing import deliver
from tests.client.conftest import Rig
from tests.support.http_server import METRICS, served


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("aggregator")) as url:
        yield url


def counted(url: str) -> int:
    """Return how many reports of `homepage` the aggregator has."""
    from hubbub_decoder.data.pull import pull_summary

    return pull_summary(url, "homepage").num_reports


CHILDREN = {
    "fork": """
for child in range(4):
    if os.fork() == 0:
        record(child)
        os._exit(0)
for child in range(4):
    os.wait()
""",
    "fork in the middle of recording": """
import threading
busy = True
def keep_recording():
    while busy:
        client.record("homepage", "parent")
thread = threading.Thread(target=keep_recording); thread.start()
for child in range(4):
    if os.fork() == 0:
        record(child)
        os._exit(0)
for child in range(4):
    assert os.wait()[1] == 0
busy = False
thread.join()
""",
    "forkserver": "run('forkserver')",
    "spawn": "run('spawn')",
    "preloaded": """
collaborators(client).uploader.stop()
for child in range(4):
    if os.fork() == 0:
        record(child)
        client.flush(5)
        os._exit(0)
for child in range(4):
    os.wait()
""",
}

PROGRAM = """
import multiprocessing, os, sys
from hubbub import Client
from hubbub.client import collaborators
metrics, state, url = sys.argv[1:4]
client = None

def record(child):
    here = client or Client(metrics, state, url)
    for n in range(50):
        here.record("homepage", f"https://example.org/{child}")

def run(method):
    context = multiprocessing.get_context(method)
    children = [context.Process(target=record, args=(child,)) for child in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0

if __name__ == "__main__":
    client = Client(metrics, state, url)
    client.set_consent("on")
    client.record("homepage", "parent")
{body}
    os._exit(0)
"""


@pytest.mark.parametrize(
    "way", ["fork", *(pytest.param(way, marks=pytest.mark.slow) for way in list(CHILDREN)[1:])], ids=list(CHILDREN)
)
def test_child_processes_report_exactly_once(way: str, url: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    body = "\n".join("    " + line for line in CHILDREN[way].splitlines())
    program.write_text(PROGRAM.replace("{body}", body))
    before = counted(url)
    command = [sys.executable, str(program), str(METRICS), str(tmp_path / "state"), url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    with Client(METRICS, tmp_path / "state", url) as client:
        recorded = client.accounting().recorded
        assert recorded >= 201 if "middle" in way else recorded == 201
        assert deliver(client) == 3
        counts = client.accounting()
        assert (counts.formed, counts.acknowledged, counts.damaged_records) == (3, 3, 0)
    assert counted(url) == before + 1


PRELOADED = """
import os
from hubbub import Client
client = Client(os.environ["METRICS"], os.environ["STATE"], os.environ["AGGREGATOR"])
client.set_consent("on")
client.record("homepage", "parent")

def app(environ, start_response):
    client.record("homepage", environ["PATH_INFO"])
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getpid()).encode()]
"""


def test_preloaded_gunicorn_workers_share_one_client(url: str, tmp_path: Path) -> None:
    """One client made before the fork; both workers record until each has served; every report counted once."""
    pytest.importorskip("gunicorn", reason="gunicorn does not run here")
    (tmp_path / "preloaded.py").write_text(PRELOADED)
    before = counted(url)
    environment = {**os.environ, "METRICS": str(METRICS), "STATE": str(tmp_path / "state"), "AGGREGATOR": url}
    environment.pop("DO_NOT_TRACK", None)
    command = [sys.executable, "-m", "gunicorn", "--preload", "--workers", "2", "--bind", "127.0.0.1:0"]
    log = tmp_path / "log"
    with (
        log.open("wb") as errors,
        subprocess.Popen([*command, "preloaded:app"], cwd=tmp_path, env=environment, stderr=errors) as serving,
    ):
        while not (found := re.search(r"Listening at: (http://\S+)", log.read_text())):
            assert serving.poll() is None, log.read_text()
        answers: Counter[bytes] = Counter()
        with urllib3.PoolManager(retries=urllib3.Retry(total=20, backoff_factor=0.05)) as http:
            while len(answers) < 2 or answers.total() < 40:
                answers[http.request("GET", f"{found.group(1)}/{answers.total()}").data] += 1
                assert answers.total() < 5000, "one worker does everything"
        serving.terminate()
        assert serving.wait(30) == 0, log.read_text()
    with Client(METRICS, tmp_path / "state", url) as client:
        assert client.accounting().recorded == 1 + answers.total()
        assert deliver(client) == 3
        counts = client.accounting()
        assert (counts.formed, counts.acknowledged, counts.damaged_records) == (3, 3, 0)
    assert counted(url) == before + 1


TOGETHER = """
import os, sys, threading
from hubbub import Client
clients = [Client(sys.argv[1], f"{sys.argv[2]}/{n}", "http://127.0.0.1:1") for n in range(3)]
for client in clients:
    client.set_consent("local")

def fork():
    for _ in range(40):
        child = os.fork()
        if child == 0:
            for client in clients:
                client.record("homepage", "child")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0

threads = [threading.Thread(target=fork) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
recorder = threading.Thread(target=clients[0].record, args=("homepage", "parent"))
recorder.start()
recorder.join()
assert all(client.accounting().recorded >= 120 for client in clients)
os._exit(0)
"""


def test_concurrent_forks_release_all_locks(tmp_path: Path) -> None:
    """The second fork overwrote the first one's list of locks, and the journal stayed locked in it and in its children."""
    subprocess.run([sys.executable, "-c", TOGETHER, METRICS, tmp_path], check=True, timeout=60)


def test_forked_child_closes_upload_lease(rig: Rig) -> None:
    """After its parent was killed during a request, no process of the directory could send while the child lived."""
    client = rig.agreed()
    sender = collaborators(client).sender
    collaborators(client).uploader.start().stop(5)
    assert sender._take_lease()
    descriptor = sender._lease._descriptor  # type: ignore[union-attr]
    child = os.fork()
    if child == 0:
        try:
            os.fstat(descriptor)
        except OSError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    sender._release_lease()


NOISE = """
import os, sys
from datetime import date
from hubbub import Client
from hubbub.client import collaborators
from hubbub.testing import ManualClock, Seams
clock = ManualClock(date(2026, 11, 21))
client = Client(sys.argv[1], sys.argv[2], "http://127.0.0.1:1", seams=Seams(clock=clock))
client.set_consent("local")
client.record("homepage", "x")
encoder = next(iter(collaborators(client).encoders._encoders.values())).encoder
pid = os.fork()
drawn = [int.from_bytes(encoder.encode("x").to_bytes(), "little") for _ in range(800)]
open(sys.argv[2] + ("/parent" if pid else "/child"), "w").write(" ".join(map(str, drawn)))
if pid == 0:
    os._exit(0)
os.waitpid(pid, 0)
os._exit(0)
"""


def test_parent_and_child_have_independent_noise(tmp_path: Path) -> None:
    """Given the permanent bits, which they share, their instantaneous noise agrees as often as independent coins: 4 sigma over 10^5 bits."""
    subprocess.run([sys.executable, "-c", NOISE, METRICS, tmp_path / "state"], check=True, timeout=60)
    rows = [list(map(int, (tmp_path / "state" / who).read_text().split())) for who in ("parent", "child")]
    k = 128
    parent, child = ([[row >> bit & 1 for bit in range(k)] for row in drawn] for drawn in rows)
    assert parent != child
    covariance, variance = 0.0, 0.0
    for bit in range(k):
        ours, theirs = [row[bit] for row in parent], [row[bit] for row in child]
        mean, their_mean = sum(ours) / 800, sum(theirs) / 800
        covariance += sum((a - mean) * (b - their_mean) for a, b in zip(ours, theirs, strict=True))
        variance += 800 * mean * (1 - mean) * their_mean * (1 - their_mean)
    assert abs(covariance) < 4.9 * variance**0.5  # alpha = 1e-6
