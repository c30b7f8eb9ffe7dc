"""A report that an aggregator refuses for ever ends in the client, and its answers are recognized as its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hubbub import Client, Definitions, Metric, UnaryResponse
from hubbub.sdk.upload.retry_policy import UploadResponse
from hubbub.sdk.upload.transport import HttpTransport, always
from hubbub.testing import UNLIMITED, Seams, deliver
from hubbub.wire.problems import ProblemType
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.sql_store import SqlStore
from tests.aggregator.conftest import Aggregator, running

NOISE = {"prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.5}
WEEKLY = Metric.boolean("weekly", UnaryResponse(**NOISE), period="week")
DAILY = Metric.boolean("daily", UnaryResponse(**NOISE))
Alter = Callable[[dict[str, object]], object]


def with_fields(**fields: object) -> Alter:
    return lambda batch: batch | fields


REFUSED: dict[ProblemType, tuple[Metric, Alter]] = {
    ProblemType.MALFORMED: (DAILY, lambda batch: {name: batch[name] for name in batch if name != "digest"}),
    ProblemType.PERIOD_CLOSED: (DAILY, with_fields(period="2020-01-01")),
    ProblemType.TOO_LARGE: (DAILY, with_fields(more="x" * 500_000)),
    ProblemType.COHORT_OUT_OF_RANGE: (DAILY, with_fields(cohorts=[7])),
    ProblemType.WRONG_GROUP: (DAILY, with_fields(group="1.x")),
    ProblemType.WRONG_SIZE: (DAILY, with_fields(bits="AAAA")),
    ProblemType.PADDING_SET: (DAILY, with_fields(bits="gA==")),
    ProblemType.NO_REPORTS: (DAILY, with_fields(cohorts=[], bits="")),
    ProblemType.TOO_MANY_REPORTS: (DAILY, with_fields(cohorts=[0] * 501, bits="AAAA" * 167)),
    ProblemType.PERIOD_MISALIGNED: (WEEKLY, with_fields(period="2020-01-01")),
}
"""Final refusals of a batch, and what in it causes them. The others need another definition: `metric-expired`, `implausible-report`."""


@pytest.fixture
def aggregator(tmp_path: Path) -> Iterator[Aggregator]:
    store = SqlStore.open(tmp_path / "reports.db")
    with running(Definitions([DAILY, WEEKLY]), store, Settings(max_reports=500)) as started:
        started.clock.now = datetime.now(UTC)
        yield started
    store.close()


class AlteringTransport:
    """Sends every batch altered, and keeps the answers."""

    def __init__(self, url: str, alter: Alter) -> None:
        self._transport, self._alter = HttpTransport(url), alter
        self.answers: list[UploadResponse] = []

    def send(self, body: bytes, is_wanted: Callable[[], bool] = always) -> UploadResponse:
        self.answers.append(self._transport.send(json.dumps(self._alter(json.loads(body))).encode(), is_wanted))
        return self.answers[-1]


@pytest.mark.parametrize("problem", REFUSED, ids=lambda problem: problem.slug)
def test_a_report_that_is_refused_for_ever_ends(problem: ProblemType, aggregator: Aggregator, tmp_path: Path) -> None:
    metric, alter = REFUSED[problem]
    transport = AlteringTransport(aggregator.url, alter)
    with Client(
        Definitions([metric]),
        tmp_path / "state",
        "http://127.0.0.1:1",
        policy=UNLIMITED,
        environment={},
        seams=Seams(transport=transport),
    ) as client:
        client.set_consent("on")
        client.record(metric.name, True)
        for _ in range(3):
            deliver(client)
        counts = client.accounting()
    assert [(answer.status, answer.problem) for answer in transport.answers] == [(problem.status, problem.slug)]
    assert (counts.formed, counts.queued, counts.quarantined + counts.dropped["refused"]) == (1, 0, 1)
