"""Score of retained reports, by one pass over them, cohort by cohort and in blocks.

    g = mean over reports of r(s) / f(s) - 1        (M + 2,), r and f as in `likelihood_ratios.py`

docs/explanation/mathematics.md, section 11.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.summary import Reports
from hubbub_decoder.array_types import Bits, Floats, Indices
from hubbub_decoder.estimators.reports.likelihood_ratios import Mixture

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
