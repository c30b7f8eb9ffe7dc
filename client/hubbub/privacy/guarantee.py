"""Guarantees of a metric: an observer, what it observes, the histories that it cannot tell apart, and the epsilon.

The condition of a guarantee is a predicate on two raw histories of one client. For every pair that it admits, and every set S of what the
observer can see of the unit,

    P(seen in S | first) <= e^epsilon P(seen in S | second) + delta

Enumeration of all small pairs: tests/client/privacy/test_guarantees.py. The epsilons are those of `loss.py`, `pricing.py` and `central.py`.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar

from hubbub.metrics.kinds import BloomBits, JointValue, Kind, Value
from hubbub.metrics.kinds.kind import SAME_PATTERN, ChangeWords
from hubbub.metrics.metric import Metric
from hubbub.metrics.periods import PeriodKind, period_number
from hubbub.number_checks import check_integer
from hubbub.privacy.central import RELEASE_DELTA, central_epsilon, release_epsilon
from hubbub.privacy.loss import epsilon, epsilon_of_values
from hubbub.privacy.pricing import affordable_units, unit_price
from hubbub.wire.json_values import json_value

if TYPE_CHECKING:
    from hubbub.privacy.policy import Policy


class Observer(StrEnum):
    """Who observes.

    Attributes
    ----------
    SITE
        Reads the published totals of every period.
    OPERATOR
        Sees each report arrive, and when. Whoever sees less is bounded by the same epsilon.
    NETWORK
        Sees the encrypted connections: their number, times and lengths.
    FILES
        Has the client's files, with its secret.
    """

    SITE = "reader of the published site"
    OPERATOR = "operator"
    NETWORK = "network"
    FILES = "holder of the files"


SAME_RUNS = "if the app runs in the same periods"
"""What every condition demands, because whoever sees reports arrive sees when the app ran."""


class Unit(StrEnum):
    """What is observed of one client.

    Attributes
    ----------
    REPORT
        One report.
    EPOCH
        All reports of one epoch of a metric with `hold`, under one secret.
    VALUE
        All reports of one value.
    ENROLLMENT
        All reports under one secret.
    LIFETIME
        All reports under all secrets.
    ALL_PERIODS
        The totals of all published periods, in which the client has one secret: with a second one it draws another permanent response.
    DAYS
        All reports about a number of days in a row, under one secret.
    """

    REPORT = "report"
    EPOCH = "epoch"
    VALUE = "value"
    ENROLLMENT = "enrollment"
    LIFETIME = "lifetime"
    ALL_PERIODS = "all published periods, under one secret"
    DAYS = "days in a row"


_LEAST_DAYS = {PeriodKind.DAY: 1, PeriodKind.WEEK: 7, PeriodKind.MONTH: 28}


@dataclass(frozen=True, slots=True)
class RawHistory:
    """What one client does in consecutive periods, before anything is randomized.

    Parameters
    ----------
    periods
        Recorded values of each period, in order. An empty tuple: the app ran, and nothing was recorded. None: the app
        did not run. Nothing is reported about the periods before its first run.
    enrollments
        Index of each period from which the client has a new secret, because consent was withdrawn and given again, or
        because the secret was lost.
    """

    periods: tuple[tuple[Value | JointValue, ...] | None, ...]
    enrollments: tuple[int, ...] = ()

    @property
    def runs(self) -> tuple[tuple[bool, ...], tuple[int, ...]]:
        """Whether the app ran in each period, and the periods with a new secret: these are visible, whatever is recorded."""
        return tuple(recordings is not None for recordings in self.periods), self.enrollments


class Condition(ABC):
    """Predicate on two raw histories: the pairs between which a guarantee holds."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def sentence(self) -> str:
        """Words of the predicate for engineers and reviewers."""

    @property
    @abstractmethod
    def plain(self) -> str:
        """Words for users. The pairs that they name are admitted, and they may leave out others."""

    @abstractmethod
    def admits(self, first: RawHistory, second: RawHistory) -> bool:
        """Return whether the guarantee holds between two raw histories.

        Parameters
        ----------
        first, second
            Histories of one client.

        Returns
        -------
        bool
            True if it does.
        """


@dataclass(frozen=True)
class AnyRecordings(Condition):
    """The app runs, and has a new secret, in the same periods. What is recorded may differ in every way."""

    name = "any recordings"

    @property
    def sentence(self) -> str:
        """Words of the predicate for engineers and reviewers, without `SAME_RUNS`."""
        return "whatever is recorded"

    @property
    def plain(self) -> str:
        """Words for users."""
        return "whether or not your answer changes"

    def admits(self, first: RawHistory, second: RawHistory) -> bool:
        """Return whether the app runs in the same periods of two histories."""
        return first.runs == second.runs


@dataclass(frozen=True)
class SamePattern(AnyRecordings):
    """Also, under each secret the reported values of two periods are equal in one history exactly where they are in the other.

    A value is what the ledger counts. A period with several recordings reports one of them at random: then each pattern of equal values
    has the same probability in both histories. The ledger does not know the kind of a metric: without it there are words, and no predicate.
    """

    kind: Kind | None = None
    name = "same pattern of equal values"

    @property
    def sentence(self) -> str:
        """Words of the predicate for engineers and reviewers."""
        return f"between histories whose values {SAME_PATTERN}" if self.kind is None else self.kind.bounded_histories

    @property
    def plain(self) -> str:
        """Words for users, about values that do not change."""
        return f"as long as {(ChangeWords() if self.kind is None else self.kind.change).unchanged}"

    def admits(self, first: RawHistory, second: RawHistory) -> bool:
        """Return whether two histories have equal values in the same pairs of periods, for every client.

        The time of the computation is the product of the periods' numbers of recordings.
        """
        if self.kind is None:
            raise TypeError("the kind of the metric is not known, so its reported values are not: pass `kind`")
        if first.runs != second.runs:
            return False
        reported = [[_choices(self.kind, recordings or ()) for recordings in of.periods] for of in (first, second)]
        values = [value for choices in reported for of_period in choices for value in of_period]
        first_run = next((at for at, recordings in enumerate(first.periods) if recordings is not None), 0)
        secrets = [sum(start <= at for start in first.enrollments) for at in range(first_run, len(first.periods))]
        return all(
            self._admits_patterns(*(_pattern_law(self.kind, of[first_run:], secrets, client) for of in reported))
            for client in self.kind.representative_clients(values)
        )

    def _admits_patterns(self, first: PatternLaw, second: PatternLaw) -> bool:
        return first == second


@dataclass(frozen=True)
class UnchangedValue(SamePattern):
    """Also, the reported value is the same in every period."""

    name = "one unchanging value"

    @property
    def sentence(self) -> str:
        """Words of the predicate for engineers and reviewers."""
        return "any number of reports of one unchanging value"

    def _admits_patterns(self, first: PatternLaw, second: PatternLaw) -> bool:
        return all(not any(pattern) for pattern in (*first, *second))


PatternLaw = dict[tuple[int, ...], int]
"""Relative probability of each pattern, in lowest terms. A pattern has the first period under the same secret with the same value."""


def _choices(kind: Kind, recordings: Sequence[Any]) -> tuple[Any, ...]:
    """Return the values of a period, of which one is reported, each with the same probability."""
    if kind.adds_up:
        return (frozenset().union(*filter(None, recordings)),) if recordings else (None,)
    buckets = kind.accumulating
    if buckets is None:
        return tuple(recordings) or (None,)
    numbers = [buckets.number(value) for value in recordings if value is not None]
    return (reduce(buckets.combine, numbers[1:], numbers[0]),) if numbers else (None,)


def _pattern_law(
    kind: Kind, choices: Sequence[Sequence[Any]], secrets: Sequence[int], client: tuple[int, float | None]
) -> PatternLaw:
    patterns: Counter[tuple[int, ...]] = Counter()
    for values in itertools.product(*choices):
        keys = [(secret, _key(kind.true_bits(value, *client))) for secret, value in zip(secrets, values, strict=True)]
        patterns[tuple(map(keys.index, keys))] += 1
    divisor = math.gcd(*patterns.values())
    return {pattern: number // divisor for pattern, number in patterns.items()}


def _key(bloom: BloomBits) -> Hashable:
    """Return what tells reported values apart, as `encoding.bloom.ValueKey` does: strings with equal bits are two values."""
    return int(bloom), bloom.value_digest


@dataclass(frozen=True, slots=True)
class Guarantee:
    """Bound on what an observer learns from one unit of a client's reports.

    Attributes
    ----------
    observer
        Who observes.
    unit
        What is observed.
    condition
        Predicate on two histories: the pairs between which the bound holds.
    epsilon
        Largest logarithm of the ratio of the probabilities of what is seen; infinite if there is no bound.
    delta
        Probability that the bound fails.
    num_units
        Units of the ledger whose epsilons are added up. 0: the policy blocks the metric.
    num_clients
        Genuine clients of one cohort, this one among them, that must report in every observed period, under one secret each and with
        values as the condition says. 1: the bound needs no others.
    """

    observer: Observer
    unit: Unit
    condition: Condition
    epsilon: float
    delta: float = 0.0
    num_units: float = 1
    num_clients: int = 1

    def to_dict(self) -> dict[str, Any]:
        """Return the guarantee as JSON values.

        Returns
        -------
        dict[str, Any]
            Observer, unit, condition in words, whether it is unconditional, and the numbers. An infinite number is the
            string "inf".
        """
        words = {"observer": str(self.observer), "unit": str(self.unit)}
        words["condition"] = f"{self.condition.sentence}, {SAME_RUNS}"
        numbers = {
            name: getattr(self, name) for name in ("is_unconditional", "epsilon", "delta", "num_units", "num_clients")
        }
        figures: dict[str, Any] = json_value({**words, **numbers})
        return figures

    @property
    def is_unconditional(self) -> bool:
        """Whether it bounds all reports under a secret, or more, whatever is recorded and whoever else reports."""
        is_of_all = self.unit not in (Unit.REPORT, Unit.EPOCH, Unit.VALUE, Unit.DAYS)
        is_of_any = type(self.condition) is AnyRecordings and self.num_clients == 1
        return is_of_all and is_of_any and math.isfinite(self.epsilon)


def guarantees(metric: Metric, policy: Policy) -> tuple[Guarantee, ...]:
    """Return the guarantees of a metric under a policy, and under the metric's own `lifetime_epsilon`, for everybody who sees reports.

    Parameters
    ----------
    metric
        Definition of the metric.
    policy
        Policy of the client.

    Returns
    -------
    tuple[Guarantee, ...]
        One for each observer and unit.

    Examples
    --------
    >>> from hubbub import UnaryResponse
    >>> from hubbub.privacy.policy import Policy
    >>> survey = Metric.boolean("survey", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
    >>> for guarantee in guarantees(survey, Policy()):
    ...     print(f"{guarantee.observer}, {guarantee.unit}: {guarantee.epsilon:.3f}, {guarantee.condition.name}")
    operator, report: 1.099, any recordings
    operator, value: 1.099, one unchanging value
    operator, enrollment: 2.197, same pattern of equal values
    operator, lifetime: 39.550, same pattern of equal values
    network, lifetime: 0.000, any recordings
    holder of the files, lifetime: inf, any recordings
    """
    price, anything = unit_price(metric), AnyRecordings()
    condition = _condition_of_sum({price.unit}, metric.kind)
    enrollment: float = 0
    lifetime: float = 0
    if policy.objection(metric) is None:
        limit = min(policy.epsilon_metric, policy.epsilon_total, metric.lifetime_epsilon or math.inf)
        lifetime = affordable_units(limit, price.epsilon)
        enrollment = min(lifetime, affordable_units(policy.epsilon_enrollment, price.epsilon))
        if price.unit == "value":
            enrollment = min(enrollment, metric.kind.distinct_values)
    found = [Guarantee(Observer.OPERATOR, Unit.REPORT, anything, epsilon(metric))]
    if price.unit != "period":
        found.append(guarantee_of_reports(metric, metric.reports_per_unit))
    for unit, number in ((Unit.ENROLLMENT, enrollment), (Unit.LIFETIME, lifetime)):
        total = number * price.epsilon if number else math.inf
        found.append(Guarantee(Observer.OPERATOR, unit, condition, total, num_units=number))
    found.append(Guarantee(Observer.NETWORK, Unit.LIFETIME, anything, 0.0))
    found.append(Guarantee(Observer.FILES, Unit.LIFETIME, anything, math.inf))
    return tuple(found)


def _condition_of_sum(units: Collection[str], kind: Kind | None) -> Condition:
    """Return the condition under which the epsilons of units of the ledger add up."""
    return SamePattern(kind) if "value" in units else AnyRecordings()


def guarantee_of_reports(metric: Metric, num_reports: float) -> Guarantee:
    """Return the guarantee of t reports of one unit of the ledger: of one value, or of one epoch; without permanent noise of any t reports.

    num_reports : t >= 1, at most that of an epoch; math.inf: any number of reports of one value
    """
    unit = unit_price(metric).unit
    condition = UnchangedValue(metric.kind) if unit == "value" else AnyRecordings()
    of = Unit.REPORT if unit == "period" else Unit(unit)
    return Guarantee(Observer.OPERATOR, of, condition, epsilon(metric, num_reports))


def guarantee_of_ledger(units: Collection[str], spent: float, kind: Kind | None = None) -> Guarantee:
    """Return the guarantee of all reports that a ledger has charged.

    units : units of its accounts: "value", "epoch" or "period"
    spent : epsilon of the charged units
    kind  : kind of the only metric; None: there are several, or the definition is not known
    """
    return Guarantee(Observer.OPERATOR, Unit.LIFETIME, _condition_of_sum(units, kind), spent)


def guarantee_of_totals(metric: Metric, num_periods: int, num_clients: int) -> Guarantee:
    """Return the guarantee of the totals of some periods in a row, of which the first begins an epoch, with delta 1e-9.

    num_clients : n >= 1, number of genuine clients of one cohort that report in each of the periods

    It is the smaller of two bounds, of which the one for several messages holds for any histories, and the other for an unchanging value only.
    """
    condition = AnyRecordings() if num_periods == 1 else UnchangedValue(metric.kind)
    bound = central_epsilon(metric, num_clients, RELEASE_DELTA, num_periods, metric.hold)
    return Guarantee(Observer.SITE, Unit.ALL_PERIODS, condition, bound, RELEASE_DELTA, num_clients=num_clients)


def published_guarantee(
    metric: Metric, periods: Collection[str], num_clients: int, *, replaced: bool = False
) -> Guarantee:
    """Return the guarantee of the published totals of several periods together, for a client that reports in each of them.

    Parameters
    ----------
    metric
        Definition of the metric.
    periods
        First days of the published periods, ISO 8601. At least one.
    num_clients
        n >= 1, number of genuine clients of one cohort that report in each of the periods.
    replaced
        Whether different totals of one period were published, which can show a single report.

    Returns
    -------
    Guarantee
        Central epsilon, or the local one if totals were replaced. It has no condition on values for one period, with `hold`, or without
        permanent noise.

    Raises
    ------
    ParameterError
        `num_clients` is not an integer above 0.

    Examples
    --------
    >>> from hubbub import UnaryResponse
    >>> survey = Metric.boolean("survey", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5))
    >>> days = [f"2026-11-{day:02}" for day in range(1, 31)]
    >>> [round(published_guarantee(survey, found, 10_000).epsilon, 3) for found in (days[:1], days)]
    [0.028, 0.07]
    """
    check_integer("num_clients", num_clients, 1, hint="pass the number of reports of the smallest cohort")
    days = set(periods)
    epochs = Counter(0 if metric.hold is None else period_number(metric.period, day) // metric.hold for day in days)
    reports = sorted(epochs.values(), reverse=True)
    has_fresh_noise = metric.hold is not None or not any(block.mechanism.has_permanent_noise for block in metric.blocks)
    condition = AnyRecordings() if len(days) == 1 or has_fresh_noise else UnchangedValue(metric.kind)
    if replaced:
        return Guarantee(Observer.SITE, Unit.ALL_PERIODS, condition, epsilon_of_values(metric, reports))
    bound = release_epsilon(metric, num_clients, reports)
    return Guarantee(Observer.SITE, Unit.ALL_PERIODS, condition, bound, RELEASE_DELTA, num_clients=num_clients)


def guarantee_of_days(metric: Metric, policy: Policy, num_days: int) -> Guarantee:
    """Return the guarantee of all reports about any days in a row, under one secret, whatever is recorded.

    Parameters
    ----------
    metric
        Definition of the metric.
    policy
        Policy of the client.
    num_days
        D >= 1, number of days.

    Returns
    -------
    Guarantee
        With `hold`, or without permanent noise, the epsilon of all epochs or reports that have one of the days, at most that of
        an enrollment. Otherwise it is infinite.

    Raises
    ------
    ParameterError
        `num_days` is not an integer above 0.

    Notes
    -----
    D days in a row have a day of at most ceil((D - 1) / L) + 1 units of at least L days. A unit is an epoch, or without permanent noise a
    period. A month has at least 28 days.

    Examples
    --------
    >>> from hubbub import UnaryResponse
    >>> from hubbub.privacy.policy import Policy
    >>> weekly = Metric.boolean("dark", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), hold=7)
    >>> month = guarantee_of_days(weekly, Policy(), 30)
    >>> month.num_units, round(math.exp(month.epsilon))  # six epochs of ln 3
    (6, 729)
    """
    check_integer("num_days", num_days, 1, hint="pass the length of the time that matters, such as 30")
    has_response = any(block.mechanism.has_permanent_noise for block in metric.blocks)
    once = unit_price(metric).epsilon if has_response else epsilon(metric)
    least_days = _LEAST_DAYS[metric.period] * (metric.hold if has_response and metric.hold else 1)
    number = -(-(num_days - 1) // least_days) + 1
    (enrollment,) = (of for of in guarantees(metric, policy) if of.unit is Unit.ENROLLMENT)
    is_of_values = has_response and metric.hold is None
    total = math.inf if is_of_values else min(number * once, enrollment.epsilon)
    return Guarantee(Observer.OPERATOR, Unit.DAYS, AnyRecordings(), total, num_units=number)
