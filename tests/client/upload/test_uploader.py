"""Uploads: every report once, unchanged bytes for possibly delivered batches, no burst after an outage."""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from scipy import stats

from hubbub import Metric, Period, PeriodKind, Policy, UnaryResponse
from hubbub.client import collaborators
from hubbub.sdk.storage.events import BatchCreation, QueuedBatch
from hubbub.sdk.upload.retry_policy import NO_RESPONSE, NOT_SENT, UploadResponse, split_batch
from hubbub.sdk.upload.transport import always
from hubbub.testing import ManualClock, RecordingTransport, SeededBytes, deliver
from hubbub.wire.batch import Batch
from tests.client.conftest import HOMEPAGE, SURVEY, TODAY, Rig, require_balanced


@pytest.mark.parametrize(
    "answer",
    [
        *(
            NO_RESPONSE,
            UploadResponse(503),
            UploadResponse(503, "unavailable"),
            UploadResponse(200, batch_id="a portal's"),
        ),
        *(UploadResponse(status) for status in (302, 400, 410, 413, 422)),
    ],
)
def test_unaccepted_batch_is_resent_unchanged(answer: UploadResponse, rig: Rig) -> None:
    rig.transport.responses = [answer] * 50
    for attempt in range(51):
        client = rig.agreed()
        if attempt == 0:
            client.record("homepage", "x")
            deliver(client)
        with collaborators(client).journal as state:
            waiting = list(state.queue)
        for batch_id in waiting:
            collaborators(client).sender.send_now(batch_id)
        client.close()
    assert len(rig.transport.bodies) > 50
    assert len(set(rig.transport.bodies)) == 1
    assert client.accounting().acknowledged == 1


def test_413_splits_batch_and_quarantines_one_that_was_possibly_delivered(rig: Rig) -> None:
    client = rig.agreed()
    with collaborators(client).journal:
        empty = Batch.from_reports(HOMEPAGE, _period(), [])
        batch = Batch(empty.batch_id, empty.metric, empty.digest, empty.period, bytes(range(5)), bytes(range(40)))
        queued = QueuedBatch(batch, PeriodKind.DAY, send_at=0.0)
        created = BatchCreation(5, queued, accounts=(), stood_in=0)
        collaborators(client).journal.write(created)
    whole = str(batch.batch_id)
    rig.transport.responses = [UploadResponse(413, "too-large")]
    collaborators(client).sender.send_now(whole)
    with collaborators(client).journal as state:
        first, second = (waiting.batch for waiting in state.queue.values())
        assert first.cohorts + second.cohorts == batch.cohorts
        assert first.rows + second.rows == batch.rows
        assert len({whole, str(first.batch_id), str(second.batch_id)}) == 3
        assert not any(waiting.possibly_delivered for waiting in state.queue.values())
    rig.transport.responses = [NO_RESPONSE, UploadResponse(413, "too-large")]
    for _ in range(2):
        collaborators(client).sender.send_now(str(first.batch_id))
    with collaborators(client).journal as state:
        assert set(state.queue) == {str(second.batch_id)}
        assert set(state.quarantine) == {str(first.batch_id)}
    require_balanced(client.accounting())


def _period() -> Period:
    return Period(TODAY, PeriodKind.DAY)


@pytest.mark.parametrize("before", [None, NO_RESPONSE, UploadResponse(502), UploadResponse(413)])
def test_refused_report_is_quarantined_whatever_was_answered_before(before: UploadResponse | None, rig: Rig) -> None:
    """An aggregator refuses only what it has not stored, so a refusal settles a batch that may have been delivered, too."""
    client = rig.agreed()
    rig.transport.responses = [*([before] if before else []), UploadResponse(422, "wrong-size")]
    for _ in rig.transport.responses[:]:
        deliver(client)
    counts = client.accounting()
    assert (counts.quarantined, counts.queued) == (1, 0)
    require_balanced(counts)


@pytest.mark.parametrize(
    "answer", [NOT_SENT, NO_RESPONSE, UploadResponse(502), UploadResponse(413), UploadResponse(503, "unavailable")]
)
def test_an_attempt_leaves_a_doubt_unless_the_aggregator_answers(answer: UploadResponse, rig: Rig) -> None:
    """A proxy's 504 may come after the aggregator stored the batch."""
    client = rig.agreed()
    rig.transport.responses = [answer]
    deliver(client)
    with collaborators(client).journal as state:
        assert [waiting.possibly_delivered for waiting in state.queue.values()] == [
            answer not in (NOT_SENT, UploadResponse(503, "unavailable"))
        ]


def test_failed_uploads_are_counted_by_reason(rig: Rig) -> None:
    client = rig.agreed()
    rig.transport.responses = [NOT_SENT, UploadResponse(404), UploadResponse(413), UploadResponse(503, "unavailable")]
    for _ in range(5):
        deliver(client)
        collaborators(client).compactor.compact(always=True)
    client.close()
    counts = rig.client().accounting()
    assert counts.failed_uploads == {"no-response": 1, "unrecognized": 2, "postponed": 1}
    assert counts.acknowledged == 1
    require_balanced(counts)


@pytest.mark.parametrize(
    "answer", [UploadResponse(403), UploadResponse(500, "internal-error"), UploadResponse(401, "unauthorized")]
)
def test_a_batch_that_always_fails_does_not_hold_up_the_others(
    answer: UploadResponse, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A firewall may take the random bits of one report for an attack."""
    monkeypatch.setattr("hubbub.sdk.upload.uploader.UploadLoop.start", lambda _: None)
    client = rig.agreed(*METRICS)
    accepting, blocked = rig.transport.send, "question_2"

    def send(body: bytes, is_wanted: object = None) -> UploadResponse:
        return answer if json.loads(body)["metric"] == blocked else accepting(body)

    monkeypatch.setattr(rig.transport, "send", send)
    for _ in range(10 * 24):
        rig.clock.move(hours=1)
        while collaborators(client).sender.attempt() == 0:
            pass
    periods = Counter(batch.metric for batch in rig.transport.batches)
    assert min(periods[metric.name] for metric in METRICS if metric.name != blocked) >= 5
    with collaborators(client).journal as state:
        assert {waiting.batch.metric for waiting in state.queue.values()} >= {blocked}
    require_balanced(client.accounting())


def test_the_clock_of_a_portal_confirms_nothing(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """Neither that the system clock is right, after which batches are dropped, nor that it is wrong."""
    client = rig.agreed()
    dates = ["Sat, 01 Jan 2000 00:00:00 GMT", format_datetime(rig.clock() + timedelta(days=1), usegmt=True)]
    rig.transport.responses = [UploadResponse(status, date=date) for date in dates for status in (200, 410, 503)]
    for _ in range(6):
        deliver(client)
    with collaborators(client).journal as state:
        assert (state.clock_confirmed_at, len(state.queue)) == (0.0, 1)
    assert "the system clock differs" not in caplog.text


def test_unsent_batch_is_not_possibly_delivered(rig: Rig) -> None:
    client = rig.agreed()
    rig.transport.responses = [NOT_SENT]
    deliver(client)
    with collaborators(client).journal as state:
        assert [waiting.possibly_delivered for waiting in state.queue.values()] == [False]
    rig.transport.responses = [NO_RESPONSE]
    with collaborators(client).journal as state:
        (batch_id,) = state.queue
    collaborators(client).sender.send_now(batch_id)
    with collaborators(client).journal as state:
        assert [waiting.possibly_delivered for waiting in state.queue.values()] == [True]


def test_kill_during_upload_marks_batch_possibly_delivered(rig: Rig) -> None:
    client = rig.agreed()

    def killed(body: bytes, is_wanted: object) -> UploadResponse:
        raise KeyboardInterrupt

    rig.transport.send = killed  # type: ignore[method-assign,assignment]
    with pytest.raises(KeyboardInterrupt):
        deliver(client)
    with collaborators(rig.client()).journal as state:
        assert [waiting.possibly_delivered for waiting in state.queue.values()] == [True]


def test_closed_period_and_expired_metric_drop_batches(rig: Rig) -> None:
    client = rig.agreed(HOMEPAGE, SURVEY)
    rig.transport.responses = [NOT_SENT] * 2
    deliver(client)
    rig.clock.move(days=1)
    rig.transport.responses = [UploadResponse(410, "period-closed"), UploadResponse(410, "metric-expired")]
    deliver(client)
    counts = client.accounting()
    assert (counts.dropped["refused"], counts.dropped["expired"]) == (1, 2)
    require_balanced(counts)


def test_digest_mismatch_holds_only_its_metric_for_a_day(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """A process of the aggregator that lacks a definition for a while costs no report."""
    client = rig.agreed(HOMEPAGE, SURVEY)
    rig.transport.responses = [UploadResponse(409, "digest-mismatch")]

    def sent(since: int) -> set[str]:
        return {json.loads(body)["metric"] for body in rig.transport.bodies[since:]}

    with caplog.at_level(logging.WARNING, "hubbub"):
        deliver(client)
        (held,) = sent(0) - sent(1)
        tried = len(rig.transport.bodies)
        rig.clock.move(hours=23)
        deliver(client)
        assert held not in sent(tried)
        with collaborators(client).journal as state:
            assert (state.held_metrics(), state.unknown_metrics()) == ([held], [])
        tried = len(rig.transport.bodies)
        rig.clock.move(hours=2)
        deliver(client)
    assert held in sent(tried)
    assert caplog.text.count("definition differs from this app") == 1
    with collaborators(client).journal as state:
        assert state.held_metrics() == []


def test_repeated_digest_mismatch_is_logged_once(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    client = rig.agreed()
    rig.transport.responses = [UploadResponse(409, "digest-mismatch")] * 9
    with caplog.at_level(logging.WARNING, "hubbub"):
        for _ in range(3):
            tried = len(rig.transport.bodies)
            deliver(client)
            assert len(rig.transport.bodies) > tried
            rig.clock.move(days=1, hours=1)
    assert caplog.text.count("definition differs from this app") == 1


def test_unknown_metric_is_logged_once_until_aggregator_accepts_it(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    client = rig.agreed()
    rig.transport.responses = [UploadResponse(404, "unknown-metric")] * 2
    with caplog.at_level(logging.WARNING, "hubbub"):
        for _ in range(2):
            deliver(client)
            with collaborators(client).journal as state:
                assert (state.unknown_metrics(), state.last_error) == (["homepage"], "404 unknown-metric (homepage)")
            rig.clock.move(hours=2)
    assert caplog.text.count("homepage: the aggregator has no metric of this name") == 1
    deliver(client)
    assert client.accounting().acknowledged >= 1
    with collaborators(client).journal as state:
        assert (state.unknown_metrics(), state.last_error) == ([], "")


@pytest.mark.parametrize(("status", "problem"), [(401, "unauthorized"), (403, "forbidden"), (404, "not-found")])
def test_a_wrong_url_or_token_pauses_uploads_for_an_hour(status: int, problem: str, rig: Rig) -> None:
    client = rig.agreed()
    rig.transport.responses = [UploadResponse(status, problem)]
    deliver(client)
    rig.clock.move(minutes=59)
    assert collaborators(client).sender.attempt() > 0
    assert len(rig.transport.bodies) == 1
    rig.clock.move(days=2)
    while collaborators(client).sender.attempt() == 0:
        pass
    assert client.accounting().acknowledged >= 1


def test_backoff_survives_restart(rig: Rig) -> None:
    client = rig.agreed()
    rig.transport.responses = [UploadResponse(429, retry_after="1800")]
    deliver(client)
    client.close()
    rig.clock.move(minutes=29)
    client = rig.client()
    assert collaborators(client).sender.attempt() > 0
    assert len(rig.transport.bodies) == 1
    with collaborators(client).journal as state:
        assert state.failures == 1
        assert state.backoff_until > rig.clock().timestamp()


def test_wrong_clock_holds_reports_and_warns_once(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """A wrong clock builds wrong periods; the aggregator's 410 for them must not delete them."""
    client = rig.agreed()
    wrong = UploadResponse(410, "period-closed", date="Sat, 01 Jan 2000 00:00:00 GMT")
    rig.transport.responses = [wrong, wrong]
    with caplog.at_level(logging.WARNING, "hubbub"):
        deliver(client)
        deliver(client)
    assert caplog.text.count("the system clock differs") == 1
    counts = client.accounting()
    assert (counts.queued, counts.formed) == (1, 1)


@pytest.mark.slow
def test_outage_loses_nothing_and_ends_without_burst(unseen_seed: int) -> None:
    """40 clients, 25 days without an aggregator; then every report arrives, at times uniform over the next day (Kolmogorov-Smirnov, alpha = 1e-6)."""
    import tempfile
    from pathlib import Path

    moments: list[float] = []
    clients_by_reports: Counter[int] = Counter()
    with tempfile.TemporaryDirectory() as place:
        for number in range(40):
            rig = Rig(Path(place) / str(number), ManualClock(TODAY), RecordingTransport(), [])
            rig.transport.responses = [NOT_SENT] * 10_000
            client = rig.agreed(SURVEY, durability="memory", random_bytes=SeededBytes(unseen_seed + number))
            collaborators(client).uploader.start().stop(1)
            sender = collaborators(client).sender
            for _ in range(25 * 4):
                rig.clock.move(hours=6)
                sender.attempt()
            rig.transport.responses = []
            over, before = rig.clock().timestamp(), len(rig.transport.bodies)
            assert before < 25 * 4 + 1
            first = None
            for _ in range(2 * 24 * 6):
                rig.clock.move(minutes=10)
                while sender.attempt() == 0:
                    at = rig.clock().timestamp()
                    if first is None:
                        first = at
                    else:
                        moments.append((at - first) / 86400)
            assert over < (first or 0)
            counts = client.accounting()
            require_balanced(counts)
            assert counts.dropped == dict.fromkeys(counts.dropped, 0)
            clients_by_reports[counts.acknowledged] += 1
            assert {batch.period for batch in rig.transport.batches} >= {f"2026-11-{day}" for day in range(21, 31)}
            client.close()
    assert min(clients_by_reports) >= 25
    within = [moment for moment in moments if moment <= 1]
    assert len(within) > 800
    assert stats.kstest(within, "uniform").pvalue > 1e-6


METRICS = [Metric.boolean(f"question_{i}", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5)) for i in range(5)]


def an_hour_a_day(rig: Rig, days: int, random_bytes: SeededBytes, seconds: int = 3600) -> list[tuple[int, float]]:
    """Return (day, seconds since its start) of each report of an app that runs from 9 o'clock on."""
    sent: list[tuple[int, float]] = []
    for day in range(days):
        start = rig.clock.now = datetime(2026, 11, 21, 9, tzinfo=UTC) + timedelta(days=day)
        client = rig.agreed(*METRICS, random_bytes=random_bytes)
        sender = collaborators(client).sender
        collaborators(client).uploader.stop()
        while (left := seconds - (rig.clock() - start).total_seconds()) > 0:
            before = len(rig.transport.bodies)
            pause = sender.attempt()
            sent += [(day, (rig.clock() - start).total_seconds())] * (len(rig.transport.bodies) - before)
            if pause:
                rig.clock.move(seconds=min(max(pause, 0.001), left + 0.001))
        client.close()
    return sent


def test_overdue_reports_are_rescheduled_separately(
    rig: Rig, unseen_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An app that runs an hour a day: all but a few left in the instant of its start, together. Kolmogorov-Smirnov over its hour, alpha = 1e-6."""
    monkeypatch.setattr("hubbub.sdk.upload.uploader.UploadLoop.start", lambda _: None)
    sent = an_hour_a_day(rig, 60, SeededBytes(unseen_seed))
    assert len(sent) > 5 * 57  # of the last days some wait for the next start
    assert len(set(sent)) == len(sent)
    assert stats.kstest([moment / 3600 for _, moment in sent], "uniform").pvalue > 1e-6
    require_balanced(rig.client(*METRICS).accounting())


@pytest.mark.parametrize("days", [2, 13, 20, 27])
def test_reports_of_an_absence_leave_at_separate_times_of_the_first_hour(
    days: int, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of yesterday may also leave at a later time of today."""
    monkeypatch.setattr("hubbub.sdk.upload.uploader.UploadLoop.start", lambda _: None)
    rig.agreed(*METRICS).close()
    rig.clock.move(days=days)
    client = rig.agreed(*METRICS)
    collaborators(client).sender.attempt()  # forms
    now, yesterday = rig.clock().timestamp(), str(rig.clock().date() - timedelta(days=1))
    with collaborators(client).journal as state:
        late = [queued.send_at for queued in state.queue.values() if queued.batch.period < yesterday]
        others = [queued.send_at for queued in state.queue.values() if queued.batch.period == yesterday]
    assert len(late) == len(set(late)) == len(METRICS) * (days - 1)
    assert all(now <= moment <= now + 3600 for moment in late)
    assert all(now <= moment <= now + 86400 for moment in others)


def test_flush_after_an_outage_sends_no_burst(rig: Rig) -> None:
    rig.agreed(*METRICS).close()
    rig.clock.move(days=3)
    rig.transport.responses = [UploadResponse(503, "")]
    client = rig.agreed(*METRICS)
    client.flush(0.5)
    rig.clock.move(hours=2)
    client.flush(0.5)
    assert len(rig.transport.bodies) == 2  # the one without an answer, again


def test_flush_sends_no_report_of_a_period_that_is_not_over(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock was ahead when they were made."""
    client = rig.agreed(*METRICS)
    with monkeypatch.context() as still:
        still.setattr("hubbub.sdk.upload.uploader.UploadLoop.start", lambda _: None)
        collaborators(client).uploader.stop()
        rig.clock.move(days=4)
        collaborators(client).sender.attempt()  # forms
    rig.clock.move(days=-3)
    today = str(rig.clock().date())
    client.flush(5)
    sent = [batch.period for batch in rig.transport.batches]
    assert sent
    assert max(sent) < today


def test_monthly_reports_are_due_two_weeks_before_they_end(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """So an app that runs once a week sends them all. Over 28 days, all 60 would be due by then with probability 1e-18."""
    monkeypatch.setattr("hubbub.sdk.upload.uploader.UploadLoop.start", lambda _: None)
    noise = {"prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.5}
    metrics = [Metric.boolean(f"m{number}", UnaryResponse(**noise), period="month") for number in range(60)]
    unlimited = Policy(epsilon_enrollment=1e6, epsilon_metric=1e6, epsilon_total=1e6)
    client = rig.agreed(*metrics, policy=unlimited)
    rig.clock.now = datetime(2026, 12, 1, tzinfo=UTC)
    collaborators(client).sender.attempt()  # forms
    with collaborators(client).journal as state:
        waits = [queued.send_at - queued.period_end().timestamp() for queued in state.queue.values()]
    assert len(waits) == 60
    assert 7 * 86400 < max(waits) <= 14 * 86400


def test_short_runs_deliver_overdue_reports_at_next_start(
    rig: Rig, unseen_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubbub.sdk.upload.uploader.UploadLoop.start", lambda _: None)
    sent = an_hour_a_day(rig, 10, SeededBytes(unseen_seed), seconds=1)
    batches_by_period = Counter(batch.period for batch in rig.transport.batches)
    # Formed on the day after, late then or a day later, sent at the start after that.
    assert {batches_by_period[f"2026-11-{day}"] for day in range(21, 28)} == {5}
    assert max(batches_by_period) <= "2026-11-28"
    assert max(Counter(sent).values()) >= 5  # together, as docs/explanation/privacy.md states
    assert rig.client(*METRICS).accounting().dropped["age"] == 0


def test_flush_sends_rescheduled_batches_now(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    client = rig.agreed(*METRICS)
    with monkeypatch.context() as still:
        still.setattr("hubbub.sdk.upload.uploader.UploadLoop.start", lambda _: None)
        collaborators(client).uploader.stop()
        rig.clock.now = datetime(2026, 11, 22, tzinfo=UTC)
        sender = collaborators(client).sender
        sender.attempt()  # forms
        rig.clock.move(days=2)
        while sender.attempt() == 0:
            pass
        with collaborators(client).journal as state:
            assert [
                queued.rescheduled for queued in state.queue.values() if queued.send_at <= rig.clock().timestamp()
            ] == []
            late = {batch_id for batch_id, queued in state.queue.items() if queued.rescheduled}
        collaborators(client).compactor.compact(always=True)
        with collaborators(client).journal as state:
            assert {batch_id for batch_id, queued in state.queue.items() if queued.rescheduled} == late
    assert len(late) == 10  # of two days
    assert client.flush(10)
    assert len(rig.transport.bodies) == 10


def test_split_batch_keeps_all_rows() -> None:
    chance = random.Random(1)  # noqa: S311
    for n in range(2, 20):
        rows = chance.randbytes(8 * n)
        batch = Batch(Batch.from_reports(HOMEPAGE, _period(), []).batch_id, "m", "d", "p", bytes(range(n)), rows)
        first, second = split_batch(batch, SeededBytes(n))
        assert (first.cohorts + second.cohorts, first.rows + second.rows) == (batch.cohorts, rows)
        assert abs(len(first) - len(second)) <= 1


def test_flush_ends_in_time_when_a_test_has_frozen_the_clock(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited for the answer of a server that said nothing: a frozen `time.monotonic` never reached the deadline."""
    answer, asked = threading.Event(), threading.Event()

    class Mute(RecordingTransport):
        def send(self, body: bytes, is_wanted: Callable[[], bool] = always) -> UploadResponse:
            asked.set()
            answer.wait()
            return super().send(body, is_wanted)

    client = rig.agreed(transport=Mute())
    client.record("homepage", "x")
    rig.clock.move(days=3)
    monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: 1e6 if asked.is_set() else now())
    results: list[bool] = []
    flushing = threading.Thread(target=lambda: results.append(client.flush(0.5)), daemon=True)
    flushing.start()
    flushing.join(30)
    is_waiting = flushing.is_alive()
    monkeypatch.undo()
    answer.set()
    flushing.join()
    assert (is_waiting, results) == (False, [False])
