"""What a summary shows without a single value being known: how the reports spread over cohorts, and how many ones they have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class CountProfile:
    """reports : (m,) reports a cohort

    with_ones   : (k + 1,) reports that have none, one, ... all k of their bits set; None: not known
    num_periods : of how many periods; 0: not known
    """

    reports: NDArray[np.int64]
    ones_histogram: NDArray[np.int64] | None
    num_periods: int

    @property
    def num_reports(self) -> int:
        """N, the number of reports."""
        return int(self.reports.sum())
