"""Test helpers for host applications: fake transport, fake clock, seeded randomness, `deliver`.

    Seams               where a test puts its own clock, randomness and transport: `Client(seams=Seams(clock=..., transport=...))`
    SeededBytes         repeatable randomness                ManualClock            a clock that tests set
    RecordingTransport  an aggregator that records batches   deliver                send all reports now
    UNLIMITED           a policy without limits              raise_internal_errors  internal errors fail the test

Never use them in production: noise that can be repeated can be removed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta

from hubbub.client import Client, collaborators
from hubbub.privacy.policy import Policy
from hubbub.sdk.assembly import Seams
from hubbub.sdk.runtime import error_guard
from hubbub.sdk.upload.retry_policy import UploadResponse
from hubbub.sdk.upload.transport import Transport, always
from hubbub.wire.batch import Batch

__all__ = [
    "UNLIMITED",
    "ManualClock",
    "RecordingTransport",
    "Seams",
    "SeededBytes",
    "deliver",
    "raise_internal_errors",
]

UNLIMITED = Policy(
    epsilon_report=math.inf, epsilon_enrollment=math.inf, epsilon_metric=math.inf, epsilon_total=math.inf
)
"""`Policy` without limits, for tests."""


class SeededBytes:
    """Repeatable random bytes: the SHAKE-256 stream of a seed, from its start.

    Parameters
    ----------
    seed
        Seed. Equal seeds give equal bytes.

    Examples
    --------
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
    """A clock that stands still until it is moved; pass it as `Seams(clock=...)`.

    Parameters
    ----------
    day
        Day at whose noon (UTC) the clock stands.

    Attributes
    ----------
    now
        The time that the clock shows.

    Examples
    --------
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
        """Advance the clock.

        Parameters
        ----------
        **by
            Arguments of timedelta, such as days=1 or hours=2.
        """
        self.now += timedelta(**by)


class RecordingTransport(Transport):
    """Transport that records batches instead of sending them.

    Parameters
    ----------
    *responses
        Responses to the first attempts, in order. Later attempts are accepted.

    Attributes
    ----------
    responses
        Responses to further attempts.
    batches
        Batches that were accepted.
    bodies
        Bodies of all attempts.
    """

    def __init__(self, *responses: UploadResponse) -> None:
        self.responses = list(responses)
        self.bodies: list[bytes] = []
        self.batches: list[Batch] = []

    def send(self, body: bytes, is_wanted: Callable[[], bool] = always) -> UploadResponse:  # noqa: ARG002
        self.bodies.append(body)
        batch = Batch.from_json(body)
        response = self.responses.pop(0) if self.responses else UploadResponse(202, batch_id=str(batch.batch_id))
        if response.status in (200, 202):
            self.batches.append(batch)
        return response


def deliver(client: Client) -> int:
    """End every period now and send all reports at once, without their random delays.

    Parameters
    ----------
    client
        Client of the test.

    Returns
    -------
    int
        Number of attempted uploads.
    """
    return collaborators(client).send_all_now()


@contextmanager
def raise_internal_errors() -> Iterator[None]:
    """Raise internal errors of hubbub in the test, instead of logging them.

    Yields
    ------
    None
        Nothing. It is the time in which internal errors are raised.
    """
    error_guard.suppress_internal_errors = False
    try:
        yield
    finally:
        error_guard.suppress_internal_errors = True
