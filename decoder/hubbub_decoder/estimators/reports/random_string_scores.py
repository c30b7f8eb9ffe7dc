"""What retained reports say of strings that hash anywhere, beside what they say of each candidate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.estimators.reports.likelihood_ratios import Mixture
from hubbub_decoder.estimators.reports.report_pass import Retained
from hubbub_decoder.inference.multiple_testing import Seen, tested
from hubbub_decoder.inference.null_distribution import ErrorLaw
from hubbub_decoder.model.random_string import RandomPlaces, random_places

_STRINGS, _STRING_RATIOS = (256, 2048), 1 << 28  # random strings to compare candidates with, and times reports


@dataclass(frozen=True, eq=False)
class RandomStrings:
    """Strings drawn at random, and the reports, weighted with z, that they are looked for in.

    strings : (U, h) their places, the same in every cohort
    """

    retained: Retained
    mixture: Mixture
    z: Floats
    strings: Indices

    @classmethod
    def draw(cls, retained: Retained, mixture: Mixture, z: Floats, rng: np.random.Generator) -> RandomStrings:
        """Draw 256 to 2,048, the fewer the more reports."""
        size = int(np.clip(_STRING_RATIOS // len(retained.rows), *_STRINGS))
        return cls(retained, mixture, z, random_places(mixture.params, size, rng))

    def test(
        self, estimates: Floats, errors: Floats, scale: Floats, shares: Floats, without: Callable[[Indices], Floats]
    ) -> tuple[ErrorLaw, Floats]:
        """Return how random strings err, and how often one would look as frequent as each candidate.

        Scores away from z err by the information that the reports happen to have as well, which no estimate does: their spread is brought
        down to that of the errors, and only their shape is taken.

        estimates, errors : (M,) the candidates', nan where nothing is known      scale : (M,) what makes a score one of standard errors
        shares, without   : (M + 2,) of all, and (M + 2, D) those of all were each of some candidates left out
        """
        if np.isnan(errors).all():
            return ErrorLaw.of([]), np.full(len(errors), np.nan)
        typical = float(np.nanmedian(scale))
        seen = [typical * scores[:, 0] for _, scores in self._scores(shares[:, None], np.zeros(1, np.intp))]
        spread = max(1.0, math.sqrt(sum(float(score.var()) for score in seen)))

        def left_out(some: Indices) -> Iterator[Seen]:
            if not len(some):
                return
            parts = self._scores(without(some), some)
            for place, j in enumerate(some.tolist()):
                own = [float(scale[j] * own[place]) for own, _ in parts]
                yield own, [scale[j] / spread * scores[:, place] for _, scores in parts]

        anybody = (score / spread for score in seen)
        strings = RandomPlaces.of_bits(self.mixture.params)
        used = int(np.count_nonzero(self.retained.shares))
        return tested(estimates, errors, anybody, left_out, strings, used)

    def _scores(self, shares: Floats, some: Indices) -> list[tuple[Floats, Floats]]:
        """Return each cohort's scores less what all strings score together, the same in every cohort: shares sum to one, so only differences count."""
        parts = list(self.retained.scores(self.mixture, self.z, shares, some, self.strings))
        level = sum(scores.mean(axis=0) for _, scores in parts) / len(parts)
        return [(own - level, scores - level) for own, scores in parts]
