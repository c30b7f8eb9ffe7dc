"""The ledger: what each person has spent on each metric, which only ever grows, and what one report costs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache

from hubbub.metrics.periods import Period, PeriodKind
from hubbub.sdk.storage.events import Event

Key = tuple[str, str]
"""(subject, digest): whose draft or account it is, and of which definition."""


@dataclass(slots=True)
class Choice:
    """The final bits of one report, after both randomizations, and what they cost.

    row   : the bits, hex                        tag, sealed : see `sealing.py`
    epoch : of a metric with hold                fresh : whether it costs one more unit
    stood_in : the budget has no room for the value, so the value reported last stands in for it
    """

    cohort: int
    row: str
    tag: str
    sealed: str
    epoch: int | None
    fresh: bool
    stood_in: bool


@dataclass(slots=True)
class Account:
    """The ledger's entry for one metric definition of one subject; what was spent only ever grows.

    next     : the first period whose report is not formed yet         unit, price : see `privacy.pricing.price_of`
    tags     : one keyed tag for each distinct value that was reported under this enrollment's secret, in their order
    epoch    : of a metric with hold, the last one that was charged     sealed : the last reported Bloom bits
    reserved : units that are its own of the total, spent or not        base : of them, what earlier enrollments can have spent
    refused  : why it is not collected, if it is not; see `shares.py`
    ahead    : a clock was ahead: periods before this one may be formed already, see `Former.bring_back`
    newest_epoch : of a metric with hold, the largest epoch that was ever charged under this enrollment's secret
    response     : the number that the permanent response of `epoch` is derived from, see `response_number`
    """

    subject: str
    digest: str
    metric: str
    period: PeriodKind
    next: str
    unit: str
    price: float
    units: int = 0
    reports: int = 0
    enrollment: int = 1
    tags: list[str] = field(default_factory=list)
    epoch: int | None = None
    tag: str = ""
    sealed: str = ""
    reserved: float = math.inf
    base: float = 0
    refused: str = ""
    ahead: str = ""
    newest_epoch: int | None = None
    response: int | None = None

    @property
    def key(self) -> Key:
        return self.subject, self.digest

    @property
    def spent(self) -> float:
        """Epsilon: units times price."""
        return self.units * self.price if self.units else 0.0  # a price may be infinite

    @property
    def reserved_epsilon(self) -> float:
        """Epsilon that is its own of the total, spent or not."""
        return self.reserved * self.price if self.reserved else 0.0

    @property
    def has_room(self) -> bool:
        """Whether one more unit may be spent."""
        return (self.base + len(self.tags) if self.unit == "value" else self.units) < self.reserved

    def next_period(self) -> Period:
        return Period(date.fromisoformat(self.next), self.period)

    def over(self) -> date:
        """Return the day from which on its next report can be formed."""
        return _over(self.period, self.next)

    def response_number(self, epoch: int) -> int:
        """Return the number that the permanent response of an epoch is derived from; a unit never shares one with another unit.

        It is the epoch's own number, unless a clock that was ahead is set back: an epoch up to the newest one may have a response
        already, perhaps of another value, so it gets -1 - (units charged before it), which no epoch and no other unit has.
        """
        if epoch == self.epoch:
            return epoch if self.response is None else self.response
        newest = self._newest_epoch()
        return epoch if newest is None or epoch > newest else -1 - self.units

    def _newest_epoch(self) -> int | None:
        return self.epoch if self.newest_epoch is None else self.newest_epoch

    def charge(self, choice: Choice) -> None:
        """Spend what a report costs, and remember what it said."""
        if choice.epoch is not None:
            self.response = self.response_number(choice.epoch)
            newest = self._newest_epoch()
            self.newest_epoch = choice.epoch if newest is None else max(newest, choice.epoch)
        self.units += choice.fresh
        self.reports += 1
        self.tag, self.sealed, self.epoch = choice.tag, choice.sealed, choice.epoch
        if self.unit == "value" and choice.fresh:
            self.tags.append(choice.tag)

    def event(self) -> Event:
        """Return what the journal says of it."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        if not self.ahead:
            del fields["ahead"]  # as it was before there was such a thing
        if self.response == self.epoch == self.newest_epoch:  # the clock was never ahead
            del fields["newest_epoch"], fields["response"]
        return {"e": "account", "account": fields | {"tags": list(self.tags)}}


@lru_cache(maxsize=256)
def _over(kind: PeriodKind, start: str) -> date:
    return Period(date.fromisoformat(start), kind).next().start
