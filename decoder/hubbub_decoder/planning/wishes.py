"""`Wishes`: what is known before a metric is defined, checked. `KindPlanner`: what each kind makes of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from hubbub.mechanisms.mechanism import Mechanism
from hubbub.metrics.buckets import Estimand
from hubbub.metrics.discovery import Discovery
from hubbub.metrics.kinds import KINDS, MIN_STRING_BITS, Kind, KindWord
from hubbub.metrics.params import MAX_BITS
from hubbub.metrics.periods import PeriodKind
from hubbub.number_checks import check_integer, check_number
from hubbub.text import with_article
from hubbub_decoder.errors import PlanError
from hubbub_decoder.model.repetition import Repetition
from hubbub_decoder.planning.law.accuracy import MAX_REPORTS, Accuracy, Population
from hubbub_decoder.planning.law.chain import Chain
from hubbub_decoder.planning.law.collisions import Shares
from hubbub_decoder.planning.set_sizes import SetSizes

DISCOVERED = 100
"""Number of strings that a plan takes for present where no list has them."""
_FIRST_SHARE = 0.002  # of a string to discover, before the limit of discovery is known

K = TypeVar("K", bound=Kind)
M = TypeVar("M", bound=Mechanism)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """Requirements of a metric.

    Parameters
    ----------
    kind
        Kind of the values.
    num_candidates
        M, the number of strings to look for, or of categories or buckets. A boolean metric has 1.
    epsilon
        Largest epsilon of one report, in (0, inf).
    longitudinal
        Largest epsilon of any number of reports of the V values, or of the epochs with `hold`. None: each report costs
        `epsilon` again.
    num_reports
        N, the number of reports of a period, one of each client. None: plan the number that `share` needs.
    share
        Smallest share that matters, in (0, 1). None: that of the last candidate under Zipf's law.
    periods
        T, the number of periods that are decoded together.
    values
        V, the number of distinct values of a client, with "no value". Each costs one permanent response.
    hold
        Length of an epoch in periods, in which a client keeps its value. None: without epochs, or chosen by the plan.
    longitudinal_periods
        Number of periods of the epochs that `longitudinal` bounds. With `values` above 1 the plan chooses `hold`.
        None: T.
    lifetime_epsilon
        Largest epsilon of all reports that a client ever sends, under all its secrets: a field of the definition. None:
        the policy of the app alone limits it, and the plan warns.
    central
        Largest central epsilon of the periods decoded together, at delta = 1e-9. None: no promise.
    retained
        Whether individual reports are retained, and decoded instead of their counts.
    bits
        Largest number of bits of a string metric's report. More bits collide less, link reports more and decode more
        slowly.
    period
        Reporting period.
    estimate
        "mean": an ordinal metric with one bit, for the mean alone. `num_candidates` is then 1.
    longest
        Length of the longest string to find without a list (`discover`). None: strings are looked up in a list.
    alphabet
        Characters of these strings. None: bytes.
    own
        Number of items of a client's set, so that a report may stand for the whole set: the largest number, or the part
        of the clients with each number, such as `{2: 0.3, 5: 0.5, 20: 0.2}`. None: each client is asked about one item.

    Raises
    ------
    PlanError
        A word is unknown, or the wishes contradict each other.
    ParameterError
        A number is out of range.
    """

    kind: KindWord = KindWord.STRING
    num_candidates: int = 1
    epsilon: float
    longitudinal: float | None = None
    num_reports: int | None = None
    share: float | None = None
    periods: int = 1
    values: int = 1
    hold: int | None = None
    longitudinal_periods: int | None = None
    lifetime_epsilon: float | None = None
    central: float | None = None
    retained: bool = False
    bits: int = 256
    period: PeriodKind = PeriodKind.DAY
    estimate: Estimand = Estimand.DISTRIBUTION
    longest: int | None = None
    alphabet: str | None = None
    own: int | Mapping[int, float] | None = None

    def __repr__(self) -> str:
        """Wishes that differ from the defaults."""
        stated = {field.name: getattr(self, field.name) for field in fields(self)}
        changed = (
            f"{field.name}={stated[field.name]!s}" for field in fields(self) if stated[field.name] != field.default
        )
        return f"Wishes({', '.join(changed)})"

    def __post_init__(self) -> None:
        """Raise ParameterError for a number out of range, PlanError for wishes that exclude each other."""
        for name, words in (("kind", KindWord), ("period", PeriodKind), ("estimate", Estimand)):
            if (word := getattr(self, name)) not in tuple(words):
                raise PlanError(f"`{name}` must be one of {', '.join(words)}, got {word!r}: pass one of them.")
            object.__setattr__(self, name, words(word))
        for name in (
            "num_candidates",
            "num_reports",
            "periods",
            "values",
            "hold",
            "longitudinal_periods",
            "longest",
        ):
            check_count(name, getattr(self, name))
        if self.own is not None:
            SetSizes.of(self.own)
        problem = next(self._problems(), None)
        if problem is not None:
            raise PlanError(problem)

    def _problems(self) -> Iterator[str]:
        """Yield what the kind refuses, and what excludes each other. Raises ParameterError for a number out of range."""
        for name in ("epsilon", "longitudinal", "lifetime_epsilon", "central"):
            value = getattr(self, name)
            if value is not None:
                check_number(name, value, "(0, inf)", hint=f"it bounds a privacy loss. Pass `{name} = 2`, for example.")
        if self.share is not None:
            check_number(
                "share", self.share, "(0, 1)", hint="it is a part of the reports. Pass `share = 0.01` for 1 %."
            )
        hint = "a report of strings has so many. Pass `bits = 128`."
        check_integer("bits", self.bits, MIN_STRING_BITS, MAX_BITS, hint=hint)
        yield from planner_for(self).problems(self)
        if self.num_reports is None and self.share is None:
            yield (
                "Neither `num_reports` nor `share` is given: the number of reports decides which shares can be detected. "
                "Pass `num_reports` to plan the best accuracy, or `share` to plan the number of reports."
            )
        if self.own is not None and KINDS[self.kind].has_exclusive_values:
            yield f"`own = {SetSizes.of(self.own)}` with `kind = {self.kind}`: only a set has several values at once. Leave out `own`."
        if self.longest is None and self.alphabet is not None:
            yield "`alphabet` without `longest`: only strings without a list have one. Pass `longest = 24`, for example."
        if self.longest is not None and (self.num_reports is None or self.retained):
            yield (
                "`longest` needs `num_reports` and bit counts: the groups depend on the number of reports. "
                "Pass `num_reports`, and leave out `retained`."
            )
        if self.hold is not None and self.values > 1:
            yield (
                f"`hold = {self.hold}` and `values = {self.values}` exclude each other: with `hold` each epoch costs epsilon, whether the value "
                "changes or not. Leave out `values`."
            )
        if self.hold is not None and self.longitudinal is None:
            yield f"`hold = {self.hold}` without a longitudinal epsilon: each epoch costs epsilon again, and nothing bounds the sum. Pass `longitudinal`."
        if self.central is not None and self.num_reports is None:
            yield "`central` without `num_reports`: the other reports of a cohort hide a client. Pass `num_reports`."

    @property
    def chooses_hold(self) -> bool:
        """Whether the plan chooses `hold`: values change, and the periods of the longitudinal epsilon are stated."""
        return self.values > 1 and None not in (self.longitudinal, self.longitudinal_periods)

    @property
    def epochs(self) -> int:
        """Number of epochs that the longitudinal epsilon pays for; 1 without `hold`."""
        return 1 if self.hold is None else math.ceil((self.longitudinal_periods or self.periods) / self.hold)

    @property
    def epsilon_unit(self) -> float | None:
        """Epsilon of one unit of the budget: a distinct value, or an epoch. None without a longitudinal epsilon."""
        return None if self.longitudinal is None else self.longitudinal / (self.values * self.epochs)


class Design(NamedTuple):
    """Probabilities and size that a planner chooses.

    chain    : probabilities of both responses, before they are rounded
    size     : (k, h, m)
    share    : share whose variance the probabilities minimize
    smallest : smallest share that matters
    discover : groups that report fragments of strings
    rows     : mechanism of a row for all values, if its variance is smaller than that of unary encoding; `chain` is then the law of its bits
    epsilon  : largest epsilon of a report that the central epsilon leaves, if that is less than the wished one
    other    : smallest variance of the other mechanisms over that of the design, at the same central epsilon; None: there is none
    reasons  : of the choice of the mechanism, a sentence each
    """

    chain: Chain
    size: tuple[int, int, int]
    share: float
    smallest: float
    discover: Discovery | None = None
    rows: Mechanism | None = None
    epsilon: float | None = None
    other: float | None = None
    reasons: tuple[str, ...] = ()

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism of the definition, whose epsilons are within the wishes."""
        return self.chain.within_epsilons() if self.rows is None else self.rows


class RowPlanner(ABC, Generic[M]):
    """What a plan asks about a mechanism with one row for all values, "no value" among them. The planner of a kind lists those that it offers.

    name : of the mechanism, and what it does
    """

    name: ClassVar[str]

    @abstractmethod
    def best(self, wishes: Wishes, share: float) -> M | None:
        """Return the mechanism with the smallest variance of a share within the wishes; None if there is none."""

    def notes(self, mechanism: M, wishes: Wishes) -> Iterator[str]:  # noqa: ARG002  (of other mechanisms)
        """Yield what else the choice of the mechanism means."""
        yield from ()


class KindPlanner(ABC, Generic[K]):
    """What `plan` and `describe` ask about one kind. A class in `planning/kinds` for each kind registers itself.

    planners    : planner of the kind with a word that estimates shares, or a mean alone
    total_share : share of the clients with one of the values, in the law of a plan
    cohorts     : numbers of cohorts, in the order of preference
    """

    planners: ClassVar[dict[tuple[KindWord, bool], type[KindPlanner[Any]]]] = {}
    total_share: ClassVar[float] = 1.0
    cohorts: ClassVar[tuple[int, ...]] = (1,)

    def __init_subclass__(cls, *, of: type[Kind] | None = None) -> None:
        if of is not None:
            KindPlanner.planners[of.word, of.has_shares] = cls

    def shares(self, number: int, kind: K) -> Shares:  # noqa: ARG002  (of sets)
        """Shares of so many candidates of a definition under Zipf's law."""
        return Shares.zipf(number, self.total_share)

    def population(self, wishes: Wishes) -> Population:
        """Population of the wishes, with 100 strings where no list has them; without `num_reports`, as many clients as can be planned."""
        shares = Shares.zipf(wishes.num_candidates if wishes.longest is None else DISCOVERED, self.total_share)
        return Population(float(wishes.num_reports or MAX_REPORTS), repetition_of(wishes.periods, wishes.hold), shares)

    def smallest_share(self, wishes: Wishes) -> float:
        """Smallest share that matters."""
        return wishes.share or float(self.population(wishes).shares.values[0])

    def mean_share(self, wishes: Wishes) -> float:
        """Share whose variance the probabilities minimize: half the smallest that matters, half the mean of the candidates."""
        if wishes.longest is not None:
            return _FIRST_SHARE
        shares = self.population(wishes).shares
        return (self.smallest_share(wishes) + shares.total / shares.count) / 2

    @abstractmethod
    def problems(self, wishes: Wishes) -> Iterator[str]:
        """Yield why no metric of this kind fulfils the wishes."""

    @abstractmethod
    def true_ones(self, wishes: Wishes, hashes: int) -> tuple[int, tuple[int, ...]]:
        """Return the number of bits of a report, and the numbers of true bits that a value may have."""

    @abstractmethod
    def design(self, wishes: Wishes) -> Design:
        """Return the probabilities and the size with the smallest variance. Raises PlanError if none are within the wishes."""

    def advice(self, wishes: Wishes, smallest: float, reports_needed: float) -> Iterator[str]:  # noqa: ARG002  (of other kinds)
        """Yield what another kind of metric would do better.

        smallest, reports_needed : smallest share that matters, and the number of reports that detect it
        """
        yield from ()

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


def planner_of(word: KindWord, *, has_shares: bool) -> KindPlanner[Any]:
    """Return the planner of a kind, whose reports estimate shares or a mean alone. Raises PlanError for a kind without one."""
    planner = KindPlanner.planners.get((word, has_shares))
    if planner is not None:
        return planner()
    if (word, True) in KindPlanner.planners:
        raise PlanError(
            f"`estimate = mean` needs numbers, and {with_article(word)} metric has none. Pass `kind = ordinal`."
        )
    raise PlanError(
        f"{with_article(word)} metric has no accuracy of its own, and its epsilon is the sum of its parts'. "
        "Plan each part on its own, with its part of the epsilon."
    )


def planner_for(wishes: Wishes) -> KindPlanner[Any]:
    """Return the planner of the kind that is wished for. Raises PlanError for a kind without one."""
    return planner_of(wishes.kind, has_shares=wishes.estimate is not Estimand.MEAN)


def repetition_of(periods: int, hold: int | None) -> Repetition:
    """Repetition of consecutive periods, of which the first begins an epoch."""
    epochs, rest = divmod(periods, hold or periods)
    return Repetition(periods, (epochs * (hold or periods) ** 2 + rest**2) / periods)


def check_count(name: str, number: object) -> None:
    """Raise ParameterError for anything but None and an integer above 0."""
    if number is not None:
        check_integer(name, number, 1, hint=f"pass `{name} = 1` or more.")
