"""Attacks with forged reports on the share of one candidate, and the gain of each against the bound that the decoding of all reports states.

Rows of bits that attackers choose:

    own bits        the bits of the target, and no other: whoever knows the definition can do it
    own, random     the bits of the target, and each other bit with probability 1/2
    weights         the row and the cohort of the decoding's own weights: whoever knows all counts
    adaptive        the best of these, changed bit by bit as long as a new decoding has a larger gain
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub_decoder.array_types import Bits, Indices
from hubbub_decoder.estimators.fit_result import FitResult
from hubbub_decoder.inference.influence import TOLERANCE, ReportInfluence
from hubbub_decoder.kinds.strings import fit_columns
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.evidence import Collected, Evidence

MIN_FORGED = 20
_ADAPTIVE_CHANGES = 8


@dataclass(frozen=True)
class Forgery:
    """Rows (m, k) of an attack, and the number of reports with each, (m,)."""

    name: str
    rows: Bits
    reports: Indices

    @property
    def size(self) -> int:
        """Number of forged reports."""
        return int(self.reports.sum())


def add_forged(collected: Collected, forgery: Forgery) -> Collected:
    """Collected data with the forged reports."""
    rows, reports = forgery.rows, forgery.reports
    match collected:
        case BitCounts():
            ones = collected.ones + rows * reports[:, None]
            return replace(collected, reports=collected.reports + reports, ones=ones, ones_histogram=None)
        case PatternCounts():
            counts, patterns = collected.counts.copy(), rows.astype(np.int64) @ (1 << np.arange(rows.shape[1]))
            counts[np.arange(len(rows)), patterns] += reports
            return replace(collected, counts=counts)
        case Reports():
            cohorts = np.repeat(np.arange(len(rows)), reports).astype(collected.cohorts.dtype)
            packed = np.packbits(rows, axis=1, bitorder="little")[cohorts]
            return Reports(
                collected.metric, np.append(collected.cohorts, cohorts), np.concatenate([collected.rows, packed])
            )


class Attacks:
    """Attacks on the estimates of one collection of reports."""

    def __init__(self, collected: Collected, design: DesignMatrix, rng: np.random.Generator) -> None:
        self._collected, self._design, self._rng = collected, design, rng
        self.evidence = Evidence(collected)
        self.fit: FitResult = fit_columns(self.evidence, design)

    def influence(self, target: int) -> ReportInfluence:
        """Bound of the decoding for a target."""
        assert self.fit.influence is not None
        return self.fit.influence(np.array([target]))

    def forgeries(self, target: int, num_forged: int, *, adaptive: bool = False) -> Iterator[Forgery]:
        """Attacks with so many forged reports in all cohorts together, or in one cohort, of which they are at most a tenth then."""
        influence, used = self.influence(target), np.flatnonzero(self.evidence.used)
        own, cohort = self._own_bits(target), used[influence.cohorts[0]]
        likely = self._toward_ones()
        some = self._rng.random(own.shape) < 0.5
        reports = self.evidence.counts.reports
        everywhere = np.floor(num_forged * reports / reports.sum()).astype(np.int64)
        here = np.where(np.arange(len(own)) == cohort, min(num_forged, int(reports[cohort]) // 10), 0)
        best = own.copy()
        best[cohort] = influence.rows[0]
        yield Forgery("own bits", own ^ ~likely & 1, everywhere)
        yield Forgery("own, random", np.where(own, likely, some).astype(np.uint8), everywhere)
        yield Forgery("own bits, one cohort", own ^ ~likely & 1, here)
        yield Forgery("weights", best, here)
        if adaptive:
            yield self._adapted(target, Forgery("adaptive", best, here), cohort)

    def num_for_standard_errors(self, target: int, number: float) -> int:
        """Number of forged reports of which the bound is so many standard errors."""
        error, reach = (
            float(np.sqrt(self.fit.variances[target])),
            float(self.influence(target).highest[0] - self.fit.shares[target]),
        )
        return int(np.ceil(self.evidence.num_reports * number * error / reach))

    def gain(self, target: int, forgery: Forgery) -> float:
        """Change of the target's estimate by an attack."""
        return float(self._received(forgery).shares[target] - self.fit.shares[target])

    def ratio(self, target: int, forgery: Forgery) -> float:
        """Gain of an attack over the bound that a decoding of what is received states for so many forged reports; nan where none is stated."""
        received = self._received(forgery)
        assert received.influence is not None
        influence = received.influence(np.array([target]))
        if influence.tolerance > TOLERANCE:
            return math.nan
        share = float(received.shares[target])
        bound = forgery.size / self.evidence.num_reports * (float(influence.highest[0]) - share)
        return (share - float(self.fit.shares[target])) / bound

    def _received(self, forgery: Forgery) -> FitResult:
        return fit_columns(Evidence(add_forged(self._collected, forgery)), self._design)

    def _own_bits(self, target: int) -> Bits:
        shape = len(self.evidence.used), self._design.params.num_bits
        bits: Bits = self._design.matrix[:, [target]].toarray().reshape(shape).astype(np.uint8)
        return bits

    def _toward_ones(self) -> np.uint8:
        """Value of a reported bit that speaks for a true one."""
        mechanism = self._design.params.mechanism
        return np.uint8(mechanism.q_star > mechanism.p_star)

    def _adapted(self, target: int, forgery: Forgery, cohort: int) -> Forgery:
        """The best of an attack and of random flips of its bits, one after the other."""
        gain = self.gain(target, forgery)
        for bit in self._rng.permutation(forgery.rows.shape[1])[:_ADAPTIVE_CHANGES]:
            rows = forgery.rows.copy()
            rows[cohort, bit] ^= 1
            changed = replace(forgery, rows=rows)
            if (reached := self.gain(target, changed)) > gain:
                forgery, gain = changed, reached
        return forgery
