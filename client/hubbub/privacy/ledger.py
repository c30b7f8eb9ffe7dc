"""Ledger accounts: epsilon spent per subject and metric definition. Spending is never reduced."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date
from functools import lru_cache
from typing import Any, NamedTuple

from hubbub.metrics.periods import Period, PeriodKind

Key = tuple[str, str]
"""(subject, digest of the metric definition) of a draft or an account. Subject "" is the client itself."""


class EncodedReport(NamedTuple):
    """Bits of one report after both randomized responses, and the cost of the report.

    cohort     : in [0, m)
    bits       : ceil(k / 8) bytes, bit i of the report is bit i % 8 of byte i // 8; empty if there is no report yet
    tag        : keyed tag of the reported value, see `encoding/sealed_values.py`
    sealed     : Bloom bits of the reported value, encrypted
    epoch      : epoch of a metric with `hold`, else None
    costs_unit : whether the report costs one more unit of the account
    stood_in   : whether it repeats the value reported last, because the account has no unit left for the recorded value
    response   : number of the permanent response that was drawn, see `Account.response_number`; None without `hold`
    """

    cohort: int
    bits: bytes
    tag: bytes
    sealed: bytes
    epoch: int | None
    costs_unit: bool
    stood_in: bool
    response: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as the journal holds them: JSON, with bytes in hex."""
        return {
            "cohort": self.cohort,
            "bits": self.bits.hex(),
            "tag": self.tag.hex(),
            "sealed": self.sealed.hex(),
            "epoch": self.epoch,
            "costs_unit": self.costs_unit,
            "stood_in": self.stood_in,
            "response": self.response,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> EncodedReport:
        """Return the report of the fields that `to_dict` returned."""
        return EncodedReport(
            fields["cohort"],
            bytes.fromhex(fields["bits"]),
            bytes.fromhex(fields["tag"]),
            bytes.fromhex(fields["sealed"]),
            fields["epoch"],
            fields["costs_unit"],
            fields["stood_in"],
            fields["response"],
        )


class Account(NamedTuple):
    """Ledger account of one metric definition and one subject, at one moment. The units spent of later ones are never fewer.

    metric            : name of the metric                   period : kind of its reporting period
    next_period_start : first day of the first period without a batch, ISO 8601
    unit, epsilon_per_unit : see `privacy.pricing.unit_price`
    units, reports    : spent units and charged reports, over all enrollments
    enrollment        : number of the enrollment (one per secret) to which the fields below belong
    tags              : one keyed tag per distinct value that was reported in this enrollment, in order
    tag, sealed       : tag and encrypted Bloom bits of the value reported last
    epoch             : epoch charged last (metrics with `hold`)
    reserved_units    : units of the total budget that belong to this account, spent or not
    spent_before_enrollment : units of them that earlier enrollments can have spent
    refused           : reason why the metric is not collected, or ""; see `allocation.py`
    replanned_before  : after a clock error, periods before this day may have a batch already; see `BatchBuilder.replan_after_clock_error`
    newest_epoch      : largest epoch ever charged in this enrollment (metrics with `hold`)
    response          : number of the permanent response of `epoch`, see `response_number`
    lifetime_epsilon  : the lowest limit of the metric's name that this client has seen; see `allocation.py`
    group             : value of the metric's group in the next period, in accounts that an earlier version wrote; else "", see `State.group_labels`
    """

    subject: str
    digest: str
    metric: str
    period: PeriodKind
    next_period_start: str
    unit: str
    epsilon_per_unit: float
    units: int = 0
    reports: int = 0
    enrollment: int = 1
    tags: tuple[bytes, ...] = ()
    epoch: int | None = None
    tag: bytes = b""
    sealed: bytes = b""
    reserved_units: float = math.inf
    spent_before_enrollment: float = 0
    refused: str = ""
    replanned_before: str = ""
    newest_epoch: int | None = None
    response: int | None = None
    lifetime_epsilon: float = math.inf
    group: str = ""

    @property
    def key(self) -> Key:
        """Key of the account: (subject, digest)."""
        return self.subject, self.digest

    @property
    def spent(self) -> float:
        """Spent epsilon: units * epsilon_per_unit."""
        return self.units * self.epsilon_per_unit if self.units else 0.0  # epsilon_per_unit may be infinite

    @property
    def reserved_epsilon(self) -> float:
        """Epsilon of the total budget that belongs to this account, spent or not."""
        return self.reserved_units * self.epsilon_per_unit if self.reserved_units else 0.0

    @property
    def has_room(self) -> bool:
        """Whether one more unit may be spent in this enrollment."""
        return (
            self.spent_before_enrollment + len(self.tags) if self.unit == "value" else self.units
        ) < self.reserved_units

    def next_period(self) -> Period:
        """Return the first period without a batch."""
        return Period(date.fromisoformat(self.next_period_start), self.period)

    def period_end(self) -> date:
        """Return the day after the next period: from then on its report can be created."""
        return _period_end(self.period, self.next_period_start)

    def response_number(self, epoch: int) -> int:
        """Return the number from which the permanent response of an epoch is derived. Different units have different numbers.

        Normally it is the epoch. If a fast clock was set back, an epoch up to `newest_epoch` may have a permanent response of
        another value already. It then gets a number of its units and the epoch, which no epoch and no other unit has: a draft that waits
        may have been drawn for another epoch at the same units.
        """
        if epoch == self.epoch:
            return epoch if self.response is None else self.response
        newest = self._newest_epoch()
        return epoch if newest is None or epoch > newest else -1 - (self.units << 32) - (epoch + (1 << 31))

    def _newest_epoch(self) -> int | None:
        return self.epoch if self.newest_epoch is None else self.newest_epoch

    def repriced(self, report: EncodedReport) -> EncodedReport | None:
        """Return a draft's report at the cost that it has now: other periods may have been charged since. None: there is no room for it.

        Normally the cost is unchanged. After a clock was set back, an earlier period may have taken the unit, or the epoch.
        """
        if report.epoch is not None and report.epoch == self.epoch:
            is_same = report.tag == self.tag and report.response == self.response_number(report.epoch)
            return report._replace(costs_unit=False) if is_same else None
        if not report.costs_unit or (self.unit == "value" and report.tag in self.tags):
            return report._replace(costs_unit=False)
        return report if self.has_room else None

    def charge(self, report: EncodedReport) -> Account:
        """Return the account after spending the cost of a report: it remembers the value and the epoch that were reported."""
        newest, response = self.newest_epoch, self.response
        if report.epoch is not None:
            response = report.response  # as it was drawn: other reports may have been charged since
            before = self._newest_epoch()
            newest = report.epoch if before is None else max(before, report.epoch)
        return self._replace(
            units=self.units + report.costs_unit,
            reports=self.reports + 1,
            tags=(*self.tags, report.tag) if self.unit == "value" and report.costs_unit else self.tags,
            tag=report.tag,
            sealed=report.sealed,
            epoch=report.epoch,
            newest_epoch=newest,
            response=response,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as the journal holds them: JSON, with bytes in hex; defaults that seldom differ are left out."""
        fields = self._asdict()
        if not self.replanned_before:
            del fields["replanned_before"]
        if self.lifetime_epsilon == math.inf:
            del fields["lifetime_epsilon"]
        if not self.group:
            del fields["group"]
        if self.response == self.epoch == self.newest_epoch:  # the clock was never ahead
            del fields["newest_epoch"], fields["response"]
        return fields | {
            "tags": [tag.hex() for tag in self.tags],
            "tag": self.tag.hex(),
            "sealed": self.sealed.hex(),
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Account:
        """Return the account of the fields that `to_dict` returned; fields that a newer version added are ignored.

        A limit that is no number lets nothing more be spent.
        """
        limit = fields.get("lifetime_epsilon", math.inf)
        is_limit = isinstance(limit, int | float) and not isinstance(limit, bool) and limit >= 0
        decoded = {
            "lifetime_epsilon": float(limit) if is_limit else 0.0,
            "period": PeriodKind(fields["period"]),
            "tags": tuple(map(bytes.fromhex, fields["tags"])),
            "tag": bytes.fromhex(fields["tag"]),
            "sealed": bytes.fromhex(fields["sealed"]),
        }
        return cls(**{name: fields[name] for name in cls._fields if name in fields} | decoded)


@lru_cache(maxsize=256)
def _period_end(kind: PeriodKind, start: str) -> date:
    try:
        return Period(date.fromisoformat(start), kind).next().start
    except OverflowError:  # an earlier version ran under a clock of the year 9999
        return date.max
