"""Recordings that wait in memory while another thread or process is in the journal."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hubbub import Client, Consent
from hubbub.client import collaborators
from hubbub.sdk.recording import backlog
from hubbub.sdk.recording import recorder as recorder_module
from hubbub.sdk.recording.recorder import WAIT_SECONDS, Recorder
from hubbub.sdk.storage import journal as journal_module
from hubbub.sdk.storage.filesystem import SystemDisk
from hubbub.sdk.storage.state import State
from hubbub.sdk.upload.uploader import UploadLoop
from hubbub.testing import deliver
from tests.client.conftest import TODAY, Rig, require_balanced


@contextmanager
def stopped_process(rig: Rig) -> Iterator[None]:
    """Hold the lock of the directory, as a process that was stopped does."""
    lock = SystemDisk().lock(rig.state / "lock")
    assert lock.acquire(wait=False)
    yield
    lock.release()
    lock.close()


@pytest.fixture
def rig(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """Clients without upload threads, so that only the calls of a test take what waits."""
    monkeypatch.setattr(UploadLoop, "start", lambda loop: loop)
    monkeypatch.setattr(journal_module, "LOCK_TIMEOUT_SECONDS", 0.1)
    return rig


def taken(client: Client) -> tuple[int, int, int]:
    """Return the recordings that were taken, that were ignored for want of consent, and that wait."""
    counts = client.accounting()
    require_balanced(counts)
    assert counts.recorded == counts.chosen + counts.superseded + counts.ignored["consent"] + counts.ignored["no-state"]
    return counts.chosen + counts.superseded, counts.ignored["consent"], counts.waiting


def test_recording_waits_in_memory_beside_a_stopped_process(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    client, pauses = rig.agreed(), list[float]()
    monkeypatch.setattr(collaborators(client).journal, "_sleep", pauses.append)
    with stopped_process(rig):
        client.record("homepage", "x")
        assert 0 < sum(pauses) <= WAIT_SECONDS + 0.001
        pauses.clear()
        client.subject("someone").record("homepage", "x")
        assert not pauses
        assert client.inspect().accounting.waiting == 2
        assert taken(client) == (0, 0, 2)
    assert taken(client) == (2, 0, 0)
    assert client.inspect().accounting.waiting == 0


def test_recording_waits_in_memory_beside_a_thread(rig: Rig) -> None:
    """Both `record` and what it counts as ignored return while another thread stays in the journal."""
    client, is_inside, leave = rig.agreed(), threading.Event(), threading.Event()

    def stay(_: State) -> bool:
        is_inside.set()
        return leave.wait(10)

    thread = threading.Thread(target=collaborators(client).journal.run, args=(stay,))
    thread.start()
    is_inside.wait()
    client.record("homepage", "x")
    collaborators(client).recorder.ignore("consent")
    assert not leave.is_set()
    assert thread.is_alive(), "the recording waited for the thread"
    assert len(collaborators(client).recorder.backlog.recordings) == 1
    leave.set()
    thread.join()
    assert taken(client) == (1, 1, 0)


def test_recordings_are_taken_in_their_order(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    client, values = rig.agreed(), list[Any]()
    record = Recorder.record

    def noting(recorder: Recorder, state: State, subject: Any, name: str, value: Any, moment: Any = None) -> None:
        values.append(value)
        record(recorder, state, subject, name, value, moment)

    monkeypatch.setattr(Recorder, "record", noting)
    client.record("homepage", "1")
    with stopped_process(rig):
        client.record("homepage", "2")
        client.record("homepage", "3")
    client.record("homepage", "4")
    assert values == ["1", "2", "3", "4"]


def test_recording_that_waited_belongs_to_the_period_of_its_moment(rig: Rig) -> None:
    client = rig.agreed()
    with stopped_process(rig):
        client.record("homepage", "x")
        rig.clock.move(days=1)
        client.record("homepage", "y")
    client.record("homepage", "z")
    with collaborators(client).journal as state:
        assert [(draft.period, draft.num_recordings) for draft in state.drafts.values()] == [("2026-11-22", 2)]
        assert [str(queued.batch.period) for queued in state.queue.values()] == [str(TODAY)]
        assert (state.chosen, state.superseded) == (2, 1)
    deliver(client)
    assert sorted(batch.period for batch in rig.transport.batches) == ["2026-11-21", "2026-11-22"]
    require_balanced(client.accounting())


def test_periods_before_and_after_a_recording_that_waited_have_their_own_reports(rig: Rig) -> None:
    client = rig.agreed()
    rig.clock.move(days=1)
    with stopped_process(rig):
        client.record("homepage", "x")
    rig.clock.move(days=1)
    client.record("homepage", "y")
    with collaborators(client).journal as state:
        assert (state.chosen, state.superseded) == (2, 0)
        assert sorted(queued.batch.period for queued in state.queue.values()) == ["2026-11-21", "2026-11-22"]


def test_period_that_was_reported_takes_no_recording_that_waited(rig: Rig) -> None:
    """Another process reports the period of the recording meanwhile: it belongs to the next one."""
    client, other = rig.agreed(), rig.client()
    with stopped_process(rig):
        client.record("homepage", "x")
    rig.clock.move(days=1)
    other.record("homepage", "y")
    assert taken(client) == (2, 0, 0)
    with collaborators(client).journal as state:
        assert [(draft.period, draft.num_recordings) for draft in state.drafts.values()] == [("2026-11-22", 2)]


def test_clock_set_back_keeps_recording_that_waited(rig: Rig) -> None:
    client = rig.agreed()
    with stopped_process(rig):
        client.record("homepage", "x")
        rig.clock.move(days=-3)
    assert taken(client) == (1, 0, 0)
    with collaborators(client).journal as state:
        assert [draft.period for draft in state.drafts.values()] == ["2026-11-18"]


@pytest.mark.parametrize("level", ["on", "local"])
@pytest.mark.parametrize("who", ["itself", "another process", "another process, unread"])
def test_recording_before_a_withdrawal_is_never_taken(who: str, level: str, rig: Rig) -> None:
    """Consent is withdrawn while a recording waits, and given again before the recording could be taken."""
    other = rig.agreed()
    client = rig.client()
    if who.endswith("unread"):
        with stopped_process(rig):
            client = rig.client()
    with stopped_process(rig):
        client.record("homepage", "before")
        assert len(collaborators(client).recorder.backlog.recordings) == 1
    rig.clock.move(seconds=1)
    withdrawing = client if who == "itself" else other
    assert withdrawing.set_consent("off")
    assert withdrawing.set_consent(Consent(level))
    client.record("homepage", "after")
    assert taken(client) == (1, 1, 0)


def test_withdrawal_beside_a_stopped_process_forgets_what_waits(rig: Rig) -> None:
    client = rig.agreed()
    with stopped_process(rig):
        client.record("homepage", "before")
        assert not client.set_consent("off")
        assert not collaborators(client).recorder.backlog.recordings
        assert not client.set_consent("on")
        client.record("homepage", "under a consent that is not saved")
    assert client.set_consent("off")
    assert client.set_consent("on")
    client.record("homepage", "after")
    assert taken(client) == (1, 2, 0)


def test_recordings_beyond_the_limit_are_counted(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "MAX_WAITING", 3)
    client = rig.agreed()
    with stopped_process(rig):
        for _ in range(5):
            client.record("homepage", "x")
    counts = client.accounting()
    assert (counts.recorded, counts.ignored["no-state"], counts.waiting) == (5, 2, 0)


def test_record_takes_few_of_the_recordings_that_wait(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a long stop one `record` would take 10,000 of them. The others wait, and so does its own."""
    monkeypatch.setattr(recorder_module, "MAX_TAKEN_BEFORE", 2)
    client = rig.agreed()
    with stopped_process(rig):
        for _ in range(5):
            client.record("homepage", "x")
    left = []
    for _ in range(5):
        client.record("homepage", "x")
        left.append(len(collaborators(client).recorder.backlog.recordings))
    assert left == [4, 3, 2, 0, 0]
    assert taken(client) == (10, 0, 0)


def test_value_that_waits_cannot_be_changed(rig: Rig) -> None:
    client, value = rig.agreed(), {"os": ["a"]}
    with stopped_process(rig):
        client.record("homepage", value)
    value["os"].append("b")
    (waiting,) = collaborators(client).recorder.backlog.recordings
    assert waiting.value == {"os": ("a",)}


@pytest.mark.parametrize("end", ["close", "exit", "end of its thread"])
def test_end_of_a_client_takes_what_waits(end: str, rig: Rig) -> None:
    client = rig.agreed()
    with stopped_process(rig):
        client.record("homepage", "x")
    match end:
        case "close":
            client.close()
        case "exit":
            client._stop()
        case _:
            parts = collaborators(client)
            loop = UploadLoop(parts.journal, parts.compactor, parts.sender, parts.recorder.drain)
            loop.end()
            loop._run()
    assert not collaborators(client).recorder.backlog.recordings
    assert taken(client) == (1, 0, 0)


class Interrupted(BaseException):
    """As KeyboardInterrupt."""


def test_exception_just_after_the_lock_was_acquired_releases_it(rig: Rig) -> None:
    """A signal handler raises between the return of `acquire` and the next instruction."""
    client = rig.agreed()
    journal = collaborators(client).journal
    lock = journal.thread_lock

    class Interrupting:
        release = lock.release

        @staticmethod
        def acquire(*, blocking: bool) -> bool:
            lock.acquire(blocking=blocking)
            raise Interrupted

    journal.thread_lock = Interrupting()  # type: ignore[assignment]
    with pytest.raises(Interrupted):
        client.record("homepage", "x")
    journal.thread_lock = lock
    thread = threading.Thread(target=client.accounting, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


def record_and_tell(client: Client, told: Any, goes_on: Any) -> None:
    client.record("homepage", "x")
    told.set()
    goes_on.wait(30)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_child_of_multiprocessing_takes_what_waits_at_its_end(rig: Rig) -> None:
    client, context = rig.agreed(), multiprocessing.get_context("fork")
    told, goes_on = context.Event(), context.Event()
    with stopped_process(rig):
        child = context.Process(target=record_and_tell, args=(client, told, goes_on))
        child.start()
        assert told.wait(30)
    goes_on.set()
    child.join(30)
    assert child.exitcode == 0
    assert taken(client) == (1, 0, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_recording_that_waits_at_a_fork_is_taken_by_the_parent_alone(rig: Rig) -> None:
    client = rig.agreed()
    with stopped_process(rig):
        client.record("homepage", "x")
    pid = os.fork()
    if pid == 0:
        try:
            code = int(taken(client) != (0, 0, 0))
            client.close()
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert taken(client) == (1, 0, 0)


def test_recording_that_waits_goes_over_when_threads_are_replaced(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """As gevent and eventlet replace them, in the same process."""
    client = rig.agreed()
    before = collaborators(client)
    with stopped_process(rig):
        client.record("homepage", "x")
        lock = threading.Lock
        monkeypatch.setattr(threading, "Lock", lambda: lock())
        client.record("homepage", "y")
        assert collaborators(client) is not before
        assert len(collaborators(client).recorder.backlog.recordings) == 2
    assert taken(client) == (2, 0, 0)
    monkeypatch.undo()
