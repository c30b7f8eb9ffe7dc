"""Detection of candidates: one test of each, with the intervals, the detection limit and the numbers of forged reports that agree with it.

A candidate is detected if q <= fdr and p < (1 - confidence) / 2. The latter holds exactly where its interval is above 0.
docs/explanation/mathematics.md, section 10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hubbub_decoder.array_types import Flags, Floats, Indices
from hubbub_decoder.inference.error_law import ErrorLaw
from hubbub_decoder.inference.influence import Influence
from hubbub_decoder.inference.intervals import DETECTION_POWER, detection_level, selection_adjusted_level
from hubbub_decoder.inference.multiple_testing import CandidateTests, largest_p_values, q_values
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.model.repetition import ONCE
from hubbub_decoder.options import Options

_CANDIDATES_AT_ONCE = 512  # of which the influence of a report is computed


@dataclass(frozen=True, slots=True, eq=False)
class CandidateIntervals:
    """Function of a level that returns the intervals of tested candidates, (M,) and (M,), in the order of the estimates.

    lower, upper : laws of the least and the largest estimates; they differ if reports may be forged
    """

    lower: ErrorLaw
    upper: ErrorLaw
    p_values: Floats
    retested: Flags
    order: Indices

    def __call__(self, level: float) -> tuple[Floats, Floats]:
        low, high = self.lower.interval(level, self.p_values, self.retested)
        if self.upper is not self.lower:
            high = self.upper.interval(level, self.upper.p_values(), self.retested)[1]
        return low[self.order], high[self.order]


@dataclass(frozen=True, slots=True, eq=False)
class Detections:
    """Which of M candidates are detected, and what agrees with it.

    law              : of the errors of the estimates
    influence        : of one report on the estimates; None: unknown
    strata           : (M,) of the candidates by a weight known before the reports; None: no weights
    intervals        : function of a level; it has the p-values p (M,), 1 where a candidate was not tested
    low, high        : (M,) intervals at the confidence level
    q_values         : (M,) 1 where a candidate was not tested
    tested, detected : (M,)
    limit            : detection limit; nan where no bound on forged reports is known
    """

    law: ErrorLaw
    influence: Influence | None
    strata: Indices | None
    intervals: CandidateIntervals
    low: Floats
    high: Floats
    q_values: Floats
    tested: Flags
    detected: Flags
    limit: float

    @classmethod
    def of(
        cls,
        law: ErrorLaw,
        tests: CandidateTests,
        influence: Influence | None,
        strata: Indices | None,
        evidence: Evidence,
        options: Options,
    ) -> Detections:
        """Decide about all candidates."""
        tested, fitted = ~np.isnan(tests.p_values), ~np.isnan(law.shares)
        intervals = _received_intervals(law, tests)
        if options.fabricated:
            intervals = _honest_intervals(intervals, tests, influence, options.fabricated * evidence.num_all_reports)
        p, q = intervals.p_values, np.ones(len(tested))
        q[tested] = q_values(p[tested], options.fdr, None if strata is None else strata[tested])
        moved = (law.shares - intervals.lower.shares)[tested & fitted]
        limit = _detection_limit(law, tested, evidence, options) + (float(np.median(moved)) if moved.size else 0.0)
        detected = (q <= options.fdr) & (p < (1 - options.confidence) / 2) & fitted
        low, high = intervals(options.confidence)
        return cls(law, influence, strata, intervals, low, high, q, tested, detected, limit)

    def adjusted_intervals(self, confidence: float) -> tuple[Floats, Floats]:
        """Intervals of the detected candidates that are adjusted for their selection, (M,) and (M,); nan for the others."""
        found, tested = int(self.detected.sum()), int(self.tested.sum())
        if not found:
            low, high = np.full((2, len(self.detected)), np.nan)
            return low, high
        low, high = self.intervals(selection_adjusted_level(1 - confidence, found, tested))
        # The expansion of a skewed law may cross itself far out, but a higher level never excludes more.
        low, high = np.minimum(self.low, low), np.maximum(self.high, high)
        return np.where(self.detected, low, np.nan), np.where(self.detected, high, np.nan)

    def forged_reports(self, options: Options) -> list[int | None]:
        """Least number of forged reports without which each detected candidate, (M,), would not be detected; None: not detected, or unknown."""
        p, retested = self.intervals.p_values, self.intervals.retested
        needed: list[int | None] = [None] * len(p)
        found = np.flatnonzero(self.detected)
        if self.influence is None or not len(found):
            return needed
        largest, of_tested = np.ones(len(p)), None if self.strata is None else self.strata[self.tested]
        largest[self.tested] = largest_p_values(p[self.tested], options.fdr, len(found), of_tested)
        largest = np.minimum(largest, (1 - options.confidence) / 2)
        cuts = self.law.take(found).cuts(p[found], largest[found], retested[found])
        number = np.maximum(self.influence(found).num_forged(self.law.shares[found], cuts), 1)
        for j, forged in zip(found.tolist(), number.tolist(), strict=True):
            needed[j] = None if math.isnan(forged) else int(forged)
        return needed


def _received_intervals(law: ErrorLaw, tests: CandidateTests) -> CandidateIntervals:
    """Intervals and p-values from the reports as they were received.

    p is that of the error law. Where a candidate was tested again, p is that of this test, and at least that of noise alone. It is at least
    the probability that a random string has the candidate's bits, because no report tells the two apart.
    """
    tested, fitted, retested = ~np.isnan(tests.p_values), ~np.isnan(law.shares), tests.retested
    of_tests = np.where(tested, tests.p_values, 1)
    p = np.select(
        [retested, tested & fitted], [np.maximum(of_tests, law.noise_p_values()), law.p_values()], default=of_tests
    )
    least = np.maximum(p, tests.least)
    return CandidateIntervals(law, law, least, retested | (least > p), np.arange(len(p)))


def _honest_intervals(
    received: CandidateIntervals, tests: CandidateTests, influence: Influence | None, num_forged: float
) -> CandidateIntervals:
    """Intervals from the least and the largest estimates without the forged reports, and p-values of the least.

    A candidate that was tested again has an error as much larger as that test found. Without a bound, nothing is known.
    """
    law = received.lower
    least, largest = np.full((2, len(law.shares)), np.nan)
    known, forged = np.flatnonzero(~np.isnan(law.shares)), 0.0
    for some in np.split(known, range(_CANDIDATES_AT_ONCE, len(known), _CANDIDATES_AT_ONCE)):
        if influence is not None and len(some):
            of_report = influence(some)
            least[some], largest[some] = of_report.honest_shares(law.shares[some], num_forged)
            forged = max(forged, min(num_forged / float(np.min(of_report.num_reports)), 1 - 1e-9))
    factors = np.maximum(law.scales(received.p_values, tests.retested), 1)
    p = np.nan_to_num(law.of_honest(least / factors, forged).p_values(), nan=1.0)
    return CandidateIntervals(
        lower=law.of_honest(least, forged),
        upper=law.of_honest(largest, forged),
        p_values=np.maximum(p, tests.least),
        retested=p < tests.least,
        order=received.order,
    )


def _detection_limit(law: ErrorLaw, tested: Flags, evidence: Evidence, options: Options) -> float:
    """Median of the shares with which the candidates are detected with probability .9; infinite if nothing is known about any.

    Where clients repeat their noise, the possible estimates are closer to each other than the steps of the law.
    """
    known = np.flatnonzero(tested & np.isfinite(law.shares) & np.isfinite(law.variances))
    level = detection_level(int(tested.sum()), options.fdr, options.confidence)
    limits = law.take(known).detection_limits(level, DETECTION_POWER, on_grid=evidence.repetition == ONCE)
    return float(np.median(limits)) if limits.size else math.inf
