"""Influence of one report on an estimate at fixed weights: how far forged reports can move the estimate.

An estimate x is a weighted sum of statistics of the reports. One report more in cohort c, with the row of bits s, moves it by

    l_c'(u_c(s) - e_c)        l_c : weights of the estimate        u_c(s), e_c : statistic of the report, and what the fit expects of it

It therefore stands for the share x + N l_c'(u_c(s) - e_c), and the estimate is the mean of what the N reports stand for. With the largest
and the least of these shares, over all cohorts and rows that an aggregator accepts,

    r of the N reports are forged  ->  the other N - r have an estimate of at least (N x - r highest) / (N - r), at most (N x - r lowest) / (N - r)

Weights, and what the fit knows of the other candidates, are those of all received reports, the forged ones among them.
docs/explanation/mathematics/inference.md, equation (23.1). Source: Hampel 1974 for the influence; Cao, Jia & Gong 2021 for the attack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import reduce
from itertools import starmap

import numpy as np

from hubbub.mechanisms.mechanism import Mechanism
from hubbub_decoder.array_types import Bits, Flags, Floats, Indices

TOLERANCE = 1.1
"""What forged reports can move, in bounds: without them the others have other weights, which adds a tenth at most in 552 of 557 attacks.

Attacks of 1.5 standard errors that just leave a number for 300 candidates in bit counts gained up to 1.21 bounds."""


@dataclass(frozen=True, eq=False)
class Extremes:
    """Least and largest change of D estimates by one report more in a cohort, over all rows of bits.

    least, largest : (D,)
    rows           : (D, k) of the largest changes
    """

    least: Floats
    largest: Floats
    rows: Bits

    @classmethod
    def of_bits(cls, weights: Floats, mechanism: Mechanism) -> Extremes:
        """Extremes of weights (D, k) times the debiased bits of a row."""
        zero, one = (weights * value for value in debiased_bit(mechanism))
        rows = (one > zero).astype(np.uint8)
        return cls(np.minimum(zero, one).sum(axis=1), np.maximum(zero, one).sum(axis=1), rows)

    def among(self, some: Flags) -> Extremes:
        """The same of some of D estimates, (D,); the others move nothing."""
        size, rows = len(some), np.zeros((len(some), self.rows.shape[1]), np.uint8)
        rows[some] = self.rows
        least, largest = np.full(size, np.inf), np.full(size, -np.inf)
        least[some], largest[some] = self.least, self.largest
        return Extremes(least, largest, rows)

    def less(self, constants: Floats) -> Extremes:
        """Extremes less constants (D,)."""
        return replace(self, least=self.least - constants, largest=self.largest - constants)


@dataclass(frozen=True, eq=False)
class ReportInfluence:
    """Shares that one report can stand for in D estimates.

    lowest, highest : (D,) over cohorts and rows
    cohorts, rows   : (D,) and (D, k) of a report that stands for `highest`; a cohort is its position among those with reports
    num_reports     : (D,) N, reports behind each estimate
    tolerance       : what forged reports can move, in bounds, since the others alone have other weights; above 1.1 no number is stated

    >>> from hubbub.metrics.params import Params
    >>> coin = ReportInfluence.of_bits(Params.one_hot(1, prob_p=0.25, prob_q=0.75, prob_f=0).mechanism, np.array([1000.0]))
    >>> coin.num_forged(np.array([0.12]), np.array([0.05])).tolist()  # 49 reports of 1.5, and 951 with a mean of .05
    [49.0]
    """

    lowest: Floats
    highest: Floats
    cohorts: Indices
    rows: Bits
    num_reports: Floats
    tolerance: float = TOLERANCE

    @classmethod
    def from_changes(cls, shares: Floats, changes: Iterable[Extremes], num_reports: int) -> ReportInfluence:
        """Influence from the changes that a report of each cohort makes to shares (D,)."""
        size, reports = len(shares), np.full(len(shares), float(num_reports))

        def of_cohort(cohort: int, extremes: Extremes) -> ReportInfluence:
            low, high = shares + num_reports * extremes.least, shares + num_reports * extremes.largest
            return cls(low, high, np.full(size, cohort), extremes.rows, reports)

        return reduce(cls._or, starmap(of_cohort, enumerate(changes)))

    @classmethod
    def of_bits(cls, mechanism: Mechanism, num_reports: Floats) -> ReportInfluence:
        """Influence where each estimate is that of a single bit of its own N reports, (D,): a report with it, and one without."""
        low, high = sorted(debiased_bit(mechanism))
        alike, size = np.ones_like(num_reports), len(num_reports)
        row = np.full((size, 1), mechanism.q_star > mechanism.p_star, np.uint8)
        return cls(low * alike, high * alike, np.arange(size), row, num_reports)

    def _or(self, other: ReportInfluence) -> ReportInfluence:
        """Influence of a report of either."""
        higher = other.highest > self.highest
        return ReportInfluence(
            lowest=np.minimum(self.lowest, other.lowest),
            highest=np.maximum(self.highest, other.highest),
            cohorts=np.where(higher, other.cohorts, self.cohorts),
            rows=np.where(higher[:, None], other.rows, self.rows),
            num_reports=self.num_reports,
        )

    def take(self, columns: Indices) -> ReportInfluence:
        """Influence on some of the estimates."""
        arrays = {field.name: getattr(self, field.name)[columns] for field in fields(self) if field.name != "tolerance"}
        return replace(self, **arrays)

    def num_forged(self, shares: Floats, cut: Floats) -> Floats:
        """Least number of forged reports, (D,), without which an estimate is at most `cut`: N (x - cut) / (highest - cut), rounded up.

        nan where the tolerance is above 1.1.

        shares : (D,) x      cut : (D,) at most x
        """
        reach = self.highest - cut
        number = np.ceil(self.num_reports * np.minimum((shares - cut) / np.where(reach > 0, reach, np.nan), 1))
        return number if self.tolerance <= TOLERANCE else np.full_like(number, np.nan)

    def honest_shares(self, shares: Floats, num_forged: float) -> tuple[Floats, Floats]:
        """Least and largest estimate, (D,) each, of the other reports if so many are forged, with the tolerance; nan where all of the N may be."""
        left = np.where(self.num_reports > num_forged, self.num_reports - num_forged, np.nan)
        most = self.tolerance * num_forged / left
        return shares - most * (self.highest - shares), shares + most * (shares - self.lowest)


Influence = Callable[[Indices], ReportInfluence]
"""Function of some candidates (D,) that returns the influence of one report on their estimates."""


def debiased_bit(mechanism: Mechanism) -> tuple[float, float]:
    """Debiased value of a reported bit: of a zero, -p* / (q* - p*), and of a one, (1 - p*) / (q* - p*)."""
    scale = mechanism.q_star - mechanism.p_star
    return -mechanism.p_star / scale, (1 - mechanism.p_star) / scale
