"""`Wishes`: what is known before a metric is defined, checked. `KindPlanner`: what each kind makes of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from hubbub.metrics.buckets import Estimand
from hubbub.metrics.discovery import Discovery
from hubbub.metrics.kinds import MIN_STRING_BITS, Kind, KindWord
from hubbub.metrics.params import MAX_BITS
from hubbub.metrics.periods import PeriodKind
from hubbub.text import with_article
from hubbub_decoder.errors import PlanError
from hubbub_decoder.model.repetition import Repetition
from hubbub_decoder.planning.law.accuracy import MAX_REPORTS, Accuracy, Population
from hubbub_decoder.planning.law.chain import Chain
from hubbub_decoder.planning.law.collisions import Shares

DISCOVERED = 100
"""Number of strings that a plan takes for present where no list has them."""
_FIRST_SHARE = 0.002  # of a string to discover, before the limit of discovery is known

K = TypeVar("K", bound=Kind)


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
        self._check_values()
        planner_for(self).check(self)
        if self.reports is None and self.share is None:
            raise PlanError(
                "Neither reports nor share is given: the number of reports decides which shares can be detected. "
                "Pass reports to plan the best accuracy, or share to plan the number of reports."
            )
        if self.longest is None and self.alphabet is not None:
            raise PlanError(
                "alphabet without longest: only strings without a list have one. Pass longest = 24, for example."
            )
        if self.longest is not None and (self.reports is None or self.retained):
            raise PlanError(
                "longest needs reports and bit counts: the groups depend on the number of reports. Pass reports, and leave out retained."
            )
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

    def _check_values(self) -> None:
        """Raise PlanError for a value out of the range of its field."""
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
        if not isinstance(self.bits, int) or not MIN_STRING_BITS <= self.bits <= MAX_BITS:
            raise PlanError(
                f"bits must be an integer in [{MIN_STRING_BITS}, {MAX_BITS}], got {self.bits!r}: a report of strings has so many. Pass bits = 128."
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


class Design(NamedTuple):
    """Probabilities and size that a planner chooses.

    chain    : probabilities of both responses, before they are rounded
    size     : (k, h, m)
    share    : share whose variance the probabilities minimize
    smallest : smallest share that matters
    discover : groups that report fragments of strings
    """

    chain: Chain
    size: tuple[int, int, int]
    share: float
    smallest: float
    discover: Discovery | None = None


class KindPlanner(ABC, Generic[K]):
    """What `plan` and `describe` ask about one kind. A class in `planning/kinds` for each kind registers itself.

    of_kinds, of_words : planner of a kind, and of the word and the estimate of wishes
    total_share : share of the clients with one of the values, in the law of a plan
    cohorts     : numbers of cohorts, in the order of preference
    """

    of_kinds: ClassVar[dict[type[Kind], type[KindPlanner[Any]]]] = {}
    of_words: ClassVar[dict[tuple[KindWord, Estimand], type[KindPlanner[Any]]]] = {}

    total_share: ClassVar[float] = 1.0
    cohorts: ClassVar[tuple[int, ...]] = (1,)

    def __init_subclass__(cls, *, of: type[Kind] | None = None, estimate: Estimand = Estimand.DISTRIBUTION) -> None:
        if of is not None:
            KindPlanner.of_kinds[of] = KindPlanner.of_words[of.word, estimate] = cls

    def shares(self, number: int) -> Shares:
        """Shares of so many candidates under Zipf's law."""
        return Shares.zipf(number, self.total_share)

    def population(self, wishes: Wishes) -> Population:
        """Population of the wishes, with 100 strings where no list has them; without `reports`, as many clients as can be planned."""
        shares = self.shares(wishes.candidates if wishes.longest is None else DISCOVERED)
        return Population(float(wishes.reports or MAX_REPORTS), repetition_of(wishes.periods, wishes.hold), shares)

    def smallest_share(self, wishes: Wishes) -> float:
        """Smallest share that matters."""
        return wishes.share or float(self.population(wishes).shares.values[0])

    def mean_share(self, wishes: Wishes) -> float:
        """Share whose variance the probabilities minimize: half the smallest that matters, half the mean of the candidates."""
        shares = self.population(wishes).shares
        if wishes.longest is not None:
            return _FIRST_SHARE
        return (self.smallest_share(wishes) + shares.total / shares.count) / 2

    @abstractmethod
    def check(self, wishes: Wishes) -> None:
        """Raise PlanError for wishes that no metric of this kind fulfils."""

    @abstractmethod
    def true_ones(self, wishes: Wishes, hashes: int) -> tuple[int, tuple[int, ...]]:
        """Return the number of bits of a report, and the numbers of true bits that a value may have."""

    @abstractmethod
    def design(self, wishes: Wishes) -> Design:
        """Return the probabilities and the size with the smallest variance. Raises PlanError if none are within the wishes."""

    @abstractmethod
    def kind(self, design: Design, *, categories: Sequence[str] | None, edges: Sequence[float] | None) -> K:
        """Return the kind of the definition, with the probabilities rounded within the epsilons.

        categories, edges : names of the categories, edges of the buckets; None: placeholders
        """

    @abstractmethod
    def accuracy(self, kind: K, population: Population, *, retained: bool) -> Accuracy:
        """Return the law of the estimates of a definition. Raises PlanError for a definition of which no law is known.

        retained : whether individual reports are decoded instead of their counts
        """


def planner_for(wishes: Wishes) -> KindPlanner[Any]:
    """Return the planner of the kind of wishes. Raises PlanError for a kind without one, or without this estimate."""
    require_planner(wishes.kind, KindPlanner.of_words.get((wishes.kind, Estimand.DISTRIBUTION)))
    planner = KindPlanner.of_words.get((wishes.kind, wishes.estimate))
    if planner is None:
        raise PlanError(
            f"estimate = {wishes.estimate} needs numbers, and {with_article(wishes.kind)} metric has none. Pass kind = ordinal."
        )
    return planner()


def planner_of(kind: Kind) -> KindPlanner[Any]:
    """Return the planner of a definition's kind. Raises PlanError for a kind without one."""
    return require_planner(kind.word, KindPlanner.of_kinds.get(type(kind)))()


def require_planner(word: KindWord, planner: type[KindPlanner[Any]] | None) -> type[KindPlanner[Any]]:
    """Return the planner of a kind. Raises PlanError if there is none."""
    if planner is None:
        raise PlanError(
            f"{with_article(word)} metric has no accuracy of its own, and its epsilon is the sum of its parts'. "
            "Plan each part on its own, with its share of epsilon."
        )
    return planner


def repetition_of(periods: int, hold: int | None) -> Repetition:
    """Repetition of consecutive periods, of which the first begins an epoch."""
    epochs, rest = divmod(periods, hold or periods)
    return Repetition(periods, (epochs * (hold or periods) ** 2 + rest**2) / periods)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
