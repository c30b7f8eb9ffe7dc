"""Allocate the total epsilon budget to metrics in advance, independently of the recorded values.

If metrics were charged against the rest of the total, the values of one metric would determine when another metric stops
reporting. So every number here depends on the definitions, the policy and the number of past periods only.

    max_units_spent  units that an account can have spent by now: at most one per period, and at most its reservation
    reserved_units   max_units_spent + the units that the account may still spend in this enrollment, as long as the total lasts,
                     in the order of the definitions

The definitions of the process that opened the directory last are the ones that are collected. A running process with an older version
of a metric keeps max_units_spent of it (docs/decisions/0177).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from datetime import date

from hubbub.metrics.buckets import Several
from hubbub.metrics.metric import Metric
from hubbub.metrics.periods import Period
from hubbub.privacy.ledger import Account
from hubbub.privacy.policy import Policy
from hubbub.privacy.pricing import affordable_units, cost_text, shown_epsilon, unit_price
from hubbub.text import format_count


def new_account(subject: str, metric: Metric, period: Period) -> Account:
    """Return an account without spent or reserved units. Its first report is that of `period`."""
    price = unit_price(metric)
    return Account(
        subject,
        metric.digest,
        metric.name,
        metric.period,
        str(period),
        price.unit,
        price.epsilon,
        enrollment=0,
        reserved_units=0,
    )


def policy_warnings(policy: Policy, metrics: Sequence[Metric], today: date) -> Iterator[str]:
    """Yield a warning for each metric of which a new client soon exhausts its reservation, by the policy and not by its own `lifetime_epsilon`."""
    for metric, account in _new_client(policy, metrics, today):
        if account.refused:
            continue
        cost = f"{metric.name}: {cost_text(account.unit, account.epsilon_per_unit)}"
        units = f"{account.reserved_units:g} {account.unit}{'' if account.reserved_units == 1 else 's'}"
        max_units = min(
            metric.kind.distinct_values,
            policy.units(account.epsilon_per_unit),
            affordable_units(account.lifetime_epsilon, account.epsilon_per_unit),
        )
        if account.unit != "value":
            yield f"{cost}, also if the value does not change. A client stops reporting after {units}"
        elif account.reserved_units < max_units or account.reserved_units == 1:
            yield f'{cost}. The budget has room for {units} per client, "no value" included; the value reported last replaces all others'
        elif _is_sum(metric) and account.reserved_units < metric.kind.distinct_values:
            yield (
                f"{cost}. The sum of a period often changes, and a client has room for {units} of {metric.kind.distinct_values:g}, so it soon "
                "repeats an old one. Set hold, or prob_f = 0 with its price for each report"
            )


def _is_sum(metric: Metric) -> bool:
    buckets = metric.kind.accumulating
    return buckets is not None and buckets.several is Several.SUM


def policy_problems(policy: Policy, metrics: Sequence[Metric], today: date) -> Iterator[str]:
    """Yield why no client reports some metrics: one problem for each metric that the policy blocks, and one for all beyond its total."""
    refused = [metric for metric, account in _new_client(policy, metrics, today) if account.refused]
    objections = {metric.name: policy.objection(metric) for metric in refused}
    yield from (f"{objection}. No client reports this metric" for objection in objections.values() if objection)
    without_budget = [name for name, objection in objections.items() if not objection]
    if without_budget:
        yield (
            f"no client reports {len(without_budget):,} of {format_count(len(metrics), 'metric')} ({', '.join(without_budget)}): the metrics before "
            f"them in the file reserve Policy.epsilon_total = {policy.epsilon_total:g}, and too little is left. Remove metrics, define metrics "
            "with more noise, or in the app raise epsilon_total or lower epsilon_enrollment (the reservation of each metric)"
        )


def _new_client(policy: Policy, metrics: Sequence[Metric], today: date) -> Iterator[tuple[Metric, Account]]:
    """Yield each metric with its account in a new client."""
    requested = [(metric, new_account("", metric, Period.containing(metric.period, today))) for metric in metrics]
    yield from zip(metrics, allocate(policy, [], requested, 1), strict=True)


def reports_without_room(policy: Policy, before: Metric, after: Metric, today: date) -> int | None:
    """Return the fewest charged reports of one version after which a client has no budget for another version; None: it always has some.

    The budget of a report is what `allocate` reserves for it: with permanent noise, each of them may have had another value.

    >>> from hubbub import UnaryResponse
    >>> two_coins = UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5)  # a value costs log 3 = 1.099
    >>> old = Metric.boolean("dark", two_coins, lifetime_epsilon=3)
    >>> new = Metric.boolean("dark", two_coins, period="week", lifetime_epsilon=3)
    >>> reports_without_room(Policy(), old, new, date(2026, 11, 30))  # both values may have been reported
    1
    >>> reports_without_room(Policy(), Metric.boolean("dark", two_coins), Metric.boolean("dark", two_coins, period="week"), date(2026, 11, 30))
    """
    [(_, old)], [(_, new)] = (list(_new_client(policy, [metric], today)) for metric in (before, after))
    if old.refused or new.refused or math.isinf(old.reserved_units):
        return None

    def is_refused(reports: int) -> bool:
        spent = old._replace(reports=reports, units=1 if old.unit == "value" else reports)
        empty = new_account("", after, Period.containing(after.period, today))
        changed = {account.digest: account for account in allocate(policy, [spent], [(after, empty)], 1)}
        return bool(changed[after.digest].refused)

    numbers = range(1, int(old.reserved_units) + 1)
    fewest = bisect_left(numbers, True, key=is_refused)
    return numbers[fewest] if fewest < len(numbers) else None


def version_warning(policy: Policy, before: Metric, after: Metric, today: date) -> str | None:
    """Return which clients do not report a new version of a metric, because of what they spent on the version before; None: all do."""
    reports = reports_without_room(policy, before, after, today)
    if reports is None:
        return None
    unit = "epoch" if unit_price(before).unit == "epoch" else "report"
    return (
        f"{after.name}: clients that have sent {'one' if reports == 1 else f'{reports:,} or more'} {unit}{'' if reports == 1 else 's'} of version "
        f"{before.digest[:12]} have no room for version {after.digest[:12]}, and never report it: lifetime_epsilon = "
        f"{min(metric.lifetime_epsilon or math.inf for metric in (before, after)):g} is for all versions of the name. "
        "A metric of another name has a limit of its own"
    )


def allocate(
    policy: Policy,
    accounts: Sequence[Account],
    requested: Sequence[tuple[Metric, Account]],
    enrollment: int,
) -> Iterator[Account]:
    """Yield the accounts of one subject that change when its total budget is allocated again.

    accounts   : all accounts that the subject ever had
    requested  : metrics that are collected now, each with its account
    enrollment : number of the current enrollment

    Reserved units that a definition cannot have spent are free again if it is not collected now. A new enrollment has a new secret and
    new permanent noise. Units that earlier enrollments can have spent stay spent, and the metric reserves new ones.

    All versions of a metric share its `lifetime_epsilon`, the lowest that this subject's client has seen in any of them.
    """
    units_kept = {account.digest: max_units_spent(account, policy, enrollment) for account in accounts}
    collected = {metric.digest for metric, _ in requested}
    epsilon_left = policy.epsilon_total
    if epsilon_left < math.inf:
        epsilon_left -= sum(
            units_kept[account.digest] * account.epsilon_per_unit for account in accounts if units_kept[account.digest]
        )
    limits = _limits(accounts, requested)
    left_of_name = {
        name: limit
        - math.fsum(
            units_kept[account.digest] * account.epsilon_per_unit for account in accounts if account.metric == name
        )
        for name, limit in limits.items()
        if limit < math.inf
    }
    for account in accounts:
        if account.digest not in collected and account.reserved_units != units_kept[account.digest]:
            yield account._replace(reserved_units=units_kept[account.digest])
    for metric, account in requested:
        spent = units_kept.get(account.digest, 0)
        is_new_enrollment = account.enrollment != enrollment
        spent_before = spent if is_new_enrollment else account.spent_before_enrollment
        max_units = policy.units(account.epsilon_per_unit, spent_before)
        if account.unit == "value":
            max_units = min(max_units, spent_before + metric.kind.distinct_values)
        refused = policy.objection(metric) or ""
        affordable = affordable_units(
            min(epsilon_left, left_of_name.get(metric.name, math.inf)), account.epsilon_per_unit
        )
        granted = 0 if refused else max(0, min(max_units - spent, affordable))
        if not refused and spent + granted <= spent_before:
            refused = _no_budget_left(metric, policy, account, spent, left_of_name.get(metric.name, math.inf))
        changed = account._replace(
            reserved_units=spent + granted,
            spent_before_enrollment=spent_before,
            refused=refused,
            lifetime_epsilon=limits[metric.name],
        )
        if is_new_enrollment:
            changed = _forget_values(changed, enrollment)
        if granted and epsilon_left < math.inf:
            epsilon_left -= granted * account.epsilon_per_unit
        if granted and metric.name in left_of_name:
            left_of_name[metric.name] -= granted * account.epsilon_per_unit
        if changed != account:
            yield changed


def _limits(accounts: Sequence[Account], requested: Sequence[tuple[Metric, Account]]) -> dict[str, float]:
    """Return the lowest lifetime epsilon of each metric's name: of all versions that were ever collected, and those collected now."""
    limits: dict[str, float] = {}
    seen = [(account.metric, account.lifetime_epsilon) for account in accounts]
    for name, limit in (*seen, *((metric.name, metric.lifetime_epsilon or math.inf) for metric, _ in requested)):
        limits[name] = min(limit, limits.get(name, math.inf))
    return limits


def _forget_values(account: Account, enrollment: int) -> Account:
    """Return an account in a new enrollment, without the values and epochs of earlier ones."""
    return account._replace(
        enrollment=enrollment, tags=(), tag=b"", sealed=b"", epoch=None, newest_epoch=None, response=None
    )


def max_units_spent(account: Account, policy: Policy, enrollment: int) -> float:
    """Return an upper bound of the units spent at the end of the current period, which holds for any recorded values.

    enrollment : number of the current one. The drafts of earlier ones are deleted, so no further report or epoch of theirs is charged
    """
    if account.enrollment != enrollment and account.unit != "value":
        return account.units
    periods = account.reports if account.unit == "value" else account.units
    max_units = policy.units(account.epsilon_per_unit, account.spent_before_enrollment)
    bound = min(account.reserved_units, periods + 1, max_units)
    return max(account.units, account.spent_before_enrollment, bound)


def _no_budget_left(metric: Metric, policy: Policy, account: Account, spent: float, left_of_name: float) -> str:
    """Return the reason why no unit is left: the limit of the metric's name or of the definition, or the total."""
    cost = f"{metric.name}: {cost_text(account.unit, account.epsilon_per_unit)}, but "
    spent_epsilon = spent * account.epsilon_per_unit
    if affordable_units(left_of_name, account.epsilon_per_unit) < 1:
        return (
            f"{cost}{shown_epsilon(max(left_of_name, 0))} is left of the lowest lifetime_epsilon that this client has seen for this name, after "
            "all versions and earlier enrollments. A metric of another name has a limit of its own"
        )
    if affordable_units(policy.epsilon_metric - spent_epsilon, account.epsilon_per_unit) < 1:
        return (
            f"{cost}earlier enrollments (consent withdrawn and given again, a lost secret) can have spent {shown_epsilon(spent_epsilon)} "
            f"of Policy.epsilon_metric = {policy.epsilon_metric:g}. Raise epsilon_metric to collect the metric from this client"
        )
    return (
        f"{cost}not enough of Policy.epsilon_total = {policy.epsilon_total:g} is left after the metrics' reservations and earlier "
        "enrollments. Raise epsilon_total, or lower epsilon_enrollment (the reservation of each metric)"
    )
