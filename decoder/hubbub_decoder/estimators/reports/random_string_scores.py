"""P-values of candidates from retained reports, by comparison with the scores of random strings.

In cohort c a string u has score s_c(u) (`report_pass.py`); times scale_j it is the part of the cohort in x_j / s_j. Shares sum to 1, so
only differences count: the mean score of the random strings is taken off. docs/mathematics.md, equation (11.7), and section 10.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.estimators.reports.likelihood_ratios import Mixture
from hubbub_decoder.estimators.reports.report_pass import SortedReports
from hubbub_decoder.inference.multiple_testing import CandidateTests, LeaveOneOutScores, test_candidates
from hubbub_decoder.model.random_string import RandomFilters, draw_bit_positions

_NUM_STRINGS, _MAX_RATIOS = (
    (256, 2048),
    1 << 28,
)  # random strings, at least and at most; and their number times that of the reports


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
    def draw(cls, reports: SortedReports, mixture: Mixture, z: Floats, rng: np.random.Generator) -> RandomStringScores:
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
        filters = RandomFilters.from_params(self.mixture.params)
        cohorts = int(np.count_nonzero(self.reports.shares))
        return test_candidates(estimates, errors, random_scores, leave_out, filters, cohorts)

    def _scores(self, shares: Floats, candidates: Indices) -> list[tuple[Floats, Floats]]:
        """Scores of each cohort less the mean of the random strings' scores over all cohorts."""
        parts = list(self.reports.scores(self.mixture, self.z, shares, candidates, self.strings))
        level = sum(scores.mean(axis=0) for _, scores in parts) / len(parts)
        return [(own - level, scores - level) for own, scores in parts]
