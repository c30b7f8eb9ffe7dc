"""One pass over the reports themselves, cohort by cohort, some of them at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.summary import Reports
from hubbub_decoder.array_types import Bits, Floats, Indices
from hubbub_decoder.estimators.reports.likelihood_ratios import Mixture

_CELLS_AT_ONCE = 1 << 20


@dataclass(frozen=True, eq=False)
class Retained:
    """Reports as they are on the wire, sorted by cohort.

    rows : (n, ceil(k / 8))      starts : (m + 1,) where each cohort's begin      num_bits : k
    """

    rows: NDArray[np.uint8]
    starts: NDArray[np.int64]
    num_bits: int

    @classmethod
    def of(cls, reports: Reports) -> Retained:
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
        """Return g = mean r / f - 1 over every so-many-th report, each cohort with its share of the reports: (M + 2,)."""
        score = np.full(mixture.size, -1.0)
        for cohort, share in enumerate(self.shares):
            size = len(range(self.starts[cohort], self.starts[cohort + 1], every))
            for bits in self._blocks(cohort, mixture.size, every):
                ratios = mixture.ratios(bits, mixture.places[cohort])
                score += ratios @ (1 / (z @ ratios)) * (share / size)
        return score

    def scores(
        self, mixture: Mixture, z: Floats, shares: Floats, some: Indices, strings: Indices
    ) -> Iterator[tuple[Floats, Floats]]:
        """Yield what each cohort's reports say for more of a string than the shares have, (D,) of some candidates and (U, D) of some strings.

            s_c(u) = n_c / n (mean over its reports of r_u (2 - f_x / f_z) / f_z  -  1)

        is the score at shares x, to the first order in x - z, as the step to the estimate is.

        shares : (M + 2, D) x, a column for each of the candidates      strings : (U, h) their places, the same in every cohort
        """
        for cohort, share in enumerate(self.shares):
            own, sums = np.zeros(len(some)), np.zeros((len(strings), len(some)))
            for bits in self._blocks(cohort, mixture.size + len(strings)):
                ratios = mixture.ratios(bits, mixture.places[cohort])
                f = z @ ratios
                weights = (2 - (shares.T @ ratios) / f) / f
                own += np.sum(ratios[some] * weights, axis=1)
                sums += mixture.ratios(bits, strings)[:-2] @ weights.T
            if share:
                size = self.starts[cohort + 1] - self.starts[cohort]
                yield share * (own / size - 1), share * (sums / size - 1)

    def _blocks(self, cohort: int, strings: int, every: int = 1) -> Iterator[Bits]:
        """Yield bits (k, n) of a cohort's reports, n so small that so many strings' ratios are no burden."""
        seen = self.rows[self.starts[cohort] : self.starts[cohort + 1] : every]
        at_once = max(64, _CELLS_AT_ONCE // (strings + self.num_bits))
        for start in range(0, len(seen), at_once):
            yield np.unpackbits(seen[start : start + at_once].T, axis=0, count=self.num_bits, bitorder="little")
