"""Individual reports in memory: needed for the full likelihood if k > 16."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.summary.base import NO_ROWS, ByteData, ReportData, check_report_rows, metric_or_unnamed, part_of, view_rows
from hubbub.summary.bit_counts import BitCounts
from hubbub.summary.counting import count_bits, count_ones, count_patterns
from hubbub.summary.pattern_counts import PatternCounts


class _Kept(TypedDict):
    implausible_rejected: bool
    dropped_rows: Mapping[str, int]


@dataclass(frozen=True, eq=False, repr=False)
class Reports(ReportData):
    """Reports of one metric, concatenated by `+`. Their order has no meaning.

    Parameters
    ----------
    metric
        Definition of the metric. `Params` are accepted for an unnamed string metric.
    cohorts
        Shape (n,), cohort of each report, as uint8, or uint16 if m > 256.
    rows
        Shape (n, ceil(k / 8)), uint8. Bit i of a report is bit i % 8 of byte i // 8, and padding bits are 0.
    periods
        First days of the periods, sorted. Empty: they are unknown.
    implausible_rejected
        Whether the aggregator rejected reports with an implausible number of ones.
    dropped_rows
        Rows of another collector's file that `hubbub import` left out, by reason. Empty: none.

    Raises
    ------
    SummaryError
        The arrays contradict each other or the metric.

    Examples
    --------
    >>> params = Params(num_bits=10, num_hashes=2, num_cohorts=1, prob_p=0.25, prob_q=0.75, prob_f=0)
    >>> Reports(params, [0, 0], [[1, 2], [1, 0]]).bit_counts().ones[0].tolist()
    [2, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    """

    metric: Metric
    cohorts: NDArray[np.uint8 | np.uint16]
    rows: NDArray[np.uint8]
    periods: tuple[str, ...] = ()
    implausible_rejected: bool = False
    dropped_rows: Mapping[str, int] = field(default_factory=dict)
    arrays = ("cohorts", "rows")

    def __init__(
        self,
        metric: Metric | Params,
        cohorts: ArrayLike,
        rows: ArrayLike,
        periods: Iterable[str] = (),
        *,
        implausible_rejected: bool = False,
        dropped_rows: Mapping[str, int] = NO_ROWS,
    ) -> None:
        metric = metric_or_unnamed(metric)
        checked_cohorts, checked_rows = check_report_rows(metric, cohorts, rows)
        self._set_fields(
            metric,
            periods,
            implausible_rejected,
            dropped_rows=dropped_rows,
            cohorts=checked_cohorts,
            rows=checked_rows,
        )

    @classmethod
    def from_rows(
        cls, metric: Metric | Params, cohorts: ByteData, rows: ByteData, periods: Iterable[str] = ()
    ) -> Reports:
        metric = metric_or_unnamed(metric)
        return cls(metric, *view_rows(metric, cohorts, rows), periods)

    @property
    def num_reports(self) -> int:
        """N, the number of reports."""
        return len(self.cohorts)

    def part(self, name: str) -> Reports:
        """Return the reports of one part of a joint metric.

        Parameters
        ----------
        name
            Name of the part.

        Returns
        -------
        Reports
            Reports of a metric of its own.

        Raises
        ------
        SummaryError
            The metric has no such part.

        Examples
        --------
        >>> from hubbub import UnaryResponse
        >>> coins = UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5)
        >>> parts = (Metric.categorical("os", ("linux", "macos"), coins), Metric.boolean("paid", coins))
        >>> Reports(Metric.joint("device", parts), [0, 0], [[0b101], [0b010]]).part("paid").rows.tolist()
        [[1], [0]]
        """
        metric, start = part_of(self.metric, name)
        cohorts = self.cohorts if metric.num_cohorts > 1 else np.zeros_like(self.cohorts)
        rows = _bit_range(self.rows, start, metric.num_bits)
        return Reports(metric, cohorts, rows, self.periods, **self._kept)

    def bit_counts(self) -> BitCounts:
        """Return the bit counts of the reports.

        Returns
        -------
        BitCounts
            Reports and ones, with their histogram.
        """
        counts = count_bits(self.cohorts, self.rows, self.metric.num_cohorts, self.metric.num_bits)
        return BitCounts(
            self.metric,
            *counts,
            self.periods,
            count_ones(self.rows, self.metric.num_bits),
            **self._kept,
        )

    def pattern_counts(self) -> PatternCounts:
        """Return the pattern counts of the reports.

        Returns
        -------
        PatternCounts
            Reports of each cohort and pattern.

        Raises
        ------
        SummaryError
            k is above 16.
        """
        empty = PatternCounts.empty(self.metric)  # raises SummaryError if k > 16
        counts = count_patterns(self.cohorts, self.rows, empty.metric.num_cohorts, empty.metric.num_bits)
        return PatternCounts(empty.metric, counts, self.periods, **self._kept)

    @property
    def _kept(self) -> _Kept:
        """What a part or the counts of the reports say of how they were collected."""
        return {"implausible_rejected": self.implausible_rejected, "dropped_rows": self.dropped_rows}

    def __add__(self, other: Reports) -> Reports:
        merged = self._merged_fields(other)
        return Reports(
            cohorts=np.concatenate([self.cohorts, other.cohorts]),
            rows=np.concatenate([self.rows, other.rows]),
            **merged,
        )


def _bit_range(rows: NDArray[np.uint8], start: int, number: int) -> NDArray[np.uint8]:
    """Return packed bits start .. start + number - 1 of each row: shifts of whole bytes, without unpacking."""
    width, shift = (number + 7) // 8, start % 8
    taken = np.zeros((len(rows), width + 1), np.uint8)
    source = rows[:, start // 8 : start // 8 + width + 1]
    taken[:, : source.shape[1]] = source
    if shift:
        taken[:, :-1] = taken[:, :-1] >> shift | taken[:, 1:] << (8 - shift)
    selected = taken[:, :width].copy()
    if number % 8:
        selected[:, -1] &= (1 << number % 8) - 1
    return selected
