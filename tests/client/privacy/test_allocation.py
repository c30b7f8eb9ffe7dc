"""Allocation of the budget: the periods with reports do not depend on recorded values of any metric."""

from __future__ import annotations

import math
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub import Consent, Definitions, Metric, Policy, Secret
from hubbub.metrics.periods import Period
from hubbub.privacy.allocation import max_units_spent, new_account
from hubbub.privacy.pricing import unit_price
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

NOISE = {"prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.5}
METRICS = (
    Metric.categorical("by_value", ("a", "b", "c", "d"), **NOISE),
    Metric.categorical("by_epoch", ("a", "b", "c", "d"), **NOISE, hold=2),
    Metric.categorical("by_period", ("a", "b", "c", "d"), **NOISE | {"prob_f": 0}),
    Metric.boolean("survey", prob_p=0, prob_q=1, prob_f=0.5),
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
        enroller = Enrollment(self.journal, definitions, self.policy, today, include_client=True, lease=None)
        self.builder = BatchBuilder(
            self.journal, definitions, encoders, enroller, today, limits=Limits(), random_bytes=self.random_bytes
        )
        limit = ConsentLimit(Consent.ON)
        self.recorder = Recorder(
            self.journal, definitions, encoders, enroller, self.builder, today, limit, self.random_bytes
        )
        with self.journal as state:
            encoders.secret(state)
            enroller.enroll(state)
            self.builder.build_due(state)

    def record(self, name: str, values: list[str]) -> None:
        with self.journal as state:
            for value in values:
                self.recorder.record(state, None, name, value == "a" if name == "survey" else value)

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
                self.metrics = (Metric.categorical(first.name, ("a", "b", "c", "d"), **noise), *self.metrics[1:])
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
            life.record(first.name, data.draw(VALUES))
            life.record(second.name, ["b"])
            life.step(step)
        sent_periods.append(life.sent_periods)
    assert sent_periods[0] == sent_periods[1]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_an_account_can_have_spent_one_unit_more_than_before_this_period(metric: Metric) -> None:
    """At most one unit a period, and at most the reservation, whatever was recorded."""
    unlimited = Policy(**dict.fromkeys(Policy.__slots__, math.inf))
    new = new_account("", metric, Period.containing(metric.period, date(2026, 11, 21)))
    assert (new.units, new.reserved_units, new.enrollment, new.has_room) == (0, 0, 0, False)
    used = new._replace(units=3, reports=3, reserved_units=10)
    assert max_units_spent(used, unlimited) == 4
    assert max_units_spent(used._replace(reserved_units=3), unlimited) == 3
    assert max_units_spent(used._replace(spent_before_enrollment=7), unlimited) == 7
