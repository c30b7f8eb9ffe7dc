"""`Wishes`: what is known before a metric is defined, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hubbub.metrics.buckets import Estimand
from hubbub.metrics.kinds import MIN_STRING_BITS, KindWord
from hubbub.metrics.params import MAX_BITS
from hubbub.metrics.periods import PeriodKind
from hubbub.text import with_article
from hubbub_decoder.errors import PlanError
from hubbub_decoder.model.repetition import Repetition

MAX_CANDIDATES = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """Requirements of a metric.

    kind       : of the values
    candidates : M, number of strings to look for, or of categories or buckets; a boolean metric has 1
    epsilon    : largest epsilon of one report
    lifetime   : largest epsilon of all reports of a client; None: without a bound, and each report costs `epsilon` again
    reports    : N, reports of a period, one of each client; None: plan the number that `share` needs
    share      : smallest share that matters; None: that of the last candidate under Zipf's law
    periods    : T, periods that are decoded together
    values     : V, distinct values of a client over its lifetime, "no value" among them; each costs one permanent response
    hold       : length of an epoch in periods, in which a client keeps its value; None: without epochs, or chosen by the plan
    lifetime_periods : periods that `lifetime` must last for with `hold`; None: T. With `values` above 1 the plan chooses `hold`
    central    : largest central epsilon of the periods decoded together, at delta = 1e-9; None: no promise
    retained   : whether individual reports are retained, and decoded instead of their counts
    bits       : largest number of bits of a string metric's report; more bits collide less, link reports more and decode more slowly
    period     : reporting period
    estimate   : "mean": an ordinal metric with one bit, for the mean alone; candidates is 1
    longest    : length of the longest string to find without a list (`discover`); None: strings are looked up in a list
    alphabet   : characters of these strings; None: bytes
    """

    kind: KindWord = KindWord.STRING
    candidates: int = 1
    epsilon: float
    lifetime: float | None = None
    reports: int | None = None
    share: float | None = None
    periods: int = 1
    values: int = 1
    hold: int | None = None
    lifetime_periods: int | None = None
    central: float | None = None
    retained: bool = False
    bits: int = 256
    period: PeriodKind = PeriodKind.DAY
    estimate: Estimand = Estimand.DISTRIBUTION
    longest: int | None = None
    alphabet: str | None = None

    def __post_init__(self) -> None:
        """Raise PlanError for a value out of range, or for wishes that exclude each other."""
        for name, kinds in (("kind", KindWord), ("period", PeriodKind), ("estimate", Estimand)):
            if getattr(self, name) not in tuple(kinds):
                raise PlanError(
                    f"{name} must be one of {', '.join(kinds)}, got {getattr(self, name)!r}: pass one of them."
                )
            object.__setattr__(self, name, kinds(getattr(self, name)))
        for name in ("epsilon", "lifetime", "central"):
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and 0 < value < math.inf):
                raise PlanError(
                    f"{name} must be a number above 0, got {value!r}: it bounds a privacy loss. Pass {name} = 2, for example."
                )
        for name in ("candidates", "reports", "periods", "values", "hold", "lifetime_periods"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
                raise PlanError(
                    f"{name} must be an integer of at least 1, got {value!r}: it is a number of {name}. Pass {name} = 1 or more."
                )
        if self.share is not None and not (_is_number(self.share) and 0 < self.share < 1):
            raise PlanError(
                f"share must be above 0 and below 1, got {self.share!r}: it is a part of the reports. Pass share = 0.01 for 1 %."
            )
        if (
            isinstance(self.bits, bool)
            or not isinstance(self.bits, int)
            or not MIN_STRING_BITS <= self.bits <= MAX_BITS
        ):
            raise PlanError(
                f"bits must be an integer in [{MIN_STRING_BITS}, {MAX_BITS}], got {self.bits!r}: a report of strings has so many. Pass bits = 128."
            )
        if self.kind is KindWord.JOINT:
            raise PlanError(
                "A joint metric was asked for, and its epsilon is the sum of its parts'. Plan each part with its share of epsilon."
            )
        if self.estimate is Estimand.MEAN and self.kind is not KindWord.ORDINAL:
            raise PlanError(
                f"estimate = mean needs numbers, and {with_article(self.kind)} metric has none. Pass kind = ordinal."
            )
        _check_candidates(self.law_kind, self.candidates)
        if self.reports is None and self.share is None:
            raise PlanError(
                "Neither reports nor share is given: the number of reports decides which shares can be detected. "
                "Pass reports to plan the best accuracy, or share to plan the number of reports."
            )
        self._check_discovery()
        if self.hold is not None and self.values > 1:
            raise PlanError(
                f"hold = {self.hold} and values = {self.values} exclude each other: with hold each epoch costs epsilon, whether the value "
                "changes or not. Leave out values."
            )
        if self.hold is not None and self.lifetime is None:
            raise PlanError(
                f"hold = {self.hold} without lifetime: each epoch costs epsilon again, and nothing bounds the sum. Pass lifetime."
            )
        if self.central is not None and self.reports is None:
            raise PlanError(
                "central without reports: the other reports of a cohort hide a client. Pass the number of reports."
            )
        if self.central is not None and self.retained and self.kind is KindWord.STRING:
            raise PlanError(
                "central and retained exclude each other: a retained report may be the only one of its cohort in its commit, and then "
                "nothing hides it. Leave out one of them."
            )

    @property
    def law_kind(self) -> KindWord:
        """Kind with the same law of bits and epsilons: boolean, for the one bit of a mean."""
        return KindWord.BOOLEAN if self.estimate is Estimand.MEAN else self.kind

    def _check_discovery(self) -> None:
        if self.longest is None:
            if self.alphabet is not None:
                raise PlanError(
                    "alphabet without longest: only strings without a list have one. Pass longest = 24, for example."
                )
            return
        if self.kind is not KindWord.STRING or self.candidates != 1:
            raise PlanError(
                f"longest = {self.longest} with kind = {self.kind} and candidates = {self.candidates}: strings are found without a list. "
                "Pass kind = string, and leave out candidates."
            )
        if self.reports is None or self.retained:
            raise PlanError(
                "longest needs reports and bit counts: the groups depend on the number of reports. Pass reports, and leave out retained."
            )

    @property
    def chooses_hold(self) -> bool:
        """Whether the plan chooses `hold`: values change, and the lifetime is a number of periods."""
        return self.values > 1 and None not in (self.lifetime, self.lifetime_periods)

    @property
    def epochs(self) -> int:
        """Number of epochs that the lifetime pays for; 1 without `hold`."""
        return 1 if self.hold is None else math.ceil((self.lifetime_periods or self.periods) / self.hold)

    @property
    def epsilon_unit(self) -> float | None:
        """Epsilon of one unit of the budget: a distinct value, or an epoch. None without a lifetime."""
        return None if self.lifetime is None else self.lifetime / (self.values * self.epochs)


def repetition_of(periods: int, hold: int | None) -> Repetition:
    """Repetition of consecutive periods, of which the first begins an epoch."""
    epochs, rest = divmod(periods, hold or periods)
    return Repetition(periods, (epochs * (hold or periods) ** 2 + rest**2) / periods)


def _check_candidates(kind: KindWord, number: int) -> None:
    if kind is KindWord.BOOLEAN and number != 1:
        raise PlanError(
            f"candidates = {number}: a boolean metric has one bit, as a metric with estimate = mean has, and needs no candidates. Leave out candidates."
        )
    named = {KindWord.CATEGORICAL: "categories", KindWord.ORDINAL: "buckets"}.get(kind)
    if named is not None and not 2 <= number <= MAX_BITS:
        raise PlanError(
            f"candidates = {number}: {with_article(kind)} metric has 2 to {MAX_BITS} {named}. "
            f"Pass another number{', or kind = string for more' if kind is KindWord.CATEGORICAL else ''}."
        )
    if number > MAX_CANDIDATES:
        raise PlanError(f"candidates = {number:,}: at most {MAX_CANDIDATES:,} can be planned. Pass fewer candidates.")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
