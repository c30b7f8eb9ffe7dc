"""Plain objects for tests of hosts that embed hubbub, and for our own.

    SeededCoins         repeatable noise              ManualClock   a clock that is set
    RecordingTransport  an aggregator that remembers  deliver       do not wait for tomorrow
    UNLIMITED           a policy without limits       nothing_swallowed   our bugs fail your test

Never for production: noise that can be repeated can be removed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta

from hubbub.client import Client, collaborators
from hubbub.privacy.policy import Policy
from hubbub.sdk.runtime import error_guard
from hubbub.sdk.storage.state import State
from hubbub.sdk.upload.retry_policy import UploadResponse
from hubbub.wire.batch import Batch

__all__ = [
    "UNLIMITED",
    "ManualClock",
    "RecordingTransport",
    "SeededBytes",
    "deliver",
    "raise_internal_errors",
]

UNLIMITED = Policy(
    epsilon_report=math.inf, epsilon_enrollment=math.inf, epsilon_metric=math.inf, epsilon_total=math.inf
)


class SeededBytes:
    """Coins that repeat: a SHAKE-256 stream of a seed, read from its start.

    >>> SeededBytes(b"a seed")(4) == SeededBytes(b"a seed")(4)
    True
    """

    _BLOCK = 1 << 16

    def __init__(self, seed: bytes | str | int) -> None:
        self._seed = repr(seed).encode()
        self._blocks = 0
        self._left = b""

    def __call__(self, num_bytes: int) -> bytes:
        while len(self._left) < num_bytes:
            block = hashlib.shake_256(self._blocks.to_bytes(8, "little") + self._seed).digest(self._BLOCK)
            self._left += block
            self._blocks += 1
        drawn, self._left = self._left[:num_bytes], self._left[num_bytes:]
        return drawn


class ManualClock:
    """A clock that stands still until it is moved; give it to `Client(clock=...)`.

    >>> clock = ManualClock(date(2026, 11, 21))
    >>> clock.move(days=1)
    >>> str(clock())
    '2026-11-22 12:00:00+00:00'
    """

    def __init__(self, day: date) -> None:
        self.now = datetime.combine(day, time(12), tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def move(self, **by: float) -> None:
        """Move on, by what timedelta takes: days=1, hours=2."""
        self.now += timedelta(**by)


class RecordingTransport:
    """An aggregator that remembers: `batches` as they were taken, `bodies` of all attempts.

    answers : what it says, in this order; once they are used up it takes every batch
    """

    def __init__(self, *answers: UploadResponse) -> None:
        self.answers = list(answers)
        self.bodies: list[bytes] = []
        self.batches: list[Batch] = []

    def send(self, body: bytes, wanted: Callable[[], bool] = lambda: True) -> UploadResponse:  # noqa: ARG002
        self.bodies.append(body)
        batch = Batch.from_json(body)
        answer = self.answers.pop(0) if self.answers else UploadResponse(202, batch_id=str(batch.batch_id))
        if answer.status in (200, 202):
            self.batches.append(batch)
        return answer


def deliver(client: Client) -> int:
    """End every period now and send all reports at once, without their random delays; return how many batches were tried.

    A period's report is formed by it: what is recorded afterwards belongs to the next period.
    """
    parts = collaborators(client)

    def end_periods(state: State) -> list[str]:
        parts.recorder.record_postponed(state)
        if not parts.journal.lock_unavailable:
            parts.builder.build_all(state, include_open_periods=True)
        return list(state.queue)

    return sum(parts.sender.send_now(batch_id) for batch_id in parts.journal.run(end_periods))


@contextmanager
def raise_internal_errors() -> Iterator[None]:
    """Let hubbub's own failures through to the test, instead of into a log."""
    error_guard.suppress_internal_errors = False
    try:
        yield
    finally:
        error_guard.suppress_internal_errors = True
