"""Cohort sizes and histogram of ones: input of the plausibility tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class CountProfile:
    """Cohort sizes and histogram of ones of some reports.

    reports        : (m,) int, reports per cohort
    ones_histogram : (k + 1,) int, reports with 0, 1, ... k ones; None if unknown
    num_periods    : number of periods; 0 if unknown
    """

    reports: NDArray[np.int64]
    ones_histogram: NDArray[np.int64] | None
    num_periods: int

    @property
    def num_reports(self) -> int:
        """N, the number of reports."""
        return int(self.reports.sum())
