"""Allocation of the budget: the periods with reports do not depend on recorded values of any metric."""

from __future__ import annotations

import math
import os
import random
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub import (
    Buckets,
    Consent,
    DefinitionError,
    Definitions,
    Metric,
    ParameterError,
    Params,
    Policy,
    Secret,
    UnaryResponse,
)
from hubbub.metrics.buckets import Several
from hubbub.metrics.periods import Period
from hubbub.privacy.allocation import allocate, max_units_spent, new_account, policy_warnings
from hubbub.privacy.ledger import Account
from hubbub.privacy.pricing import unit_price
from hubbub.sdk.recording.backlog import Backlog
from hubbub.sdk.recording.batch_builder import BatchBuilder, Limits
from hubbub.sdk.recording.consent_changes import ConsentLimit
from hubbub.sdk.recording.enrollment import Enrollment
from hubbub.sdk.recording.recorder import Recorder
from hubbub.sdk.recording.subject_encoders import SubjectEncoders
from hubbub.sdk.runtime.clock import PeriodClock
from hubbub.sdk.storage.events import BatchRemoval, ConsentChange, Erasure
from hubbub.sdk.storage.filesystem import MemoryDisk
from hubbub.sdk.storage.journal import Journal
from hubbub.testing import ManualClock, SeededBytes

NOISE: dict[str, Any] = {"prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.5}
PLUGINS = ("a", "b", "c", "d")
METRICS = (
    Metric.set("plugins", PLUGINS, UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5)),
    Metric.categorical("by_value", ("a", "b", "c", "d"), UnaryResponse(**NOISE)),
    Metric.categorical("by_epoch", ("a", "b", "c", "d"), UnaryResponse(**NOISE), hold=2),
    Metric.categorical("by_period", ("a", "b", "c", "d"), UnaryResponse(**NOISE | {"prob_f": 0})),
    Metric.boolean("survey", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5)),
)
STEPS = st.sampled_from(["day", "day", "day", "days", "restart", "off and on", "secret lost", "redefined"])
VALUES = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=3)


class Life:
    """A client without a network: a journal, and recorders that are restarted."""

    def __init__(self, metrics: tuple[Metric, ...], policy: Policy) -> None:
        self.metrics, self.policy = metrics, policy
        self.clock, self.random_bytes = ManualClock(date(2026, 11, 21)), SeededBytes(1)
        self.journal = Journal(Path("state"), MemoryDisk())
        self.sent_periods: list[tuple[str, str, str]] = []
        with self.journal as state:
            self.journal.write(ConsentChange(Consent.ON, "", 0.0, ""))
            assert state.consent == "on"
        self.secret = Secret.generate(self.random_bytes)
        self.start()

    def start(self) -> None:
        definitions, today = Definitions(list(self.metrics)), PeriodClock(self.clock)
        encoders = SubjectEncoders(self.journal, lambda: self.secret, self.random_bytes)
        enroller = Enrollment(self.journal, definitions, self.policy, today, include_client=True)
        self.builder = BatchBuilder(
            self.journal,
            definitions,
            encoders,
            enroller,
            today,
            labels={},
            limits=Limits(),
            random_bytes=self.random_bytes,
            notes_runs=True,
        )
        limit = ConsentLimit(Consent.ON)
        self.recorder = Recorder(
            self.journal, definitions, encoders, enroller, self.builder, today, limit, self.random_bytes, Backlog()
        )
        with self.journal as state:
            encoders.secret(state)
            enroller.enroll(state)
            self.builder.build_due(state)

    def record(self, name: str, values: list[Any]) -> None:
        with self.journal as state:
            for value in values:
                self.recorder.record(state, None, name, value)

    def step(self, step: str) -> None:
        match step:
            case "day" | "days":
                self.clock.move(days=1 if step == "day" else 4)
            case "off and on":
                self.journal.write(
                    ConsentChange(Consent.OFF, "", 0.0, ""),
                    Erasure(),
                )
                self.clock.move(days=2)
                self.journal.write(ConsentChange(Consent.ON, "", 0.0, ""))
                self.secret = Secret.generate(self.random_bytes)
            case "secret lost":
                self.secret = Secret.generate(self.random_bytes)
            case "redefined":
                first = self.metrics[0]
                noise = NOISE | {"prob_q": 0.75 + 2**-10 * (1 + len(self.sent_periods))}
                self.metrics = (
                    Metric.categorical(first.name, ("a", "b", "c", "d"), UnaryResponse(**noise)),
                    *self.metrics[1:],
                )
        if step in ("restart", "off and on", "secret lost", "redefined"):
            self.start()
        with self.journal as state:
            self.builder.build_due(state)
            self.sent_periods += sorted(
                (waiting.batch.metric, waiting.batch.digest, waiting.batch.period) for waiting in state.queue.values()
            )
            for batch_id in list(state.queue):
                self.journal.write(BatchRemoval(batch_id, "acknowledged"))
            for account in state.accounts.values():
                assert account.spent <= self.policy.epsilon_metric + 1e-6
                assert len(account.tags) * account.epsilon_per_unit <= self.policy.epsilon_enrollment + 1e-6
            assert state.spent("") <= state.reserved("") + 1e-6 <= self.policy.epsilon_total + 2e-6


@given(
    metrics=st.lists(st.sampled_from(METRICS), min_size=1, unique=True).map(tuple),
    total=st.floats(1, 30),
    enrollment=st.floats(1, 9),
    limits=st.lists(st.none() | st.integers(1, 4), min_size=5, max_size=5),
    steps=st.lists(STEPS, max_size=12),
)
@settings(max_examples=100)
def test_another_process_with_the_same_definitions_changes_no_reservation(
    metrics: tuple[Metric, ...], total: float, enrollment: float, limits: list[int | None], steps: list[str]
) -> None:
    """At any time: the shares of a total that is too small, of names with a limit, after redefinitions and new enrollments."""
    price = max(unit_price(metric).epsilon for metric in metrics)
    metrics = tuple(
        replace(metric, lifetime_epsilon=limit and limit * price)
        for metric, limit in zip(metrics, limits, strict=False)
    )
    policy = Policy(
        epsilon_report=99,
        epsilon_enrollment=enrollment * price,
        epsilon_metric=2 * enrollment * price,
        epsilon_total=total * price,
    )
    life = Life(metrics, policy)
    for number, step in enumerate(["restart", *steps]):
        life.record(metrics[-1].name, [_value(metrics[-1], "abcd"[number % 4])])
        life.step(step)
        with life.journal as state:
            before = dict(state.accounts)
        life.start()
        with life.journal as state:
            assert {key: account.reserved_units for key, account in state.accounts.items()} == {
                key: account.reserved_units for key, account in before.items()
            }


def _value(metric: Metric, letter: str) -> Any:
    return {"survey": letter == "a", "plugins": {letter}}.get(metric.name, letter)


@given(
    first=st.sampled_from(METRICS),
    second=st.sampled_from(METRICS),
    share=st.floats(1, 5),
    enrollment=st.floats(1, 5),
    total=st.floats(1, 9),
    steps=st.lists(STEPS, max_size=12),
    data=st.data(),
)
@settings(max_examples=100)
def test_periods_with_reports_do_not_depend_on_values(
    first: Metric, second: Metric, share: float, enrollment: float, total: float, steps: list[str], data: st.DataObject
) -> None:
    """Two histories with the same days, restarts, consent changes, lost secrets and definitions, but other values of `first`."""
    metrics = (first,) if first == second else (first, second)
    price = max(unit_price(metric).epsilon for metric in metrics)
    policy = Policy(
        epsilon_report=99,
        epsilon_enrollment=enrollment * price,
        epsilon_metric=share * price,
        epsilon_total=total * price,
    )
    sent_periods = []
    for _ in range(2):
        life = Life(metrics, policy)
        for step in steps:
            life.record(first.name, [_value(first, letter) for letter in data.draw(VALUES)])
            life.record(second.name, [_value(second, "b")])
            life.step(step)
        sent_periods.append(life.sent_periods)
    assert sent_periods[0] == sent_periods[1]


LIMITED: dict[Metric, tuple[Any, ...]] = {
    **dict.fromkeys(METRICS[1:4], ("a", "b", "c", None)),
    METRICS[0]: ({"a"}, {"b", "c", "d"}, None),
    METRICS[4]: (True, False),
    Metric.string("page", Params(num_bits=8, num_hashes=1, num_cohorts=4, **NOISE)): ("x", "y", None),
    Metric.ordinal("use", Buckets((0, 1, 2), default=0), UnaryResponse(**NOISE)): (0, 1.5),
    Metric.joint("both", (METRICS[1], METRICS[4])): (("a", True), ("b", False), None),
}
WIDE = Policy(epsilon_report=99, epsilon_enrollment=99, epsilon_metric=99, epsilon_total=999)
HISTORIES = int(os.environ.get("HUBBUB_TEST_HISTORIES", "300"))


def test_no_name_spends_more_than_the_lowest_limit_that_a_client_has_seen(unseen_seed: int) -> None:
    """Random histories of versions (`hold`, `lifetime_epsilon`), consent, lost secrets and restarts; `make soak` has 100,000.

    What was spent or drafted before a limit was lowered stays spent, and nothing is added.
    """
    chance, policy, stopped = random.Random(unseen_seed), WIDE, 0  # noqa: S311  (test data)

    def version(metric: Metric) -> Metric:
        metric = replace(metric, hold=chance.choice([None, 1, 3]), lifetime_epsilon=None)
        price = unit_price(metric).epsilon
        return replace(metric, lifetime_epsilon=chance.choice([1, 1.5, 3, 6]) * price + 1e-6)

    for _ in range(HISTORIES):
        first, values = chance.choice([*LIMITED.items()])
        life = Life((version(first), METRICS[4] if first.name != "survey" else METRICS[1]), policy)
        lowest, bound = math.inf, math.inf
        for _ in range(chance.randint(3, 12)):
            with life.journal as state:
                accounts = [account for account in state.accounts.values() if account.metric == first.name]
            spent = sum(account.spent for account in accounts)
            limit = life.metrics[0].lifetime_epsilon or math.inf
            if limit < lowest:
                units = [max_units_spent(account, WIDE, state.enrollments) for account in accounts]
                drafted = sum(
                    number * account.epsilon_per_unit for number, account in zip(units, accounts, strict=True)
                )
                lowest, bound = limit, max(limit, drafted)
            assert spent <= bound + 1e-6, (first.name, spent, bound)
            stopped += spent > 0.9 * lowest
            life.record(first.name, [chance.choice(values) for _ in range(chance.randint(0, 3))])
            step = chance.choice(["day", "days", "restart", "off and on", "secret lost", "version", "version"])
            if step == "version":
                life.metrics, step = (version(first), *life.metrics[1:]), "restart"
            life.step(step)
    assert stopped > HISTORIES / 2  # the limits bind


def test_processes_with_two_versions_share_the_limit() -> None:
    """The second version has room for what the first has not reserved, and none of it after a process has seen a lower limit."""
    metric = replace(METRICS[3], lifetime_epsilon=10 * unit_price(METRICS[3]).epsilon)
    other = replace(metric, hold=1)
    day = Period.containing(metric.period, date(2026, 11, 21))
    policy = WIDE
    (account,) = allocate(policy, [], [(metric, new_account("", metric, day))], 1)
    assert account.reserved_units == 10
    spent = account._replace(units=4, reports=4)
    (moved, second) = allocate(policy, [spent], [(other, new_account("", other, day))], 1)
    assert (moved.reserved_units, second.reserved_units) == (5, 5)  # one more report of the first may be on its way
    lower = replace(other, lifetime_epsilon=unit_price(other).epsilon)
    (refused,) = (
        account for account in allocate(policy, [moved, second], [(lower, second)], 1) if account.digest == other.digest
    )
    assert (refused.lifetime_epsilon, refused.reserved_units - second.units) == (lower.lifetime_epsilon, 1)
    again = [*allocate(policy, [moved, refused], [(other, refused)], 2)]
    assert again[0].reserved_units == 4  # the report that was on its way is deleted with the first secret
    assert again[-1].lifetime_epsilon == lower.lifetime_epsilon
    assert "lowest lifetime_epsilon that this client has seen" in again[-1].refused


@pytest.mark.parametrize("limit", [0, -1, math.nan, math.inf, "4", True])
def test_wrong_limits_are_refused(limit: Any) -> None:
    with pytest.raises(ParameterError, match="survey: lifetime_epsilon must be a number"):
        replace(METRICS[4], lifetime_epsilon=limit)


def test_a_limit_below_one_unit_is_refused() -> None:
    with pytest.raises(
        DefinitionError, match=r"survey: lifetime_epsilon must be at least 1.099, .* got 1: no client could report"
    ):
        replace(METRICS[4], lifetime_epsilon=1)


@pytest.mark.parametrize("damaged", ["4", None, -1, math.nan, [4], True])
def test_a_damaged_limit_lets_nothing_more_be_spent(damaged: Any) -> None:
    day = Period.containing(METRICS[4].period, date(2026, 11, 21))
    account = new_account("", METRICS[4], day)
    assert Account.from_dict(account.to_dict()) == account
    assert Account.from_dict(account.to_dict() | {"lifetime_epsilon": damaged}).lifetime_epsilon == 0
    assert "lifetime_epsilon" in account._replace(lifetime_epsilon=4.0).to_dict()


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_an_account_can_have_spent_one_unit_more_than_before_this_period(metric: Metric) -> None:
    """At most one unit a period, and at most the reservation, whatever was recorded."""
    unlimited = Policy(**dict.fromkeys(Policy.__slots__, math.inf))
    new = new_account("", metric, Period.containing(metric.period, date(2026, 11, 21)))
    assert (new.units, new.reserved_units, new.enrollment, new.has_room) == (0, 0, 0, False)
    used = new._replace(units=3, reports=3, reserved_units=10)
    assert max_units_spent(used, unlimited, 0) == 4
    assert max_units_spent(used._replace(reserved_units=3), unlimited, 0) == 3
    assert max_units_spent(used._replace(spent_before_enrollment=7), unlimited, 0) == 7
    assert max_units_spent(used, unlimited, 1) == (4 if used.unit == "value" else 3)  # its draft is deleted


STRINGS = Metric.string("page", Params(num_bits=64, num_hashes=1, num_cohorts=64, **NOISE), lifetime_epsilon=10)
EDGES = tuple(10.0 * edge for edge in range(16))
COUNTER = Metric.ordinal("count", Buckets(EDGES, several=Several.SUM), UnaryResponse(**NOISE))


@pytest.mark.parametrize(
    ("metric", "epsilon_total", "words"),
    [
        (STRINGS, 100, None),  # its own limit leaves fewer values than the policy
        (STRINGS, 5, "The budget has room for 2 values per client"),
        (replace(STRINGS, lifetime_epsilon=3), 100, "The budget has room for 1 value per client"),
        (COUNTER, 100, "The sum of a period often changes"),
        (replace(COUNTER, hold=7), 100, "A client stops reporting after"),
        (Metric.ordinal("time", Buckets(EDGES), UnaryResponse(**NOISE)), 100, None),
    ],
)
def test_policy_warnings_are_not_about_limits_of_the_definition(
    metric: Metric, epsilon_total: float, words: str | None
) -> None:
    found = list(policy_warnings(Policy(epsilon_total=epsilon_total), [metric], date(2026, 11, 2)))
    assert len(found) == (words is not None), found
    assert words is None or words in found[0]
