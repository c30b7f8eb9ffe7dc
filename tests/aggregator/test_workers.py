"""Workers behind one supervisor: started together, started again, stopped together."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

PROGRAM = """
import logging, os, signal, sys, threading, time
from hubbub.errors import HubbubError
from hubbub_aggregator.workers import WorkerError, supervise

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def work(number, ready):
    told = threading.Event()
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))
    signal.signal(signal.SIGHUP, lambda *_: say("worker", number, "reloads"))
    say("worker", number, "is", os.getpid())
    WORK
    ready()
    while not stopping:
        time.sleep(0.01)
    time.sleep(0.2)
    say("worker", number, "has finished")

BEFORE
logging.basicConfig(format="%(message)s")
say("supervisor", "is", os.getpid())
try:
    supervise(work, 2, lambda: say("ready"))
except WorkerError as problem:
    sys.exit(str(problem))
say("stopped")
"""


class Supervised:
    """Two workers that do nothing, and what they and their supervisor say."""

    def __init__(self, work: str, before: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.replace("WORK", work).replace("BEFORE", before)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []

    def hear(self, pattern: str, times: int = 1) -> list[re.Match[str]]:
        """Wait until so many lines of stdout match."""
        assert self.process.stdout
        while len(found := [match for line in self.said if (match := re.fullmatch(pattern, line))]) < times:
            line = self.process.stdout.readline()
            assert line, (self.said, self.process.communicate())
            self.said.append(line.rstrip("\n"))
        return found

    def pids(self, times: int = 2) -> list[int]:
        """Wait until so many workers were started; return their pids."""
        return [int(match[1]) for match in self.hear(r"worker \d is (\d+)", times)]

    def end(self, by: signal.Signals) -> tuple[int, list[str], str]:
        """Send a signal; return the exit code, the rest of stdout and all of stderr."""
        self.process.send_signal(by)
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, sorted(out.splitlines()), err


@pytest.fixture
def supervised() -> Iterator[Callable[..., Supervised]]:
    started = []

    def start(work: str = "pass", before: str = "") -> Supervised:
        started.append(Supervised(work, before))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


def is_running(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_it_is_ready_once_when_all_workers_are(supervised: Callable[..., Supervised]) -> None:
    service = supervised("time.sleep(0.3 * number); say('worker', number, 'can answer')")
    service.hear("ready")
    assert len(service.hear(r"worker \d can answer", 2)) == 2
    assert service.said[-1] == "ready"
    assert "ready" not in service.end(signal.SIGTERM)[1]


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_every_worker_finishes_and_the_exit_code_is_0(
    supervised: Callable[..., Supervised], by: signal.Signals
) -> None:
    service = supervised()
    service.hear("ready")
    assert service.end(by) == (0, ["stopped", "worker 0 has finished", "worker 1 has finished"], "")


def test_sighup_is_handed_on_to_every_worker(supervised: Callable[..., Supervised]) -> None:
    service = supervised()
    service.hear("ready")
    service.process.send_signal(signal.SIGHUP)
    assert {match[1] for match in service.hear(r"worker (\d) reloads", 2)} == {"0", "1"}
    assert service.end(signal.SIGTERM)[0] == 0


def test_a_worker_that_dies_is_started_again_later_each_time_and_the_log_has_its_number(
    supervised: Callable[..., Supervised],
) -> None:
    service = supervised()
    service.hear("ready")
    for death in range(2):
        os.kill(service.pids(2 + death)[-1], signal.SIGKILL)
    assert len(set(service.pids(4))) == 4
    code, said, log = service.end(signal.SIGTERM)
    assert (code, said.count("stopped"), said.count("ready")) == (0, 1, 0)
    number = int(service.hear(r"worker (\d) is \d+", 4)[-1][1]) + 1
    assert log.splitlines() == [
        f"worker {number} has died: SIGKILL; starting it again in 0.5 s",
        f"worker {number} has died: SIGKILL; starting it again in 1 s",
    ]


def test_one_that_cannot_start_ends_them_all_with_its_reason(supervised: Callable[..., Supervised]) -> None:
    service = supervised("if number: time.sleep(0.3); raise HubbubError('no database: give another')")
    pids = service.pids()
    out, err = service.process.communicate(timeout=30)
    assert (service.process.returncode, err) == (1, "no database: give another\n")
    assert "ready" not in out
    assert not any(is_running(pid) for pid in pids)


def test_one_that_dies_at_start_up_ends_them_all(supervised: Callable[..., Supervised]) -> None:
    service = supervised("if number: os._exit(7)")
    assert service.process.communicate(timeout=30)[1] == "worker 2 could not start: exit code 7\n"
    assert service.process.returncode == 1


def test_the_log_says_why_one_cannot_be_started_again(supervised: Callable[..., Supervised], tmp_path: Path) -> None:
    service = supervised(f"""
    if number:
        try:
            os.mkdir({str(tmp_path / "once")!r})
        except FileExistsError:
            raise HubbubError("the disk is gone")
""")
    service.hear("ready")
    (second,) = (int(match[2]) for match in service.hear(r"worker (\d) is (\d+)", 2) if match[1] == "1")
    os.kill(second, signal.SIGKILL)
    service.pids(4)
    assert service.end(signal.SIGTERM)[2].splitlines()[1] == (
        "worker 2 has died: the disk is gone; starting it again in 1 s"
    )


def test_one_that_cannot_be_forked_just_now_is_tried_again(supervised: Callable[..., Supervised]) -> None:
    service = supervised(
        before="""
from multiprocessing.context import ForkProcess
start, times = ForkProcess.start, []
def fork(process):
    times.append(1)
    if len(times) == 3:
        raise BlockingIOError("no more processes")
    start(process)
ForkProcess.start = fork
"""
    )
    service.hear("ready")
    os.kill(service.pids()[0], signal.SIGKILL)
    assert len(set(service.pids(3))) == 3
    assert "it cannot be forked: no more processes; starting it again in 1 s" in service.end(signal.SIGTERM)[2]


def test_workers_finish_and_end_when_their_supervisor_is_killed(supervised: Callable[..., Supervised]) -> None:
    service = supervised()
    service.hear("ready")
    said = service.end(signal.SIGKILL)[1]  # until all who may write to stdout are gone
    assert set(said) == {"worker 0 has finished", "worker 1 has finished"}
