"""Score of retained reports, by one pass over them, cohort by cohort and in blocks.

    g = mean over reports of r(s) / f(s) - 1        (M + 2,), r and f as in `likelihood_ratios.py`

P-values of candidates compare their scores with the scores of random strings.
In cohort c a string u has score s_c(u) (`SortedReports.scores`); times scale_j it is the part of the cohort in x_j / s_j. Shares sum to 1, so
only differences count: the mean score of the random strings is taken off. docs/explanation/mathematics.md, equation (11.7), and section 10.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hubbub.summary import Reports
from hubbub_decoder.array_types import Bits, Floats, Indices
from hubbub_decoder.estimators.reports.likelihood_ratios import Mixture
from hubbub_decoder.inference.multiple_testing import CandidateTests, LeaveOneOutScores, score_candidates
from hubbub_decoder.model.random_string import RandomFilters, draw_bit_positions

_MAX_BLOCK_CELLS = 1 << 20
_MIN_BLOCK_REPORTS = 64


@dataclass(frozen=True, eq=False)
class SortedReports:
    """Reports as they are on the wire, sorted by cohort.

    rows : (n, ceil(k / 8)) packed bits      starts : (m + 1,) first row of each cohort      num_bits : k
    """

    rows: NDArray[np.uint8]
    starts: NDArray[np.int64]
    num_bits: int

    @classmethod
    def from_reports(cls, reports: Reports) -> SortedReports:
        """Sort the reports of one metric."""
        params = reports.metric.params
        number = np.bincount(reports.cohorts, minlength=params.num_cohorts)
        order = np.argsort(reports.cohorts, kind="stable")
        return cls(reports.rows[order], np.concatenate(([0], np.cumsum(number))), params.num_bits)

    @property
    def shares(self) -> Floats:
        """Share of the reports in each cohort, (m,)."""
        return np.diff(self.starts) / len(self.rows)

    def score(self, mixture: Mixture, z: Floats, every: int = 1) -> Floats:
        """Score g at shares z, (M + 2,), from every n-th report, each cohort weighted with its share of the reports."""
        score = np.full(mixture.size, -1.0)
        for cohort, share in enumerate(self.shares):
            size = len(range(self.starts[cohort], self.starts[cohort + 1], every))
            for bits in self._blocks(cohort, mixture.size, every):
                ratios = mixture.ratios(bits, mixture.positions[cohort])
                score += ratios @ (1 / (z @ ratios)) * (share / size)
        return score

    def scores(
        self, mixture: Mixture, z: Floats, shares: Floats, candidates: Indices, strings: Indices
    ) -> Iterator[tuple[Floats, Floats]]:
        """Yield, for each cohort with reports, the scores of D candidates (D,), and of U other strings (U, D), at other shares x.

            s_c(u) = n_c / n (mean over the cohort's reports of r_u (2 - f_x / f_z) / f_z  -  1)

        That is the score at x to first order in x - z, as the step to the estimate is.

        shares     : (M + 2, D) x, a column for each candidate
        candidates : (D,) columns of the design      strings : (U, h) positions, the same in every cohort
        """
        for cohort, share in enumerate(self.shares):
            own, sums = np.zeros(len(candidates)), np.zeros((len(strings), len(candidates)))
            for bits in self._blocks(cohort, mixture.size + len(strings)):
                ratios = mixture.ratios(bits, mixture.positions[cohort])
                f = z @ ratios
                weights = (2 - (shares.T @ ratios) / f) / f
                own += np.sum(ratios[candidates] * weights, axis=1)
                sums += mixture.ratios(bits, strings)[:-2] @ weights.T
            if share:
                size = self.starts[cohort + 1] - self.starts[cohort]
                yield share * (own / size - 1), share * (sums / size - 1)

    def _blocks(self, cohort: int, strings: int, every: int = 1) -> Iterator[Bits]:
        """Yield bits (k, n) of a cohort's reports, n small enough for the ratios of so many strings."""
        rows = self.rows[self.starts[cohort] : self.starts[cohort + 1] : every]
        at_once = max(_MIN_BLOCK_REPORTS, _MAX_BLOCK_CELLS // (strings + self.num_bits))
        for start in range(0, len(rows), at_once):
            yield np.unpackbits(rows[start : start + at_once].T, axis=0, count=self.num_bits, bitorder="little")


# random strings, at least and at most; and their number times that of the reports
_NUM_STRINGS, _MAX_RATIOS = (256, 2048), 1 << 28


@dataclass(frozen=True, eq=False)
class RandomStringScores:
    """Random strings, and the reports in which they are scored at shares z.

    strings : (U, h) positions, the same in every cohort
    """

    reports: SortedReports
    mixture: Mixture
    z: Floats
    strings: Indices

    @classmethod
    def draw(
        cls, reports: SortedReports, mixture: Mixture, z: Floats, rng: np.random.RandomState
    ) -> RandomStringScores:
        """Draw 256 to 2,048 random strings, fewer for more reports."""
        size = int(np.clip(_MAX_RATIOS // len(reports.rows), *_NUM_STRINGS))
        return cls(reports, mixture, z, draw_bit_positions(mixture.params, size, rng))

    def test(
        self, estimates: Floats, errors: Floats, scale: Floats, shares: Floats, without: Callable[[Indices], Floats]
    ) -> CandidateTests:
        """Null distribution of the estimates, and the p-value of each candidate, (M,).

        Scores at shares other than z also err by the information that these reports happen to have, which no estimate does. So their
        spread is reduced to that of the errors, and only their shape is used.

        estimates, errors : (M,) of the candidates, nan where nothing is known
        scale             : (M,) factor from a score to standard errors
        shares            : (M + 2,) of all components
        without           : shares (M + 2, D) if each of D candidates were left out
        """
        if np.isnan(errors).all():
            return CandidateTests.unknown(len(errors))
        typical = float(np.nanmedian(scale))
        scores = [typical * scores[:, 0] for _, scores in self._scores(shares[:, None], np.zeros(1, np.intp))]
        spread = max(1.0, math.sqrt(sum(float(score.var()) for score in scores)))

        def leave_out(candidates: Indices) -> Iterator[LeaveOneOutScores]:
            if not len(candidates):
                return
            parts = self._scores(without(candidates), candidates)
            for column, j in enumerate(candidates.tolist()):
                own = [float(scale[j] * own[column]) for own, _ in parts]
                yield own, [scale[j] / spread * scores[:, column] for _, scores in parts]

        random_scores = (score / spread for score in scores)
        filters = replace(RandomFilters.from_params(self.mixture.params), sets=self.strings, probabilities=None)
        cohorts = int(np.count_nonzero(self.reports.shares))
        return score_candidates(estimates, errors, random_scores, leave_out, filters, cohorts)

    def _scores(self, shares: Floats, candidates: Indices) -> list[tuple[Floats, Floats]]:
        """Scores of each cohort less the mean of the random strings' scores over all cohorts."""
        parts = list(self.reports.scores(self.mixture, self.z, shares, candidates, self.strings))
        level = sum(scores.mean(axis=0) for _, scores in parts) / len(parts)
        return [(own - level, scores - level) for own, scores in parts]
