"""Base class of BitCounts, PatternCounts and Reports, and checks of their arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hubbub.errors import SummaryError
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.text import format_count
from hubbub.wire.batch import Report

NO_ROWS: Mapping[str, int] = MappingProxyType({})
"""No rows of a file, by reason."""


class ReportData(ABC):
    """Data of the reports of one metric definition. Data of disjoint sets of reports is merged by `+`, in any order.

    Attributes
    ----------
    metric
        Definition of the metric.
    periods
        First days of the periods, sorted; () if unknown.
    implausible_rejected
        Whether the aggregator rejected reports with an implausible number of ones.
    closed
        Whether the aggregator had closed all periods when it counted, so that no report of them is missing or can come.
        False for `Reports`: an aggregator may retain a part of them.
    dropped_rows
        Rows of another collector's file that `hubbub import` left out, by reason. Empty: none.
    """

    metric: Metric
    periods: tuple[str, ...]
    implausible_rejected: bool
    closed: bool = False
    dropped_rows: Mapping[str, int]
    arrays: ClassVar[tuple[str, ...]]
    """Names of the array fields."""

    def _set_fields(
        self,
        metric: Metric,
        periods: Iterable[str],
        implausible_rejected: bool,
        *,
        closed: bool = False,
        dropped_rows: Mapping[str, int] = NO_ROWS,
        **arrays: NDArray[Any] | None,
    ) -> None:
        """Set the checked fields of a frozen dataclass; raises SummaryError for periods that are no printable texts, and for rows that are no numbers."""
        given = list(periods)
        wrong = [period for period in given if not isinstance(period, str) or not period.isprintable()]
        if wrong:
            raise SummaryError(f"periods must be days such as 2026-03-02, got {wrong[0]!r}")
        for reason, rows in dropped_rows.items():
            if not isinstance(reason, str) or type(rows) is not int or rows < 1:
                raise SummaryError(f"dropped_rows must be numbers of rows by reason, got {rows!r} for {reason!r}")
        fields = {
            "metric": metric,
            "periods": tuple(sorted(set(given))),
            "implausible_rejected": implausible_rejected,
            "closed": closed,
            "dropped_rows": dict(dropped_rows),
            **arrays,
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @classmethod
    @abstractmethod
    def from_rows(cls, metric: Metric | Params, cohorts: ByteData, rows: ByteData, periods: Iterable[str] = ()) -> Self:
        """Return the data of reports as they are sent.

        Parameters
        ----------
        metric
            Definition of the metric. `Params` are accepted for an unnamed string metric.
        cohorts
            n bytes, the cohort of each report.
        rows
            n * ceil(k / 8) bytes, the bits of the reports.
        periods
            First days of the periods. Empty: they are unknown.

        Returns
        -------
        Self
            Data of the n reports.

        Raises
        ------
        SummaryError
            The bytes do not fit the metric.
        """

    @classmethod
    def from_reports(cls, metric: Metric | Params, reports: Sequence[Report]) -> Self:
        """Return the data of a list of reports.

        Parameters
        ----------
        metric
            Definition of the metric. `Params` are accepted for an unnamed string metric.
        reports
            Reports of one metric, from any number of clients.

        Returns
        -------
        Self
            Data of these reports.
        """
        return cls.from_rows(metric, bytes(r.cohort for r in reports), b"".join(r.to_bytes() for r in reports))

    @classmethod
    def empty(cls, metric: Metric | Params) -> Self:
        """Return the data of no reports, the neutral element of `+` of data that is not closed.

        Parameters
        ----------
        metric
            Definition of the metric. `Params` are accepted for an unnamed string metric.

        Returns
        -------
        Self
            Data with the number of reports 0.
        """
        return cls.from_rows(metric, b"", b"")

    def _merged_fields(self, other: Self) -> dict[str, Any]:
        """Return the fields of a sum that are no arrays, without `closed`; raises SummaryError for different definitions.

        The sum over values of a group is of the metric without a value.
        """
        metric, same = self.metric, other.metric.digest == self.metric.digest
        if not same:
            metric = metric.in_group(None)
        if not same and other.metric.in_group(None).digest != metric.digest:
            raise SummaryError(
                f"reports of different definitions cannot be added: {self.metric.name} {self.metric.digest[:12]} "
                f"and {other.metric.name} {other.metric.digest[:12]}; decode each separately"
            )
        return {
            "metric": metric,
            "periods": (*self.periods, *other.periods),
            "implausible_rejected": self.implausible_rejected or other.implausible_rejected,
            "dropped_rows": Counter(self.dropped_rows) + Counter(other.dropped_rows),
        }

    @property
    @abstractmethod
    def num_reports(self) -> int:
        """N, the number of reports."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {describe_reports(self.metric, self.num_reports, self.periods)}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return (
            self.metric.digest == other.metric.digest
            and self.periods == other.periods
            and self.implausible_rejected == other.implausible_rejected
            and self.closed == other.closed
            and self.dropped_rows == other.dropped_rows
            and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in self.arrays)
        )

    __hash__ = None  # type: ignore[assignment]  # arrays inside


def part_of(metric: Metric, name: str) -> tuple[Metric, int]:
    """Return a part of a joint metric as a metric of its own, with the position of its first bit.

    Raises SummaryError if the metric has no such part.
    """
    names = list(metric.kind.components)
    if not name or name not in names:
        listed = f"its parts are {', '.join(names)}" if len(names) > 1 else "only a joint metric has parts"
        raise SummaryError(f"{metric.name}: there is no part {name!r}: {listed}")
    part = Metric(name, metric.kind.components[name], metric.period, metric.hold)
    return part, metric.kind.first_bits[names.index(name)]


def describe_reports(metric: Metric, num_reports: int, periods: Sequence[str]) -> str:
    """Name, number of reports, shape and periods in one line.

    >>> from hubbub import UnaryResponse
    >>> describe_reports(Metric.boolean("dark", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5)), 1200, ["2026-03-01"])
    'dark: 1,200 reports, 1 cohort x 1 bit, 1 period'
    """
    shape = f"{format_count(metric.num_cohorts, 'cohort')} x {format_count(metric.num_bits, 'bit')}"
    dates = f", {format_count(len(periods), 'period')}" if periods else ""
    return f"{metric.title}: {format_count(num_reports, 'report')}, {shape}{dates}"


ByteData = bytes | NDArray[np.uint8]
"""Bytes, or an array of them."""


def metric_or_unnamed(metric: Metric | Params) -> Metric:
    """Return the metric; for `Params` of a Bloom filter, an unnamed string metric."""
    if isinstance(metric, Metric):
        return metric
    if metric.scheme.hashes_strings:
        return Metric.string("unnamed", metric)
    raise SummaryError(f"{metric.hash_scheme} parameters do not say which values there are: pass the Metric")


def check_counts(name: str, values: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return an array of counts as a read-only int64 array; raises SummaryError for another shape, fractions or negative numbers."""
    given = np.asarray(values)
    if given.shape != shape:
        raise SummaryError(
            f"{name} must have shape {shape} for these parameters, got {given.shape}: "
            "the summary was made under other parameters"
        )
    if given.dtype.kind not in "iu" and not (given.dtype.kind == "f" and np.array_equal(given, np.floor(given))):
        raise SummaryError(f"{name} must be integers, got {given.dtype}")
    counts = given.astype(np.int64)
    if counts.size and counts.min() < 0:
        raise SummaryError(f"{name} must not be negative, got {counts.min()}")
    counts.flags.writeable = False
    return counts


def view_rows(metric: Metric, cohorts: ByteData, rows: ByteData) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return bytes of reports as arrays: cohorts (n,) and rows (n, ceil(k / 8))."""
    width = metric.row_bytes
    cohort_of, bits = np.frombuffer(cohorts, np.uint8), np.frombuffer(rows, np.uint8)
    if len(bits) != len(cohort_of) * width:
        raise SummaryError(f"{metric.name}: rows must have {len(cohort_of)} x {width} bytes, got {len(bits)}")
    if len(cohort_of) and cohort_of.max() >= metric.num_cohorts:
        raise SummaryError(f"{metric.name}: cohorts must be below {metric.num_cohorts}, got {cohort_of.max()}")
    return cohort_of, bits.reshape(-1, width)


def check_report_rows(
    metric: Metric, cohorts: ArrayLike, rows: ArrayLike
) -> tuple[NDArray[np.uint8 | np.uint16], NDArray[np.uint8]]:
    """Return checked, read-only arrays: cohorts (n,), uint8 or (m > 256) uint16, and rows (n, ceil(k / 8)) uint8.

    Raises SummaryError for a wrong shape or type, a cohort from m on, or a padding bit that is set.
    """
    given, bits = np.asarray(cohorts), np.asarray(rows)
    if bits.shape != (given.size, metric.row_bytes) or given.ndim != 1:
        raise SummaryError(
            f"{metric.name}: rows must have shape ({given.size}, {metric.row_bytes}), {metric.num_bits} bits per report, got {bits.shape}"
        )
    cohort_of = check_counts("cohorts", given, given.shape) if given.size else given
    if given.size and cohort_of.max() >= metric.num_cohorts:
        raise SummaryError(f"{metric.name}: cohorts must be below {metric.num_cohorts}, got {cohort_of.max()}")
    if bits.dtype != np.uint8:
        if bits.size and (bits.dtype.kind not in "iu" or bits.min() < 0 or bits.max() > 255):
            raise SummaryError(f"{metric.name}: rows must be integers from 0 to 255, got {bits.dtype}")
        bits = bits.astype(np.uint8)
    padding = -metric.num_bits % 8
    if padding and (bits[:, -1] >> (8 - padding)).any():
        raise SummaryError(
            f"{metric.name}: a padding bit is set: the last {padding} bits of each report of {metric.num_bits} bits must be 0"
        )
    packed: NDArray[np.uint8 | np.uint16] = cohort_of.astype(np.uint8 if metric.num_cohorts <= 256 else np.uint16)
    checked = packed, bits.view()
    for array in checked:
        array.flags.writeable = False
    return checked
