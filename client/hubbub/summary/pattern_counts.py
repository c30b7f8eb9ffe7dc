"""Counts of whole bit patterns per cohort (k <= 16): sufficient for the full likelihood."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hubbub.errors import SummaryError
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.summary.base import NO_ROWS, ByteData, ReportData, check_counts, metric_or_unnamed, view_rows
from hubbub.summary.bit_counts import BitCounts
from hubbub.summary.counting import CountProfile, count_patterns

MAX_PATTERN_BITS = 16


@dataclass(frozen=True, eq=False, repr=False)
class PatternCounts(ReportData):
    """Pattern counts: reports per cohort and bit pattern. They determine the bit counts.

    Parameters
    ----------
    metric
        Definition of the metric, k <= 16. `Params` are accepted for an unnamed string metric.
    counts
        Shape (m, 2**k), reports of each cohort and pattern. Bit i of the column number is bit i of the report.
    periods
        First days of the periods, sorted. Empty: they are unknown.
    implausible_rejected
        Whether the aggregator rejected reports with an implausible number of ones.
    closed
        Whether the aggregator had closed all periods when it counted, so that no report of them is missing or can come.
    dropped_rows
        Rows of another collector's file that `hubbub import` left out, by reason. Empty: none.

    Raises
    ------
    SummaryError
        k is above 16, or the counts do not fit the metric.
    """

    metric: Metric
    counts: NDArray[np.int64]
    periods: tuple[str, ...] = ()
    implausible_rejected: bool = False
    closed: bool = False
    dropped_rows: Mapping[str, int] = field(default_factory=dict)
    arrays = ("counts",)

    def __init__(
        self,
        metric: Metric | Params,
        counts: ArrayLike,
        periods: Iterable[str] = (),
        *,
        implausible_rejected: bool = False,
        closed: bool = False,
        dropped_rows: Mapping[str, int] = NO_ROWS,
    ) -> None:
        metric = metric_or_unnamed(metric)
        _check_num_bits(metric)
        checked = check_counts("counts", counts, (metric.num_cohorts, 1 << metric.num_bits))
        self._set_fields(
            metric, periods, implausible_rejected, closed=closed, dropped_rows=dropped_rows, counts=checked
        )

    @classmethod
    def from_rows(
        cls, metric: Metric | Params, cohorts: ByteData, rows: ByteData, periods: Iterable[str] = ()
    ) -> PatternCounts:
        metric = metric_or_unnamed(metric)
        _check_num_bits(metric)
        cohort_of, bits = view_rows(metric, cohorts, rows)
        return cls(metric, count_patterns(cohort_of, bits, metric.num_cohorts, metric.num_bits), periods)

    @property
    def num_reports(self) -> int:
        """N, the number of reports."""
        return int(self.counts.sum())

    def bit_counts(self) -> BitCounts:
        """Return the bit counts of the same reports.

        Returns
        -------
        BitCounts
            Reports and ones, with their histogram.
        """
        k = self.metric.num_bits
        halves = (self.counts.reshape(len(self.counts), -1, 2, 1 << bit)[:, :, 1] for bit in range(k))
        profile = self.count_profile()
        return BitCounts(
            self.metric,
            profile.reports,
            np.column_stack([half.sum(axis=(1, 2)) for half in halves]),
            self.periods,
            profile.ones_histogram,
            implausible_rejected=self.implausible_rejected,
            closed=self.closed,
            dropped_rows=self.dropped_rows,
        )

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
        return self.bit_counts().part(name)

    def count_profile(self) -> CountProfile:
        """Return the input of the plausibility tests.

        Returns
        -------
        CountProfile
            Cohort sizes and histogram of ones.
        """
        k = self.metric.num_bits
        ones_histogram = np.zeros(k + 1, np.int64)
        np.add.at(ones_histogram, np.bitwise_count(np.arange(1 << k)), self.counts.sum(axis=0))
        return CountProfile(self.counts.sum(axis=1), ones_histogram, len(self.periods))

    def __add__(self, other: PatternCounts) -> PatternCounts:
        merged = self._merged_fields(other)
        return PatternCounts(counts=self.counts + other.counts, closed=self.closed and other.closed, **merged)


def _check_num_bits(metric: Metric) -> None:
    if metric.num_bits > MAX_PATTERN_BITS:
        raise SummaryError(
            f"{metric.name}: pattern counts need num_bits <= {MAX_PATTERN_BITS}, got {metric.num_bits}: "
            "use BitCounts (--content bits), or retain the reports"
        )
