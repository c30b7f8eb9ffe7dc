"""Recordings become drafts, and drafts become reports: one for each metric and period."""

from __future__ import annotations

import fcntl
import itertools
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from random import Random
from threading import Thread
from typing import Any, NoReturn

import pytest
from scipy import stats

from hubbub import Client, Metric, ParameterError, Params, PeriodKind, Policy, UnaryResponse
from hubbub.client import collaborators
from hubbub.encoding.bloom import bloom_bits
from hubbub.privacy.pricing import unit_price
from hubbub.sdk.recording.backlog import WaitingRecording
from hubbub.sdk.recording.batch_builder import Limits
from hubbub.sdk.recording.enrollment import Enrollment
from hubbub.sdk.storage.journal import LOCK_TIMEOUT_SECONDS
from hubbub.sdk.storage.state import MAX_SENT_BATCHES, State
from hubbub.sdk.storage.state_reader import read_state
from hubbub.sdk.storage.subject_table import SubjectTable
from hubbub.sdk.upload.retry_policy import UploadResponse
from hubbub.sdk.upload.uploader import EXIT_TIMEOUT_SECONDS, UploadLoop
from hubbub.testing import ManualClock, SeededBytes, deliver
from tests.client.conftest import HOMEPAGE, SURVEY, TODAY, Rig, require_balanced
from tests.support.every_kind import METRICS

ALPHA = 1e-6
PLAIN = Metric.categorical("plain", ("a", "b", "c", "d", "e"), UnaryResponse(prob_p=0, prob_q=1, prob_f=0))
"""Metric without noise: the report has the selected value."""
HELD = Metric.categorical("held", ("a", "b", "c"), UnaryResponse(prob_p=0, prob_q=1, prob_f=0), hold=7)


@pytest.mark.slow
def test_reservoir_sampling_is_uniform(rig: Rig, unseen_seed: int) -> None:
    """4,000 periods of 5 recordings; chi-squared over the 5 at alpha = 1e-6 (a share off by a fifth is seen)."""
    client = rig.agreed(PLAIN, random_bytes=SeededBytes(unseen_seed), durability="memory")
    chosen: Counter[bytes] = Counter()
    for period in range(4000):
        for value in PLAIN.kind.labels:
            client.record("plain", value)
        with collaborators(client).journal as state:
            (draft,) = state.drafts.values()
            chosen[draft.report.bits] += 1
        if period % 50 == 0:  # each new period iterates over the queue
            deliver(client)
        rig.clock.move(days=1)
    assert len(chosen) == 5
    counts = client.accounting()
    assert (counts.recorded, counts.chosen, counts.superseded) == (20_000, 4000, 16_000)
    require_balanced(counts)
    assert stats.chisquare(list(chosen.values())).pvalue > ALPHA


class YieldingCounts(Counter[str]):
    """Counts that let other threads run between the reading and the writing of a number."""

    def __getitem__(self, reason: str) -> int:
        number = super().__getitem__(reason)
        time.sleep(0.001)
        return number


@pytest.mark.parametrize(
    ("environment", "options", "reason"),
    [({"DO_NOT_TRACK": "1"}, {}, "consent"), ({}, {"per_subject": True}, "invalid"), ({}, {}, "unknown-metric")],
)
def test_threads_count_every_ignored_recording(
    environment: dict[str, str], options: dict[str, Any], reason: str, rig: Rig
) -> None:
    """Each reason is counted at another place of `record`."""
    client = rig.agreed(PLAIN, environment=environment, **options)
    collaborators(client).recorder.backlog.ignored = YieldingCounts()

    def record_many() -> None:
        for _ in range(20):
            client.record("unknown" if reason == "unknown-metric" else "plain", "a")

    threads = [Thread(target=record_many) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.accounting().ignored[reason] == 160


def test_every_period_has_one_report(rig: Rig) -> None:
    client = rig.agreed(HOMEPAGE, PLAIN)
    client.record("plain", "c")
    rig.clock.move(days=4)
    client.record("plain", "d")
    deliver(client)
    reports_per_period = Counter((batch.metric, batch.period) for batch in rig.transport.batches)
    days = [f"2026-11-{day}" for day in (21, 22, 23, 24, 25)]
    assert reports_per_period == {(name, day): 1 for name in ("homepage", "plain") for day in days}
    plain = {batch.period: batch.rows[0] for batch in rig.transport.batches if batch.metric == "plain"}
    assert plain == {days[0]: 0b100, days[1]: 0, days[2]: 0, days[3]: 0, days[4]: 0b1000}


def test_missed_open_periods_are_built_at_next_start(rig: Rig) -> None:
    rig.agreed(PLAIN).close()
    rig.clock.move(days=100)
    client = rig.client(PLAIN)
    assert client.accounting().formed == 28
    with collaborators(client).journal as state:
        oldest = min(waiting.batch.period for waiting in state.queue.values())
    assert oldest == str(date(2027, 3, 1).replace(day=1) - (date(2027, 3, 1) - date(2027, 2, 1)))


def test_send_time_is_uniform_over_next_period(rig: Rig, unseen_seed: int) -> None:
    """Kolmogorov-Smirnov against the uniform, 500 periods, alpha = 1e-6."""
    client = rig.agreed(PLAIN, random_bytes=SeededBytes(unseen_seed), durability="memory")
    moments = []
    for _ in range(500):
        rig.clock.now = rig.clock.now.replace(hour=0)
        rig.clock.move(days=1)
        with collaborators(client).journal as state:
            collaborators(client).builder.build_due(state)
            newest = max(state.queue.values(), key=lambda waiting: waiting.batch.period)
            moments.append((newest.send_at - rig.clock.now.timestamp()) / 86400)
    assert stats.kstest(moments, "uniform").pvalue > ALPHA


@pytest.mark.parametrize(
    ("kind", "start", "days"), [(PeriodKind.WEEK, "2026-11-16", 8), (PeriodKind.MONTH, "2026-11-01", 33)]
)
def test_weekly_and_monthly_periods_start_on_their_first_day(kind: PeriodKind, start: str, days: int, rig: Rig) -> None:
    metric = Metric.boolean("survey", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), period=kind)
    client = rig.agreed(metric)
    client.record("survey", True)
    rig.clock.move(days=days)
    client.record("survey", True)
    deliver(client)
    assert min(batch.period for batch in rig.transport.batches) == start


def test_ignored_recordings_are_counted_by_reason(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    expired = Metric.boolean("old", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), expires=TODAY)
    client = rig.agreed(HOMEPAGE, expired)
    client.record("homepage", 7)
    client.record("homepage", "\ud800")
    client.record("nothing", "x")
    for _ in range(2):
        client.record("old", True)
    assert caplog.text.count(f"record: old expired on {TODAY}: its recordings are ignored") == 1
    client.record("homepage", "x")
    counts = client.accounting()
    assert counts.ignored == {
        "consent": 0,
        "invalid": 2,
        "unknown-metric": 1,
        "policy": 0,
        "expired": 2,
        "no-state": 0,
        "clock": 0,
    }
    assert counts.recorded == 6
    require_balanced(counts)
    client.close()
    assert rig.client(HOMEPAGE, expired).accounting().chosen == 1


def test_wrong_calls_are_logged_once_without_value(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    client = rig.agreed(HOMEPAGE, PLAIN)
    with caplog.at_level(logging.DEBUG, "hubbub"):
        for _ in range(3):
            client.record("hompage", "canary")
            client.record("homepage", 424242)
            client.record("plain", "canary")
            client.record("https://canary.example.org/", "homepage")  # the arguments swapped
            client.record("canary", "homepage")
            client.record(["canary"], "x")  # type: ignore[arg-type]
        warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        for number in range(500):
            client.record(f"no_{number}", "x")
    assert [warning.partition(":")[0] for warning in warned] == ["record"] * 5
    assert "no such metric is defined; was 'homepage' meant? (defined: homepage, plain)" in warned[0]
    assert "homepage: a string metric accepts a str or None, got an int" in warned[1]
    assert "canary" not in caplog.text
    assert "424242" not in caplog.text
    assert len(caplog.records) < 120
    ignored = client.accounting().ignored
    assert (ignored["invalid"], ignored["unknown-metric"]) == (6, 512)


def test_per_subject_client_logs_and_counts_record_without_subject(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    server = rig.agreed(SURVEY, per_subject=True, durability="memory")
    for _ in range(2):
        server.record("survey", True)
    assert server.accounting().ignored["invalid"] == 2
    (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "call client.subject(id).record(...) instead of client.record(...)" in warning.getMessage()


@pytest.mark.parametrize("timeout", ["x", None, True, float("nan")])
def test_flush_rejects_timeout_that_is_no_number(timeout: Any, rig: Rig) -> None:
    with pytest.raises(ParameterError, match=r"timeout must be a number, got .*: pass a number of seconds"):
        rig.client().flush(timeout)


@pytest.mark.parametrize("timeout", [0, -1, 5.0, float("inf"), 10**400])
def test_flush_accepts_any_number(timeout: float, rig: Rig) -> None:
    assert rig.client().flush(timeout) in (True, False)


def test_hold_repeats_first_value_for_whole_epoch(rig: Rig) -> None:
    """2026-11-26 begins an epoch of seven days: all its reports have the value of the first day."""
    rig.clock.now = ManualClock(date(2026, 11, 26))()
    client = rig.agreed(HELD)
    for value in ("b", "c", "a", None, "c", "c", "c", "a"):
        if value:
            client.record("held", value)
        rig.clock.move(days=1)
    deliver(client)
    by_day = sorted((batch.period, batch.rows[0]) for batch in rig.transport.batches)
    assert [row for _, row in by_day] == [0b010] * 7 + [0b001, 0b001]
    with collaborators(client).journal as state:
        (account,) = state.accounts.values()
        assert (account.unit, account.units, account.reports) == ("epoch", 2, 9)


@pytest.mark.parametrize("recorded", [True, False])
def test_removed_definition_sends_no_reports(recorded: bool, rig: Rig) -> None:
    """Another program may still have the definition: its draft is kept for it."""
    client = rig.agreed(SURVEY)
    if recorded:
        client.record("survey", True)
    client.close()
    rig.clock.move(days=3)
    assert rig.client(PLAIN).accounting().formed == 0
    assert rig.client(SURVEY).accounting().formed == 3


def test_queue_limits_drop_oldest_batches(rig: Rig) -> None:
    client = rig.agreed(PLAIN, limits=Limits(max_reports=3))
    for _ in range(5):
        rig.clock.move(days=1)
        client.record("plain", "a")
    counts = client.accounting()
    assert (counts.formed, counts.queued, counts.dropped["quota"]) == (5, 3, 2)
    rig.transport.responses = [UploadResponse(503)] * 100
    rig.clock.move(days=27)
    client.flush(5)
    rig.clock.move(days=40)
    with collaborators(client).journal as state:
        collaborators(client).builder.build_due(state)
    counts = client.accounting()
    assert counts.dropped["age"] + counts.dropped["quota"] > 2
    require_balanced(counts)


def test_clock_set_back_does_not_reopen_period(rig: Rig) -> None:
    client = rig.agreed(PLAIN)
    client.record("plain", "a")
    rig.clock.move(days=1)
    client.record("plain", "b")
    rig.clock.move(days=-1)
    client.record("plain", "c")
    deliver(client)
    rig.clock.move(days=3)
    deliver(client)
    batches_by_period = Counter(batch.period for batch in rig.transport.batches)
    assert max(batches_by_period.values()) == 1


def test_processes_of_one_client_send_one_report_per_period(rig: Rig) -> None:
    clients = [rig.agreed(PLAIN) for _ in range(4)]
    for client in clients * 3:
        client.record("plain", "a")
    rig.clock.move(days=1)
    for client in clients:
        client.record("plain", "b")
    counts = clients[0].accounting()
    assert (counts.recorded, counts.chosen, counts.formed) == (16, 2, 1)
    require_balanced(counts)


def test_64_threads_count_every_recording(rig: Rig) -> None:
    client = rig.agreed(HOMEPAGE, SURVEY)

    def record_many() -> None:
        for number in range(25):
            client.record("homepage", str(number))
            client.record("survey", number % 2 == 0)

    threads = [Thread(target=record_many) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = client.accounting()
    assert (counts.recorded, counts.chosen, counts.damaged_records) == (64 * 50, 2, 0)
    require_balanced(counts)


def test_reports_of_many_subjects_are_built_in_slices(rig: Rig) -> None:
    """1,200 subjects: the first recording of a day forms only its own report, the rest come in parts of 500."""
    server = rig.agreed(SURVEY, per_subject=True, durability="memory")
    collaborators(server).uploader.stop()
    with collaborators(server).journal as state:
        for number in range(1200):
            collaborators(server).recorder.record(state, str(number), "survey", True)
        rig.clock.move(days=1)
        collaborators(server).recorder.record(state, "7", "survey", True)
        assert state.formed == 1
        formed_counts = []
        while collaborators(server).builder.build_due(state):
            formed_counts.append(state.formed)
        # in whichever part "7" is, there is one less to form
        assert formed_counts in ([500, 1000], [501, 1000], [501, 1001])
        assert state.formed == 1200
        state.subjects = NobodyMayLook()
        state.accounts = state.subjects.accounts
        assert not collaborators(server).builder.build_due(state)
        assert collaborators(server).builder.next_period_end(state) == datetime(2026, 11, 23, tzinfo=UTC)


def test_batch_rows_are_shuffled(rig: Rig, unseen_seed: int) -> None:
    """Twelve subjects, each with its own constant value, reported without noise; two metrics, 40 days.

    In the order of the accounts, row i would be one subject on all days and for both metrics: a pseudonym. Of 12 shuffled rows, one is on
    average at its position in the previous batch, with variance 1. So 79 pairs of batches have 79 +- 9 such rows. The Poisson bound at
    alpha = 1e-6 is 126.
    """
    names = tuple(str(n) for n in range(12))
    metrics = [
        Metric.categorical(name, names, UnaryResponse(prob_p=0, prob_q=1, prob_f=0)) for name in ("one", "other")
    ]
    server = rig.agreed(
        *metrics,
        per_subject=True,
        durability="memory",
        random_bytes=SeededBytes(unseen_seed),
        limits=Limits(max_reports=10_000),
    )
    collaborators(server).uploader.stop()  # its thread would send the first batches while later ones are made
    for _ in range(40):
        with collaborators(server).journal as state:
            for name in names:
                for metric in metrics:
                    collaborators(server).recorder.record(state, name, metric.name, name)
            rig.clock.move(days=1)
            collaborators(server).builder.build_all(state)
    orders = [queued.batch.rows for queued in state.queue.values()]
    assert [len(order) for order in orders] == [24] * 80
    assert len({tuple(sorted(order)) for order in orders}) == 1
    rows = [[order[at : at + 2] for at in range(0, 24, 2)] for order in orders]
    stayed = sum(
        one == other for before, after in itertools.pairwise(rows) for one, other in zip(before, after, strict=True)
    )
    assert stayed <= stats.poisson.isf(ALPHA, 79)


def test_batch_membership_is_redrawn_each_day(rig: Rig) -> None:
    """1,200 subjects are built 500 at a time: in the order of the accounts the same 500 would always share a batch."""
    server = rig.agreed(SURVEY, per_subject=True, durability="memory")
    collaborators(server).uploader.stop()
    together = []
    for _ in range(2):
        with collaborators(server).journal as state:
            for number in range(1200):
                collaborators(server).recorder.record(state, str(number), "survey", True)
            rig.clock.move(days=1)
            collaborators(server).builder.build_due(state)
            together.append(
                {key for key, account in state.accounts.items() if account.period_end() > rig.clock().date()}
            )
            collaborators(server).builder.build_all(state)
    assert [len(keys) for keys in together] == [500, 500]
    assert len(together[0] & together[1]) < 350  # 208 +- 9, were they drawn anew; 500, were they not


class NobodyMayLook(SubjectTable):
    def __iter__(self) -> NoReturn:
        raise AssertionError("a walk over all accounts")


def test_start_enrolls_many_subjects_in_slices(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,200 subjects and a stricter policy: a recording does not wait for the other subjects, and no report uses the old policy."""
    server = rig.agreed(SURVEY, HOMEPAGE, per_subject=True)
    for number in range(1200):
        server.subject(str(number)).record("survey", True)
    server.close()
    looked: list[str] = []
    allocate = Enrollment._allocate

    def counted(enroller: Enrollment, state: State, subject: str) -> None:
        looked.append(subject)
        allocate(enroller, state, subject)

    monkeypatch.setattr(Enrollment, "_allocate", counted)
    monkeypatch.setattr(UploadLoop, "start", lambda _: None)
    strict = Policy(epsilon_total=1.2)  # room for one of the survey's two values
    again = rig.client(SURVEY, HOMEPAGE, per_subject=True, policy=strict)
    parts = collaborators(again)
    assert len(looked) == 500
    with collaborators(again).journal as state:
        secret = parts.encoders.secret(state)
        assert secret is not None
        tags = {parts.encoders.subject(state, secret, str(n)): str(n) for n in range(1200)}
        somebody = next(iter(parts.enrollment._not_enrolled))
        parts.recorder.record(state, tags[somebody], "survey", True)
        assert looked[500:] == [somebody]
        while parts.builder.build_due(state):
            pass
        assert len(looked) == len(set(looked)) == 1200
        assert {account.reserved_units for account in state.accounts.values() if account.metric == "survey"} == {1}


def test_last_sent_batches_are_kept(rig: Rig) -> None:
    client = rig.agreed(SURVEY)
    for _ in range(MAX_SENT_BATCHES + 3):
        rig.clock.move(days=1)
        deliver(client)
    collaborators(client).compactor.compact(always=True)
    assert [batch.to_json() for batch in read_state(rig.state).last_sent.values()] == rig.transport.bodies[
        -MAX_SENT_BATCHES:
    ]
    client.set_consent("off")
    assert read_state(rig.state).last_sent == {}


def test_values_with_equal_bits_are_charged_and_repeated_one_by_one(rig: Rig) -> None:
    """With two units left, the value reported last stands in for the third; reports are permanent responses (docs/decisions/0124)."""
    params = Params(num_bits=64, num_hashes=1, num_cohorts=1, prob_p=0, prob_q=1, permanent_p=0.2, permanent_q=0.6)
    pages = Metric.string("pages", params)
    names = (name for name in map(str, itertools.count()) if bloom_bits(pages, name, 0) == 1)
    first, second, third = itertools.islice(names, 3)
    price = unit_price(pages).epsilon
    policy = Policy(epsilon_report=999, epsilon_enrollment=2 * price, epsilon_metric=2 * price, epsilon_total=9 * price)
    client = rig.agreed(pages, policy=policy)
    for value in (first, second, first, third, second):
        client.record("pages", value)
        deliver(client)
        rig.clock.move(days=1)
    client.record("pages", first)
    deliver(client)
    with collaborators(client).journal as state:
        (account,) = state.accounts.values()
        waiting = [queued.batch for queued in state.queue.values()]
    rows = [batch.rows for batch in (*rig.transport.batches, *waiting)]
    assert len(rows) >= 5
    assert rows[0] == rows[2] == rows[3] != rows[1] == rows[4]
    assert len(account.tags) == 2


TWO_VALUES: dict[str, list[Any]] = {"dark": [True, False], "plugins": [["vim"], []], "browser": ["firefox", "chromium"]}
LIMITED = [metric for metric in METRICS if metric.name in TWO_VALUES]


@pytest.mark.parametrize("history", range(20))
def test_no_history_spends_more_than_is_reserved(rig: Rig, unseen_seed: int, history: int) -> None:
    """Random recordings, days, and clocks that go forth and back, with room for one or two units."""
    random = Random(unseen_seed + history)  # noqa: S311  (a test)
    metrics = [replace(metric, hold=random.choice([None, 2])) for metric in LIMITED]
    epsilon = random.choice([2.3, 4.5])
    policy = Policy(epsilon_report=3, epsilon_enrollment=epsilon, epsilon_metric=epsilon, epsilon_total=100)
    client = rig.agreed(*metrics, policy=policy, durability="memory")
    for _ in range(40):
        metric = random.choice(metrics)
        client.record(metric.name, random.choice(TWO_VALUES[metric.name]))
        if random.random() < 0.5:
            rig.clock.move(hours=random.choice([-48, -20, 20, 24, 72]))
        if random.random() < 0.3:
            client.flush(2)
        for account in client.ledger().accounts:
            assert account.units <= account.reserved_units, account


def test_signal_handler_takes_the_last_postponed_recording(rig: Rig) -> None:
    """A handler that called `accounting` between the question for a postponed recording and its removal: the interrupted call raised."""
    client = rig.agreed()
    backlog, known = collaborators(client).recorder.backlog, collaborators(client).journal.known_consent

    class Interrupted(deque[WaitingRecording]):
        def popleft(self) -> WaitingRecording:
            backlog.recordings = deque(self)  # what the handler sees
            self.clear()
            client.accounting()
            return super().popleft()

    backlog.recordings = Interrupted([WaitingRecording(None, "homepage", "x", rig.clock(), known)])
    assert client.accounting().recorded == 1


@pytest.mark.parametrize("end", ["close", "_stop"])
def test_ignored_recordings_of_a_short_program_are_saved(end: str, rig: Rig) -> None:
    client = rig.agreed()
    collaborators(client).uploader.stop(5)
    collaborators(client).uploader._sender._prepare = None  # the program ends before its thread saves them
    for _ in range(3):
        client.record("unknown", "x")
    getattr(client, end)()
    assert read_state(rig.state).accounting().ignored["unknown-metric"] == 3


ENDS: dict[str, Callable[[Client], None]] = {"close": Client.close, "exit": Client._stop}


@contextmanager
def held(rig: Rig, client: Client) -> Iterator[list[float]]:
    """Another process holds the directory's lock; yields the pauses of this one, which take no time. No thread of the client runs."""
    parts, pauses = collaborators(client), list[float]()
    parts.uploader.stop(5)
    parts.uploader.wake = lambda: None  # type: ignore[method-assign]
    parts.journal._sleep = pauses.append
    rig.state.mkdir(exist_ok=True)
    with (rig.state / "lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield pauses


@pytest.mark.parametrize("end", list(ENDS))
def test_end_takes_postponed_recordings(end: str, rig: Rig) -> None:
    client = rig.agreed(PLAIN)
    with held(rig, client):
        client.record("plain", "a")
        client.record("plain", "b")
    ENDS[end](client)
    assert read_state(rig.state).accounting().recorded == 2


@pytest.mark.parametrize("end", list(ENDS))
def test_end_of_a_client_that_may_not_record_leaves_no_files(end: str, rig: Rig) -> None:
    client = rig.client(PLAIN, environment={"DO_NOT_TRACK": "1"})
    client.record("plain", "a")
    ENDS[end](client)
    assert not rig.state.exists()
    assert client.accounting().ignored["consent"] == 1


@pytest.mark.parametrize("end", list(ENDS))
def test_end_of_a_client_that_may_not_record_waits_for_no_process(end: str, rig: Rig) -> None:
    client = rig.client(PLAIN, environment={"DO_NOT_TRACK": "1"})
    client.record("plain", "a")
    with held(rig, client) as pauses:
        ENDS[end](client)
    assert pauses == []


@pytest.mark.parametrize("name", ["plain", "unknown"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("end", list(ENDS))
def test_end_after_a_withdrawal_waits_for_no_process(end: str, when: str, name: str, rig: Rig) -> None:
    """The counts of what was ignored before or after "off" are not saved, so nobody waits to save them."""
    client = rig.agreed(PLAIN)
    collaborators(client).uploader.stop(5)
    collaborators(client).uploader.wake = lambda: None  # type: ignore[method-assign]
    if when == "before":
        client.record(name, "a")
    client.set_consent("off")
    if when == "after":
        client.record(name, "a")
    with held(rig, client) as pauses:
        ENDS[end](client)
    assert pauses == []


def test_exit_waits_for_another_process_no_longer_than_for_the_upload_thread(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    client = rig.agreed(PLAIN)
    collaborators(client).uploader.stop(5)
    collaborators(client).uploader.wake = lambda: None  # type: ignore[method-assign]
    client.record("unknown")
    caplog.clear()
    with held(rig, client) as pauses:
        client._stop()
        assert 0 < sum(pauses[:-1]) < EXIT_TIMEOUT_SECONDS
    assert (
        f"its last recordings are not saved. Call close() before the end: it waits up to {LOCK_TIMEOUT_SECONDS:g} seconds"
        in caplog.text
    )
    assert "does not continue" not in caplog.text
    assert client.accounting().ignored["unknown-metric"] == 1
    assert collaborators(client).journal.sync()
