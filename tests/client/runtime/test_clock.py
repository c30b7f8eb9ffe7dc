"""Clock errors: no period is sent twice, all spent epsilon is on the ledger, and reporting resumes."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from typing import Any

import pytest

from hubbub import Batch, Metric, Params, PeriodKind, UnaryResponse
from hubbub.cli.findings import Health
from hubbub.cli.state_checks import check_state
from hubbub.client import collaborators
from hubbub.privacy.ledger import Account, EncodedReport
from hubbub.sdk.storage.state import MAX_RUNS, merge_runs
from hubbub.sdk.upload.retry_policy import NO_RESPONSE, UploadResponse
from hubbub.testing import ManualClock, SeededBytes, deliver
from tests.client.conftest import HOMEPAGE, SURVEY, TODAY, Rig, require_balanced
from tests.support.every_kind import NOISE, VERSION

UPDATED = Metric.boolean("updated", UnaryResponse(**NOISE), group=VERSION)
WEEKLY = Metric.boolean("survey", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), period=PeriodKind.WEEK)


class Aggregator:
    """An aggregator with a correct clock: it sends Date, and rejects periods of the future and of the distant past."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.taken: dict[tuple[str, str], bytes] = {}
        self.twice: list[tuple[str, str]] = []
        self.early: list[str] = []
        self.lost: Callable[[], bool] = lambda: False
        self.says_the_date: Callable[[], bool] = lambda: True

    def send(self, body: bytes, is_wanted: object = None) -> UploadResponse:  # noqa: ARG002
        batch, now = Batch.from_json(body), self.clock()
        about = (batch.metric, batch.period)
        dated: dict[str, Any] = {"date": format_datetime(now, usegmt=True)} if self.says_the_date() else {}
        if date.fromisoformat(batch.period) > now.date() + timedelta(days=1):
            self.early.append(batch.period)
            answer = UploadResponse(422, "period-not-started", **dated)
        elif date.fromisoformat(batch.period) < now.date() - timedelta(days=37):
            answer = UploadResponse(410, "period-closed", **dated)
        else:
            if self.taken.setdefault(about, body) != body:
                self.twice.append(about)
            answer = UploadResponse(202, batch_id=str(batch.batch_id), **dated)
        return NO_RESPONSE if self.lost() else answer


@pytest.fixture
def world(rig: Rig) -> tuple[ManualClock, Aggregator]:
    """The true time, and an aggregator that knows it; the rig's clock is the client's."""
    true = ManualClock(TODAY)
    return true, Aggregator(true)


def days(rig: Rig, true: ManualClock, number: int, client: Any) -> None:
    """Run the client for a number of days under a correct clock."""
    for _ in range(number):
        client.record("homepage", "https://example.org/")
        for _ in range(2):
            true.move(hours=12)
            rig.clock.now = true.now
            sender = collaborators(client).sender
            while sender.attempt() == 0.0:
                pass


def findings(rig: Rig) -> list[tuple[Health, str]]:
    moment = rig.clock().timestamp()
    for path in rig.state.iterdir():
        os.utime(path, (moment, moment))  # the files do not contain it
    return [
        (finding.health, finding.observation)
        for finding in check_state(rig.state, rig.clock(), {})
        if finding.check == "clock"
    ]


def test_a_refusal_under_a_wrong_clock_is_logged_as_a_wrong_clock(
    rig: Rig, world: tuple[ManualClock, Aggregator], caplog: pytest.LogCaptureFixture
) -> None:
    """The url and the aggregator, which the log named, too, are well."""
    _, aggregator = world
    rig.clock.move(days=20)
    client = rig.agreed(HOMEPAGE, transport=aggregator)
    for _ in range(4):
        client.record("homepage", "https://example.org/")
        rig.clock.move(days=1)
        while collaborators(client).sender.attempt() == 0.0:
            pass
    assert aggregator.early
    assert "set the clock" in caplog.text
    assert "url" not in caplog.text


def test_recovers_from_clock_ten_years_ahead(
    rig: Rig, world: tuple[ManualClock, Aggregator], caplog: pytest.LogCaptureFixture
) -> None:
    """No report left for sixty days after it, and doctor found all well."""
    true, aggregator = world
    client = rig.agreed(HOMEPAGE, SURVEY, transport=aggregator)  # nothing is recorded for the survey
    days(rig, true, 5, client)
    client.close()
    rig.clock.move(days=3650)
    include_open_periods = rig.client(HOMEPAGE, SURVEY, transport=aggregator)
    include_open_periods.record("homepage", "https://example.org/")
    include_open_periods.close()
    rig.clock.now = true.now
    ((health, what),) = findings(rig)
    assert health is Health.ERROR
    assert "the next report of survey is planned for 2036-" in what
    before = dict(aggregator.taken)
    client = rig.client(HOMEPAGE, SURVEY, transport=aggregator)
    collaborators(client).uploader.start().stop(5)
    days(rig, true, 20, client)
    assert len(aggregator.taken) - len(before) >= 2 * 18
    assert (aggregator.twice, aggregator.early) == ([], [])
    assert max(period for _, period in aggregator.taken) < str(true.now.date())
    assert 1 <= caplog.text.count("the clock was ahead") <= 2
    counts = client.accounting()
    assert counts.dropped["clock"] == 2 * 28  # batches of the wrong clock, after a response confirmed the date
    require_balanced(counts)
    client.close()
    assert [health for health, _ in findings(rig)] == [Health.OK]


def test_recovers_from_clock_forty_days_ahead(rig: Rig, world: tuple[ManualClock, Aggregator]) -> None:
    true, aggregator = world
    client = rig.agreed(transport=aggregator)
    collaborators(client).uploader.start().stop(5)
    for _ in range(4):
        client.record("homepage", "https://example.org/")
        true.move(days=1)
        rig.clock.now = true.now
    with collaborators(client).journal as state:
        collaborators(client).builder.build_all(state)
        good = set(state.queue)
    assert len(good) == 4
    rig.clock.move(days=40)
    client.record("homepage", "https://example.org/")
    rig.clock.now = true.now
    with collaborators(client).journal as state:
        collaborators(client).builder.build_all(state)
        assert good <= set(state.queue)
    assert "batches of future days" in findings(rig)[0][1]
    days(rig, true, 45, client)
    assert aggregator.twice == []
    assert len(aggregator.taken) >= 47  # 49 days and no more; the one that had begun when the clock was wrong is lost
    counts = client.accounting()
    assert (counts.dropped["age"], counts.dropped["clock"]) == (0, 28)
    with collaborators(client).journal as state:
        (account,) = state.accounts.values()
        assert account.reports == counts.formed  # all that was made is on the ledger


def test_clock_behind_confirmed_time_creates_no_reports(rig: Rig, world: tuple[ManualClock, Aggregator]) -> None:
    """A machine that starts in 1970 and gets the time later from the network."""
    true, aggregator = world
    client = rig.agreed(transport=aggregator)
    collaborators(client).uploader.start().stop(5)
    days(rig, true, 5, client)
    with collaborators(client).journal as state:
        before = {key: account.next_period_start for key, account in state.accounts.items()}
    rig.clock.now = datetime(1970, 1, 1, tzinfo=UTC)
    client.record("homepage", "https://example.org/")
    with collaborators(client).journal as state:
        collaborators(client).builder.build_all(state)
        assert {key: account.next_period_start for key, account in state.accounts.items()} == before
    assert "which an aggregator confirmed" in findings(rig)[0][1]
    rig.clock.now = true.now
    days(rig, true, 5, client)
    assert aggregator.twice == []
    assert len(aggregator.taken) >= 9


def test_batch_age_uses_confirmed_time(rig: Rig, world: tuple[ManualClock, Aggregator]) -> None:
    true, aggregator = world
    client = rig.agreed(transport=aggregator)
    collaborators(client).uploader.start().stop(5)
    rig.clock.move(days=1)
    with collaborators(client).journal as state:
        collaborators(client).builder.build_all(state)
        rig.clock.move(days=60)
        collaborators(client).builder.build_all(state)
        assert (client.accounting().dropped["age"], state.formed) == (0, 29)
    true.now = rig.clock.now
    while collaborators(client).sender.attempt() == 0.0:
        pass
    counts = client.accounting()
    assert counts.dropped["age"] + counts.dropped["refused"] == 1
    require_balanced(counts)


def test_days_sent_under_clock_ahead_are_not_sent_again(rig: Rig, world: tuple[ManualClock, Aggregator]) -> None:
    """Ten days ahead, with an aggregator that accepts it and sends no Date. The journal is compacted and read again before these days come."""
    true, aggregator = world
    aggregator.says_the_date = lambda: False
    client = rig.agreed(transport=aggregator)
    collaborators(client).uploader.start().stop(5)
    rig.clock.move(days=10)
    true.now = rig.clock.now
    with collaborators(client).journal as state:
        collaborators(client).builder.build_all(state)
        made = list(state.queue)
    assert sum(collaborators(client).sender.send_now(batch_id) for batch_id in made) == 10
    assert collaborators(client).compactor.compact(always=True)
    client.close()
    true.move(days=-10)
    rig.clock.now = true.now
    client = rig.client(transport=aggregator)
    collaborators(client).uploader.start().stop(5)
    days(rig, true, 16, client)
    assert aggregator.twice == []
    assert len(aggregator.taken) >= 10 + 5


def test_unrecorded_metric_is_replanned_at_next_start(rig: Rig) -> None:
    client = rig.agreed(SURVEY)
    rig.clock.move(days=20)
    with collaborators(client).journal as state:
        collaborators(client).builder.build_all(state)
    client.close()
    rig.clock.move(days=-20)
    with collaborators(rig.client(SURVEY)).journal as state:
        assert [account.next_period_start for account in state.accounts.values()] == [str(TODAY)]


@pytest.mark.parametrize("metric", [HOMEPAGE, WEEKLY], ids=["day", "week"])
def test_random_clock_jumps_send_no_period_twice(
    metric: Metric, rig: Rig, world: tuple[ManualClock, Aggregator], unseen_seed: int
) -> None:
    """Lives under a clock that jumps weeks and years, some to aggregators that believe it; answers are lost."""
    chance = random.Random(unseen_seed)  # noqa: S311
    true, aggregator = world
    step = 1 if metric is HOMEPAGE else 7
    random_bytes = SeededBytes(unseen_seed)
    client = rig.agreed(metric, transport=aggregator, random_bytes=random_bytes, durability="memory")
    sender = collaborators(client).sender
    collaborators(client).uploader.start().stop(5)
    for _ in range(3):  # a report is sent in the period after its own: one at least is taken before anything goes wrong
        client.record(metric.name, "x" if metric is HOMEPAGE else True)
        true.move(days=step)
        rig.clock.now = true.now
        while sender.attempt() == 0.0:
            pass
    assert aggregator.taken
    aggregator.lost = lambda: chance.random() < 0.3
    aggregator.says_the_date = lambda: chance.random() < 0.3
    for moment in range(460):
        match chance.choice((2, 5, 6)) if moment < 60 else chance.randrange(8):
            case 0:
                rig.clock.now = true.now + timedelta(days=chance.choice((-9000, -40, -10, -3, -1, 1, 3, 10, 40, 3650)))
            case 1:
                true.now = rig.clock.now  # the aggregator's is as wrong
            case 2 | 3:
                true.move(days=step)
                rig.clock.now = true.now
            case 4:
                true.move(days=step)
                rig.clock.move(days=step)
            case 5:
                client.record(metric.name, "x" if metric is HOMEPAGE else True)
            case 6:
                for _ in range(chance.randrange(5)):
                    sender.attempt()
            case 7:
                assert collaborators(client).compactor.compact(always=True)
        assert aggregator.twice == []
    require_balanced(client.accounting())
    with collaborators(client).journal as state:
        (account,) = state.accounts.values()
        assert account.reports == state.formed >= len(aggregator.taken)
        assert all(state.was_attempted(metric.digest, period) for _, period in aggregator.taken)


def test_merge_runs_is_sorted_and_bounded(unseen_seed: int) -> None:
    chance, runs = random.Random(unseen_seed), []  # type: ignore[var-annotated]  # noqa: S311
    added = set()
    for _ in range(500):
        day = date(2026, 1, 1) + timedelta(days=chance.randrange(3000))
        added.add(str(day))
        runs = merge_runs(runs, str(day), str(day + timedelta(days=1)))
        assert len(runs) <= MAX_RUNS
        assert runs == sorted(runs)
        assert all(before[1] < after[0] for before, after in pairwise(runs))
    assert all(any(start <= day < end for start, end in runs) for day in added)


def test_deliver_ends_current_period(rig: Rig) -> None:
    client = rig.agreed()
    client.record("homepage", "x")
    assert (deliver(client), deliver(client)) == (1, 0)


@pytest.mark.parametrize("hold", [1, 2, 5, 30])
def test_clock_jumps_never_share_a_permanent_response(
    hold: int, rig: Rig, unseen_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lifetime epsilon counts epochs as independent: an epoch that a wrong clock visits again is charged and drawn again.

    p = 0, q = 1: equal reports are reports from one permanent response. 64 bits, so that no two are alike by chance.
    """
    drawn: Counter[bytes] = Counter()
    charge = Account.charge

    def counted(account: Account, report: EncodedReport) -> Account:
        drawn[report.bits] += 1
        return charge(account, report)

    monkeypatch.setattr(Account, "charge", counted)
    params = Params(num_bits=64, num_hashes=1, num_cohorts=1, prob_p=0, prob_q=1, prob_f=0.5)
    client, chance = rig.agreed(Metric.string("page", params, hold=hold)), random.Random(unseen_seed)  # noqa: S311
    real, error = rig.clock.now, timedelta(0)
    for _ in range(80):
        if chance.random() < 0.2:
            error = timedelta(days=chance.choice([0, 0, 3, 12, 20, 40, 400]))
        real += timedelta(days=1)
        rig.clock.now = real + error
        # "no value", so that a period without a draft reports the same; a draft of a wrong day may wait
        if chance.random() < 0.3:
            client.record("page", None)
        client.flush(5)
    with collaborators(client).journal as state:
        (account,) = state.accounts.values()
    assert sum(drawn.values()) == account.reports
    assert len(drawn) == account.units
    assert max(drawn.values()) <= hold


@pytest.mark.parametrize(
    "wrong",
    [
        datetime.min.replace(tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2025, 12, 31, 23, 59, tzinfo=UTC),
        datetime(9999, 1, 1, tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
    ],
)
@pytest.mark.parametrize("begins_right", [False, True])
def test_a_clock_that_cannot_be_right_makes_no_report(rig: Rig, wrong: datetime, begins_right: bool) -> None:
    """And raises nothing, at the first start and later."""
    right = rig.clock()
    if begins_right:
        rig.agreed(SURVEY, UPDATED, groups={"version": "1.0"}).close()
    rig.clock.now = wrong
    client = rig.agreed(SURVEY, UPDATED, groups={"version": "2.0"})
    client.record("survey", True)
    client.flush(0.1)
    assert client.inspect_html()
    client.inspect()
    assert client.consent.level == "on"
    counts = client.accounting()
    assert (counts.ignored["clock"], counts.formed) == (1, 0)
    with collaborators(client).journal as state:
        collaborators(client).builder.build_all(state, include_open_periods=True)
        assert {account.next_period_start for account in state.accounts.values()} <= {str(right.date())}
    client.close()
    rig.clock.now = right + timedelta(days=2)
    client = rig.client(SURVEY, UPDATED, groups={"version": "9"})
    client.record("survey", True)
    deliver(client)
    labels = [(batch.period, batch.group) for batch in rig.transport.batches if batch.metric == "updated"]
    days = [("2026-11-21", "1.x"), ("2026-11-22", "1.x")] if begins_right else []
    assert sorted(labels) == [*days, ("2026-11-23", "other")]
    require_balanced(client.accounting())
