"""How often each whole bit pattern was reported: for k <= 16 all that the full likelihood needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hubbub.errors import SummaryError
from hubbub.metric import Metric
from hubbub.params import Params
from hubbub.report import Report
from hubbub.summary.bit_counts import BitCounts
from hubbub.summary.checked import asked_metric, counts_of, rows_of
from hubbub.summary.kernel import count_patterns
from hubbub.summary.outline import Outline

MAX_PATTERN_BITS = 16


@dataclass(frozen=True, eq=False)
class PatternCounts:
    """A commutative monoid under `+`, like `BitCounts`, which it determines.

    metric : the definition the reports were made under, k <= 16; `Params` stand for an unnamed string metric
    counts : (m, 2**k) reports with that cohort and pattern; bit i of the pattern's index is bit i of the report
    """

    metric: Metric
    counts: NDArray[np.int64]
    periods: tuple[str, ...] = ()
    odd_refused: bool = False

    def __init__(
        self, metric: Metric | Params, counts: ArrayLike, periods: Iterable[str] = (), *, odd_refused: bool = False
    ) -> None:
        metric = asked_metric(metric)
        params = _with_patterns(metric)
        hold = object.__setattr__
        hold(self, "metric", metric)
        hold(self, "counts", counts_of("counts", counts, (params.num_cohorts, 1 << params.num_bits)))
        hold(self, "periods", tuple(sorted(set(periods))))
        hold(self, "odd_refused", odd_refused)

    @classmethod
    def empty(cls, metric: Metric | Params) -> PatternCounts:
        """Return the neutral element: no reports."""
        metric = asked_metric(metric)
        params = _with_patterns(metric)
        return cls(metric, np.zeros((params.num_cohorts, 1 << params.num_bits), np.int64))

    @classmethod
    def of_rows(
        cls, metric: Metric | Params, cohorts: bytes | NDArray[np.uint8], rows: bytes, periods: Iterable[str] = ()
    ) -> PatternCounts:
        """Count wire rows: cohorts (n,) one byte each, rows n x ceil(k / 8) bytes."""
        metric = asked_metric(metric)
        params = _with_patterns(metric)
        cohort_of, bits = rows_of(metric, cohorts, rows)
        return cls(metric, count_patterns(cohort_of, bits, params.num_cohorts, params.num_bits), periods)

    @classmethod
    def of_reports(cls, metric: Metric | Params, reports: Sequence[Report]) -> PatternCounts:
        """Count reports."""
        return cls.of_rows(metric, bytes(r.cohort for r in reports), b"".join(r.to_bytes() for r in reports))

    @property
    def num_reports(self) -> int:
        """N, the number of reports."""
        return int(self.counts.sum())

    def bit_counts(self) -> BitCounts:
        """Forget how the bits of a report occur together."""
        k = self.metric.params.num_bits
        bits = (np.arange(1 << k)[:, None] >> np.arange(k)) & 1
        outline = self.outline()
        return BitCounts(
            self.metric,
            outline.reports,
            self.counts @ bits,
            self.periods,
            outline.with_ones,
            odd_refused=self.odd_refused,
        )

    def outline(self) -> Outline:
        """Return what can be checked without knowing a single value."""
        k = self.metric.params.num_bits
        with_ones = np.zeros(k + 1, np.int64)
        np.add.at(with_ones, np.bitwise_count(np.arange(1 << k)), self.counts.sum(axis=0))
        return Outline(self.counts.sum(axis=1), with_ones, len(self.periods))

    def __add__(self, other: PatternCounts) -> PatternCounts:
        if other.metric.digest != self.metric.digest:
            raise SummaryError(
                f"summaries of different definitions do not add up: {self.metric.name} {self.metric.digest[:12]} "
                f"and {other.metric.name} {other.metric.digest[:12]}; decode each by itself"
            )
        return PatternCounts(
            self.metric,
            self.counts + other.counts,
            (*self.periods, *other.periods),
            odd_refused=self.odd_refused or other.odd_refused,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PatternCounts):
            return NotImplemented
        return (
            self.metric.digest == other.metric.digest
            and self.periods == other.periods
            and self.odd_refused == other.odd_refused
            and np.array_equal(self.counts, other.counts)
        )

    __hash__ = None  # type: ignore[assignment]  # arrays inside


def _with_patterns(metric: Metric) -> Params:
    if metric.params.num_bits > MAX_PATTERN_BITS:
        raise SummaryError(
            f"{metric.name}: pattern counts need num_bits <= {MAX_PATTERN_BITS}, got {metric.params.num_bits}: "
            "take BitCounts, or keep the reports"
        )
    return metric.params
