"""Fixtures of the client's tests: a client without a network, a manual clock, internal errors raised."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import date
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any

import pytest

from hubbub import Accounting, Client, Definitions, Metric, Params, UnaryResponse
from hubbub.sdk.assembly import AllSeams
from hubbub.testing import UNLIMITED, ManualClock, RecordingTransport, raise_internal_errors

_SEAMS = {field.name for field in fields(AllSeams)}

TODAY = date(2026, 11, 21)

HOMEPAGE = Metric.string(
    "homepage", Params(num_bits=64, num_hashes=2, num_cohorts=16, prob_p=0.25, prob_q=0.75, prob_f=0.5)
)
SURVEY = Metric.boolean("survey", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))


@pytest.fixture(autouse=True)
def internal_errors_fail_tests() -> Iterator[None]:
    with raise_internal_errors():
        yield


@dataclass
class Rig:
    """Clients on one directory, one clock and one transport."""

    state: Path
    clock: ManualClock
    transport: RecordingTransport
    started: list[Client]

    def client(self, *metrics: Metric, **options: Any) -> Client:
        seams: dict[str, Any] = {"clock": self.clock, "transport": self.transport}
        seams |= {name: options.pop(name) for name in _SEAMS & options.keys()}
        defaults: dict[str, Any] = {"policy": UNLIMITED, "environment": {}, "state": self.state}
        client = Client(
            Definitions(list(metrics or (HOMEPAGE,))),
            url="http://127.0.0.1:1",
            seams=AllSeams(**seams),
            **defaults | options,
        )
        self.started.append(client)
        return client

    def agreed(self, *metrics: Metric, **options: Any) -> Client:
        client = self.client(*metrics, **options)
        client.set_consent("on")
        return client


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path / "state", ManualClock(TODAY), RecordingTransport(), [])
    yield rig
    for client in rig.started:
        client.close()


@contextmanager
def logged(match: str) -> Iterator[None]:
    """Require that hubbub logs a warning that matches."""
    handler = BufferingHandler(1000)
    logger = logging.getLogger("hubbub")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
    messages = [record.getMessage() for record in handler.buffer if record.levelno == logging.WARNING]
    assert any(re.search(match, message) for message in messages), messages


def require_balanced(counts: Accounting) -> None:
    """Both identities of the accounting."""
    assert counts.recorded == counts.chosen + counts.superseded + sum(counts.ignored.values())
    assert counts.formed == sum((counts.acknowledged, counts.queued, counts.quarantined, *counts.dropped.values()))
