"""Signals, logging and locks: the call after an interrupted one repairs the state, and no caller waits forever."""

from __future__ import annotations

import _thread
import gc
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from hubbub import Client
from hubbub.client import collaborators
from hubbub.sdk.runtime import error_guard
from hubbub.sdk.storage import journal as journal_module
from hubbub.sdk.storage.filesystem import File, SystemDisk, SystemFile
from hubbub.sdk.storage.state import State
from hubbub.sdk.storage.state_reader import read_state
from hubbub.sdk.upload.uploader import UploadLoop
from hubbub.testing import deliver
from tests.client.conftest import Rig, logged, require_balanced
from tests.support.paths import DATA
from tests.support.power_loss_filesystem import SimulatedDisk


class Interrupted(BaseException):
    """As KeyboardInterrupt."""


MANY = 10**9


class Tripping:
    """`tripping[number]` is a signal that arrives: without a call in Python, so that its handler runs where the traced code next looks."""

    __getitem__ = staticmethod(_thread.interrupt_main)


@pytest.fixture
def handler() -> Iterator[Callable[[Callable[..., Any]], Any]]:
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda handle: signal.signal(signal.SIGUSR1, handle)
    signal.signal(signal.SIGUSR1, before)


def num_instructions(step: Callable[[], object]) -> int:
    """Run a step; return the number of its instructions."""
    return MANY - interrupted_at(MANY, step)


def interrupted_at(number: int, step: Callable[[], object]) -> int:
    """Interrupt a step before its n-th instruction; return how many of n it does not have."""
    left, tripping, usual = number, Tripping(), sys.gettrace()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
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
    return left


STEPS: dict[str, Callable[[Client], object]] = {
    "record": lambda client: client.record("homepage", "x"),
    "accounting": Client.accounting,
    "grant": lambda client: client.set_consent("on"),
    "next day": lambda client: client.record("homepage", "x"),
    "close": Client.close,
}
INTERRUPTS = 60


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="another way to trace instructions")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # finalizers are interrupted, too
@pytest.mark.parametrize("step", list(STEPS))
def test_call_after_an_interrupt_repairs_the_state(
    step: str, rig: Rig, handler: Callable[[Callable[..., Any]], Any], unseen_seed: int
) -> None:
    """A handler raises before a random instruction; its exception reaches the host. The next call finds files as whole as before.

    Other threads and processes can use the directory, each report is sent once, and the ledger has charged it once.
    """

    def interrupt(*_: object) -> None:
        raise Interrupted

    handler(interrupt)
    client, chance = rig.agreed(), random.Random(unseen_seed)  # noqa: S311
    collaborators(client).uploader.start().stop(60)
    prepare(step, client, rig)
    size = num_instructions(lambda: STEPS[step](client))
    for number in sorted(chance.randint(1, size) for _ in range(INTERRUPTS)):
        prepare(step, client, rig)
        interrupted_at(number, lambda: STEPS[step](client))
        collaborators(client).uploader.stop(60)
        client.accounting()
        other = rig.client(environment={"DO_NOT_TRACK": "1"})  # as another process: it has files and locks of its own
        for use in (client.accounting, other.accounting):
            thread = threading.Thread(target=use, daemon=True)
            thread.start()
            thread.join(60)
            assert not thread.is_alive(), f"interrupted before instruction {number}, a lock stays held"
        assert not collaborators(other).journal.problem
        other.close()
        assert collaborators(client).journal.run(saved) == saved(read_state(rig.state)), number
    client.close()
    client = rig.agreed()
    rig.clock.move(days=1)
    deliver(client)
    require_balanced(client.accounting())
    sent = Counter(batch.period for batch in rig.transport.batches)
    assert set(sent.values()) == {1}
    with collaborators(client).journal as state:
        (account,) = state.accounts.values()
    assert account.reports == client.accounting().formed >= len(sent)
    assert not read_state(rig.state).damaged


def saved(state: State) -> tuple[object, ...]:
    return dict(state.drafts), dict(state.queue), dict(state.accounts), state.accounting()


def prepare(step: str, client: Client, rig: Rig) -> None:
    if step == "next day":
        rig.clock.move(days=1)
    if step == "grant":
        client.set_consent("local")
    client.record("homepage", "x")


def opened(directory: Path) -> list[str]:
    """Return the files of a directory that this process has open, once for each descriptor."""
    found = []
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208  (names, of which one is the listing's own)
        with suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))  # noqa: PTH115
    return sorted(path for path in found if path.startswith(str(directory)))


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
    # each has the journal, its lock, the snapshot and one renamed journal
    assert len(opened(rig.state)) <= 2 * (len(usual) + 2)


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
    for listener in added:
        logging.getLogger("hubbub").removeHandler(listener)


def test_log_handler_may_record(
    rig: Rig, listen: Callable[[Callable[[], object]], Handler], caplog: pytest.LogCaptureFixture
) -> None:
    """A handler's own lock and the journal's were taken in both orders. Messages are now emitted while no lock is held."""
    caplog.set_level(logging.INFO, "hubbub")
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
@pytest.mark.parametrize("where", ["clock", "disk", "append"])
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

    class RingingFile(SystemFile):
        def append(self, data: bytes) -> None:
            ring()  # the event is applied and not written
            super().append(data)

    class Disk(SystemDisk):
        def open(self, path: Path) -> File:
            return RingingFile(path) if where == "append" else super().open(path)

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


@pytest.mark.parametrize("where", ["open", "identity", "append"])
def test_closing_in_a_signal_handler_keeps_the_lock_of_the_interrupted_call(
    where: str, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler's `close` closed the lock too, and the interrupted call went on to write without it."""
    unlocked_writes, is_closing = 0, False

    def close(at: str) -> None:
        nonlocal is_closing
        if is_closing and at == where:
            is_closing = False
            client.close()

    class ClosingFile(SystemFile):
        def append(self, data: bytes) -> None:
            nonlocal unlocked_writes
            close("append")
            lock = SystemDisk().lock(rig.state / "lock")
            unlocked_writes += lock.acquire(wait=False)
            lock.close()
            super().append(data)

    class Disk(SystemDisk):
        def open(self, path: Path) -> File:
            close("open")
            return ClosingFile(path)

        def identity(self, path: Path) -> tuple[int, int] | None:
            close("identity")
            return super().identity(path)

    monkeypatch.setattr(UploadLoop, "start", lambda loop: loop)
    client = rig.agreed(disk=Disk())
    client.close()
    unlocked_writes = 0  # the secret's file needs no lock
    for _ in range(2):
        is_closing = True
        client.record("homepage", "x")
        assert not is_closing
        assert not opened(rig.state), "the handler's close did nothing"
    assert unlocked_writes == 0
    assert client.accounting().recorded == 2
    assert not collaborators(client).journal.problem


@pytest.mark.parametrize("call", ["withdraw", "close"])
@pytest.mark.parametrize("where", ["sync", "compaction"])
def test_signal_handler_during_a_withdrawal_ends(where: str, call: str, rig: Rig) -> None:
    """A handler that withdraws consent waited forever for a lock of its own thread, as did one that closed the client during a sync."""
    results: list[object] = []
    is_handled = True

    def handle() -> None:
        nonlocal is_handled
        if is_handled:
            return
        is_handled = True
        collaborators(client).journal.run(lambda state: results.append(state.erasure_pending))
        if call == "withdraw":
            results.append(client.set_consent("off"))
        else:
            client.close()

    class HandlingFile(SystemFile):
        def sync(self) -> None:
            if where == "sync":
                handle()
            super().sync()

    class Disk(SystemDisk):
        def open(self, path: Path) -> File:
            return HandlingFile(path)

    client = rig.agreed(disk=Disk())
    client.record("homepage", "x")
    collaborators(client).uploader.start().stop(5)
    if where == "compaction":
        collaborators(client).compactor._sleep = lambda _: handle()
    is_handled = False
    thread = threading.Thread(target=lambda: results.append(client.set_consent("off")), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert results == ([True, False, True] if call == "withdraw" else [True, True])
    assert client.consent.level == "off"
    assert not read_state(rig.state).drafts
    assert not read_state(rig.state).erasure_pending


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
    with logged(match="locked by another process that does not continue"):
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
