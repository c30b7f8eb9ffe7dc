"""Subset selection with the smallest variance within the wished epsilons.

For a given w and a the best q is the largest within the epsilons, because a smaller one is the same response followed by more noise. So w
and the log-odds of a are searched: w up to twice its optimum for one report, d / (e**eps + 1) (Ye and Barg 2018), with the epsilon that the
limits leave for a report, and a on a grid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from hubbub.mechanisms.probability import DYADIC_DIGITS
from hubbub.mechanisms.subset import MAX_VALUES, SubsetSelection, rows_epsilon
from hubbub_decoder.model.repetition import Repetition
from hubbub_decoder.planning.law.chain import Chain
from hubbub_decoder.planning.probabilities import TOLERANCE
from hubbub_decoder.planning.wishes import RowPlanner, Wishes, repetition_of

_GRID = 49
_BISECTIONS = 30
_LEAST_EXCESS = 1e-3
_TIE = 1e-4  # of equal variances, one without permanent noise is simpler
_STEP = 2.0**-DYADIC_DIGITS
SKEWED_SHARE = 0.9
"""Share of the largest value for which a plan states the loss of bit counts."""


@dataclass(frozen=True, slots=True)
class RowLimits:
    """Largest epsilons of rows of d values: of one report, and of a number of reports of one permanent value (infinite: any number)."""

    num_values: int
    report: float
    unit: float = math.inf
    unit_reports: float = math.inf

    def allow(self, num_ones: int, included: float, kept: float) -> bool:
        """Return whether a mechanism keeps both epsilons."""
        of_rows = self.num_values, num_ones, included, kept
        within_unit = self.unit == math.inf or rows_epsilon(*of_rows, self.unit_reports) <= self.unit
        return within_unit and rows_epsilon(*of_rows, 1) <= self.report


class SubsetPlanner(RowPlanner[SubsetSelection]):
    """Planner of subset selection."""

    name = "subset selection, one row for all values"

    def best(self, wishes: Wishes, share: float) -> SubsetSelection | None:
        unit = wishes.epsilon_unit
        limits = RowLimits(
            num_values=wishes.num_candidates + 1,
            report=wishes.epsilon,
            unit=math.inf if unit is None else unit,
            unit_reports=wishes.hold or math.inf,
        )
        return best_subset_selection(limits, share, repetition_of(wishes.periods, wishes.hold))

    def notes(self, mechanism: SubsetSelection, wishes: Wishes) -> Iterator[str]:  # noqa: ARG002  (of rows of sets)
        if (loss := skewed_loss(mechanism)) > TOLERANCE:
            yield (
                f"Where one value has {100 * SKEWED_SHARE:g} % of the clients, the others have {loss:.2f} times the variance that whole rows would "
                "give: only the counts of bits are kept."
            )


def best_subset_selection(limits: RowLimits, share: float, repetition: Repetition) -> SubsetSelection | None:
    """Return the mechanism with the smallest variance of a share; None if a row has too many values, or none keeps the limits.

    >>> best = best_subset_selection(RowLimits(num_values=6, report=1.0), 1 / 6, Repetition())
    >>> best.num_ones, round(best.prob_q, 4), best.permanent_q
    (2, 0.5761, 1.0)
    """
    d = limits.num_values
    if d > MAX_VALUES:
        return None
    found: list[tuple[float, SubsetSelection]] = []
    of_report = min(
        limits.report, limits.unit if math.isinf(limits.unit_reports) else limits.unit / limits.unit_reports, 50.0
    )
    for num_ones in range(1, min(d // 2, math.ceil(2 * d / (math.exp(of_report) + 1)) + 1) + 1):
        for kept in _kept(limits):
            included = _largest_included(limits, num_ones, kept)
            if included is not None:
                mechanism = SubsetSelection(num_values=d, num_ones=num_ones, prob_q=included, permanent_q=kept)
                noise = float(Chain.of_mechanism(mechanism).noise(share, repetition))
                found.append((noise * (1 + _TIE * mechanism.has_permanent_noise), mechanism))
    return min(found, key=lambda pair: pair[0])[1] if found else None


def skewed_loss(mechanism: SubsetSelection) -> float:
    """Return the variance of the difference of two small shares from bit counts over that from whole rows, for one report.

        ((w-1) f_1 + (d-w-1) f_0) ((w-1) / f_1 + (d-w-1) / f_0) / (d-2)**2

    f_1 and f_0 are the probabilities of a row with one of the two values, with the value of the large share and without it. The other
    values share the rest evenly. Rows of one value, and an even population, lose nothing.

    >>> skewed_loss(SubsetSelection(num_values=31, num_ones=1, prob_q=0.5))
    1.0
    """
    d, w, q = mechanism.num_values, mechanism.num_ones, mechanism.q_star
    if d <= 2:
        return 1.0
    without, more = (1 - q) / (d - w), q / w - (1 - q) / (d - w)
    even = (1 - SKEWED_SHARE) / (d - 1)
    f_1, f_0 = without + more * (SKEWED_SHARE + (w - 1) * even), without + more * w * even
    with_it, without_it = w - 1, d - w - 1
    return (with_it * f_1 + without_it * f_0) * (with_it / f_1 + without_it / f_0) / (d - 2) ** 2


def _kept(limits: RowLimits) -> list[float]:
    """Probabilities a that are tried: 1 without a limit of many reports; else up to the one whose permanent value has the limit, or beyond."""
    if limits.unit == math.inf:
        return [1.0]
    most = limits.unit if limits.unit_reports == math.inf else limits.unit + 8
    odds = (math.log(1 / (limits.num_values - 1)) + _LEAST_EXCESS, most - math.log(limits.num_values - 1))
    steps = (odds[0] + (odds[1] - odds[0]) * i / (_GRID - 1) for i in range(_GRID))
    return [
        *(_down(1 / (1 + math.exp(-log_odds))) for log_odds in steps),
        *([1.0] if limits.unit_reports < math.inf else []),
    ]


def _largest_included(limits: RowLimits, num_ones: int, kept: float) -> float | None:
    """Largest q within the limits, rounded down; None if there is none above w / d."""
    low, high = num_ones / limits.num_values + 2 * _STEP, 1 - _STEP
    if kept <= 1 / limits.num_values + _STEP or not limits.allow(num_ones, low, kept):
        return None
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if limits.allow(num_ones, middle, kept) else (low, middle)
    return _down(low)


def _down(probability: float) -> float:
    """Largest multiple of 2**-24 that is not above a probability."""
    return math.ldexp(math.floor(math.ldexp(probability, DYADIC_DIGITS)), -DYADIC_DIGITS)
