"""Probabilities, epochs and cohorts within the wished epsilons.

**Probabilities.** For given a, b and q the best p is the smallest within the epsilons: a larger p is the same response followed by more
noise, which raises no epsilon and lowers no variance. The same holds for b given a. So a and q are left, and the epsilon of the permanent
response where epochs of `hold` bound only some of its reports. Both are searched on a grid, and again around its best point.

**Epochs.** A client with V values in L periods needs n >= V epochs, each of E = ceil(L / n) periods and longitudinal epsilon / n. Fewer epochs have
more epsilon each, so the variance falls with n until the epsilon of a report binds alone. The choice is the shortest epoch whose variance
is within 1 % of the longest one's, because a changed value waits for the next epoch.

**Cohorts.** Only the reports of one cohort hide each other, so a central epsilon bounds the number of cohorts.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hubbub.mechanisms.unary import differing_bits
from hubbub.metrics.params import Params
from hubbub.privacy import central_epsilon
from hubbub.privacy.pricing import shown_epsilon
from hubbub_decoder.array_types import Flags, Floats
from hubbub_decoder.errors import PlanError
from hubbub_decoder.planning.law.accuracy import MAX_REPORTS
from hubbub_decoder.planning.law.chain import Chain
from hubbub_decoder.planning.wishes import Wishes, planner_for, repetition_of

DELTA = 1e-9
"""Delta of central epsilons."""
TOLERANCE = 1.01
"""Choices whose variances differ by less than this factor count as equal."""
_TIE = 0.002
"""Weight of b in the choice of probabilities: of equal variances, a response with few ones identifies a client less."""
_GRID = 33
_ZOOMS = 7
_FIRST_ZOOMS = 2  # to compare permanent responses
_SHRINK = 3 / _GRID
_BISECTIONS = 34
_EXTRA_EPSILON = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, math.inf)
"""Epsilon of a whole permanent response beyond that of an epoch, tried where `hold` bounds only an epoch's reports."""

Objective = Callable[[Chain], Floats]


@dataclass(frozen=True, slots=True)
class Limits:
    """Largest epsilons of one metric.

    num_bits, possible_ones : k, and the numbers of true bits that a value may have
    report       : largest epsilon of one report
    unit         : largest epsilon of `unit_reports` reports of one permanent response; infinite: no permanent response is needed
    unit_reports : t >= 1; infinite: any number of reports
    """

    num_bits: int
    possible_ones: tuple[int, ...]
    report: float
    unit: float = math.inf
    unit_reports: float = math.inf

    @property
    def most_exchanged(self) -> int:
        """h, the largest number of bits that each of two values sets alone; 0 for one bit, where a value sets all bits of another."""
        return max(min(pair) for pair in differing_bits(self.num_bits, self.possible_ones))

    @property
    def most_differing(self) -> int:
        """Largest number of bits in which two values differ."""
        return max(map(sum, differing_bits(self.num_bits, self.possible_ones)))

    @property
    def bounds_an_epoch(self) -> bool:
        """Whether the limit of a unit is that of a finite number of reports."""
        return self.unit < math.inf and self.unit_reports < math.inf

    def allow(self, chain: Chain) -> Flags:
        """Whether each chain of an array keeps the epsilon of a report, and that of a finite number of reports."""
        allowed = chain.epsilon(self.num_bits, self.possible_ones, 1) <= self.report
        if self.bounds_an_epoch:
            allowed &= chain.epsilon(self.num_bits, self.possible_ones, self.unit_reports) <= self.unit
        return np.asarray(allowed)


def best_chain(limits: Limits, objective: Objective, *, symmetric: bool = False) -> Chain:
    """Probabilities with the smallest objective within the limits.

    objective : number to minimize of each chain of an array
    symmetric : whether the permanent response treats ones and zeros alike, a = 1 - b; one bit always needs such a response

    >>> from hubbub_decoder.model.repetition import Repetition
    >>> best = best_chain(Limits(64, (0, 1), report=2.0), lambda chain: chain.noise(0.0, Repetition()))
    >>> [round(float(each), 4) for each in best]  # OUE: q = 1/2, p = 1 / (e**2 + 1), without a permanent response
    [1.0, 0.0, 0.1192, 0.5]
    """
    symmetric = symmetric or limits.most_exchanged == 0
    totals = [limits.unit + extra for extra in (_EXTRA_EPSILON if limits.bounds_an_epoch else (0.0,))]

    def best(total: float, zooms: int) -> Chain:
        return _best_of(limits, total, objective, symmetric, zooms)

    total = (
        totals[0] if len(totals) == 1 else min(totals, key=lambda total: float(objective(best(total, _FIRST_ZOOMS))))
    )
    return best(total, _ZOOMS)


def _best_of(limits: Limits, total: float, objective: Objective, symmetric: bool, zooms: int) -> Chain:
    """Best chain whose permanent response has this epsilon."""
    bit_epsilon = total / max(1, limits.most_exchanged)  # of a pair of bits, of which each value sets one
    least, most = min(-2.0, bit_epsilon / 2 - 2), bit_epsilon + 6.0  # log-odds of a
    if bit_epsilon == math.inf or symmetric:  # only one response has this epsilon
        least = most = 0.0 if bit_epsilon == math.inf else total / limits.most_differing
    low, high = np.array([least, -6.0]), np.array([most, 6.0])
    first_low, first_high = low, high
    for _ in range(zooms):
        axes = [np.linspace(*ends, _GRID if ends[1] > ends[0] else 1) for ends in zip(low, high, strict=True)]
        x, y = np.meshgrid(*axes, indexing="ij")
        chains = _chains(limits, bit_epsilon, x, y, symmetric)
        values = np.where(chains.q > chains.p, objective(chains), np.inf)
        best = np.unravel_index(np.argmin(values), values.shape)
        centre, reach = np.array([x[best], y[best]]), _SHRINK * (high - low)
        low, high = np.maximum(centre - reach, first_low), np.minimum(centre + reach, first_high)
    return Chain(*(np.asarray(np.broadcast_to(probability, values.shape)[best]) for probability in chains))


def _chains(limits: Limits, bit_epsilon: float, log_odds_a: Floats, log_odds_q: Floats, symmetric: bool) -> Chain:
    """Chains with these log-odds of a and q, and the smallest b and p within the limits."""
    if bit_epsilon == math.inf:
        a, b = np.ones_like(log_odds_a), np.zeros_like(log_odds_a)
    else:
        a = _logistic(log_odds_a)
        b = 1 - a if symmetric else _logistic(log_odds_a - bit_epsilon)
    q = np.where(log_odds_q >= 6.0, 1.0, _logistic(log_odds_q))
    low, high = np.zeros_like(q), q
    at_zero = limits.allow(Chain(a, b, low, q))
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        fits = limits.allow(Chain(a, b, middle, q))
        low, high = np.where(fits, low, middle), np.where(fits, middle, high)
    return Chain(a, b, np.where(at_zero, 0.0, high), q)


def _logistic(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-x)))


def limits_of(wishes: Wishes, hashes: int = 1) -> Limits:
    """Largest epsilons of a metric whose values set so many bits."""
    limits = Limits(*planner_for(wishes).true_ones(wishes, hashes), wishes.epsilon)
    unit = wishes.epsilon_unit
    return limits if unit is None else replace(limits, unit=unit, unit_reports=wishes.hold or math.inf)


def chain_of(wishes: Wishes, share: float, hashes: int = 1, *, symmetric: bool = False) -> Chain:
    """Probabilities with the smallest variance of a share within the wishes, collisions apart."""
    repetition = repetition_of(wishes.periods, wishes.hold)

    def objective(chain: Chain) -> Floats:
        return chain.noise(share, repetition) / hashes * (1 + _TIE * chain.b)

    return best_chain(limits_of(wishes, hashes), objective, symmetric=symmetric)


def noise_of(wishes: Wishes, share: float, chain: Chain, hashes: int = 1) -> float:
    """N T Var of a share, collisions apart."""
    return float(chain.noise(share, repetition_of(wishes.periods, wishes.hold))) / hashes


def choose_hold(wishes: Wishes, share: float) -> tuple[Wishes, str]:
    """Wishes with the best `hold` instead of `values`, and the reason as a sentence.

    wishes : with `longitudinal`, `longitudinal_periods` and several `values`      share : of which the variance is minimized

    Raises PlanError where a client has more values than periods.
    """
    values, last = wishes.values, wishes.longitudinal_periods or wishes.periods
    if values > last:
        raise PlanError(
            f"`values = {values}` in `longitudinal_periods = {last}`: a client has at most one value in a period. "
            "Pass fewer `values`, or more `longitudinal_periods`."
        )
    lengths = sorted({math.ceil(last / epochs) for epochs in range(values, last + 1)})
    lengths = [length for length in lengths if math.ceil(last / length) >= values]

    def held(length: int) -> Wishes:
        return replace(wishes, values=1, hold=length)

    def variance(length: int) -> float:
        return noise_of(held(length), share, chain_of(held(length), share))

    longest, shortest = variance(lengths[-1]), variance(1)
    last_index = len(lengths) - 1
    index = bisect_left(lengths, True, hi=last_index, key=lambda length: variance(length) <= TOLERANCE * longest)
    chosen = held(lengths[index])
    why = ""
    if index < last_index:
        why = f"Longer epochs have the same variance within {TOLERANCE - 1:.0%}. "
    elif index:
        why = f"More epochs leave less epsilon for each: hold = 1 has {shortest / longest:.3g} times this variance. "
    return chosen, (
        f"hold = {chosen.hold} is chosen, {chosen.epochs} epochs: a client needs at least {values} for {values} values in {last} periods. "
        f"{why}A changed value is reported from the next epoch on."
    )


def cohorts_central(wishes: Wishes, block: Params, cohorts: int) -> float:
    """Central epsilon of the periods decoded together, among the reports of an average cohort."""
    reports = max(1, (wishes.num_reports or 0) // cohorts)
    return central_epsilon(block, reports, DELTA, wishes.periods, wishes.hold)


def allowed_cohorts(wishes: Wishes, block: Params, choices: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Numbers of cohorts in which the wanted central epsilon is kept: the others of a cohort hide a client.

    block   : bits and mechanism of the reports
    choices : numbers of cohorts, in the order of preference; (): those of the kind's planner

    Raises PlanError if there are none.
    """
    most, reports = wishes.central, wishes.num_reports or 0
    choices = choices or planner_for(wishes).cohorts
    if most is None:
        return choices
    least, *_ = ascending = sorted(choices)
    first = bisect_left(
        ascending, True, key=lambda cohorts: reports < cohorts or cohorts_central(wishes, block, cohorts) > most
    )
    kept = tuple(cohorts for cohorts in choices if cohorts not in ascending[first:])
    if not kept:

        def central(reports_of_a_cohort: int) -> float:
            return central_epsilon(block, reports_of_a_cohort, DELTA, wishes.periods, wishes.hold)

        raise PlanError(
            f"`central = {most:g}` is not reached: {reports:,} reports in {least} cohort{'s' * (least > 1)} have a central epsilon of "
            f"{shown_epsilon(cohorts_central(wishes, block, least))} at delta = {DELTA:g}, because only the reports of one cohort hide each other. "
            f"{_reports_for(central, most, least)}"
        )
    return kept


def _reports_for(central: Callable[[int], float], most: float, cohorts: int) -> str:
    """Sentence with the number of reports that reach a central epsilon."""
    low, high = 1, MAX_REPORTS
    if central(high) > most:
        return "No number of reports reaches it. Pass a smaller `epsilon`, or a larger `central`."
    while high > max(1.01 * low, low + 1):
        middle = max(low + 1, math.isqrt(low * high))
        low, high = (low, middle) if central(middle) <= most else (middle, high)
    return (
        f"It needs {high * cohorts:,} reports. Pass so many `num_reports`, a smaller `epsilon`, or a larger `central`."
    )
