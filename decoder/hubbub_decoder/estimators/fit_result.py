"""What a fit by a mixed model says: shares, totals, and how often chance alone would look like them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.estimators.empirical_bayes import Learnt
from hubbub_decoder.estimators.mixed_model import Solution, Solved, Totals
from hubbub_decoder.inference.multiple_testing import Seen, tested
from hubbub_decoder.inference.null_distribution import ErrorLaw
from hubbub_decoder.model.random_string import RandomPlaces


@dataclass(frozen=True, eq=False)
class Fitted:
    """Shares of the reports, as drawn from a population.

    scatter     : tau**2, the sum of squared shares of strings without a candidate
    scatter_std : its standard error
    law         : how estimates of those who are nothing err
    p_values    : (M,) of the hypothesis that nobody reported it; nan where nothing is known
    """

    solution: Solution
    totals: Totals
    scatter: float
    scatter_std: float
    law: ErrorLaw
    p_values: Floats

    @classmethod
    def of(
        cls, solved: Solved, totals: Totals, learnt: Learnt, places: NDArray[np.integer], strings: RandomPlaces
    ) -> Fitted:
        """Test every share of a solved model; places : (m, h, M) that each candidate takes."""
        solution = solved.solution()
        return cls(solution, totals, learnt.scatter, learnt.scatter_std, *_tested(solved, solution, places, strings))


def _tested(
    solved: Solved, solution: Solution, places: NDArray[np.integer], strings: RandomPlaces
) -> tuple[ErrorLaw, Floats]:
    """Return how random strings err, and how often one would look as frequent as each candidate."""
    known = np.isfinite(solution.variances)
    errors = np.sqrt(np.where(known, solution.variances, np.nan))
    typical = float(np.median(errors[known])) if known.any() else 1.0
    scores = solved.scores()

    def left_out(some: Indices) -> Iterator[Seen]:
        for j in some.tolist():
            parts = [errors[j] * score for score in solved.scores(j)]
            own = [float(part[taken].sum()) for part, taken in zip(parts, places[:, :, j], strict=True)]
            yield own, [strings.scores(part) for part in parts]

    anybody = (strings.scores(typical * score) for score in scores)
    return tested(solution.shares, errors, anybody, left_out, strings, sum(bool(score.any()) for score in scores))
