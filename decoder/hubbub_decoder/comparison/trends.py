"""Shares by period: a decoding of each period, and the changes from each period to the next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hubbub.errors import ParameterError, SummaryError
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
    """Result of `decode_by_period`: a sequence of decodings (`TableResult`).

    `trends["2026-03-02"]` is the decoding of a period. A data frame has a row for each period and candidate, by
    candidate.

    Attributes
    ----------
    metric
        Definition of the metric.
    decodings
        Decoding of each period, in order of time.
    comparisons
        Comparison of each period but the first with the period before it.
    """

    metric: Metric
    decodings: tuple[Decoding, ...]
    comparisons: tuple[Comparison, ...]

    @property
    def periods(self) -> tuple[str, ...]:
        """First days of the periods."""
        return tuple(decoding.periods[0] for decoding in self.decodings)

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
        return {"period": "str"} | columns_of(Estimate, "candidate", *_COLUMNS) | of_changes

    @property
    def _rows(self) -> tuple[Decoding, ...]:
        return self.decodings

    def _names(self, row: Decoding) -> tuple[str, ...]:
        return row.periods

    def __repr__(self) -> str:
        return f"<Trends of {self.metric.name}: {format_count(len(self.decodings), 'period')}>"

    def has_signal(self, candidate: str) -> bool:
        """Return whether a candidate is detected in a period, or its change between two.

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
        return {"metric": self.metric.to_dict(), "periods": list(self.periods)}

    def _cells(self) -> Iterator[Mapping[str, Any]]:
        """Yield period, candidate, its estimate and its change since the period before, by candidate."""
        for candidate in self.candidates:
            for i, decoding in enumerate(self.decodings):
                estimate = decoding[candidate]
                change = self.comparisons[i - 1][candidate] if i else None
                yield {
                    "period": decoding.periods[0],
                    "candidate": candidate,
                    **{name: getattr(estimate, name) for name in _COLUMNS},
                    **{
                        column: None if change is None else getattr(change, name)
                        for name, column in _CHANGE_COLUMNS.items()
                    },
                }

    def document(self, *, everything: bool = False, top: int | None = None) -> Document:
        """Return headline, shares by period, number of changes and warnings of all periods.

        Parameters
        ----------
        everything
            Whether to show all candidates of a string metric. False: those detected in a period, or with a detected
            change.
        top
            Largest number of rows, the largest mean shares. None: all.

        Returns
        -------
        Document
            What the terminal and a notebook show. A row has the last change of the candidate.
        """
        decodings = self.decodings
        every = everything or not decodings[0].is_tested
        check_top(top)
        names = [name for name in self.candidates if every or self.has_signal(name)][:top]
        reports = sum(decoding.num_reports for decoding in decodings)
        days = f"{self.periods[0]} .. {self.periods[-1]}"
        number, *last = change_lines(self.comparisons)
        return Document(
            f"{self.metric.name}: {format_count(len(self), 'period')}, {days}, {format_count(reports, 'report')}",
            _table(self, names),
            (f"Candidates shown: {len(names):,} of {len(self.candidates):,}. {number}", *last),
            tuple(replace(each, text=f"{one.periods[0]}: {each.text}") for one in decodings for each in one.warnings),
        )

    def plot(self, ax: Axes | Figure | None = None, *, top: int | None = None) -> Axes:
        """Draw the shares by period with their confidence intervals.

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
        return draw_lines(
            ax,
            self.periods,
            lines,
            title=f"{self.metric.name}: shares by {self.metric.period}",
            unit=str(self.metric.period),
            confidence=self.decodings[0].confidence,
        )


def _table(trends: Trends, names: Sequence[str]) -> Table:
    """Table of some candidates: the latest shares, as many as fit, and the change between the last two periods."""
    decodings, last = trends.decodings[-MAX_POINTS:], trends.comparisons[-1] if trends.comparisons else None
    level = format_level(trends.decodings[0].confidence)
    columns = [
        Column.names(trends.metric.kind.value_noun),
        Column("", "sparkline", width=len(decodings)),
        *(Column.shares(each.periods[0], width=10, spare=0) for each in decodings[:-1]),
        Column.shares(decodings[-1].periods[0], width=10),
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


def change_lines(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Yield the number of detected changes, and what the intervals of the last comparison assume."""
    changed = sum(len(comparison.detected) for comparison in comparisons)
    yield f"Detected changes in {format_count(len(comparisons), 'pair')} of successive periods: {changed:,}."
    if comparisons:
        yield f"Last change: {overlap_line(comparisons[-1])}"


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
    metric = samples[0].metric
    operations = operations_of(metric)
    operations.check_comparable()
    for sample in samples:
        if sample.metric.digest != metric.digest:
            raise SummaryError(
                f"{metric.name}: the periods {samples[0].periods[0]} and {sample.periods[0]} have different definitions "
                f"({metric.digest[:12]}, {sample.metric.digest[:12]}). Decode the periods of each definition separately."
            )
    evidence = [collect_evidence(sample, options) for sample in samples]
    names = operations.rows(candidates)
    stages = 2 * len(evidence) - 1
    decodings = []
    for i, each in enumerate(evidence):
        progress(f"decoding {each.periods[0]}", i / stages)
        decodings.append(decode_evidence(each, names, options))
    known = None if options.same_clients else Overlap.known(0.0)
    comparisons = []
    for i, (before, after) in enumerate(pairwise(range(len(samples)))):
        progress(f"comparing {samples[before].periods[0]} and {samples[after].periods[0]}", (len(samples) + i) / stages)
        pair = (evidence[before], evidence[after]), (decodings[before], decodings[after])
        comparisons.append(compare_decodings(*pair, names, known))
    return Trends(metric, tuple(decodings), tuple(comparisons))


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
