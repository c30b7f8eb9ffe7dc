"""Several workers on one address, forked by a supervisor that serves nothing itself.

A worker that dies is started again. SIGTERM and SIGINT end all workers, each of which finishes what it accepted; SIGHUP
is handed on to them. If the supervisor is killed its workers finish and end as well.

Not uvicorn's own supervisor: it starts new interpreters, into which neither the settings nor the announcement go, looks
at its workers every half second only, and exits with 0 when none of them can start.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from threading import Thread

from hubbub.errors import HubbubError

logger = logging.getLogger(__name__)

_STOPPING = frozenset({signal.SIGTERM, signal.SIGINT})
_HANDLED = _STOPPING | {signal.SIGHUP}
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_HEALTHY_AFTER = 60.0

Work = Callable[[int, Callable[[], None]], None]
"""What a worker does, given its number, from 0, and what to call when it can answer."""


class WorkerError(HubbubError):
    """The workers cannot be started."""


def pause(deaths: int) -> float:
    """Return how many seconds to wait before a worker is started again that died so often in a row.

    >>> [pause(deaths) for deaths in (1, 2, 3, 100)]
    [0.5, 1.0, 2.0, 30.0]
    """
    return float(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(deaths - 1, 30)))


def supervise(work: Work, count: int, ready: Callable[[], None]) -> None:
    """Run `work` in so many processes until told to stop; call `ready` once, when all of them can answer.

    Raises WorkerError, with the reason, if one of them ends before that.
    """
    with _signals() as signals:
        _Supervisor(work, count, ready, signals).run()


@dataclass(slots=True)
class _Worker:
    """One of the workers: a process and its successors."""

    number: int
    process: ForkProcess | None = None
    says: Connection | None = None  # once: "" when it can answer, or why it cannot
    reason: str = ""
    is_ready: bool = False
    began: float = 0.0
    deaths: int = 0  # in a row
    due: float = 0.0  # when it is to be started again

    @property
    def name(self) -> str:
        """What the log calls it."""
        return f"worker {self.number + 1}"

    def hear(self, says: Connection) -> None:
        """Note what it says, or that it ended without a word."""
        with says, suppress(EOFError, OSError):
            self.reason = says.recv()
            self.is_ready = not self.reason
        self.says = None


class _Supervisor:
    def __init__(self, work: Work, count: int, ready: Callable[[], None], signals: socket.socket) -> None:
        self._work, self._ready, self._signals = work, ready, signals
        self._workers = [_Worker(number) for number in range(count)]
        self._alive_read, self._alive_write = os.pipe()
        self._announced = self._stopping = False

    def run(self) -> None:
        try:
            while not self._stopping or self._running():
                self._start_due()
                self._look(wait([self._signals, *self._ends()], self._until_due()))
        finally:
            os.close(self._alive_write)  # whoever is left ends by itself
            os.close(self._alive_read)
            for process in self._running():
                process.terminate()
                process.join()

    def _running(self) -> list[ForkProcess]:
        return [worker.process for worker in self._workers if worker.process is not None]

    def _ends(self) -> Iterator[Connection | int]:
        for worker in self._workers:
            if worker.process is not None:
                yield worker.process.sentinel
                if worker.says is not None:
                    yield worker.says

    def _until_due(self) -> float | None:
        due = [worker.due for worker in self._workers if worker.process is None]
        return max(0.0, min(due) - time.monotonic()) if due and not self._stopping else None

    def _start_due(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if worker.process is None and worker.due <= now and not self._stopping:
                self._start(worker, now)

    def _start(self, worker: _Worker, now: float) -> None:
        context = multiprocessing.get_context("fork")
        worker.says, says = context.Pipe(duplex=False)
        worker.began, worker.is_ready, worker.reason = now, False, ""
        worker.process = context.Process(target=self._be, args=(worker.number, says), name=worker.name)
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)  # none may meet the supervisor's handlers in the child
        try:
            worker.process.start()
        except OSError as problem:  # no memory, or no more processes
            worker.reason = f"it cannot be forked: {problem}"
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
            says.close()
        if worker.reason:
            worker.says.close()
            worker.process = worker.says = None
            self._died(worker, worker.reason)

    def _be(self, number: int, says: Connection) -> None:
        """Be a worker, in the child."""
        signal.set_wakeup_fd(-1)
        for each in _STOPPING:
            signal.signal(each, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the work handles it
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        os.close(self._alive_write)
        Thread(target=_end_after, args=(self._alive_read,), daemon=True).start()
        try:
            self._work(number, lambda: says.send(""))
        except HubbubError as problem:
            says.send(str(problem))
            raise SystemExit(1) from None

    def _look(self, happened: Sequence[object]) -> None:
        if self._signals in happened:
            for number in self._signals.recv(1024):
                self._signalled(signal.Signals(number))
        for worker in self._workers:
            ended = worker.process is not None and worker.process.sentinel in happened
            if worker.says is not None and (ended or worker.says in happened):
                worker.hear(worker.says)
            if worker.process is not None and ended:
                self._ended(worker, worker.process)
        if not self._announced and all(worker.is_ready for worker in self._workers):
            self._announced = True
            self._ready()

    def _ended(self, worker: _Worker, process: ForkProcess) -> None:
        process.join()
        how = worker.reason or _how_it_ended(process.exitcode)
        failed = bool(process.exitcode)
        process.close()
        worker.process = None
        if self._stopping:
            if failed and worker.is_ready:
                logger.error("%s did not stop as told: %s", worker.name, how)
            return
        self._died(worker, how)

    def _died(self, worker: _Worker, how: str) -> None:
        if not self._announced:
            raise WorkerError(worker.reason or f"{worker.name} could not start: {how}")
        now = time.monotonic()
        worker.deaths = 1 if now - worker.began > _HEALTHY_AFTER else worker.deaths + 1
        worker.due = now + pause(worker.deaths)
        logger.error("%s has died: %s; starting it again in %g s", worker.name, how, pause(worker.deaths))

    def _signalled(self, number: signal.Signals) -> None:
        if number in _STOPPING:
            self._stopping, number = True, signal.SIGTERM  # SIGINT from a terminal has reached them already
        for process in self._running():
            with suppress(ProcessLookupError):
                os.kill(process.pid or 0, number)


def _how_it_ended(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return signal.Signals(-exitcode).name
    return f"exit code {exitcode}"


def _end_after(alive: int) -> None:
    """Stop this worker as SIGTERM does when nobody holds the other end any more: the supervisor is gone."""
    os.read(alive, 1)
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def _signals() -> Iterator[socket.socket]:
    """Give a socket from which the numbers of the signals can be read that came."""
    reads, writes = socket.socketpair()
    writes.setblocking(False)
    before = {number: signal.signal(number, lambda *_: None) for number in _HANDLED}
    signal.set_wakeup_fd(writes.fileno())
    try:
        yield reads
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        reads.close()
        writes.close()
