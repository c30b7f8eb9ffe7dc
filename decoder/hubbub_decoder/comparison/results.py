"""Result of a comparison: `Change` of one candidate, `Overlap` of the clients, `Comparison` and its document."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hubbub.metrics.metric import Metric
from hubbub.number_checks import check_number
from hubbub.text import format_count
from hubbub.wire.json_values import from_json_value, json_value
from hubbub_decoder.documents.document import (
    INTERVAL_WIDTH,
    Bar,
    Column,
    Document,
    Row,
    Table,
    check_top,
    format_level,
    group_name,
)
from hubbub_decoder.documents.finding import Finding
from hubbub_decoder.options import Target
from hubbub_decoder.result import Result
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.estimates import change_text, read_detected, short_names
from hubbub_decoder.results.loadable import Loadable
from hubbub_decoder.results.table_result import TableResult, columns_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_STD_ERROR = 0.2
"""Standard error of an overlap s above which s counts as unknown."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Change(Result):
    """Change of the share of one candidate, from `a` to `b`.

    All numbers are nan where the reports do not determine it.

    Attributes
    ----------
    candidate
        The candidate, or the name of a total.
    share_a
        Share that `decode` estimates in `a`.
    share_b
        Share that `decode` estimates in `b`.
    change
        Estimated from the changes of the counts. It may differ a little from share_b - share_a, and is more precise.
    std_error
        Standard error of the change.
    low
        Lower end of the confidence interval of the change.
    high
        Upper end of the confidence interval of the change.
    p_value
        Two-sided p-value. The null hypothesis is that the share is the same in both.
    q_value
        The p-value adjusted for the number of candidates.
    detected
        Whether q_value <= fdr and p_value < 1 - confidence. So 0 is outside the interval. None exactly where `q_value`
        is nan: the change was not tested, as for totals.
    indistinguishable_from
        Candidates with the same bits in every cohort. The change is then the change of the group.
    """

    candidate: str
    share_a: float
    share_b: float
    change: float
    std_error: float
    low: float
    high: float
    p_value: float
    q_value: float
    detected: bool | None
    indistinguishable_from: tuple[str, ...] = ()

    def __repr__(self) -> str:
        change = change_text(self.change, self.low, self.high)
        return f"<Change {short_names(self.group)}: {change}{', detected' if self.detected else ''}>"

    @property
    def group(self) -> tuple[str, ...]:
        """The candidate, and those that are indistinguishable from it."""
        return (self.candidate, *self.indistinguishable_from)


@dataclass(frozen=True, slots=True, eq=False)
class Overlap(Result):
    """Share s of the clients of the smaller sample that are in the other with the same value.

    Attributes
    ----------
    estimate
        s, clipped to [0, 1]. nan: the reports do not determine it.
    std_error
        Standard error of the estimate before it is clipped. 0: s is known.
    low
        The estimate minus one standard error, clipped. 0 where the standard error is above .2. It is conservative
        for a change.
    high
        The estimate plus one standard error, clipped. 1 where the standard error is above .2. It is conservative
        for a mean.
    """

    estimate: float
    std_error: float
    low: float
    high: float

    @classmethod
    def known(cls, share: float) -> Overlap:
        """Return a known overlap.

        Parameters
        ----------
        share
            s, in [0, 1]. 0: the samples have different clients.

        Returns
        -------
        Overlap
            Overlap with the standard error 0.

        Raises
        ------
        ParameterError
            The share is out of range.
        """
        check_number("share", share, "[0, 1]", hint="pass the share of clients that kept their value")
        return cls(share, 0.0, share, share)

    @classmethod
    def unknown(cls) -> Overlap:
        """Return the overlap of samples whose reports do not determine s.

        Returns
        -------
        Overlap
            Overlap with the limits 0 and 1.
        """
        return cls(math.nan, math.inf, 0.0, 1.0)

    @classmethod
    def estimated(cls, share: float, std_error: float) -> Overlap:
        """Return an estimated overlap with its limits.

        Parameters
        ----------
        share
            Estimate of s, not clipped.
        std_error
            Standard error of the estimate.

        Returns
        -------
        Overlap
            Overlap with limits one standard error below and above.

        Examples
        --------
        >>> Overlap.estimated(0.95, 0.1)
        Overlap(estimate=0.95, std_error=0.1, low=0.85, high=1.0)
        >>> Overlap.estimated(0.95, 0.3).low
        0.0
        """
        if not std_error <= MAX_STD_ERROR:
            return cls(_clip(share), std_error, 0.0, 1.0)
        return cls(_clip(share), std_error, _clip(share - std_error), _clip(share + std_error))


def _clip(share: float) -> float:
    return share if math.isnan(share) else min(max(share, 0.0), 1.0)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Comparison(TableResult[Change], Loadable, Result):
    """Result of `compare`: changes in descending order of their size, detected ones first.

    Attributes
    ----------
    metric
        Definition of the metric.
    a
        Decoding of the first sample.
    b
        Decoding of the second sample.
    confidence
        Level of the intervals.
    fdr
        False discovery rate of the detected changes.
    target
        Population of the shares: "reporters" or "population".
    changes
        Change of each candidate.
    totals
        Changes of the total share of the candidates, of unlisted strings and of "no value". `candidate` is the name of
        the total.
    overlap
        Share of the clients with the same value in both.
    same_clients
        Whether a client may be in both. False: s = 0 is known.
    warnings
        Findings to read before using the changes.
    """

    metric: Metric
    a: Decoding
    b: Decoding
    confidence: float
    fdr: float
    target: Target
    changes: tuple[Change, ...]
    totals: tuple[Change, ...]
    overlap: Overlap
    same_clients: bool
    warnings: tuple[Finding, ...] = ()

    @property
    def detected(self) -> tuple[Change, ...]:
        """Changes that are detected, the largest first."""
        return tuple(change for change in self.changes if change.detected)

    @property
    def _columns(self) -> Mapping[str, str]:
        return columns_of(Change)

    @property
    def _rows(self) -> tuple[Change, ...]:
        return self.changes

    def _names(self, row: Change) -> tuple[str, ...]:
        return row.group

    def __repr__(self) -> str:
        changes = format_count(len(self.changes), "candidate")
        return f"<Comparison of {self.metric.name}: {len(self.detected):,} of {changes} changed>"

    def to_dict(self) -> dict[str, Any]:
        return self._changes_dict() | {"a": self.a.to_dict(), "b": self.b.to_dict()}

    def _changes_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values, with the periods and the numbers of reports in place of both decodings."""
        return self._about() | {"changes": json_value(self.changes)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Comparison:
        return cls._of_decodings(values, Decoding.from_dict(values["a"]), Decoding.from_dict(values["b"]))

    @classmethod
    def _of_decodings(cls, values: Mapping[str, Any], a: Decoding, b: Decoding) -> Comparison:
        """Return the comparison of two decodings from the JSON values of `_changes_dict`."""
        changes, totals = (
            tuple(from_json_value(Change, read_detected(row)) for row in values[name]) for name in ("changes", "totals")
        )
        return cls._from_values(values, {"a": a, "b": b, "changes": changes, "totals": totals})

    def _about(self) -> dict[str, Any]:
        return {
            "metric": self.metric.to_dict(),
            "a": _about_sample(self.a),
            "b": _about_sample(self.b),
            "target": self.target,
            "confidence": self.confidence,
            "fdr": self.fdr,
            "same_clients": self.same_clients,
            "overlap": json_value(self.overlap),
            "totals": json_value(self.totals),
            "warnings": json_value(self.warnings),
        }

    def document(self, *, everything: bool = False, top: int | None = None) -> Document:
        every = self.changes if everything or not self.a.is_tested else self.detected
        check_top(top)
        rows = every[:top]
        return Document(
            headline(self), _table(self, rows, len(every) - len(rows)), (*summary_lines(self),), self.warnings
        )

    def plot(self, ax: Axes | Figure | None = None, *, top: int | None = None) -> Axes:
        """Draw the changes with their confidence intervals, detected ones first, then the largest.

        Detected changes have filled circles, the others open ones.

        Parameters
        ----------
        ax
            Axes to draw on, or an empty figure, which gets the size that the plot needs. None: a new pyplot figure,
            which a notebook displays.
        top
            Largest number of candidates. None: 40.

        Returns
        -------
        Axes
            The axes with the plot.

        Raises
        ------
        ParameterError
            `top` is below 1.
        SummaryError
            The reports determine no change.
        """
        from hubbub_decoder.results.plots import MAX_INTERVALS, Interval, checked_top, draw_intervals

        rows = [row for row in self.changes if not math.isnan(row.change)][: checked_top(top, MAX_INTERVALS)]
        shown = f", {len(rows)} of {len(self):,} candidates" if len(rows) < len(self) else ""
        return draw_intervals(
            ax,
            [
                Interval(" = ".join(row.group), (row.low, row.change, row.high), is_marked=bool(row.detected))
                for row in rows
            ],
            title=f"{self.metric.name}: changes{_periods_text(self.a, self.b)}",
            about=f"{self.a.num_reports:,} and {self.b.num_reports:,} reports{shown}",
            label="change of the share from a to b",
            confidence=self.confidence,
            marks=("changed", "no change detected"),
        )


def _periods_text(a: Decoding, b: Decoding) -> str:
    """From which periods to which, for a title; "" if they are unknown, or the same."""
    first, last = ("..".join(dict.fromkeys((*decoding.periods[:1], *decoding.periods[-1:]))) for decoding in (a, b))
    return f", {first} to {last}" if first and last and first != last else ""


def _about_sample(decoding: Decoding) -> dict[str, Any]:
    group = decoding.metric.group
    about = {"periods": list(decoding.periods), "num_reports": decoding.num_reports}
    return about if group is None else {"group": group.value, **about}


def _table(comparison: Comparison, changes: tuple[Change, ...], hidden: int) -> Table:
    columns = (
        Column.names(comparison.metric.kind.value_noun, width=12),
        Column.shares("a"),
        Column.shares("b"),
        Column.changes("change"),
        Column.changes(f"{format_level(comparison.confidence)} interval", width=INTERVAL_WIDTH),
        Column.q_values(),
        Column.bars(25),
    )
    known = [row for row in changes if math.isfinite(row.high)]
    end = max((max(abs(row.low), abs(row.high)) for row in known), default=1.0)
    rows = []
    for row in changes:
        if math.isnan(row.change):
            rows.append(Row((group_name(row.group), "-", "-", "-", "not determined", "-", ""), "dim"))
            continue
        interval, bar = (row.low, row.high), Bar(row.low, row.change, row.high, end, start=-end)
        cells = (group_name(row.group), row.share_a, row.share_b, row.change, interval, row.q_value, bar)
        rows.append(Row(cells, "" if row.detected else "dim"))
    return Table(columns, tuple(rows), hidden=hidden)


def headline(comparison: Comparison) -> str:
    """Return the metric's name and the periods and numbers of reports of both samples."""
    a, b = (
        f"{name}: {_group(decoding)}{_periods(decoding.periods)}{format_count(decoding.num_reports, 'report')}"
        for name, decoding in (("a", comparison.a), ("b", comparison.b))
    )
    return f"{comparison.metric.name}; {a}; {b}"


def _group(decoding: Decoding) -> str:
    group = decoding.metric.group
    return "" if group is None or group.value is None else f"{group.name} {group.value}, "


def _periods(periods: tuple[str, ...]) -> str:
    if not periods:
        return ""
    return f"{periods[0]}, " if len(periods) == 1 else f"{periods[0]} .. {periods[-1]}, "


def summary_lines(comparison: Comparison) -> Iterator[str]:
    """Yield the lines below the table: changes of totals, number of detected changes, and the overlap."""
    labels = {"listed_total": "candidates", "unlisted": "unlisted strings", "no_value": "no value"}
    totals = [
        f"{labels[row.candidate]} {change_text(row.change, row.low, row.high, 1)}"
        for row in comparison.totals
        if math.isfinite(row.change + row.std_error)
    ]
    if totals:
        yield f"Changes of total shares: {', '.join(totals)}."
    detected, number = len(comparison.detected), len(comparison)
    untested = sum(change.detected is None for change in comparison)
    not_tested = f"; {untested:,} not tested" if untested else ""
    yield f"Changed: {detected:,} of {number:,} (false discovery rate {comparison.fdr:.0%}){not_tested}."
    yield overlap_line(comparison)


def overlap_line(comparison: Comparison) -> str:
    """Return the share of clients with the same value in both samples, and its use."""
    overlap = comparison.overlap
    if overlap.std_error == 0:
        if overlap.estimate == 0:
            return "Intervals assume that the two samples have different clients."
        return f"Intervals assume that {overlap.estimate:.0%} of the clients have the same value in both samples."
    if overlap.low == 0 and overlap.high == 1:
        return (
            "The reports do not show how many clients have the same value in both samples. "
            "Intervals assume none (overlap 0), which is never too narrow."
        )
    return (
        f"Clients with the same value in both samples: {overlap.estimate:.0%} (standard error {overlap.std_error:.1%}). "
        f"Intervals assume {overlap.low:.0%}."
    )
