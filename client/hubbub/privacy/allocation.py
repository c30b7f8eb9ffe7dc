"""Who may spend how much of the total: reserved for each metric in advance, whatever its values turn out to be.

Were one metric charged against what is left of the total, the values of another would decide when it falls silent.
So everything here is a function of definitions, policy, and how many periods have passed; never of values.

    most     what an account can have spent by now: one unit a period, and never more than it reserved
    kept     most; or all that it reserved, while another live process uses its definition (`definition_lease.py`)
    reserve  kept + what it may still spend in this enrollment, as far as the total goes, in the order of the definitions
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from hubbub.metrics.metric import Metric
from hubbub.metrics.periods import Period
from hubbub.privacy.ledger import Account
from hubbub.privacy.policy import Policy
from hubbub.privacy.pricing import affordable_units, distinct_values, shown_epsilon, unit_price


def new_account(subject: str, metric: Metric, period: Period) -> Account:
    """Return an account as it begins: nothing is spent or reserved."""
    price = unit_price(metric)
    names = subject, metric.digest, metric.name
    return Account(*names, metric.period, str(period), price.unit, price.epsilon, enrollment=0, reserved_units=0)


def policy_warnings(policy: Policy, metrics: Sequence[Metric], today: date) -> Iterator[str]:
    """Say what a new person's first enrollment refuses of these metrics, silences, or leaves hardly any room for."""
    wanted = [(metric, new_account("", metric, Period.containing(metric.period, today))) for metric in metrics]
    for (metric, _), account in zip(wanted, allocate(policy, [], wanted, 1), strict=True):
        cost = f"{metric.name}: a {account.unit} costs eps = {shown_epsilon(account.epsilon_per_unit)}"
        room = min(distinct_values(metric), policy.units(account.epsilon_per_unit, 0))
        if account.refused:
            yield f"{account.refused}: nobody's reports come"
        elif account.unit != "value":
            yield f"{cost}, and so does every other: after {account.reserved_units:g} of them a person falls silent"
        elif account.reserved_units < room or account.reserved_units == 1:
            yield f'{cost}: {account.reserved_units:g} of a person\'s values have room, "no value" among them; the last stands in for all others'


def allocate(
    policy: Policy,
    accounts: Sequence[Account],
    wanted: Sequence[tuple[Metric, Account]],
    enrollment: int,
    in_use: Container[str] = (),
) -> Iterator[Account]:
    """Yield one subject's accounts as they are after the total was shared out anew, those that change.

    accounts : all that the subject ever had       wanted : the metrics that are collected now, each with its account
    in_use   : digests that other live processes report under: they keep what they reserved

    What a definition that no process uses did not need is free again. A new enrollment has a new secret, under which every value is
    noised anew: what the earlier ones can have spent is spent, and the metric reserves again.
    """
    kept = {account.digest: _units_kept(account, policy, enrollment, in_use) for account in accounts}
    collected = {metric.digest for metric, _ in wanted}
    left = policy.epsilon_total
    if left < math.inf:
        left -= sum(kept[account.digest] * account.epsilon_per_unit for account in accounts if kept[account.digest])
    for account in accounts:
        if account.digest not in collected and account.reserved_units != kept[account.digest]:
            yield replace(account, reserved_units=kept[account.digest])
    for metric, account in wanted:
        spent = kept.get(account.digest, 0)
        renewed = account.enrollment != enrollment
        base = spent if renewed else account.spent_before_enrollment
        ceiling = policy.units(account.epsilon_per_unit, base)
        if account.unit == "value":
            ceiling = min(ceiling, base + distinct_values(metric))
        refused = policy.objection(metric) or ""
        granted = 0 if refused else max(0, min(ceiling - spent, affordable_units(left, account.epsilon_per_unit)))
        if not refused and spent + granted <= base:
            refused = _no_room(metric, policy, account, spent)
        changed = replace(account, reserved_units=spent + granted, spent_before_enrollment=base, refused=refused)
        if renewed:
            forgotten: dict[str, Any] = {
                "tags": [],
                "tag": b"",
                "sealed": b"",
                "epoch": None,
                "newest_epoch": None,
                "response": None,
            }
            changed = replace(changed, enrollment=enrollment, **forgotten)
        if granted and left < math.inf:
            left -= granted * account.epsilon_per_unit
        if changed != account:
            yield changed


def _units_kept(account: Account, policy: Policy, enrollment: int, in_use: Container[str]) -> float:
    """Return how many units stay an account's own while the total is shared out anew."""
    spent = max_units_spent(account, policy)
    is_bounded = account.reserved_units < math.inf or policy.epsilon_total == math.inf
    if account.digest in in_use and account.enrollment == enrollment and is_bounded:
        return max(spent, account.reserved_units)
    return spent


def max_units_spent(account: Account, policy: Policy) -> float:
    """Return how many units an account can have spent once the current period is over, whatever its values."""
    periods = account.reports if account.unit == "value" else account.units
    ceiling = policy.units(account.epsilon_per_unit, account.spent_before_enrollment)
    return max(account.units, account.spent_before_enrollment, min(account.reserved_units, periods + 1, ceiling))


def _no_room(metric: Metric, policy: Policy, account: Account, spent: float) -> str:
    cost = f"{metric.name}: a {account.unit} costs eps = {shown_epsilon(account.epsilon_per_unit)}, and "
    if affordable_units(policy.epsilon_metric - spent * account.epsilon_per_unit, account.epsilon_per_unit) < 1:
        return (
            f"{cost}earlier enrollments (consent off and on, a lost secret) can have spent {shown_epsilon(spent * account.epsilon_per_unit)} of "
            f"epsilon_metric = {policy.epsilon_metric:g}: nothing more is collected from this person, unless you raise it in Policy"
        )
    return (
        f"{cost}what metrics have reserved and earlier enrollments can have spent leaves less of "
        f"epsilon_total = {policy.epsilon_total:g}: raise it in Policy, or lower epsilon_enrollment, what each metric reserves"
    )
