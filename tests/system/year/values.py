"""What each report of a person must stand for, by the rules of docs/explanation/privacy.md, without the client's code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any
from uuid import UUID

from hubbub import Metric
from hubbub.metrics.kinds import NumberKind, SetKind

LATE_DAYS = 28
"""The oldest period of which a report is made contains the day so long ago."""
NOTHING: Hashable = None
UNKNOWN: Hashable = "not known"
"""What a report stands for whose value no reference knows."""


def canonical(value: Any) -> Hashable:
    """Return a value that can be compared and counted."""
    if isinstance(value, Mapping):
        return tuple(sorted((name, canonical(part)) for name, part in value.items()))
    return frozenset(value) if isinstance(value, list | tuple | set) else value


def first_day(metric: Metric, day: date) -> date:
    """Return the first day of the period of a day."""
    match metric.period:
        case "week":
            return day - timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
    return day


def next_first_day(metric: Metric, first: date) -> date:
    """Return the first day of the next period."""
    if metric.period == "month":
        return first_day(metric, first + timedelta(days=31))
    return first + timedelta(days=7 if metric.period == "week" else 1)


def epoch_of(metric: Metric, first: date) -> int:
    """Return the epoch of a period: epochs are counted from the first period of 1970, weeks begin on Mondays."""
    assert metric.hold is not None
    days = first.toordinal() - date(1970, 1, 1).toordinal()
    return (days if metric.period == "day" else (days + 3) // 7) // metric.hold


@dataclass
class Unit:
    """What the ledger charges once: the reports that one permanent response is behind.

    reports : id of the batch and row of each that may have arrived; the same bytes that are sent again are no other report
    """

    value: Hashable
    reports: set[tuple[UUID, bytes]] = field(default_factory=set)


@dataclass
class Account:
    """One definition under all secrets of one person.

    first    : first day of the first period that has no report yet
    known    : units of this enrollment by what the ledger tells apart
    reported : unit of each period
    units    : of all enrollments
    room     : units that this enrollment may have; from the ledger that the client shows
    """

    first: date
    known: dict[Hashable, Unit] = field(default_factory=dict)
    reported: dict[date, Unit] = field(default_factory=dict)
    units: list[Unit] = field(default_factory=list)
    room: float = float("inf")
    last: Unit | None = None


class Reference:
    """What one person recorded, and which unit each of their reports belongs to."""

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}
        self._recorded: dict[str, dict[date, Any]] = defaultdict(dict)

    def enroll(self) -> None:
        """A new secret after a withdrawal: what was recorded before and is not in a report is forgotten, and all responses are new."""
        self._recorded.clear()
        self.lose_secret()

    def lose_secret(self) -> None:
        """A new secret in the midst of a period: what was recorded before and is not in a report is reported as no value."""
        for recorded in self._recorded.values():
            recorded.update(dict.fromkeys(recorded, NOTHING))
        for account in self.accounts.values():
            account.known, account.last = {}, None

    def meet(self, metrics: Mapping[str, Metric], today: date) -> None:
        """A start of the app with these definitions: reports begin with the current period."""
        for metric in metrics.values():
            first = first_day(metric, today)
            self.accounts.setdefault(metric.digest, Account(first))

    def resume(self, metrics: Mapping[str, Metric], today: date) -> None:
        """A new enrollment reports no period before its own."""
        self.meet(metrics, today)
        for metric in metrics.values():
            account = self.accounts[metric.digest]
            account.first = max(account.first, first_day(metric, today))

    def record(self, metric: Metric, today: date, value: Any) -> None:
        """One recording. The largest number and the union of the items count; of other values there is one a period."""
        period, new = first_day(metric, today), canonical(value)
        recorded = self._recorded[metric.digest]
        if period not in recorded or recorded[period] is NOTHING:
            recorded[period] = new
        elif isinstance(metric.kind, SetKind):
            recorded[period] = recorded[period] | new
        elif metric.kind.word == "ordinal":
            recorded[period] = max(recorded[period], new)

    def has_recorded(self, metric: Metric, today: date) -> bool:
        """Return whether there is a recording of the current period."""
        return first_day(metric, today) in self._recorded[metric.digest]

    def advance(self, metrics: Mapping[str, Metric], today: date) -> None:
        """Make the reports of all periods that have ended."""
        for metric in metrics.values():
            account = self.accounts[metric.digest]
            oldest = first_day(metric, today - timedelta(days=LATE_DAYS))
            account.first = max(account.first, oldest)
            while next_first_day(metric, account.first) <= today:
                self._report(metric, account, account.first)
                account.first = next_first_day(metric, account.first)

    def _report(self, metric: Metric, account: Account, period: date) -> None:
        if metric.expires is not None and period >= metric.expires:
            return
        value = self._recorded[metric.digest].get(period, NOTHING)
        key: Hashable = value
        if metric.hold is not None:
            key = ("epoch", epoch_of(metric, period))
        elif not all(block.mechanism.has_permanent_noise for block in metric.blocks):
            key = ("report", period)
        elif metric.kind.word == "boolean":
            key = bool(value)  # no value is reported as false
        elif isinstance(metric.kind, SetKind):
            key = value or frozenset()  # no value is reported as the empty set
        elif isinstance(metric.kind, NumberKind) and value is NOTHING:
            key = metric.kind.buckets.default  # no value is reported as this number
        unit = account.known.get(key)
        if unit is None:
            if len(account.known) >= account.room:
                if isinstance(key, tuple) and key[0] in ("epoch", "report"):
                    return
                unit = account.last
            else:
                unit = account.known[key] = Unit(value)
                account.units.append(unit)
        if unit is not None:
            account.reported[period] = account.last = unit

    def of_report(self, digest: str, period: date) -> Unit | None:
        """Return the unit of a report; None: this person has no such report."""
        account = self.accounts.get(digest)
        return None if account is None else account.reported.get(period)

    def all_units(self) -> Iterator[tuple[str, list[Unit]]]:
        """Yield the units of each definition over all enrollments."""
        for digest, account in self.accounts.items():
            yield digest, account.units
