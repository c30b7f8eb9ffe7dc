"""Forks that call none of Python's hooks, as a server written in C makes them: a child has locks, threads and files of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hubbub.sdk.storage.state_reader import read_state
from tests.support.http_server import METRICS
from tests.support.recording_server import recording_server

FORKS = {"os.fork": "os.fork"}
if sys.version_info < (3, 13):
    # Later ones keep threads that wait for a queue in tables of the process, which only the hooks of a fork clear. After a fork in C, a program
    # without hubbub whose threads wait so does not end, or crashes, and PyOS_AfterFork_Child aborts without PyOS_BeforeFork.
    FORKS |= {
        "libc": "ctypes.PyDLL(None).fork",  # PyDLL: the forking thread holds the interpreter's lock, so the child has it, too
        "libc, then PyOS_AfterFork_Child": "lambda: fork_and_call_the_hook_of_the_child()",
    }

EACH_LOCK = '''
import ctypes, gc, os, queue, signal, sys, threading, types
from hubbub import Client
from hubbub.client import collaborators
from hubbub.sdk.storage.filesystem import _opened, _PrivateFile

LOCKS = type(threading.Lock()), type(threading.RLock())
OWN = (*LOCKS, threading.Thread, threading.local, queue.SimpleQueue, _PrivateFile)
CACHES = dict, list, set, bytearray

def fork_and_call_the_hook_of_the_child():
    child = ctypes.PyDLL(None).fork()
    if child == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    return child

def reachable(*roots):
    """What belongs to the roots: their attributes, items, closures and bound objects, by path. Modules, classes and definitions are shared."""
    found, waiting = {}, [("", root) for root in roots]
    while waiting:
        path, thing = waiting.pop()
        if id(thing) in found or isinstance(thing, (type, types.ModuleType, str, bytes, int, float)):
            continue
        found[id(thing)] = path, thing
        if isinstance(thing, dict):
            inner = [(f"[{key!r}]", value) for key, value in thing.items()]
        elif isinstance(thing, (list, tuple, set, frozenset)):
            inner = [("[]", value) for value in thing]
        elif isinstance(thing, types.MethodType):
            inner = [("", thing.__self__)]
        elif isinstance(thing, types.FunctionType):
            inner = [(f".{cell.cell_contents!r:.20}", cell.cell_contents) for cell in thing.__closure__ or ()]
        elif isinstance(thing, threading.Thread):
            inner = []  # its locks are the interpreter's
        elif type(thing).__module__.startswith(("hubbub", "queue", "concurrent")):
            names = [*getattr(thing, "__dict__", ()), *(name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ()))]
            inner = [(f".{name}", getattr(thing, name)) for name in names if hasattr(thing, name)]
        else:
            inner = []
        waiting += [(path + step, value) for step, value in inner]
    return found

def modules():
    return [vars(module) for name, module in list(sys.modules.items()) if name.partition(".")[0] == "hubbub"]

client = Client(sys.argv[1], sys.argv[2], "http://127.0.0.1:1")
client.set_consent("local")
client.record("homepage", "parent")
assert client.flush(20)
parts = collaborators(client)
assert parts.sender._take_lease()
parts.sender._release_lease()
inherited = reachable(client, *modules())
locks = {path: thing for path, thing in inherited.values() if isinstance(thing, LOCKS)}
assert {".thread_lock", "._sync_lock", "._sending", "._starting", "._thread_lock"} <= {"." + path.rpartition(".")[2] for path in locks}, locks
def child(path):
    signal.alarm(20)  # a lock that never opens
    client.record("homepage", "child")
    assert not any(reference().is_inherited for reference in list(_opened.values()))
    assert client.accounting().recorded >= 2
    assert client.flush(20)
    client.inspect(), client.ledger(), client.consent
    assert client.set_consent("local", "text")
    assert collaborators(client).uploader.start().is_alive
    import asyncio
    asyncio.run(client.arecord("homepage", "child"))
    mine = reachable(client)
    shared = [path for key, (path, thing) in inherited.items() if key in mine and isinstance(thing, OWN)]
    assert not shared, shared
    client.close()
    os._exit(0)

failed = []
for path, lock in [("no lock", None), *locks.items()]:
    held, free = threading.Event(), threading.Event()
    def hold():
        if lock is not None:
            assert lock.acquire(timeout=5), path
        held.set()
        free.wait()
        if lock is not None:
            lock.release()
    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    pid = FORK()
    if pid == 0:
        try:
            child(path)
        except BaseException:
            import traceback
            traceback.print_exc()
        os._exit(1)
    status = os.waitpid(pid, 0)[1]
    if status:
        failed.append((path, status))
    free.set()
    holder.join()
print(len(locks), "locks", flush=True)
print(failed, file=sys.stderr, flush=True)
assert client.accounting().recorded == 1 + 2 * (1 + len(locks)), client.accounting()
os._exit(bool(failed))
'''


@pytest.mark.parametrize("fork", list(FORKS))
def test_child_uses_no_lock_thread_or_file_of_its_parent(fork: str, tmp_path: Path) -> None:
    """Each lock that a client can reach is held by another thread at one fork. The child calls everything, and its objects are its own."""
    program = EACH_LOCK.replace("FORK()", f"({FORKS[fork]})()")
    command = [sys.executable, "-c", program, str(METRICS), str(tmp_path / "state")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) >= 6, done.stdout


LEDGER = """
import ctypes, os, sys, time
from datetime import date
from hubbub import Client
from hubbub.testing import UNLIMITED, ManualClock, Seams
fork = FORK
clock = ManualClock(date(2026, 11, 21))
client = Client(sys.argv[1], sys.argv[2], sys.argv[3], seams=Seams(clock=clock), per_subject=True, policy=UNLIMITED)
client.set_consent("on")

def work(worker):
    for day in range(3):
        for n in range(50):
            client.subject(f"user{n % 20}").record("homepage", f"{worker}")
        with open(sys.argv[2] + "/turns", "ab") as turns:
            turns.write(b".")
        deadline = time.monotonic() + 60
        while os.stat(sys.argv[2] + "/turns").st_size < 4 * (day + 1):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        clock.move(days=1)
    deadline = time.monotonic() + 60
    while not client.flush(5):  # another worker sends
        assert time.monotonic() < deadline
    os._exit(0)

assert client.flush(20)
time.sleep(0.2)  # a thread that waits for the interpreter's lock at a fork in C blocks the child, whatever the client does
open(sys.argv[2] + "/turns", "xb").close()
children = []
for worker in range(4):
    pid = fork()
    if pid == 0:
        try:
            work(worker)
        finally:
            os._exit(1)
    children.append(pid)
assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
os._exit(0)
"""


@pytest.mark.parametrize("fork", [name for name in FORKS if "then" not in name])
def test_every_report_of_forked_workers_is_charged(fork: str, tmp_path: Path) -> None:
    """Four workers, 20 subjects, two changes of period."""
    state = tmp_path / "state"
    with recording_server() as server:
        program = LEDGER.replace("FORK", FORKS[fork])
        command = [sys.executable, "-c", program, str(METRICS), str(state), server.url]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
        assert done.returncode == 0, done.stderr
        found = read_state(state)
        counts = found.accounting()
        assert (counts.recorded, sum(counts.ignored.values()), counts.damaged_records) == (600, 0, 0)
        sent = sum(map(len, server.batches))
        assert 0 < sent <= counts.formed == sum(account.reports for account in found.accounts.values())
        assert counts.acknowledged == sent
