"""Answers to jobs: from the cache, or from a decoding process, of which nobody has more than one at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from hubbub.errors import HubbubError
from hubbub_decoder.explore.cache import Cache
from hubbub_decoder.explore.decoding_process import DecodingProcess, FailedError
from hubbub_decoder.explore.job import Job

MAX_WAITING = 32
"""Jobs that may run and wait."""
_FAILURE_SECONDS = 600.0
_MAX_FAILURES = 4_096


class BusyError(HubbubError):
    """The asker has another job already, or too many jobs wait."""


class UnfinishedError(HubbubError):
    """The answer is not there yet; it is being computed."""


@dataclass(frozen=True, slots=True)
class _Failure:
    problem: FailedError
    until: float


class Answers:
    """Cache and decoding processes together; a job waits for the first process that is idle."""

    def __init__(self, cache: Cache, processes: Sequence[DecodingProcess]) -> None:
        self._cache, self._processes = cache, processes
        self._idle: asyncio.Queue[DecodingProcess] = asyncio.Queue()
        for process in processes:
            self._idle.put_nowait(process)
        self._running: dict[str, asyncio.Task[bytes]] = {}
        self._askers: dict[str, str] = {}  # asker -> key
        self._failures: dict[str, _Failure] = {}

    def known(self, job: Job) -> bytes | None:
        """Answer that is in the cache. Raises FailedError for a job that failed less than ten minutes ago."""
        key = job.key
        failure = self._failures.get(key)
        if failure is not None and time.monotonic() < failure.until:
            raise failure.problem
        return self._cache.answer(key)

    async def get(self, job: Job, asker: str, patience: float) -> bytes:
        """Answer to a job.

        asker    : has one job at a time
        patience : seconds

        Raises FailedError without an answer, UnfinishedError after `patience`, and BusyError if the job must not start now.
        """
        known = self.known(job)
        if known is not None:
            return known
        key = job.key
        task = self._running.get(key)
        if task is None:
            if asker in self._askers:
                raise BusyError("Another page of yours is being decoded. This one follows when it is done.")
            if len(self._running) >= MAX_WAITING:
                raise BusyError(f"{MAX_WAITING} pages wait to be decoded. Try again in a minute.")
            self._askers[asker] = key
            task = self._running[key] = asyncio.create_task(self._run(job, key, asker))
        done, _ = await asyncio.wait([task], timeout=patience)
        if not done:
            raise UnfinishedError("The reports are being decoded.")
        return task.result()

    async def _run(self, job: Job, key: str, asker: str) -> bytes:
        try:
            process = await self._idle.get()
            try:
                answer = await process.answer(job.to_json())
            finally:
                self._idle.put_nowait(process)
            with suppress(OSError):  # such as a full disk
                self._cache.add_answer(key, job.inputs, answer)
        except FailedError as problem:
            while len(self._failures) >= _MAX_FAILURES:
                self._failures.pop(next(iter(self._failures)))
            self._failures[key] = _Failure(problem, time.monotonic() + _FAILURE_SECONDS)
            raise
        finally:
            del self._running[key], self._askers[asker]
        return answer

    async def end(self) -> None:
        """End the decoding processes and give up the jobs that wait."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for process in self._processes:
            await process.end()
