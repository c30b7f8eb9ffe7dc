"""Shares by period, or by the values of a group: a decoding of each, and the changes from each to the next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hubbub.errors import ParameterError, SummaryError
from hubbub.metrics.group import PERIOD
from hubbub.metrics.metric import Metric
from hubbub.text import format_count
from hubbub_decoder.blas_threads import one_blas_thread
from hubbub_decoder.comparison.compare import collect, compare_decodings
from hubbub_decoder.comparison.results import Change, Comparison, Overlap, overlap_line
from hubbub_decoder.kinds.operations import operations_of
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.evidence import Collected
from hubbub_decoder.options import Options, Progress, Target, ignore_progress
from hubbub_decoder.pipeline import collect_evidence, decode_evidence
from hubbub_decoder.result import Result
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.document import (
    MAX_POINTS,
    Cell,
    Column,
    Document,
    Row,
    Sparkline,
    Table,
    check_top,
    format_level,
    group_name,
)
from hubbub_decoder.results.estimates import Estimate
from hubbub_decoder.results.loadable import Loadable
from hubbub_decoder.results.table_result import TableResult, columns_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = ("share", "std_error", "low", "high", "p_value", "q_value", "detected")
_CHANGE_COLUMNS = {"change": "change"} | {
    name: f"change_{name}" for name in ("low", "high", "p_value", "q_value", "detected")
}


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Trends(TableResult[Decoding], Loadable, Result):
    """Result of `decode_by_period` and `decode_by_group`: a sequence of decodings (`TableResult`).

    `trends["2026-03-02"]` is the decoding of a period, `trends["1.x"]` that of a value of the group. A data frame has a
    row for each of them and each candidate, by candidate.

    Attributes
    ----------
    metric
        Definition of the metric.
    decodings
        Decoding of each period, in order of time, or of each value of the group, in the order of the definition.
    comparisons
        Comparison of each decoding but the first with the one before it.
    """

    metric: Metric
    decodings: tuple[Decoding, ...]
    comparisons: tuple[Comparison, ...]

    @property
    def by(self) -> str:
        """What the decodings differ in: "period", or the name of the metric's group."""
        group = self.metric.group
        return PERIOD if group is None or self.decodings[0].metric.digest == self.metric.digest else group.name

    @property
    def labels(self) -> tuple[str, ...]:
        """First days of the periods, or values of the group."""
        return tuple(label_of(decoding, self.by) for decoding in self.decodings)

    @property
    def candidates(self) -> tuple[str, ...]:
        """Candidates in descending order of their mean share. A candidate that is not determined comes last."""
        means: dict[str, float] = {}
        for estimate in self.decodings[0]:
            shares = [decoding[estimate.candidate].share for decoding in self.decodings]
            means[estimate.candidate] = math.fsum(shares) / len(shares)
        return tuple(sorted(means, key=lambda name: (math.isnan(means[name]), -means[name])))

    @property
    def _columns(self) -> Mapping[str, str]:
        of_changes = {column: columns_of(Change)[name] for name, column in _CHANGE_COLUMNS.items()}
        return {self._column: "str"} | columns_of(Estimate, "candidate", *_COLUMNS) | of_changes

    @property
    def _rows(self) -> tuple[Decoding, ...]:
        return self.decodings

    @property
    def _column(self) -> str:
        return PERIOD if self.by == PERIOD else "group"

    def _names(self, row: Decoding) -> tuple[str, ...]:
        return (label_of(row, self.by),)

    def __repr__(self) -> str:
        return f"<Trends of {self.metric.title}: {format_count(len(self.decodings), self.by)}>"

    def has_signal(self, candidate: str) -> bool:
        """Return whether a candidate is detected in a decoding, or its change between two.

        Parameters
        ----------
        candidate
            The candidate.

        Returns
        -------
        bool
            Whether any test confirms it.
        """
        shown = any(decoding[candidate].detected for decoding in self.decodings)
        return shown or any(comparison[candidate].detected for comparison in self.comparisons)

    def to_dict(self) -> dict[str, Any]:
        return self._about() | {
            "decodings": [decoding.to_dict() for decoding in self.decodings],
            "comparisons": [comparison._changes_dict() for comparison in self.comparisons],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Trends:
        decodings = tuple(map(Decoding.from_dict, values["decodings"]))
        pairs = zip(values["comparisons"], pairwise(decodings), strict=True)
        comparisons = tuple(Comparison._of_decodings(each, *pair) for each, pair in pairs)
        return cls._from_values(values, decodings=decodings, comparisons=comparisons)

    def _about(self) -> dict[str, Any]:
        return {"metric": self.metric.to_dict(), "by": self.by, "labels": list(self.labels)}

    def _cells(self) -> Iterator[Mapping[str, Any]]:
        """Yield period or value, candidate, its estimate and its change since the one before, by candidate."""
        for candidate in self.candidates:
            for i, decoding in enumerate(self.decodings):
                estimate = decoding[candidate]
                change = self.comparisons[i - 1][candidate] if i else None
                yield {
                    self._column: self.labels[i],
                    "candidate": candidate,
                    **{name: getattr(estimate, name) for name in _COLUMNS},
                    **{
                        column: None if change is None else getattr(change, name)
                        for name, column in _CHANGE_COLUMNS.items()
                    },
                }

    def document(self, *, everything: bool = False, top: int | None = None) -> Document:
        decodings = self.decodings
        every = everything or not decodings[0].is_tested
        check_top(top)
        names = [name for name in self.candidates if every or self.has_signal(name)][:top]
        reports = sum(decoding.num_reports for decoding in decodings)
        days = f"{self.labels[0]} .. {self.labels[-1]}" if self.by == PERIOD else ", ".join(self.labels)
        number, *last = change_lines(self.comparisons, self.by)
        return Document(
            f"{self.metric.title}: {format_count(len(self), self.by)}, {days}, {format_count(reports, 'report')}",
            _table(self, names),
            (f"Candidates shown: {len(names):,} of {len(self.candidates):,}. {number}", *last),
            tuple(
                replace(each, text=f"{label}: {each.text}")
                for label, one in zip(self.labels, decodings, strict=True)
                for each in one.warnings
            ),
        )

    def plot(self, ax: Axes | Figure | None = None, *, top: int | None = None) -> Axes:
        """Draw the shares by period, or by value of the group, with their confidence intervals.

        The candidates are those with the largest mean shares, and for a string metric only those that are detected in
        some period. A missing period is a gap.

        Parameters
        ----------
        ax
            Axes to draw on, or an empty figure, which gets the size that the plot needs. None: a new pyplot figure,
            which a notebook displays.
        top
            Largest number of candidates, at most 8. None: 8.

        Returns
        -------
        Axes
            The axes with the plot.

        Raises
        ------
        ParameterError
            `top` is not from 1 to 8.
        SummaryError
            There is nothing to draw.
        """
        from hubbub_decoder.results.plots import MAX_LINES, checked_top, draw_lines

        most = checked_top(top, MAX_LINES)
        if most > MAX_LINES:
            raise ParameterError(
                f"top must be 1 to {MAX_LINES}", f"{top}: more lines cannot be told apart; pass top = {MAX_LINES}"
            )
        names = [name for name in self.candidates if any(decoding[name].detected for decoding in self.decodings)]
        names = names or list(self.candidates)  # categories are not tested
        lines = []
        for name in names[:most]:
            estimates = [decoding[name] for decoding in self.decodings]
            lines.append((name, np.array([[e.low, e.share, e.high] for e in estimates]).T))
        unit = str(self.metric.period) if self.by == PERIOD else self.by
        return draw_lines(
            ax,
            self.labels,
            lines,
            title=f"{self.metric.title}: shares by {unit}",
            unit=unit,
            is_time=self.by == PERIOD,
            confidence=self.decodings[0].confidence,
        )


def _table(trends: Trends, names: Sequence[str]) -> Table:
    """Table of some candidates: the latest shares, as many as fit, and the change between the last two periods."""
    decodings, last = trends.decodings[-MAX_POINTS:], trends.comparisons[-1] if trends.comparisons else None
    level, shown = format_level(trends.decodings[0].confidence), trends.labels[-MAX_POINTS:]
    columns = [
        Column.names(trends.metric.kind.value_noun),
        Column("", "sparkline", width=len(decodings)),
        *(Column.shares(label, width=10, spare=0) for label in shown[:-1]),
        Column.shares(shown[-1], width=10),
    ]
    if last is not None:
        interval = Column.changes(f"{level} interval", width=15)
        columns += [Column.changes("last change"), interval, Column.q_values()]
    rows = []
    for name in names:
        shares = tuple(decoding[name].share for decoding in decodings)
        cells: list[Cell] = [group_name(decodings[-1][name].group), Sparkline(shares), *shares]
        if last is not None:
            change = last[name]
            cells += [change.change, (change.low, change.high), change.q_value]
        rows.append(Row(tuple(cells), "" if last is not None and last[name].detected else "dim"))
    return Table(tuple(columns), tuple(rows))


def change_lines(comparisons: Sequence[Comparison], by: str = PERIOD) -> Iterator[str]:
    """Yield the number of detected changes, and what the intervals of the last comparison assume."""
    changed = sum(len(comparison.detected) for comparison in comparisons)
    order = "successive" if by == PERIOD else "neighbouring"
    yield f"Detected changes in {format_count(len(comparisons), 'pair')} of {order} {by}s: {changed:,}."
    if comparisons:
        last = comparisons[-1]
        of = "Last change" if by == PERIOD else f"From {label_of(last.a, by)} (a) to {label_of(last.b, by)} (b)"
        yield f"{of}: {overlap_line(last)}"


@one_blas_thread()
def decode_by_period(
    summaries: Iterable[Collected],
    candidates: Iterable[str] | DesignMatrix | None = None,
    *,
    confidence: float = 0.95,
    fdr: float = 0.05,
    target: Target = "reporters",
    same_clients: bool = True,
    progress: Progress = ignore_progress,
) -> Trends:
    """Decode each period, and estimate the changes from each period to the next.

    Parameters
    ----------
    summaries
        Counts or reports of one definition, each of one period. Those of the same period are added up.
    candidates
        Strings to look for, or a design matrix of them. For a categorical metric, the categories to show (None: all).
    confidence
        Level of the intervals, in (0, 1).
    fdr
        False discovery rate of the detected candidates and changes, in (0, 1).
    target
        "reporters": shares among the reporters. "population": shares of the populations of which they are random
        samples.
    same_clients
        Whether a client may report in two periods.
    progress
        Function that is called at the start of each stage.

    Returns
    -------
    Trends
        Decoding of each period, and its comparison with the period before.

    Raises
    ------
    SummaryError
        A summary has no period or several, or the definitions differ.
    ParameterError
        An argument is out of range.
    CandidateError
        The candidates cannot be tested.
    """
    options = Options(confidence, fdr, target, same_clients)
    periods: dict[str, list[Collected]] = {}
    for summary in summaries:
        periods.setdefault(_period_of(summary), []).append(summary)
    if not periods:
        raise SummaryError("There is no summary, so nothing can be decoded. Pass one summary for each period.")
    samples = [collect(period, periods[period]) for period in sorted(periods)]
    for sample in samples:
        if sample.metric.digest != samples[0].metric.digest:
            raise SummaryError(
                f"{sample.metric.name}: the periods {samples[0].periods[0]} and {sample.periods[0]} have different definitions "
                f"({samples[0].metric.digest[:12]}, {sample.metric.digest[:12]}). Decode the periods of each definition separately."
            )
    known = None if options.same_clients else Overlap.known(0.0)
    return _trends(samples[0].metric, samples, candidates, options, known, progress)


@one_blas_thread()
def decode_by_group(
    summaries: Iterable[Collected],
    candidates: Iterable[str] | DesignMatrix | None = None,
    *,
    confidence: float = 0.95,
    fdr: float = 0.05,
    target: Target = "reporters",
    same_clients: bool = True,
    progress: Progress = ignore_progress,
) -> Trends:
    """Decode each value of a metric's group, and estimate the changes from each value to the next.

    Parameters
    ----------
    summaries
        Counts or reports of one definition, each of one value of its group. Those of the same value are added up.
    candidates
        Strings to look for, or a design matrix of them. For a categorical metric, the categories to show (None: all).
    confidence
        Level of the intervals, in (0, 1).
    fdr
        False discovery rate of the detected candidates and changes, in (0, 1).
    target
        "reporters": shares among the reporters. "population": shares of the populations of which they are random
        samples.
    same_clients
        Whether a client may report in two periods.
    progress
        Function that is called at the start of each stage.

    Returns
    -------
    Trends
        Decoding of each value with reports, in the order of the definition, and its comparison with the one before.

    Raises
    ------
    SummaryError
        A summary has no value of a group, or the definitions differ.
    ParameterError
        An argument is out of range.
    CandidateError
        The candidates cannot be tested.

    Notes
    -----
    A client has one value in a period. In several periods it may have moved to another one: the covariance that this
    gives is estimated as that of two periods, and not taken off where the reports do not show it.
    """
    options = Options(confidence, fdr, target, same_clients)
    by_value: dict[str, list[Collected]] = {}
    metric: Metric | None = None
    for summary in summaries:
        of_one = collect("a summary", summary).metric if summary.num_reports else summary.metric
        if of_one.group is None or of_one.group.value is None:
            held = "has no group" if of_one.group is None else f"adds up all values of {of_one.group.name}"
            raise SummaryError(
                f"{of_one.name}: a summary {held}, and its counts cannot be divided. Download each value alone: hubbub pull --by-group."
            )
        metric = of_one.in_group(None) if metric is None else metric
        if of_one.in_group(None).digest != metric.digest:
            raise SummaryError(
                f"{metric.name}: the summaries have different definitions ({metric.digest[:12]}, {of_one.in_group(None).digest[:12]}). "
                "Decode the groups of each definition separately."
            )
        if summary.num_reports:
            by_value.setdefault(of_one.group.value, []).append(summary)
    if metric is None or metric.group is None or not by_value:
        raise SummaryError("There is no summary with reports, so nothing can be decoded. Pass one for each value.")
    samples = [collect(value, by_value[value]) for value in metric.group.values if value in by_value]
    is_apart = not options.same_clients or len({period for sample in samples for period in sample.periods}) <= 1
    return _trends(metric, samples, candidates, options, Overlap.known(0.0) if is_apart else None, progress)


def _trends(
    metric: Metric,
    samples: Sequence[Collected],
    candidates: Iterable[str] | DesignMatrix | None,
    options: Options,
    known: Overlap | None,
    progress: Progress,
) -> Trends:
    """Decoding of each sample, and its comparison with the one before; known : the overlap, None: estimated."""
    operations = operations_of(metric)
    operations.check_comparable()
    evidence = [collect_evidence(sample, options) for sample in samples]
    names = operations.rows(candidates)
    stages, by = 2 * len(evidence) - 1, PERIOD if samples[0].metric.digest == metric.digest else "group"
    labels = [label_of(sample, by) for sample in samples]
    decodings = []
    for i, each in enumerate(evidence):
        progress(f"decoding {labels[i]}", i / stages)
        decodings.append(decode_evidence(each, names, options))
    comparisons = []
    for i, (before, after) in enumerate(pairwise(range(len(samples)))):
        progress(f"comparing {labels[before]} and {labels[after]}", (len(samples) + i) / stages)
        pair = (evidence[before], evidence[after]), (decodings[before], decodings[after])
        comparisons.append(compare_decodings(*pair, names, known))
    return Trends(metric, tuple(decodings), tuple(comparisons))


def label_of(of: Collected | Decoding, by: str) -> str:
    """First day of the period, or value of the group."""
    group = of.metric.group
    return of.periods[0] if by == PERIOD or group is None else group.value or ""


def _period_of(summary: Collected) -> str:
    """First day of a summary's only period; raises SummaryError if it has none, or several."""
    periods = collect("a summary", summary).periods
    if len(periods) != 1:
        names = f" ({', '.join(periods[:3])}{', ...' if len(periods) > 3 else ''})" if periods else ""
        raise SummaryError(
            f"{summary.metric.name}: a summary has {format_count(len(periods), 'period')}{names}, and counts of several periods cannot be "
            "divided. Download each period alone: hubbub pull --period YYYY-MM-DD."
        )
    return periods[0]
