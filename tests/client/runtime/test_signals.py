"""Signals, logging and locks: after an interrupted call no lock is held and no caller waits forever."""

from __future__ import annotations

import _thread
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from hubbub import Client
from hubbub.client import collaborators
from hubbub.sdk.runtime import error_guard, safe_logging
from hubbub.sdk.storage import journal as journal_module
from hubbub.sdk.storage.filesystem import SystemDisk
from hubbub.sdk.storage.secret_file import secret_at
from hubbub.testing import deliver
from tests.client.conftest import Rig, require_balanced
from tests.support.paths import DATA
from tests.support.power_loss_filesystem import SimulatedDisk


class Interrupted(BaseException):
    """As KeyboardInterrupt."""


class Tripping:
    """`tripping[number]` is a signal that arrives: without a call in Python, so that its handler runs where the traced code next looks."""

    __getitem__ = staticmethod(_thread.interrupt_main)


@pytest.fixture
def handler() -> Iterator[Callable[[Callable[..., Any]], Any]]:
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda handle: signal.signal(signal.SIGUSR1, handle)
    signal.signal(signal.SIGUSR1, before)


def interrupted_at(number: int, step: Callable[[], object], within: str = "") -> bool:
    """Interrupt a step before its n-th instruction in a file of this name; return whether it has at least n."""
    left, tripping, usual = number, Tripping(), sys.gettrace()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(within):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                sys.settrace(None)  # the signal would interrupt it
                tripping[signal.SIGUSR1]
        return trace

    with suppress(Interrupted):
        sys.settrace(trace)
        try:
            step()
        finally:
            sys.settrace(usual)
    return left <= 0


def is_free(client: Client) -> bool:
    """Return whether another thread and another process can take the locks."""
    got: list[bool] = []

    def other() -> None:
        for lock in (
            collaborators(client).journal.thread_lock,
            collaborators(client).journal._sync_lock,
            collaborators(client).compactor._thread_lock,
            collaborators(client).uploader._starting,
        ):
            got.append(lock.acquire(blocking=False))
            if got[-1]:
                lock.release()

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    for name in ("lock", "compactor"):
        lock = SystemDisk().lock(collaborators(client).journal.directory / name)
        got.append(lock.acquire(wait=False))
        lock.close()
    return all(got) and not collaborators(client).journal._entered and not safe_logging.journal_threads


def becomes_free(client: Client) -> bool:
    """Return whether the locks are free within a minute: a thread that was being started may begin, and end, only now."""
    deadline = time.monotonic() + 60
    while not is_free(client):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def upload_threads(timeout: float) -> list[threading.Thread]:
    """Wait for the upload threads of this process; return those that do not end in time. One that never began is none.

    An interrupt in `Thread.start` can leave the lock of the new thread's event held. The thread then waits for it, before any code of hubbub.
    """
    threads = [thread for thread in threading.enumerate() if thread.name == "hubbub"]
    for thread in threads:
        with suppress(RuntimeError):  # it never began
            thread.join(timeout)
    return [thread for thread in threads if thread.is_alive()]


STEPS: dict[str, tuple[int, Callable[[Client], object]]] = {
    "record": (1, lambda client: client.record("homepage", "x")),
    "accounting": (1, Client.accounting),
    "agree": (61, lambda client: client.set_consent("on")),
    "withdraw": (41, lambda client: client.set_consent("off")),
    "close": (3, Client.close),
}


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="another way to trace instructions")
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # the interpreter's own finalizers are interrupted, too
@pytest.mark.parametrize("step", list(STEPS))
def test_interrupt_leaves_no_lock_held(
    step: str,
    rig: Rig,
    handler: Callable[[Callable[..., Any]], Any],
    unseen_seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One Ctrl-C in `record` blocked every other thread for good, in one of seven."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    handler(interrupt)
    monkeypatch.setattr(
        sys, "unraisablehook", lambda _: None
    )  # pytest's keeps each interrupted finalizer, and so its file
    stride, do = STEPS[step]
    client = rig.agreed()
    collaborators(client).uploader.start().stop(5)
    number, may_continue = 1 + unseen_seed % stride, True
    while may_continue:
        if step == "agree":
            client.set_consent("off")
        elif step == "withdraw":
            client.set_consent("on")
        may_continue = interrupted_at(number, lambda: do(client))
        if collaborators(client).uploader is not None:
            collaborators(client).uploader.stop(60)
        assert not upload_threads(60), f"interrupted before instruction {number}, an upload thread does not end"
        assert becomes_free(client), number
        number += stride
    client.set_consent("on")
    client.record("homepage", "x")
    client.close()
    here = client.accounting()
    require_balanced(here)
    assert rig.client(environment={"DO_NOT_TRACK": "1"}).accounting() == here


def opened(directory: Path) -> list[str]:
    """Return the files of a directory that this process has open, once for each descriptor."""
    found = []
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208  (names, of which one is the listing's own)
        with suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))  # noqa: PTH115
    return sorted(path for path in found if path.startswith(str(directory)))


OPENING: dict[str, tuple[int, Callable[[Client], object]]] = {
    "record": (1, lambda client: client.record("homepage", "x")),
    "sync": (1, lambda client: collaborators(client).journal.sync()),
    "compact": (13, lambda client: collaborators(client).compactor.compact(always=True)),
    "secret": (1, lambda client: secret_at(collaborators(client).journal.directory / "secret")),
}


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="another way to trace instructions")
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="nowhere to see what is open")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("step", list(OPENING))
def test_interrupt_leaves_no_descriptor_open(
    step: str,
    rig: Rig,
    handler: Callable[[Callable[..., Any]], Any],
    unseen_seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A handler that raised every millisecond left 450 descriptors open after 3,966 interrupts.

    Only filesystem.py handles descriptors as numbers: the test covers every instruction there (of a compaction every 13th).
    """

    def interrupt(*_: object) -> None:
        raise Interrupted

    handler(interrupt)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(
        sys, "unraisablehook", lambda _: None
    )  # pytest's keeps each interrupted finalizer, and so its file
    stride, do = OPENING[step]
    client = rig.agreed()
    collaborators(client).uploader.start().stop(5)
    client.record("homepage", "x")
    usual = opened(rig.state)
    number, may_continue = 1 + unseen_seed % stride, True
    while (
        may_continue and number < 4000
    ):  # pytest keeps interrupted finalizers; each later opening checks their files, so this may not end
        collaborators(client).journal.close()  # so that the step opens everything
        may_continue = interrupted_at(number, lambda: do(client), within="filesystem.py")
        if step == "compact":
            do(client)
        client.record("homepage", "x")
        collaborators(client).journal.sync()
        assert opened(rig.state) == usual, number
        number += stride
    assert number > 100 * stride, f"only {number // stride} instructions of filesystem.py were met"


def test_reloading_journal_keeps_one_descriptor(rig: Rig) -> None:
    """Each interrupt makes the next call read the journal anew; until a synchronization, every reading left one descriptor open."""
    client = rig.agreed()
    collaborators(client).uploader.start().stop(5)
    client.record("homepage", "x")
    usual = opened(rig.state)
    for _ in range(50):
        collaborators(client).journal._has_partial_record = True  # as an interrupt leaves it
        client.record("homepage", "x")
    assert opened(rig.state) == usual
    other = rig.agreed()
    collaborators(other).uploader.start().stop(5)
    for _ in range(20):
        collaborators(other).compactor.compact(always=True)
        collaborators(client).journal._has_partial_record = True
        client.accounting()
    assert len(opened(rig.state)) <= 2 * (
        len(usual) + 2
    )  # each has the journal, its lock, the snapshot and one renamed journal


def test_recording_in_signal_handler_is_postponed(rig: Rig) -> None:
    """Two clients of one process on one directory: without postponement the handler waits for a lock of its own thread."""
    one, other = rig.agreed(), rig.agreed()
    collaborators(other).uploader.start().stop(5)
    collaborators(other).journal._sleep = lambda _: pytest.fail("it waits for its own thread")
    collaborators(one).journal.run(lambda _: other.record("homepage", "x"))
    assert other.accounting().recorded == 1


class Handler(logging.Handler):
    def __init__(self, emit: Callable[[], object]) -> None:
        super().__init__()
        self._emit, self.num_emitted = emit, 0

    def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002
        self.num_emitted += 1
        self._emit()


@pytest.fixture
def listen() -> Iterator[Callable[[Callable[[], object]], Handler]]:
    added: list[Handler] = []

    def listen(emit: Callable[[], object]) -> Handler:
        added.append(Handler(emit))
        logging.getLogger("hubbub").addHandler(added[-1])
        return added[-1]

    yield listen
    for each in added:
        logging.getLogger("hubbub").removeHandler(each)


def test_log_handler_may_record(rig: Rig, listen: Callable[[Callable[[], object]], Handler]) -> None:
    """A handler's own lock and the journal's were taken in both orders. Messages are now emitted while no lock is held."""
    disk = SimulatedDisk()
    client = rig.agreed(disk=disk)
    collaborators(client).uploader.start().stop(5)
    done = []

    def emit() -> None:
        thread = threading.Thread(target=client.record, args=("homepage", "x"), daemon=True)
        thread.start()
        thread.join(10)
        done.append(not thread.is_alive())

    handler = listen(emit)
    disk.full = True
    client.record("homepage", "x")
    disk.full = False
    collaborators(client).journal.sync()
    client.record("no-such-metric", "x")
    assert handler.num_emitted == 3
    assert done == [True, True, True]
    assert client.accounting().recorded == 5


def test_exceptions_of_log_handlers_are_suppressed(rig: Rig, listen: Callable[[Callable[[], object]], Handler]) -> None:
    def fail() -> None:
        raise AssertionError("no warnings in this program")

    handler = listen(fail)
    client = rig.agreed()
    client.record("no-such-metric", "x")
    assert handler.num_emitted == 1
    assert client.accounting().ignored["unknown-metric"] == 1


@pytest.mark.parametrize("kind", [RuntimeError, TimeoutError])
@pytest.mark.parametrize("where", ["clock", "disk"])
def test_exception_of_signal_handler_reaches_host(
    where: str,
    kind: type[Exception],
    rig: Rig,
    handler: Callable[[Callable[..., Any]], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A timeout that the host raises during `record` must not be suppressed as an internal error or handled as a disk error."""
    monkeypatch.setattr(error_guard, "suppress_internal_errors", True)
    alarmed = False

    def alarm(*_: object) -> None:
        raise kind("the host's")

    def ring() -> None:
        if alarmed:
            signal.raise_signal(signal.SIGUSR1)

    class Disk(SystemDisk):
        def identity(self, path: Path) -> tuple[int, int] | None:
            if where == "disk":
                ring()
            return super().identity(path)

    def clock() -> datetime:
        if where == "clock":
            ring()
        return rig.clock()

    handler(alarm)
    client = rig.agreed(disk=Disk(), clock=clock)
    collaborators(client).uploader.start().stop(5)
    alarmed = True
    with pytest.raises(kind, match="the host's"):
        client.record("homepage", "x")
    alarmed = False
    assert not collaborators(client).journal.problem
    client.record("homepage", "x")
    assert client.accounting().recorded == 1


def test_internal_error_does_not_reach_host(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(error_guard, "suppress_internal_errors", True)
    is_broken = False

    def clock() -> datetime:
        if is_broken:
            raise ZeroDivisionError
        return rig.clock()

    client = rig.agreed(clock=clock)
    collaborators(client).uploader.start().stop(5)
    is_broken = True
    client.record("homepage", "x")
    assert "ZeroDivisionError" in caplog.text


AT_THE_END = """
import sys
from hubbub import Client

class Session:
    def __init__(self, client):
        self.client = client

    def __del__(self):
        self.client.record("homepage", "bye")

client = Client(sys.argv[1], sys.argv[2], "http://127.0.0.1:1")
client.set_consent("local")
session = Session(client)
"""


def test_finalizer_records_at_interpreter_exit(tmp_path: Path) -> None:
    metrics = DATA / "metrics.toml"
    command = [sys.executable, "-c", AT_THE_END, str(metrics), str(tmp_path / "state")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""


def test_stuck_lock_holder_is_waited_for_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process blocked every other constructor. Now there is one warning, and recordings wait in memory."""
    monkeypatch.setattr(journal_module, "LOCK_TIMEOUT_SECONDS", 0.05)
    rig.agreed().close()
    lock = SystemDisk().lock(rig.state / "lock")
    assert lock.acquire(wait=False)
    with pytest.warns(RuntimeWarning, match="locked by another process that does not continue"):
        client = rig.client()
    monkeypatch.setattr(collaborators(client).journal, "_sleep", lambda _: pytest.fail("it waits again"))
    for _ in range(3):
        client.record("homepage", "x")
    rig.clock.move(days=2)
    assert deliver(client) == 0
    lock.release()
    monkeypatch.undo()
    assert client.accounting().recorded == 3
    assert not collaborators(client).journal.problem


def test_deliver_returns_on_full_disk(rig: Rig) -> None:
    rig.state = Path("/proc/no-such-place")
    disk = SimulatedDisk()
    client = rig.agreed(disk=disk)
    client.record("homepage", "x")
    disk.full = True
    client.record("homepage", "y")

    def no_lease(path: Path) -> Any:
        raise OSError(28, "No space left on device")

    disk.lock = no_lease  # type: ignore[method-assign]
    collaborators(client).uploader.start().stop(5)
    collaborators(client).sender.close()
    assert deliver(client) == 0


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="nowhere to see what is open")
def test_closed_clients_keep_no_files_or_threads(rig: Rig) -> None:
    def one(client: Client) -> threading.Thread:
        client.record("homepage", "x")
        deliver(client)
        thread = collaborators(client).uploader.start()._thread
        assert thread is not None
        return thread

    closed = rig.agreed()
    thread = one(closed)
    assert opened(rig.state)
    closed.close()
    thread.join(10)
    gc.collect()
    assert opened(rig.state) == []
    thread, dropped = one(rig.client()), weakref.ref(rig.started[-1])
    rig.started.clear()
    gc.collect()
    assert dropped() is None
    thread.join(10)
    assert not thread.is_alive()
    gc.collect()
    assert opened(rig.state) == []
