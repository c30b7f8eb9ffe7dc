"""Scenarios of the ledger: what values, epochs, reports, enrollments and versions cost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

from hubbub.conformance.world import FIELDS, UNLIMITED, VALUE_EPSILON, BrokenError, ScenarioRule, World, fingerprint
from hubbub.mechanisms.unary import UnaryResponse
from hubbub.metrics.buckets import Buckets
from hubbub.metrics.discovery import Discovery
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.metrics.periods import Period, PeriodKind, period_number

_TWO_VALUES, _THREE_VALUES = fingerprint("two_values", 2), fingerprint("three_values", 3)
_PERMANENT = UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5)
_LISTED = tuple(f"c{number}" for number in range(63))
_KEYS: tuple[tuple[Metric, Sequence[Sequence[Any]], str], ...] = (
    (
        Metric.joint(
            "of_parts",
            (
                Metric.string(
                    "page", Params(num_bits=128, num_hashes=1, num_cohorts=2, prob_p=0, prob_q=1, prob_f=0.5)
                ),
                Metric.boolean("dark", _PERMANENT),
            ),
            lifetime_epsilon=2 * 3.3,
            **FIELDS,
        ),
        tuple([{"page": page, "dark": dark}] for page, dark in (("a", True), ("a", False), ("b", True), ("a", True))),
        "abba",
    ),
    (
        Metric.categorical(
            "listed", (*_LISTED, "rest"), _PERMANENT, other="rest", lifetime_epsilon=2 * VALUE_EPSILON, **FIELDS
        ),
        (["x"], ["y"], ["c0"], ["c1"]),
        "aabb",
    ),
    (
        Metric.ordinal(
            "in_buckets",
            Buckets(edges=tuple(range(0, 650, 10)), default=5),
            _PERMANENT,
            lifetime_epsilon=2 * VALUE_EPSILON,
            **FIELDS,
        ),
        ([], [1], [15], [25]),
        "aabb",
    ),
    (
        Metric.string(
            "of_equal_bits",
            Params(num_bits=128, num_hashes=1, num_cohorts=1, prob_p=0, prob_q=1, prob_f=0.5),
            lifetime_epsilon=2 * VALUE_EPSILON,
            **FIELDS,
        ),
        (["v0"], ["v2"], ["c"], ["v0"]),
        "abba",
    ),
    *(
        (
            Metric.string(
                f"of_fragments_{number}",
                Params(num_bits=128, num_hashes=1, num_cohorts=256, prob_p=0, prob_q=1, prob_f=0.5),
                discover=Discovery(longest=8, step=4, first=4, alphabet="ab", held_out=8 / 256),
                lifetime_epsilon=2 * VALUE_EPSILON,
                **FIELDS,
            ),
            (["aaaaaaaaaa1"], ["aaaaaaaaaa2"], ["b"], ["aaaaaaaaaa1"]),
            "abba",
        )
        for number in range(3)  # one of 32 clients reports whole values
    ),
    (fingerprint("recorded_often", 2), (["a", "b", "c"], ["d"], ["e"], ["f"]), "abbb"),
)
"""Metrics with room for two values, the recordings of four days, and their reports: what the ledger charges is one key."""
_HELD = fingerprint("held", hold=3, num_cohorts=256)
_WEEKS = fingerprint("weeks", hold=2, period=PeriodKind.WEEK)
_MONTHS = fingerprint("months", hold=2, period=PeriodKind.MONTH)
_LONG_WEEKS = 20
_THREE_EPOCHS = fingerprint("three_epochs", 3, hold=2)
_THREE_REPORTS = Metric.boolean(
    "three_reports", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0), lifetime_epsilon=3.4, **FIELDS
)
_FIRST, _SECOND, _THIRD = (fingerprint(name) for name in ("first", "second", "third"))
_CHANGED = fingerprint("first", num_cohorts=4)
_TWO_DAYS = fingerprint("two_days", hold=2)
_LOUD = Metric.boolean("loud", UnaryResponse(prob_p=0.01, prob_q=0.99, prob_f=0.02), **FIELDS)
_FIRST_DAY = date(1970, 1, 1)
"""First day of the first epoch."""
_LIMITED, _UNLIMITED = fingerprint("limited", 2), fingerprint("limited", None, hold=30)
_SAME_LIMIT = fingerprint("limited", 3, hold=30)


def repeats_the_last_value(world: World) -> None:
    """A value without room is replaced by the one reported last, also after a kill; an earlier value is known."""
    first = world.today
    world.agree()
    world.live("abca")
    world.kit.kill()
    world.start()
    world.live("cbd..")
    world.expect_history(_TWO_VALUES, first, "abbaabb")


def no_value_is_a_value(world: World) -> None:
    """A day without a recording has the report of no value, which costs a unit; what costs one is the key of the reported value."""
    world.policy = {"epsilon_report": 4.0}
    first = world.today
    world.agree()
    world.live("a..ab.cd..")
    world.expect_history(_THREE_VALUES, first, "abbacbbb")
    world.redefine(*(metric for metric, _, _ in _KEYS))
    began = world.today
    for day in range(6):
        for metric, recordings, _ in _KEYS:
            for value in recordings[day] if day < len(recordings) else ():
                world.record(metric, value)
        world.set_time(world.aggregator.now + timedelta(days=1))
    for metric, _, expected in _KEYS:
        world.expect_history(metric, began, expected)


def keeps_the_value_of_an_epoch(world: World) -> None:
    """The first value of an epoch is reported in all its days, also after a kill; epochs have the same days for all clients.

    A first day without a recording has no value, and the cohort is the same in all epochs.
    """
    world.policy = UNLIMITED
    world.aggregator.now += timedelta(days=_days_until_epoch(world, _HELD) + 2)
    first = world.today
    world.agree()
    world.live("abcde")
    world.kit.kill()
    world.start()
    world.live(".fa...fg..")
    world.expect_history(_HELD, first, "abbbcccdddeee")
    cohorts = {cohort for cohort, _ in world.rows(_HELD).values()}
    if len(cohorts) > 1:
        raise BrokenError(f"held has reports of {len(cohorts)} cohorts of one client")
    _check_long_epochs(world)


def _check_long_epochs(world: World) -> None:
    """Epochs of two weeks, and of two months, begin in the same periods for all clients."""
    world.redefine(_WEEKS, _MONTHS)
    began = world.today
    for _ in range(7 * _LONG_WEEKS):
        for metric in world.definitions:
            world.record(metric, str(Period.containing(metric.period, world.today)))
        world.set_time(world.aggregator.now + timedelta(days=1))
    for metric in world.definitions:
        rows, period = world.rows(metric), Period.containing(metric.period, began)
        while (following := period.next()).next().next().start <= world.today:
            one, two = (period_number(metric.period, str(start)) // 2 for start in (period, following))
            if str(following) not in rows:
                raise BrokenError(f"{metric.name} has no report of {following}")
            if str(period) in rows and (rows[str(period)] == rows[str(following)]) != (one == two):
                raise BrokenError(
                    f"{metric.name} has {'other' if one == two else 'equal'} reports of {period} and {following}, which are of epoch {one} and epoch {two}"
                )
            period = following


def charges_each_epoch(world: World) -> None:
    """Each epoch costs a unit, whatever is recorded, and without room there is no report."""
    world.aggregator.now += timedelta(days=_days_until_epoch(world, _THREE_EPOCHS))
    first = world.today
    world.agree()
    world.live("aaaa")
    world.restart()
    world.live("aabcd...")
    world.expect_history(_THREE_EPOCHS, first, "aabbcc----")


def _days_until_epoch(world: World, metric: Metric) -> int:
    return -(world.today - _FIRST_DAY).days % (metric.hold or 1)


def charges_each_report(world: World) -> None:
    """Without permanent noise each report costs a unit, and without room there is none."""
    first = world.today
    world.agree()
    for day in range(7):
        world.record(_THREE_REPORTS, True)
        if day == 2:
            world.restart()
        world.set_time(world.aggregator.now + timedelta(days=1))
    days = sorted(world.rows(_THREE_REPORTS))
    if days != [str(first + timedelta(days=day)) for day in range(3)]:
        raise BrokenError(f"there are reports of {', '.join(days)}, and there is room for three from {first} on")


def limits_an_enrollment(world: World) -> None:
    """An enrollment has the values that epsilon_enrollment has room for, also of a definition that comes again; a changed one has its own."""
    world.policy = {"epsilon_enrollment": 2 * VALUE_EPSILON, "epsilon_metric": 4 * VALUE_EPSILON}
    first = world.today
    world.agree()
    world.live("abcda..")
    world.expect_history(_FIRST, first, "abbba")
    world.redefine(_CHANGED)
    began = world.today
    world.live("abc..")
    world.expect_history(_CHANGED, began, "abb")
    world.redefine(_FIRST)
    world.live("cd..")
    values = len(set(world.rows(_FIRST).values()))
    if values > 2:
        raise BrokenError(f"a definition that came again has reports of {values} values, and there is room for two")


def limits_all_enrollments(world: World) -> None:
    """Each enrollment counts as one that spent what it could, and after the last there is no report."""
    world.policy = {"epsilon_enrollment": 2 * VALUE_EPSILON, "epsilon_metric": 4 * VALUE_EPSILON}
    world.agree()
    world.live("aaaa")
    world.renew_consent()
    began = world.today
    world.live("abcd")
    world.expect_history(_FIRST, began, "abb")
    if str(began) not in world.rows(_TWO_DAYS):
        raise BrokenError(f"a second enrollment has no report of {_TWO_DAYS.name}, and epsilon_metric has room for two")
    world.renew_consent()
    began = world.today
    world.live("bcde")
    world.restart()
    world.live("f..")
    for metric in world.definitions:
        late = [day for day in world.rows(metric) if day >= str(began)]
        if late:
            raise BrokenError(
                f"a third enrollment has a report of {metric.name} of {late[0]}, and epsilon_metric has room for two enrollments"
            )


def limits_the_total(world: World) -> None:
    """Metrics reserve their share in their order, whatever is recorded, and earlier definitions count."""
    world.policy = {"epsilon_enrollment": 2 * VALUE_EPSILON, "epsilon_total": 3 * VALUE_EPSILON}
    first = world.today
    world.agree()
    for value in "abc":
        world.record(_SECOND, value)
        world.record(_THIRD, value)
        world.set_time(world.aggregator.now + timedelta(days=1))
    world.live("...")
    world.expect_history(_FIRST, first, "aaa")
    world.expect_history(_SECOND, first, "aaa")
    world.expect_history(_THIRD, first, "---")


def counts_earlier_definitions(world: World) -> None:
    """What earlier definitions spent stays spent of the total, also in a new enrollment."""
    world.policy = {"epsilon_enrollment": 2 * VALUE_EPSILON, "epsilon_total": 2 * VALUE_EPSILON}
    world.agree()
    world.live("ab..")
    world.redefine(_SECOND)
    for _ in range(2):
        began = world.today
        world.live("ab..")
        world.expect_history(_SECOND, began, "--")
        world.renew_consent()


def shares_the_limit_of_a_name(world: World) -> None:
    """Versions and enrollments of a metric share the lowest lifetime_epsilon, also a version with a higher limit or without one."""
    world.agree()
    world.live("ab..")
    world.renew_consent()
    began = world.today
    world.live("ab..")
    world.expect_history(_LIMITED, began, "--")
    for version in (_UNLIMITED, _SAME_LIMIT):
        world.redefine(version)
        began = world.today
        world.live("ab..")
        world.expect_history(version, began, "--")


def limits_a_report(world: World) -> None:
    """A metric whose report has a larger epsilon than the policy allows has no report."""
    world.agree()
    for _ in range(4):
        world.record(_LOUD, True)
        world.set_time(world.aggregator.now + timedelta(days=1))
    _ = world.batches
    if world.rows(_LOUD):
        raise BrokenError("a metric has reports whose epsilon is above epsilon_report")


RULES = (
    ScenarioRule(
        118,
        "the last value where there is no room",
        "client.md, Ledger",
        "If there is no room for another value, the client repeats the last reported value",
        repeats_the_last_value,
        (_TWO_VALUES,),
    ),
    ScenarioRule(
        119,
        "no value is a value",
        "client.md, Ledger",
        'distinct value under one secret ("no value" is a value)',
        no_value_is_a_value,
        (_THREE_VALUES,),
    ),
    ScenarioRule(
        120,
        "one value in an epoch",
        "format.md, Epochs",
        "In each epoch the client reports the value of the first period in which it takes part, in every period of the epoch.",
        keeps_the_value_of_an_epoch,
        (_HELD,),
    ),
    ScenarioRule(
        121,
        "no report without room for an epoch",
        "client.md, Ledger",
        "A metric that is charged per epoch or report sends no more reports.",
        charges_each_epoch,
        (_THREE_EPOCHS,),
    ),
    ScenarioRule(
        122,
        "no report without room for a report",
        "client.md, Ledger",
        "with `prob_f = 0`",
        charges_each_report,
        (_THREE_REPORTS,),
    ),
    ScenarioRule(
        123,
        "the budget of an enrollment",
        "client.md, Ledger",
        "When the client first sees a metric, it reserves the metric's epsilon for this enrollment: `epsilon_enrollment`, or less if the metric has few values.",
        limits_an_enrollment,
        (_FIRST,),
    ),
    ScenarioRule(
        124,
        "the budget of all enrollments",
        "client.md, Ledger",
        "The client assumes that earlier enrollments spent everything they could, and reserves again, up to `epsilon_metric` over the lifetime.",
        limits_all_enrollments,
        (_FIRST, _TWO_DAYS),
    ),
    ScenarioRule(
        125,
        "the budget of all metrics",
        "client.md, Ledger",
        "Values of other metrics have no influence.",
        limits_the_total,
        (_FIRST, _SECOND, _THIRD),
    ),
    ScenarioRule(
        126,
        "the budget of all definitions",
        "client.md, Constructor options",
        "over all definitions ever collected",
        counts_earlier_definitions,
        (_FIRST,),
    ),
    ScenarioRule(
        127,
        "one lifetime_epsilon for all versions",
        "privacy.md, Lifetime epsilon",
        "up to the definition's `lifetime_epsilon`, which all versions share.",
        shares_the_limit_of_a_name,
        (_LIMITED,),
    ),
    ScenarioRule(
        128,
        "the epsilon of a report",
        "client.md, Constructor options",
        "largest epsilon that the client may spend: per report;",
        limits_a_report,
        (_LOUD, _FIRST),
    ),
)
