"""The ledger: spending is permanent and stays within the app's policy."""

from __future__ import annotations

import json
import logging

import pytest
from click.testing import CliRunner

from hubbub import Metric, ParameterError, Params, Policy, UnaryResponse
from hubbub.cli import inspect
from hubbub.client import collaborators
from hubbub.metrics.periods import PeriodKind
from hubbub.privacy import epsilon, epsilon_permanent
from hubbub.privacy.ledger import Account, EncodedReport
from hubbub.privacy.pricing import affordable_units
from hubbub.sdk.storage.record_format import encode_record, scan
from hubbub.testing import deliver
from tests.client.conftest import HOMEPAGE, SURVEY, Rig, require_balanced

QUIET = Metric.string(  # no IRR noise: two reports are equal exactly when their permanent bits are; one cohort, where a to d differ
    "quiet", Params(num_bits=64, num_hashes=2, num_cohorts=1, prob_p=0, prob_q=1, prob_f=0.5)
)
LOOSE = Policy(epsilon_report=100, epsilon_enrollment=100, epsilon_metric=100, epsilon_total=1000)


def days_of(client: object, rig: Rig, metric: str, values: list[str | None]) -> list[bytes]:
    """Record one value per day and return the reports."""
    before = len(rig.transport.batches)
    for value in values:
        if value is not None:
            client.record(metric, value)  # type: ignore[attr-defined]
        deliver(client)  # type: ignore[arg-type]
        rig.clock.move(days=1)
    return [batch.rows for batch in rig.transport.batches[before:]]


def test_value_beyond_the_budget_is_replaced_by_the_last_one(rig: Rig) -> None:
    """The budget has room for three values. The third replaces the fourth; known values are still reported."""
    price = epsilon_permanent(QUIET)
    client = rig.agreed(QUIET, policy=Policy(epsilon_report=100, epsilon_metric=3.5 * price, epsilon_total=1000))
    a, b, c, d, a_again = days_of(client, rig, "quiet", ["a", "b", "c", "d", "a"])
    assert len({a, b, c}) == 3
    assert (d, a_again) == (c, a)
    with collaborators(client).journal as state:
        (account,) = state.accounts.values()
        assert (account.units, account.reports, len(account.tags)) == (3, 5, 3)
        assert account.spent == pytest.approx(3 * price)


def test_no_value_is_charged_once(rig: Rig) -> None:
    client = rig.agreed(QUIET, policy=LOOSE)
    empty, a, empty_again = days_of(client, rig, "quiet", [None, "a", None])
    assert empty == empty_again != a
    with collaborators(client).journal as state:
        assert [account.units for account in state.accounts.values()] == [2]


def test_report_above_the_policy_blocks_the_metric(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "hubbub"):
        client = rig.agreed(HOMEPAGE, policy=Policy(epsilon_report=1))
        client.record("homepage", "x")
    assert "homepage: a report costs epsilon = 2.0" in caplog.text
    assert caplog.text.count("homepage") == 1
    rig.clock.move(days=2)
    assert deliver(client) == 0
    assert client.accounting().ignored["policy"] == 1


def test_metric_without_permanent_noise_stops_after_its_budget(rig: Rig) -> None:
    """f = 0: every period costs eps(1), and the reports stop after the budget."""
    plain = Metric.boolean("plain", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0))
    once = epsilon(plain)
    client = rig.agreed(plain, policy=Policy(epsilon_report=100, epsilon_metric=3.5 * once, epsilon_total=100))
    for _ in range(6):
        client.record("plain", True)
        rig.clock.move(days=1)
    counts = client.accounting()
    assert (counts.formed, counts.ignored["policy"]) == (3, 3)
    require_balanced(counts)


def test_missed_periods_together_stay_within_the_budget(rig: Rig) -> None:
    plain = Metric.boolean("plain", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0))
    other = Metric.boolean("other", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0))
    once = epsilon(plain)
    policy = Policy(epsilon_report=100, epsilon_metric=100, epsilon_total=7.5 * once)
    client = rig.agreed(plain, other, policy=policy)
    rig.clock.move(days=10)
    client.flush(5)
    with collaborators(client).journal as state:
        assert state.spent("") == pytest.approx(7 * once)


def test_changed_definition_has_its_own_account_within_the_total(rig: Rig) -> None:
    price = epsilon_permanent(SURVEY)
    policy = Policy(epsilon_report=100, epsilon_metric=100, epsilon_total=4.5 * price)
    formed_counts = []
    for q in (1.0, 0.99, 0.98):
        version = Metric.boolean("survey", UnaryResponse(prob_p=0, prob_q=q, prob_f=0.5))
        client = rig.agreed(version, policy=policy)
        client.record("survey", False)
        deliver(client)
        formed_counts.append(client.accounting().formed)
        with collaborators(client).journal as state:
            assert state.spent("") <= policy.epsilon_total
        client.close()
        rig.clock.move(days=1)
    assert formed_counts == [1, 2, 2]


def test_metric_without_budget_left_is_refused_before_recording(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """The total has room for 3.5 values. The first metric reserves three, and the second is refused at once."""
    one, two = (Metric.string(name, QUIET.params) for name in ("one", "two"))
    price = epsilon_permanent(QUIET)
    with caplog.at_level(logging.WARNING, "hubbub"):
        client = rig.agreed(one, two, policy=Policy(epsilon_report=99, epsilon_metric=99, epsilon_total=3.5 * price))
    assert (
        caplog.text.count(
            "two: a value costs epsilon = 4.395, but not enough of Policy.epsilon_total = 15.3806 is left after the metrics' reservations"
        )
        == 1
    )
    client.record("one", "a")
    client.record("two", "a")
    assert deliver(client) == 1
    rig.clock.move(days=1)
    assert (deliver(client), client.accounting().ignored["policy"]) == (1, 1)
    with collaborators(client).journal as state:
        assert state.spent("") == pytest.approx(2 * price)
        assert state.reserved("") == pytest.approx(3 * price)
    shown = CliRunner().invoke(inspect.command, [str(rig.state)])
    assert "of 13.184 reserved. It is a bound for the operator, between histories" in shown.output
    assert "not collected: two:" in shown.output
    client.close()
    rig.clock.move(days=1)
    roomy = rig.agreed(one, two, policy=Policy(epsilon_report=99, epsilon_metric=3 * price, epsilon_total=9 * price))
    assert deliver(roomy) == 2


def test_reserves_at_most_the_cost_of_all_values(rig: Rig) -> None:
    language = Metric.categorical("language", ("de", "en", "fr"), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5))
    client = rig.agreed(SURVEY, language, QUIET, policy=Policy(epsilon_report=9, epsilon_metric=20, epsilon_total=99))
    with collaborators(client).journal as state:
        assert [state.accounts["", metric.digest].reserved_units for metric in (SURVEY, language, QUIET)] == [2, 4, 4]


def test_stricter_policy_reduces_reserved_but_not_spent_units(rig: Rig) -> None:
    loose = Policy(epsilon_report=9, epsilon_metric=99, epsilon_total=99)
    client = rig.agreed(QUIET, policy=loose)
    days_of(client, rig, "quiet", ["a", "b"])
    client.close()
    client = rig.client(QUIET, policy=Policy(epsilon_report=9, epsilon_metric=9, epsilon_total=9))
    b, c = days_of(client, rig, "quiet", ["b", "c"])
    assert b == c
    with collaborators(client).journal as state:
        assert [account.units for account in state.accounts.values()] == [2]


def test_reads_ledger_without_reservations(rig: Rig) -> None:
    client = rig.agreed(QUIET, policy=LOOSE)
    days_of(client, rig, "quiet", ["a", "b"])
    client.close()
    journal = rig.state / "journal"
    events = [json.loads(payload) for payload in scan(journal.read_bytes()).payloads]
    for event in events:
        for account in [event["account"]] if "account" in event else event.get("accounts", []):
            for new in ("reserved_units", "spent_before_enrollment", "refused"):
                del account[new]
    journal.write_bytes(
        b"".join(encode_record(json.dumps(event).encode()) for event in events if event["event"] != "ledger_key")
    )
    price = epsilon_permanent(QUIET)
    client = rig.client(QUIET, policy=Policy(epsilon_report=9, epsilon_metric=3.5 * price, epsilon_total=99))
    a, c, d = days_of(client, rig, "quiet", ["a", "c", "d"])
    assert d == c != a
    with collaborators(client).journal as state:
        (account,) = state.accounts.values()
        assert (account.units, account.reserved_units) == (3, 3)


def test_lost_secret_starts_a_new_enrollment(rig: Rig) -> None:
    for damage in (None, b"short"):
        client = rig.agreed(QUIET, policy=LOOSE)
        client.record("quiet", "a")
        deliver(client)
        client.close()
        if damage is None:
            (rig.state / "secret").unlink()
        else:
            (rig.state / "secret").write_bytes(damage)
        rig.clock.move(days=1)
    client = rig.agreed(QUIET, policy=LOOSE)
    client.record("quiet", "a")
    deliver(client)
    with collaborators(client).journal as state:
        assert state.enrollments == 3
        assert [account.units for account in state.accounts.values()] == [3]


def test_default_policy_allows_a_second_enrollment_and_then_stops(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """Four values per enrollment, nine in the lifetime: 4, 4, 1, and then a warning."""
    reserved, metric = [], Metric.string("quiet", HOMEPAGE.params)
    with caplog.at_level(logging.WARNING, "hubbub"):
        for enrollment in range(4):
            client = rig.agreed(metric, policy=Policy())
            days_of(client, rig, "quiet", [f"{enrollment} {day}" for day in range(6)])
            with collaborators(client).journal as state:
                (account,) = state.accounts.values()
                reserved.append(account.reserved_units)
                assert account.spent <= Policy().epsilon_metric
            client.set_consent("off")
            client.close()
            assert ("The metric is not collected" in caplog.text) == (enrollment == 3)
    assert reserved == [4, 8, 9, 9]
    assert (
        "quiet: a value costs epsilon = 4.395, but earlier enrollments (consent withdrawn and given again, a lost secret) can have spent 39.551 "
        "of Policy.epsilon_metric = 40. Raise epsilon_metric to collect the metric from this client"
    ) in caplog.text


@pytest.mark.parametrize("name", ["epsilon_enrollment", "epsilon_metric", "epsilon_total"])
def test_refusal_names_the_tightest_limit(name: str) -> None:
    objection = Policy(**{"epsilon_report": 9, name: 4.3}).objection(QUIET)
    assert objection == (
        f"quiet: a value costs epsilon = 4.395, above Policy.{name} = 4.3: define the metric with more noise, or raise {name}"
    )


def test_policy_defaults_are_finite_and_invalid_limits_are_rejected() -> None:
    assert max(getattr(Policy(), name) for name in Policy.__slots__) < 1000
    with pytest.raises(ParameterError, match="epsilon_total must be a number in"):
        Policy(epsilon_total=0)
    with pytest.raises(ParameterError, match="epsilon_total must be a number in"):
        Policy(epsilon_total=float("nan"))


def test_report_is_charged_under_the_response_number_that_it_was_drawn_from() -> None:
    """A wrong clock can charge a later epoch between the draft of a report and its batch."""
    account = Account("", "digest", "page", PeriodKind.DAY, "2026-11-01", "epoch", 1.0)

    def report(epoch: int) -> EncodedReport:
        return EncodedReport(0, b"", b"", b"", epoch, True, False, account.response_number(epoch))

    draft = report(10)
    account = account.charge(report(20)).charge(draft)
    assert account.response_number(10) == draft.response == 10
    account = account.charge(report(15))
    assert account.response_number(15) not in {10, 15, 20}
    # drawn at the same units, charged later
    assert len({account.response_number(epoch) for epoch in range(-5, 15)}) == 20


def test_response_numbers_after_a_set_back_clock_are_those_of_no_epoch_and_no_other_unit() -> None:
    """Epochs are integers of 32 bits; the numbers are negative, so no epoch since 1 BC has one of them."""
    epochs = (-(1 << 31), -1, 0, 1, (1 << 31) - 1)
    account = Account("", "d", "m", PeriodKind.DAY, "2026-11-21", "epoch", 1, epoch=None, newest_epoch=1 << 31)
    numbers = [account._replace(units=units).response_number(epoch) for units in range(3) for epoch in epochs]
    assert len(set(numbers)) == len(numbers)
    assert max(numbers) < 0


def test_costs_that_equal_a_limit_are_within_it() -> None:
    """Sums of floats are a little off, so a limit has a slack: a third of 1 fits three times into 1."""
    exact = epsilon(SURVEY)
    assert Policy(epsilon_report=exact).objection(SURVEY) is None
    assert Policy(epsilon_report=exact, epsilon_enrollment=exact).objection(SURVEY) is None
    assert "a report costs epsilon" in (Policy(epsilon_report=exact - 1e-6).objection(SURVEY) or "")
    assert [affordable_units(units * 0.1, 0.1) for units in (1, 3, 7)] == [1, 3, 7]
    assert affordable_units(0.3 - 1e-6, 0.1) == 2
