"""Processes that fork, spawn and are killed: a real aggregator counts every report exactly once."""

from __future__ import annotations

import ctypes
import errno
import inspect
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import urllib3

from hubbub import Client
from hubbub.client import collaborators
from hubbub.sdk.runtime.process import this_process
from hubbub.sdk.storage.filesystem import SystemFile, SystemLock
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
        client.close()
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
        client.close()
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
                client.close()
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


def test_child_closes_each_inherited_file_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread of the child was about to close what is inherited when the app and the client opened files with the same descriptors."""
    client = rig.agreed()
    client.record("homepage", "parent")
    assert client.flush(5)
    # a thread that waits for the interpreter's lock at a fork in C blocks the child
    collaborators(client).uploader.stop(5)
    assert client.accounting().recorded == 1  # it opens the files again
    getpid, halted, go = os.getpid, threading.Event(), threading.Event()

    def slow() -> int:
        if threading.current_thread().name == "late" and is_closing_inherited() and not halted.is_set():
            halted.set()
            assert go.wait(20)
        return getpid()

    def is_closing_inherited() -> bool:
        frame = inspect.currentframe()
        while frame is not None and frame.f_code.co_name != "close_inherited":
            frame = frame.f_back
        return frame is not None

    child = fork_in_c()
    if child == 0:
        signal.alarm(30)
        status = 1
        with suppress(BaseException):
            monkeypatch.setattr(os, "getpid", slow)
            late = threading.Thread(target=client.record, args=("homepage", "late"), name="late")
            late.start()
            assert halted.wait(20)
            client.record("homepage", "first")
            parts = collaborators(client)
            with parts.journal.thread_lock:
                files = parts.journal._lock, parts.journal._file
            go.set()
            late.join(20)
            for file in files:
                os.fstat(file.descriptor)  # type: ignore[union-attr]
            assert not parts.journal.problem
            assert client.accounting().recorded == 3
            status = 0
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def test_child_with_the_id_of_its_parent_has_its_own_files(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are process 1, each of its own PID namespace."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    client = rig.agreed()
    client.record("homepage", "parent")
    parts = collaborators(client)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        status = 1
        with suppress(BaseException):
            assert parts.journal.is_inherited
            assert collaborators(client) is not parts
            client.record("homepage", "child")
            assert client.flush(5)
            status = 0
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert client.accounting().recorded == 2


def fork_in_c() -> int:
    return ctypes.PyDLL(None).fork()  # type: ignore[no-any-return]


@pytest.mark.parametrize("fork", [os.fork, fork_in_c])
def test_child_cannot_use_an_inherited_file(fork: Callable[[], int], tmp_path: Path) -> None:
    """The app's files have the descriptors of the parent's journal and lock, and the app has locked them."""
    file, lock = SystemFile(tmp_path / "journal"), SystemLock(tmp_path / "lock")
    file.append(b"parent")
    uses = {
        "identity": file.identity,
        "read": lambda: file.read(0, 1),
        "append": lambda: file.append(b"child"),
        "sync": file.sync,
        "truncate": file.truncate,
        "acquire": lambda: lock.acquire(wait=False),
        "release": lock.release,
    }
    child = fork()
    if child == 0:
        signal.alarm(30)
        this_process()  # as the first call of a client notices a fork in C
        for number in range(4):
            os.open(tmp_path / f"app{number}", os.O_RDWR | os.O_CREAT)
        wrong = []
        for name, use in uses.items():
            try:
                use()
            except (OSError, ValueError) as problem:  # `fcntl` raises ValueError for -1
                if getattr(problem, "errno", None) == errno.EBADF:
                    continue
            wrong.append(name)
        (tmp_path / "wrong").write_text(" ".join(wrong))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (tmp_path / "wrong").read_text() == ""
    assert file.read(0, 100) == b"parent"


SIGNAL_CALLS = {
    "record": lambda client: client.record("homepage", "x"),
    "accounting": lambda client: client.accounting(),
    "consent": lambda client: client.consent,
    "set_consent": lambda client: client.set_consent("local", "text"),
    "flush": lambda client: client.flush(0.1),
    "close": lambda client: client.close(),
}


@pytest.mark.parametrize("step", ["_enter", "_leave", "acquire_lock", "sync"])
@pytest.mark.parametrize("call", list(SIGNAL_CALLS))
def test_call_that_a_fork_interrupts_ends_in_the_child_without_a_trace(call: str, step: str, rig: Rig) -> None:
    """A signal handler forks in the middle; the parent does and counts the call, the child raises and logs nothing and writes no file."""
    client = rig.agreed()
    client.record("homepage", "parent")
    assert client.flush(5)
    journal = collaborators(client).journal
    collaborators(client).uploader.stop(5)
    children: list[int] = []
    real = getattr(journal, step)

    def interrupted(*arguments: object) -> object:
        if not children and threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGUSR1)
        return real(*arguments)

    def handler(*_: object) -> None:
        children.append(os.fork())
        if children[0] == 0:
            signal.alarm(30)
            for number in range(6):
                os.open(rig.state / f"app{number}", os.O_RDWR | os.O_CREAT)  # with the descriptors that were closed
        else:
            assert os.waitpid(children[0], 0)[1] == 0

    before = signal.signal(signal.SIGUSR1, handler)
    setattr(journal, step, interrupted)
    status = 1
    try:
        logged: list[logging.LogRecord] = []
        listener = logging.Handler()
        listener.emit = logged.append  # type: ignore[assignment, method-assign]
        logging.getLogger("hubbub").addHandler(listener)
        SIGNAL_CALLS[call](client)
        logging.getLogger("hubbub").removeHandler(listener)
        messages = [record.getMessage() for record in logged]
        if call == "set_consent":  # the child's own did not reach the disk
            messages = [text for text in messages if "but not all of it was saved" not in text]
        status = 2 if messages or any(path.stat().st_size for path in rig.state.glob("app*")) else 0
    finally:
        signal.signal(signal.SIGUSR1, before)
        if children == [0]:
            os._exit(status)
    assert status == 0
    setattr(journal, step, real)
    assert client.accounting().recorded == 1 + (call == "record")


def replace_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace `threading.Lock`, as gevent does."""
    kind = threading.Lock
    monkeypatch.setattr(threading, "Lock", lambda: kind())


@pytest.mark.parametrize("started", [True, False])
def test_upload_thread_runs_on_after_threads_were_replaced(
    started: bool, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = rig.agreed()
    before = collaborators(client).uploader
    (before.start if started else before.stop)()
    replace_threads(monkeypatch)
    after = collaborators(client).uploader
    assert after is not before
    assert (before.is_started, after.is_started) == (False, started)


def test_forked_child_fixes_no_label_after_threads_were_replaced(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    client = rig.agreed()
    assert collaborators(client).builder.notes_runs
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        noted = [collaborators(client).builder.notes_runs]
        replace_threads(monkeypatch)
        noted.append(collaborators(client).builder.notes_runs)
        os._exit(any(noted))
    assert os.waitpid(child, 0)[1] == 0
    replace_threads(monkeypatch)
    assert collaborators(client).builder.notes_runs
