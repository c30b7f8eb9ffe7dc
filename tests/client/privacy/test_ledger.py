"""The ledger: what was spent is never forgotten, and nothing exceeds the app's policy."""

from __future__ import annotations

import json
import logging

import pytest
from click.testing import CliRunner
from tests.client.conftest import HOMEPAGE, SURVEY, Rig, require_balanced

from hubbub import Metric, ParameterError, Params, Policy
from hubbub.cli import ledger
from hubbub.client import collaborators
from hubbub.privacy import epsilon, epsilon_permanent
from hubbub.sdk.storage.record_format import encode_record, scan
from hubbub.testing import deliver

QUIET = Metric.string(  # no IRR noise: two reports are equal exactly when their permanent bits are; one cohort, where a to d differ
    "quiet", Params(num_bits=64, num_hashes=2, num_cohorts=1, prob_p=0, prob_q=1, prob_f=0.5)
)
LOOSE = Policy(epsilon_report=100, epsilon_enrollment=100, epsilon_metric=100, epsilon_total=1000)


def days_of(client: object, rig: Rig, metric: str, values: list[str | None]) -> list[bytes]:
    """Record one value a day and return the reports."""
    before = len(rig.transport.batches)
    for value in values:
        if value is not None:
            client.record(metric, value)  # type: ignore[attr-defined]
        deliver(client)  # type: ignore[arg-type]
        rig.clock.move(days=1)
    return [batch.rows for batch in rig.transport.batches[before:]]


def test_distinct_values_are_counted_and_past_the_limit_the_last_one_stands_in(rig: Rig) -> None:
    """Room for three values: the fourth is reported as the third was, a known one as itself."""
    price = epsilon_permanent(QUIET.params)
    client = rig.agreed(QUIET, policy=Policy(epsilon_report=100, epsilon_metric=3.5 * price, epsilon_total=1000))
    a, b, c, d, a_again = days_of(client, rig, "quiet", ["a", "b", "c", "d", "a"])
    assert len({a, b, c}) == 3
    assert (d, a_again) == (c, a)
    with collaborators(client).journal as state:
        (account,) = state.accounts.values()
        assert (account.units, account.reports, len(account.tags)) == (3, 5, 3)
        assert account.spent == pytest.approx(3 * price)


def test_no_value_is_a_value_and_is_charged_once(rig: Rig) -> None:
    client = rig.agreed(QUIET, policy=LOOSE)
    empty, a, empty_again = days_of(client, rig, "quiet", [None, "a", None])
    assert empty == empty_again != a
    with collaborators(client).journal as state:
        assert [account.units for account in state.accounts.values()] == [2]


def test_one_report_above_the_policy_refuses_the_metric(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "hubbub"):
        client = rig.agreed(HOMEPAGE, policy=Policy(epsilon_report=1))
        client.record("homepage", "x")
    assert "homepage: a report costs eps = 2.0" in caplog.text
    assert caplog.text.count("homepage") == 1
    rig.clock.move(days=2)
    assert deliver(client) == 0
    assert client.accounting()["ignored"]["policy"] == 1


def test_what_is_not_memoized_is_refused_by_the_day_it_costs_too_much(rig: Rig) -> None:
    """f = 0: every period costs eps(1); after the budget there is silence, whatever is recorded."""
    plain = Metric.boolean("plain", prob_p=0.25, prob_q=0.75, prob_f=0)
    once = epsilon(plain.params)
    client = rig.agreed(plain, policy=Policy(epsilon_report=100, epsilon_metric=3.5 * once, epsilon_total=100))
    for _ in range(6):
        client.record("plain", True)
        rig.clock.move(days=1)
    counts = client.accounting()
    assert (counts["formed"], counts["ignored"]["policy"]) == (3, 3)
    require_balanced(counts)


def test_missed_periods_in_one_pass_do_not_exceed_the_budget_together(rig: Rig) -> None:
    plain = Metric.boolean("plain", prob_p=0.25, prob_q=0.75, prob_f=0)
    other = Metric.boolean("other", prob_p=0.25, prob_q=0.75, prob_f=0)
    once = epsilon(plain.params)
    policy = Policy(epsilon_report=100, epsilon_metric=100, epsilon_total=7.5 * once)
    client = rig.agreed(plain, other, policy=policy)
    rig.clock.move(days=10)
    client.flush(5)
    with collaborators(client).journal as state:
        assert state.spent("") == pytest.approx(7 * once)


def test_a_changed_definition_is_a_new_metric_to_the_ledger_and_adds_to_the_total(rig: Rig) -> None:
    price = epsilon_permanent(SURVEY.params)
    policy = Policy(epsilon_report=100, epsilon_metric=100, epsilon_total=4.5 * price)
    seen = []
    for q in (1.0, 0.99, 0.98):
        version = Metric.boolean("survey", prob_p=0, prob_q=q, prob_f=0.5)
        client = rig.agreed(version, policy=policy)
        client.record("survey", False)
        deliver(client)
        seen.append(client.accounting()["formed"])
        with collaborators(client).journal as state:
            assert state.spent("") <= policy.epsilon_total
        client.close()
        rig.clock.move(days=1)
    assert seen == [1, 2, 2]


def test_a_metric_reserves_its_share_in_advance_and_one_that_finds_no_room_is_refused_at_once(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """A total of three and a half values: the first metric may take three, the second is told so before anything is recorded."""
    one, two = (Metric.string(name, QUIET.params) for name in ("one", "two"))
    price = epsilon_permanent(QUIET.params)
    with caplog.at_level(logging.WARNING, "hubbub"):
        client = rig.agreed(one, two, policy=Policy(epsilon_report=99, epsilon_metric=99, epsilon_total=3.5 * price))
    assert (
        caplog.text.count(
            "two: a value costs eps = 4.395, but not enough of Policy.epsilon_total = 15.3806 is left after the metrics' reservations"
        )
        == 1
    )
    client.record("one", "a")
    client.record("two", "a")
    assert deliver(client) == 1
    rig.clock.move(days=1)
    assert (deliver(client), client.accounting()["ignored"]["policy"]) == (1, 1)
    with collaborators(client).journal as state:
        assert state.spent("") == pytest.approx(2 * price)
        assert state.reserved("") == pytest.approx(3 * price)
    shown = CliRunner().invoke(ledger.command, [str(rig.state)])
    assert "of 13.184 reserved. It bounds the difference between histories" in shown.output
    assert "not collected: two:" in shown.output
    client.close()
    rig.clock.move(days=1)
    roomy = rig.agreed(one, two, policy=Policy(epsilon_report=99, epsilon_metric=3 * price, epsilon_total=9 * price))
    assert deliver(roomy) == 2


def test_a_metric_with_few_values_reserves_no_more_than_they_cost(rig: Rig) -> None:
    language = Metric.categorical("language", ("de", "en", "fr"), prob_p=0.25, prob_q=0.75, prob_f=0.5)
    client = rig.agreed(SURVEY, language, QUIET, policy=Policy(epsilon_report=9, epsilon_metric=20, epsilon_total=99))
    with collaborators(client).journal as state:
        assert [state.accounts["", each.digest].reserved_units for each in (SURVEY, language, QUIET)] == [2, 4, 4]


def test_a_stricter_policy_takes_back_what_was_reserved_and_not_what_was_spent(rig: Rig) -> None:
    loose = Policy(epsilon_report=9, epsilon_metric=99, epsilon_total=99)
    client = rig.agreed(QUIET, policy=loose)
    days_of(client, rig, "quiet", ["a", "b"])
    client.close()
    client = rig.client(QUIET, policy=Policy(epsilon_report=9, epsilon_metric=9, epsilon_total=9))
    b, c = days_of(client, rig, "quiet", ["b", "c"])
    assert b == c
    with collaborators(client).journal as state:
        assert [account.units for account in state.accounts.values()] == [2]


def test_a_ledger_from_before_shares_were_reserved_is_read_and_goes_on(rig: Rig) -> None:
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
    price = epsilon_permanent(QUIET.params)
    client = rig.client(QUIET, policy=Policy(epsilon_report=9, epsilon_metric=3.5 * price, epsilon_total=99))
    a, c, d = days_of(client, rig, "quiet", ["a", "c", "d"])
    assert d == c != a
    with collaborators(client).journal as state:
        (account,) = state.accounts.values()
        assert (account.units, account.reserved_units) == (3, 3)


def test_losing_the_secret_is_a_new_enrollment_that_the_ledger_knows(rig: Rig) -> None:
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


def test_by_default_somebody_who_comes_back_takes_part_as_before_once_more_and_is_not_asked_for_ever(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """Four values an enrollment, nine for ever: 4, 4, 1, and then a warning with the value, the rule and the next step."""
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
        "quiet: a value costs eps = 4.395, but earlier enrollments (consent withdrawn and given again, a lost secret) can have spent 39.551 "
        "of Policy.epsilon_metric = 40. Raise epsilon_metric to collect the metric from this client"
    ) in caplog.text


@pytest.mark.parametrize("name", ["epsilon_enrollment", "epsilon_metric", "epsilon_total"])
def test_a_value_that_no_budget_holds_is_refused_by_the_name_of_the_tightest(name: str) -> None:
    told = Policy(**{"epsilon_report": 9, name: 4.3}).objection(QUIET)
    assert told == (
        f"quiet: a value costs eps = 4.395, above Policy.{name} = 4.3: define the metric with more noise, or raise {name}"
    )


def test_the_policys_defaults_are_finite_and_nonsense_is_refused() -> None:
    assert max(getattr(Policy(), name) for name in Policy.__slots__) < 1000
    with pytest.raises(ParameterError, match="epsilon_total must be above 0, got 0"):
        Policy(epsilon_total=0)
    with pytest.raises(ParameterError, match="epsilon_total must be above 0, got nan"):
        Policy(epsilon_total=float("nan"))
