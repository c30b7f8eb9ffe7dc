"""Counts of reports and ones per cohort and bit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hubbub.errors import SummaryError
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.summary.base import NO_ROWS, ByteData, ReportData, check_counts, metric_or_unnamed, part_of, view_rows
from hubbub.summary.counting import CountProfile, count_bits, count_ones


@dataclass(frozen=True, eq=False, repr=False)
class BitCounts(ReportData):
    """Bit counts: reports per cohort, and ones per cohort and bit. They are available for any k.

    Parameters
    ----------
    metric
        Definition of the metric. `Params` are accepted for an unnamed string metric.
    reports
        Shape (m,), reports per cohort.
    ones
        Shape (m, k), reports with a one at each bit; 0 <= ones <= reports.
    periods
        First days of the periods, sorted. Empty: they are unknown.
    ones_histogram
        Shape (k + 1,), reports with 0, 1, ... k ones. None: it is unknown, as for imported counts.
    implausible_rejected
        Whether the aggregator rejected reports with an implausible number of ones.
    closed
        Whether the aggregator had closed all periods when it counted, so that no report of them is missing or can come.
    dropped_rows
        Rows of another collector's file that `hubbub import` left out, by reason. Empty: none.

    Raises
    ------
    SummaryError
        The arrays contradict each other or the metric.

    Examples
    --------
    >>> params = Params(num_bits=8, num_hashes=2, num_cohorts=1, prob_p=0.25, prob_q=0.75, prob_f=0)
    >>> int((BitCounts(params, [2], [[2, 1, 0, 0, 0, 0, 0, 0]]) + BitCounts.empty(params)).reports[0])
    2
    """

    metric: Metric
    reports: NDArray[np.int64]
    ones: NDArray[np.int64]
    periods: tuple[str, ...] = ()
    ones_histogram: NDArray[np.int64] | None = None
    implausible_rejected: bool = False
    closed: bool = False
    dropped_rows: Mapping[str, int] = field(default_factory=dict)
    arrays = ("reports", "ones", "ones_histogram")

    def __init__(
        self,
        metric: Metric | Params,
        reports: ArrayLike,
        ones: ArrayLike,
        periods: Iterable[str] = (),
        ones_histogram: ArrayLike | None = None,
        *,
        implausible_rejected: bool = False,
        closed: bool = False,
        dropped_rows: Mapping[str, int] = NO_ROWS,
    ) -> None:
        metric = metric_or_unnamed(metric)
        m, k = metric.num_cohorts, metric.num_bits
        self._set_fields(
            metric,
            periods,
            implausible_rejected,
            closed=closed,
            dropped_rows=dropped_rows,
            reports=check_counts("reports", reports, (m,)),
            ones=check_counts("ones", ones, (m, k)),
            ones_histogram=None if ones_histogram is None else check_counts("ones_histogram", ones_histogram, (k + 1,)),
        )
        worst = np.argmax((self.ones - self.reports[:, None]).max(axis=1))
        if self.ones[worst].max() > self.reports[worst]:
            raise SummaryError(
                f"{metric.name}: cohort {worst} has {self.ones[worst].max()} ones at one bit but only "
                f"{self.reports[worst]} reports: the counts are damaged or belong to different reports"
            )
        if self.ones_histogram is not None:
            counted = int(self.ones_histogram.sum()), int(self.ones_histogram @ np.arange(k + 1))
            if counted != (self.num_reports, self.ones.sum()):
                raise SummaryError(
                    f"{metric.name}: ones_histogram counts {counted[0]} reports with {counted[1]} ones, the cohorts have "
                    f"{self.num_reports} with {self.ones.sum()}: both must be of the same reports"
                )

    @classmethod
    def from_rows(
        cls, metric: Metric | Params, cohorts: ByteData, rows: ByteData, periods: Iterable[str] = ()
    ) -> BitCounts:
        metric = metric_or_unnamed(metric)
        cohort_of, bits = view_rows(metric, cohorts, rows)
        counts = count_bits(cohort_of, bits, metric.num_cohorts, metric.num_bits)
        return cls(metric, *counts, periods, count_ones(bits, metric.num_bits))

    @property
    def num_reports(self) -> int:
        """N, the number of reports."""
        return int(self.reports.sum())

    def bit_counts(self) -> BitCounts:
        """Return these bit counts themselves.

        Returns
        -------
        BitCounts
            The same object.
        """
        return self

    def part(self, name: str) -> BitCounts:
        """Return the bit counts of one part of a joint metric.

        Parameters
        ----------
        name
            Name of the part.

        Returns
        -------
        BitCounts
            Bit counts of a metric of its own.

        Raises
        ------
        SummaryError
            The metric has no such part.
        """
        metric, start = part_of(self.metric, name)
        ones = self.ones[:, start : start + metric.num_bits]
        reports = self.reports
        if metric.num_cohorts == 1:
            ones, reports = ones.sum(axis=0, keepdims=True), reports.sum(keepdims=True)
        return BitCounts(
            metric,
            reports,
            ones,
            self.periods,
            implausible_rejected=self.implausible_rejected,
            closed=self.closed,
            dropped_rows=self.dropped_rows,
        )

    def count_profile(self) -> CountProfile:
        """Return the input of the plausibility tests.

        Returns
        -------
        CountProfile
            Cohort sizes and histogram of ones.
        """
        return CountProfile(self.reports, self.ones_histogram, len(self.periods))

    def __add__(self, other: BitCounts) -> BitCounts:
        merged = self._merged_fields(other)
        return BitCounts(
            reports=self.reports + other.reports,
            ones=self.ones + other.ones,
            ones_histogram=None
            if self.ones_histogram is None or other.ones_histogram is None
            else self.ones_histogram + other.ones_histogram,
            closed=self.closed and other.closed,
            **merged,
        )
