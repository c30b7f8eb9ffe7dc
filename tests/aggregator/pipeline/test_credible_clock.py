"""Credible clock: random jumps, drift, suspension, restarts, downtime and replicas."""

from __future__ import annotations

import json
import logging
import math
import time
import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from sqlalchemy import delete, insert

from hubbub import Batch, Definitions, Metric, UnaryResponse
from hubbub.cli import main
from hubbub.cli.findings import Health
from hubbub.wire.dates import parse_period
from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.api.batch_validation import admit
from hubbub_aggregator.app import CLOCK_CHECK_SECONDS
from hubbub_aggregator.cli.database_checks import check_clock
from hubbub_aggregator.database.engine import open_postgres, open_sqlite, transaction
from hubbub_aggregator.database.location import is_postgres
from hubbub_aggregator.database.schema import tables
from hubbub_aggregator.pipeline.credible_clock import CredibleClock, Reading, accept
from hubbub_aggregator.pipeline.folding import read_summary
from hubbub_aggregator.pipeline.retention import counts_expire_at, keeps_reports, upkeep
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.clock_state import (
    MAX_DRIFT,
    SETTLING,
    TOLERANCE,
    ClockState,
    ClockStatus,
    ClockStore,
    StoredClock,
    first,
    observed,
)
from hubbub_aggregator.store.interface import AppendResult
from hubbub_aggregator.store.sql_store import SqlStore
from tests.aggregator.conftest import running

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch

START = datetime(2024, 6, 15, 12, tzinfo=UTC)
HOUR, DAY = 3_600.0, 86_400.0
DAYS = timedelta(days=1)
METRIC = Metric.boolean("one", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5))
DEFINITIONS = Definitions([METRIC])
KEPT = Settings(keep_counts={"one": 31}, keep_reports={"one": 31})
seconds = START.timestamp()


@dataclass
class MemoryClockStore:
    """The row of the clock, rounded as a database rounds it."""

    saved: StoredClock | None = None
    writes: int = 0

    def wall_clock(self) -> float:
        raise AssertionError("the test has the wall clock")

    def clock(self) -> StoredClock | None:
        return self.saved

    def save_clock(self, new: StoredClock, replaces: int | None) -> bool:
        if (None if self.saved is None else self.saved.state.generation) != replaces:
            return False
        self.saved, self.writes = new, self.writes + 1
        return True


@dataclass
class World:
    """True time, and the clocks of the machines, in seconds."""

    now: float = seconds
    offset: float = 0.0  # of the wall clock that all replicas share
    booted: float = seconds - 1000.0
    boot: int = 0
    stalled: list[float] = field(default_factory=lambda: [0.0, 0.0])  # of each replica's elapsed clock

    def wall(self) -> float:
        return self.now + self.offset

    def elapsed(self, replica: int) -> float:
        return self.now - self.booted - self.stalled[replica]


def test_first_start_accepts_the_clock() -> None:
    clock = CredibleClock(MemoryClockStore(), wall=lambda: seconds, elapsed=lambda: 5.0)
    assert clock.reading() == Reading(START)
    assert clock.reading().may_delete


def test_frequent_comparisons_add_only_the_time_that_passed() -> None:
    """A wall clock 30 s ahead of the remembered time is followed by .1 % of the elapsed time, however often both are compared."""
    world, stored = World(), MemoryClockStore()
    clock, began = CredibleClock(stored, wall=world.wall, elapsed=lambda: world.elapsed(0)), world.elapsed(0)
    world.offset = 30.0
    for _ in range(1_300):
        world.now += 0.05
        clock.observe()
    assert stored.writes == 2  # once a minute
    assert stored.saved is not None
    passed = stored.saved.elapsed - began
    assert stored.saved.state.remembered == pytest.approx(seconds + passed * (1 + MAX_DRIFT), abs=1e-3)


@pytest.mark.parametrize("jump", [40 * DAY, -40 * DAY, TOLERANCE + 1, -TOLERANCE - 1])
def test_jump_pauses_deletion_until_24_hours_of_agreement(jump: float) -> None:
    state = observed(first(seconds), seconds + 10 + jump, 10)
    assert state == ClockState(2, seconds + 10 + jump, agreed=0.0)
    almost = observed(state, seconds + 10 + jump + SETTLING - 1, SETTLING - 1)
    assert almost.status is ClockStatus.IN_DOUBT
    whole = observed(almost, seconds + 10 + jump + SETTLING, 1)
    assert whole == ClockState(2, seconds + 10 + jump + SETTLING)
    assert whole.status is ClockStatus.CREDIBLE


def test_jump_and_back_pauses_deletion_for_24_hours() -> None:
    there = observed(first(seconds), seconds + 40 * DAY, 1)
    back = observed(there, seconds + 3.5, 2.5)
    assert back == ClockState(3, seconds + 3.5, agreed=0.0)
    assert observed(back, seconds + 3.5 + SETTLING, SETTLING).status is ClockStatus.CREDIBLE


def test_small_steps_are_a_jump() -> None:
    """A wall clock that gains 5 minutes in every 10 seconds is in doubt before it has gained more than the tolerance."""
    state, wall = first(seconds), seconds
    for step in range(12 * 24 * 40):
        wall += 10 + 300
        state = observed(state, wall, 10)
        assert state.status is ClockStatus.IN_DOUBT or step * 300 <= TOLERANCE


@given(
    st.lists(st.tuples(st.floats(0, 3 * DAY), st.floats(-50 * DAY, 50 * DAY) | st.just(0.0)), min_size=1, max_size=20)
)
def test_remembered_time_moves_by_elapsed_time_or_by_a_jump_that_pauses_deletion(
    steps: list[tuple[float, float]],
) -> None:
    state, wall = first(seconds), seconds
    for elapsed, jump in steps:
        wall += elapsed + jump
        before, state = state, observed(state, wall, elapsed)
        moved = state.remembered - before.remembered
        if state.generation == before.generation:
            assert abs(moved - elapsed) <= MAX_DRIFT * elapsed + 1e-3
        else:
            assert state == ClockState(before.generation + 1, wall, agreed=0.0)


class ClockMachine(RuleBasedStateMachine):
    """Two replicas on one store under random clocks; both observe after each rule."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.store = self.make_store()
        self.clocks: list[CredibleClock | None] = [None, None]
        self.jumped_at = -math.inf
        self.is_wrong_time_remembered = self.was_wrong_time_remembered = False
        self.start(0)
        self.start(1)

    def make_store(self) -> ClockStore:
        return MemoryClockStore()

    def start(self, replica: int) -> None:
        world = self.world
        self.clocks[replica] = CredibleClock(
            self.store, world.wall, lambda: world.elapsed(replica), f"{world.boot} {replica}"
        )

    @property
    def running(self) -> list[CredibleClock]:
        return [clock for clock in self.clocks if clock is not None]

    def observe(self) -> None:
        for clock in self.running:
            clock.observe()

    @rule(hours=st.floats(0, 30))
    def wait(self, hours: float) -> None:
        self.world.now += hours * HOUR
        self.observe()

    @precondition(lambda self: self.running)
    @rule(days=st.floats(1, 60) | st.floats(-60, -1) | st.sampled_from([40.0, -40.0, 3650.0]))
    def jump(self, days: float) -> None:
        self.world.offset += days * DAY
        self.jumped_at = self.world.now
        self.observe()

    @precondition(lambda self: self.running and self.world.offset)
    @rule()
    def set_the_clock_right(self) -> None:
        self.world.offset, self.jumped_at = 0.0, self.world.now
        self.observe()

    @rule(days=st.floats(1, 60) | st.floats(-60, -1), length=st.floats(0, 9))
    def jump_and_back_between_two_looks(self, days: float, length: float) -> None:
        """A jump that is reversed before an observation changes no reading."""
        before = [clock.reading() for clock in self.running]
        self.world.offset += days * DAY
        assert [clock.reading() for clock in self.running] == before
        self.world.now += length
        self.world.offset -= days * DAY
        self.observe()

    @rule(hours=st.floats(1, 20), rate=st.floats(-5e-4, 5e-4))
    def drift(self, hours: float, rate: float) -> None:
        """At the end NTP corrects the drift of the wall clock, at most 36 seconds."""
        before = self.world.offset
        for _ in range(6):
            self.world.now += hours * HOUR / 6
            self.world.offset += rate * hours * HOUR / 6
            self.observe()
        self.world.offset = before
        self.observe()

    @rule(replica=st.integers(0, 1), hours=st.floats(0, 100))
    def suspend_one_virtual_machine(self, replica: int, hours: float) -> None:
        """Its elapsed clock stands still as well; the other replica keeps running."""
        other = self.clocks[1 - replica]
        if other is None:
            return
        for _ in range(8):
            self.world.now += hours * HOUR / 8
            self.world.stalled[replica] += hours * HOUR / 8
            other.observe()
        self.observe()

    @rule(replica=st.integers(0, 1))
    def stop(self, replica: int) -> None:
        self.clocks[replica] = None

    @rule(replica=st.integers(0, 1))
    def restart(self, replica: int) -> None:
        self.start(replica)
        self.observe()

    @rule(minutes=st.floats(0, 8))
    def reboot(self, minutes: float) -> None:
        self.boot(60 * minutes, 0.0)

    @rule(days=st.floats(0.5, 60), jump=st.sampled_from([0.0, 0.0, 40 * DAY, -40 * DAY]))
    def long_downtime(self, days: float, jump: float) -> None:
        self.boot(days * DAY, jump)
        if abs(days * DAY + jump) > 2 * TOLERANCE:  # otherwise the wall clock shows no elapsed time
            self.jumped_at = self.world.now

    def boot(self, downtime: float, jump: float) -> None:
        self.world.now += downtime
        self.world.offset += jump
        self.world.boot += 1
        self.world.booted = self.world.now
        self.world.stalled = [0.0, 0.0]
        self.start(0)
        self.start(1)
        self.observe()

    @precondition(lambda self: self.running and self.world.offset == 0)
    @rule()
    def accept_a_right_clock(self) -> None:
        accept(self.store, self.world.wall())
        self.observe()
        assert all(clock.reading() == Reading(clock()) for clock in self.running)
        self.jumped_at = -math.inf

    @invariant()
    def nothing_may_be_deleted_within_24_hours_of_a_jump(self) -> None:
        if self.world.now - self.jumped_at < SETTLING - 1:
            assert not any(clock.reading().may_delete for clock in self.running)

    @invariant()
    def credible_time_is_no_later_than_true_time(self) -> None:
        """A period that has ended by a credible clock has ended; only such periods are deleted or answered with 410."""
        is_wrong = self.world.offset > TOLERANCE
        if is_wrong and self.world.now - self.jumped_at >= SETTLING - 1:
            self.is_wrong_time_remembered = self.was_wrong_time_remembered = True  # it was shown for 24 hours
        for clock in self.running:
            reading = clock.reading()
            if reading.may_delete and not self.is_wrong_time_remembered:
                assert reading.now.timestamp() <= self.world.now + TOLERANCE
            elif reading.may_delete and not is_wrong:
                self.is_wrong_time_remembered = False

    def teardown(self) -> None:
        """Deletion resumes after 24 hours of agreement and one observation, and uses the wall clock."""
        self.start(0)
        self.start(1)
        for hours in (0, 1, 8, 8, 7):
            self.world.now += hours * HOUR
            self.observe()
        self.observe()
        for clock in self.running:
            assert clock.reading().may_delete
            assert abs(clock().timestamp() - self.world.wall()) <= 1e-3


TestClock = ClockMachine.TestCase
TestClock.settings = settings(max_examples=150, stateful_step_count=40)


def refusal(batch: Batch, definitions: Definitions, reading: Reading) -> ProblemType | None:
    try:
        admit(batch, definitions, reading, Settings())
    except RefusedError as refused:
        return refused.problem_type
    return None


class DeletionMachine(ClockMachine):
    """A ClockMachine with reports, uploads and upkeep on a database."""

    def __init__(self, database: SqlStore) -> None:
        self.database = database
        with transaction(database._engine, writes=True) as connection:
            for table in reversed(tables.sorted_tables):
                if table.name not in ("hubbub_schema", "alembic_version"):
                    connection.execute(delete(table))
        self.taken: set[str] = set()
        self.held: tuple[set[str], ...] = (set(), set(), set())
        super().__init__()

    def make_store(self) -> ClockStore:
        return self.database

    def true_day(self) -> date:
        return datetime.fromtimestamp(self.world.now, UTC).date()

    def observe(self) -> None:
        for clock in self.running:
            upkeep(self.database, DEFINITIONS, KEPT, clock.observe())

    @precondition(lambda self: self.running)
    @rule(replica=st.integers(0, 1), age=st.sampled_from([0, 1, 29, 30, 30]), batch_id=st.uuids(version=4))
    def upload(self, replica: int, age: int, batch_id: uuid.UUID) -> None:
        """A client with a correct clock uploads a report of an open period to a running replica."""
        clock = self.clocks[replica] or self.running[0]
        text = str(self.true_day() - timedelta(days=age))
        batch = Batch(batch_id, METRIC.name, METRIC.digest, text, b"\0", b"\1")
        refused = refusal(batch, DEFINITIONS, clock.reading())
        if refused is not None:
            if refused is ProblemType.PERIOD_NOT_STARTED:  # clients retry it
                assert clock.reading().now.timestamp() < self.world.now - TOLERANCE, "a clock behind, perhaps accepted"
            elif not self.is_wrong_time_remembered:
                assert (clock.reading().status, refused) == (ClockStatus.IN_DOUBT, ProblemType.UNAVAILABLE)
            return
        (appended,) = self.database.append([batch])
        if not self.was_wrong_time_remembered:
            assert appended is AppendResult.STORED
        if appended is AppendResult.STORED:
            self.taken.add(text)

    @invariant()
    def what_is_deleted_was_due(self) -> None:
        open_ = {text for _, text in self.database.open_periods()}
        counted = set(read_summary(self.database, METRIC).periods)
        retained = set(self.database.periods_with_reports(METRIC.digest))
        before, self.held = self.held, (open_, counted, retained)
        if self.world.now - self.jumped_at < SETTLING - 1:
            assert all(old <= new for old, new in zip(before, self.held, strict=True))
        if self.was_wrong_time_remembered:
            return
        latest = datetime.fromtimestamp(self.world.now + TOLERANCE, UTC)
        for text in self.taken:
            period = parse_period(METRIC.period, text)
            assert text in open_ or latest >= period.closes()
            assert text in counted or latest >= counts_expire_at(METRIC, text, KEPT.keep_counts[METRIC.name])
            assert text in retained or not keeps_reports(METRIC, KEPT, text, latest)

    def teardown(self) -> None:
        super().teardown()
        wall = datetime.fromtimestamp(self.world.wall(), UTC)
        for _, text in self.database.open_periods():
            assert wall < parse_period(METRIC.period, text).closes() + timedelta(seconds=1)
        for text in read_summary(self.database, METRIC).periods:
            assert wall < counts_expire_at(METRIC, text, KEPT.keep_counts[METRIC.name]) + timedelta(seconds=1)
        for _, text in self.database.periods_retained():
            assert keeps_reports(METRIC, KEPT, text, wall - timedelta(seconds=1))


@pytest.mark.slow
def test_clock_in_doubt_delays_all_deletions(database: str) -> None:
    engine = open_postgres(database) if is_postgres(database) else open_sqlite(Path(database))
    store = SqlStore(engine, pause=lambda _seconds: None)
    limits = settings(max_examples=6 if is_postgres(database) else 15, stateful_step_count=20, database=None)
    run_state_machine_as_test(partial(DeletionMachine, store), settings=limits)  # type: ignore[arg-type]
    store.close()


@given(
    st.integers(-65_000, 110_000),
    st.dates(date(2024, 5, 1), date(2024, 9, 1)),
    st.dates(date(2024, 5, 1), date(2024, 9, 1)),
)
def test_admission_in_doubt_is_never_final(minutes: int, day: date, expires: date) -> None:
    metric = replace(METRIC, expires=expires)
    definitions, now = Definitions([metric]), START + timedelta(minutes=minutes)
    batch = Batch(uuid.UUID(int=1, version=4), metric.name, metric.digest, str(day), b"\0", b"\1")
    credible = refusal(batch, definitions, Reading(now))
    in_doubt = refusal(batch, definitions, Reading(now, ClockStatus.IN_DOUBT))
    final = {ProblemType.PERIOD_CLOSED, ProblemType.METRIC_EXPIRED}
    assert credible is not ProblemType.UNAVAILABLE
    assert in_doubt is (ProblemType.UNAVAILABLE if credible in final else credible)


@pytest.mark.parametrize("jump", [40 * DAY, -40 * DAY])
def test_reports_are_retained_while_the_clock_is_in_doubt(store: SqlStore, make_batch: MakeBatch, jump: float) -> None:
    clock, kept = SteppedClock(store), Settings(keep_reports={"one": 1})
    clock.step(1.0, jump)
    store.append([make_batch(METRIC, period=str(START.date()))])
    upkeep(store, DEFINITIONS, kept, clock.observe())
    assert store.periods_retained() == [(METRIC.digest, str(START.date()))]


def test_row_with_two_candidate_times_is_read(store: SqlStore) -> None:
    """Earlier versions stored the wall clock's time beside the remembered one until it was accepted."""
    with transaction(store._engine, writes=True) as connection:
        row = {"id": 0, "generation": 2, "credible": int(seconds), "candidate": int(seconds + 40 * DAY), "agreed": 7}
        connection.execute(insert(tables.tables["clock"]).values(**row, boot_id="boot", elapsed=100))
    stored = store.clock()
    assert stored is not None
    assert stored.state == ClockState(2, seconds + 40 * DAY, agreed=7)
    clock = CredibleClock(store, lambda: seconds + 40 * DAY + 5, lambda: 105.0, "boot")
    assert clock.reading().status is ClockStatus.IN_DOUBT
    assert store.clock() == StoredClock(ClockState(2, seconds + 40 * DAY + 5, agreed=12), "boot", 105)


@pytest.mark.parametrize("jump", [40 * DAY, -40 * DAY])
def test_two_replicas_that_look_each_minute_agree_24_hours_after_a_jump(jump: float) -> None:
    """Replicas that look once an hour would each take the other's new time for another jump, for ever."""
    world, store = World(), MemoryClockStore()
    clocks = [CredibleClock(store, world.wall, partial(world.elapsed, replica), "boot") for replica in (0, 1)]
    world.offset += jump
    for _ in range(round(SETTLING / CLOCK_CHECK_SECONDS) + 2):
        for clock in clocks:
            world.now += CLOCK_CHECK_SECONDS / 2
            clock.observe()
    assert all(clock.reading().may_delete for clock in clocks)
    assert clocks[0]().timestamp() == pytest.approx(world.wall(), abs=CLOCK_CHECK_SECONDS)


def test_jump_is_seen_long_before_the_next_fold(
    store: SqlStore, definitions: Definitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubbub_aggregator.app.CLOCK_CHECK_SECONDS", 0.02)
    clock = SteppedClock(store)
    with running(definitions, store, Settings(fold_interval=3600), clock) as aggregator:
        assert aggregator.get("/readyz").json["clock"] == "credible"
        clock.wall += 40 * DAY
        deadline = time.monotonic() + 60
        while aggregator.get("/readyz").json["clock"] == "credible":
            assert time.monotonic() < deadline
            time.sleep(0.02)


class SteppedClock:
    """A clock of the service, with a wall clock and an elapsed clock that a test sets."""

    def __init__(self, store: SqlStore) -> None:
        self.wall, self.elapsed = seconds, 100.0
        self.clock = CredibleClock(store, lambda: self.wall, lambda: self.elapsed, "boot")

    def __call__(self) -> datetime:
        return self.clock()

    def reading(self) -> Reading:
        return self.clock.reading()

    def observe(self) -> Reading:
        return self.clock.observe()

    def step(self, elapsed: float, jump: float = 0.0) -> None:
        self.elapsed += elapsed
        self.wall += elapsed + jump
        self.observe()


def test_jump_of_40_days_for_2_seconds_deletes_and_closes_nothing(
    store: SqlStore, definitions: Definitions, make_batch: MakeBatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hubbub_aggregator")
    clock = SteppedClock(store)
    homepage = definitions["homepage"]
    kept = Settings(
        keep_counts={"homepage": 31}, keep_reports={"homepage": 31}, local_reads_without_token=True, fold_interval=1000
    )
    with running(definitions, store, kept, clock) as aggregator:
        assert aggregator.post(make_batch(homepage)).status == 202
        upkeep(store, definitions, kept, clock.observe())
        clock.step(1.0, 40 * DAY)
        upkeep(store, definitions, kept, clock.observe())
        answer = aggregator.post(make_batch(homepage))
        assert (answer.status, answer.json["type"]) == (503, "/problems/unavailable")
        assert answer.headers["retry-after"] == "3600"
        assert aggregator.get("/readyz").json == {"status": "ready", "clock": "in_doubt"}
        assert "hubbub_clock_credible 0.0" in aggregator.get("/metrics").body.decode().splitlines()
        clock.step(1.5, -40 * DAY)
        upkeep(store, definitions, kept, clock.observe())
        assert aggregator.get("/readyz").json["clock"] == "in_doubt"
        assert aggregator.post(make_batch(homepage)).status == 202
        assert aggregator.summary("homepage").num_reports == 6
        assert store.periods_with_reports(homepage.digest) == ["2024-06-15"]
        clock.step(SETTLING)
        assert aggregator.get("/readyz").json["clock"] == "credible"
        assert "hubbub_clock_credible 1.0" in aggregator.get("/metrics").body.decode().splitlines()
    records = [record for record in caplog.records if record.name.endswith("credible_clock")]
    assert [record.levelname for record in records] == ["WARNING", "WARNING", "INFO"]
    logged = [record.getMessage() for record in records]
    assert logged[0].startswith("the wall clock is 2024-07-25 12:00 UTC, the remembered time was 2024-06-15 12:00 UTC")
    assert logged[1].startswith("the wall clock is 2024-06-15 12:00 UTC, the remembered time was 2024-07-25 12:00 UTC")
    assert logged[2].startswith("the clock is credible again")


@pytest.mark.parametrize(("jump", "back"), [(40 * DAY, 0.0), (-40 * DAY, 0.0), (40 * DAY, -40 * DAY), (-DAY, DAY)])
def test_deletion_due_after_a_jump_waits_for_24_hours_of_agreement(
    store: SqlStore, make_batch: MakeBatch, jump: float, back: float
) -> None:
    """A period closes 12 hours after the jump of the wall clock, which stays or is reversed."""
    clock = SteppedClock(store)

    def is_open() -> bool:
        upkeep(store, DEFINITIONS, KEPT, clock.observe())
        return store.open_periods() != []

    store.append([make_batch(METRIC, period=str((START - 30 * DAYS).date()))])
    assert is_open()
    clock.step(1.0, jump)
    assert is_open()
    clock.step(1.0, back)
    clock.step(SETTLING - 10.0)
    assert is_open()
    clock.step(20.0)
    assert is_open() == (jump + back < 0), "it is not due by the corrected clock"


def test_each_deletion_is_logged_with_metric_and_period(
    store: SqlStore, definitions: Definitions, make_batch: MakeBatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Settings(keep_counts={"homepage": 31}, keep_reports={"homepage": 1})
    store.append([make_batch(definitions["homepage"])])
    upkeep(store, definitions, kept, START)
    for days in (2, 31, 32, 33):
        upkeep(store, definitions, kept, START + days * DAYS)
    events = [vars(record) for record in caplog.records]
    actions = [(event["action"], event["metric"], event["period"]) for event in events if "action" in event]
    assert actions == [(action, "homepage", "2024-06-15") for action in ("dropped", "closed", "purged")]


def test_replicas_on_postgres_use_the_clock_of_the_server(
    store: SqlStore, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that is ahead by 40 days deletes nothing there."""
    true = time.time()
    monkeypatch.setattr(time, "time", lambda: true + 40 * DAY)
    ahead = store.wall_clock() - true
    assert (abs(ahead) < HOUR) if is_postgres(database) else (abs(ahead - 40 * DAY) < HOUR)


def test_accept_clock_ends_the_pause_in_a_running_process(store: SqlStore, database: str) -> None:
    clock = CredibleClock(store, boot_id="boot")
    assert clock.reading().may_delete
    stored = store.clock()
    assert stored is not None
    late = replace(stored.state, generation=9, remembered=stored.state.remembered - 40 * DAY)
    assert store.save_clock(replace(stored, state=late), stored.state.generation)
    assert clock.observe().status is ClockStatus.IN_DOUBT, "as after a downtime of 40 days"
    findings = list(check_clock(store))
    assert [finding.health for finding in findings] == [Health.WARNING]
    assert "accept-clock" in (findings[0].next_step or "")
    done = CliRunner().invoke(main, ["db", "accept-clock", "--database", database])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("accepted 20")
    assert "; the remembered time was 20" in done.stdout
    assert clock.observe().may_delete
    assert [finding.health for finding in check_clock(store)] == [Health.OK]
    saved = store.clock()
    assert saved is not None
    future = replace(saved.state, generation=99, remembered=saved.state.remembered + 40 * DAY)
    assert store.save_clock(replace(saved, state=future), saved.state.generation)
    assert [finding.health for finding in check_clock(store)] == [Health.ERROR]
    result = CliRunner().invoke(main, ["db", "accept-clock", "--json", "--database", database])
    assert sorted(json.loads(result.stdout)) == ["accepted", "remembered"]


def test_clock_is_saved_once_a_minute_and_after_each_jump() -> None:
    store, world = MemoryClockStore(), World()
    clock = CredibleClock(store, world.wall, lambda: world.elapsed(0), "boot")
    for _ in range(60):
        world.now += 10
        clock.observe()
    assert store.writes == 1 + 10
    world.offset = DAY
    clock.observe()
    clock.observe()
    assert store.writes == 1 + 10 + 1


def test_restart_of_the_clock_needs_no_boot_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the system has no boot id, a downtime is not measured."""
    monkeypatch.setattr("hubbub_aggregator.pipeline.credible_clock.read_boot_id", lambda: None)
    store, world = MemoryClockStore(), World()
    CredibleClock(store, world.wall, lambda: world.elapsed(0))
    world.now += 5 * 60
    assert CredibleClock(store, world.wall, lambda: world.elapsed(0)).reading().may_delete
    world.now += 5 * HOUR
    assert CredibleClock(store, world.wall, lambda: world.elapsed(0)).reading().status is ClockStatus.IN_DOUBT


@pytest.mark.parametrize("reboot", [0.0, 480.0])
def test_drift_and_short_reboots_stay_credible_for_a_year(reboot: float) -> None:
    """5e-4 ahead of elapsed time, with a reboot of 8 minutes each day or without."""
    store, world = MemoryClockStore(), World()
    for _ in range(365):
        clock = CredibleClock(store, world.wall, lambda: world.elapsed(0), str(world.boot))
        for _ in range(24):
            world.now += HOUR
            world.offset += 5e-4 * HOUR
            assert clock.observe().may_delete
        if reboot:
            world.now += reboot
            world.boot += 1
            world.booted = world.now


def test_suspended_replica_adopts_the_elapsed_time_of_another() -> None:
    store, world = MemoryClockStore(), World()
    first_, second = (CredibleClock(store, world.wall, lambda n=n: world.elapsed(n), str(n)) for n in (0, 1))  # type: ignore[misc]
    world.now += 5 * DAY
    world.stalled[1] += 5 * DAY
    assert first_.observe().may_delete
    assert second.observe().may_delete
