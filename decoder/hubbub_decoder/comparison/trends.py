"""Shares by period, or by the values of a group: a decoding of each, and the changes from each to the next and, of periods, from the first to the last.

All changes of a candidate are one family of tests, and the false discovery rate is that of the families (`family_q_values`).
docs/explanation/mathematics.md, equations (19.6) and (19.7).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from hubbub.errors import ParameterError, SummaryError
from hubbub.metrics.group import PERIOD
from hubbub.metrics.metric import Metric
from hubbub.text import escape_untrusted, format_count
from hubbub_decoder.blas_threads import one_blas_thread
from hubbub_decoder.comparison.compare import collect, compare_decodings, detect_changes
from hubbub_decoder.comparison.results import Change, Comparison, Overlap, overlap_line
from hubbub_decoder.documents.document import (
    MAX_POINTS,
    Cell,
    Column,
    Document,
    Row,
    Sparkline,
    Table,
    check_top,
    format_level,
    format_q_value,
    group_name,
    trend_axis,
)
from hubbub_decoder.inference.multiple_testing import family_q_values
from hubbub_decoder.kinds.operations import operations_of
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.evidence import Collected, Evidence, combine
from hubbub_decoder.model.repetition import Repetition
from hubbub_decoder.options import OptionFields, Options, Progress, ignore_progress, read_options
from hubbub_decoder.pipeline import collect_evidence, decode_evidence
from hubbub_decoder.result import Result
from hubbub_decoder.results.decoding import Decoding
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
    """Result of `decode_each`: a sequence of decodings (`TableResult`).

    `trends["2026-03-02"]` is the decoding of a period, `trends["1.x"]` that of a value of the group. A data frame has a
    row for each of them and each candidate, by candidate.

    Attributes
    ----------
    metric
        Definition of the metric.
    decodings
        Decoding of each period, in order of time, or of each value of the group, in the order of the definition.
    comparisons
        Comparison of each decoding but the first with the one before it. Its q-values are adjusted for all changes.
    overall
        Comparison of the mean of the last periods with that of the first, as many as show a steady change best, or of
        the two values of the group. None: there is one decoding, or more than two values, which have no order.
    """

    metric: Metric
    decodings: tuple[Decoding, ...]
    comparisons: tuple[Comparison, ...]
    overall: Comparison | None

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
    def changed(self) -> tuple[str, ...]:
        """Candidates with a detected change, over all periods or from one to the next, in the order of `candidates`."""
        detected = {change.candidate for test in self._tests for change in test.detected}
        return tuple(name for name in self.candidates if name in detected)

    @property
    def _tests(self) -> tuple[Comparison, ...]:
        """All comparisons, each once."""
        if self.overall is None or len(self) == 2:
            return self.comparisons
        return (self.overall, *self.comparisons)

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
        """Return whether a candidate is detected in a decoding, or a change of it.

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
        return shown or any(comparison[candidate].detected for comparison in self._tests)

    def to_dict(self) -> dict[str, Any]:
        return self._about() | {
            "decodings": [decoding.to_dict() for decoding in self.decodings],
            "comparisons": [comparison._changes_dict() for comparison in self.comparisons],
            "overall": None if self.overall is None else self.overall.to_dict(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Trends:
        decodings = tuple(map(Decoding.from_dict, values["decodings"]))
        pairs = zip(values["comparisons"], pairwise(decodings), strict=True)
        comparisons = tuple(Comparison._of_decodings(changes, *pair) for changes, pair in pairs)
        overall = None if values["overall"] is None else Comparison.from_dict(values["overall"])
        return cls._from_values(values, {"decodings": decodings, "comparisons": comparisons, "overall": overall})

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
        number, *last = change_lines(self)
        return Document(
            f"{self.metric.title}: {format_count(len(self), self.by)}, {days}, {format_count(reports, 'report')}",
            _table(self, names) if self.by == PERIOD else _table_of_values(self, names),
            (f"Candidates shown: {len(names):,} of {len(self.candidates):,}. {number}", *last),
            tuple(
                replace(warning, text=f"{label}: {warning.text}")
                for label, decoding in zip(self.labels, decodings, strict=True)
                for warning in decoding.warnings
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
    """Table of some candidates: the latest shares, as many as fit, and the change over all periods."""
    decodings, overall, changed = trends.decodings[-MAX_POINTS:], trends.overall, {*trends.changed}
    level, shown = format_level(trends.decodings[0].confidence), trends.labels[-MAX_POINTS:]
    columns = [
        Column.names(trends.metric.kind.value_noun),
        Column("", "sparkline", width=len(decodings)),
        *(Column.shares(label, width=10, spare=0) for label in shown[:-1]),
        Column.shares(shown[-1], width=10),
    ]
    if overall is not None:
        interval = Column.changes(f"{level} interval", width=15)
        columns += [Column.changes("change"), interval, Column.q_values()]
    rows = []
    for name in names:
        estimates = [decoding[name] for decoding in decodings]
        shares = tuple(estimate.share for estimate in estimates)
        axis = trend_axis((estimate.low for estimate in estimates), (estimate.high for estimate in estimates))
        cells: list[Cell] = [group_name(decodings[-1][name].group), Sparkline(shares, axis), *shares]
        if overall is not None:
            change = overall[name]
            cells += [change.change, (change.low, change.high), change.q_value]
        rows.append(Row(tuple(cells), "" if name in changed else "dim"))
    return Table(tuple(columns), tuple(rows))


def _table_of_values(trends: Trends, names: Sequence[str]) -> Table:
    """Table of some candidates in each value of the group: the share, and the change from the value before it in the list."""
    level, changed = format_level(trends.decodings[0].confidence), {*trends.changed}
    columns = (
        Column.names(trends.metric.kind.value_noun, width=11),
        Column.names(trends.by, width=9),
        Column.shares("share"),
        Column.shares(f"{level} interval", width=15),
        Column.changes("change"),
        Column.changes(f"{level} interval", width=15),
        Column("q value", "number", format_q_value, 7, spare=0),
    )
    rows = []
    for name in names:
        for i, (label, decoding) in enumerate(zip(trends.labels, trends.decodings, strict=True)):
            estimate = decoding[name]
            cells: tuple[Cell, ...] = (
                group_name(estimate.group),
                escape_untrusted(label),
                estimate.share,
                (estimate.low, estimate.high),
            )
            if i:
                change = trends.comparisons[i - 1][name]
                cells += (change.change, (change.low, change.high), change.q_value)
            else:
                cells += ("", (math.nan, math.nan), "")
            rows.append(Row(cells, "" if name in changed else "dim"))
    return Table(columns, tuple(rows))


def change_lines(trends: Trends) -> Iterator[str]:
    """Yield the numbers of detected changes, and what the intervals of the change over all periods assume."""
    number, by, overall = len(trends.comparisons), trends.by, trends.overall
    pairs = f"{format_count(number, 'pair')} of {'successive' if by == PERIOD else 'neighbouring'} {by}s"
    in_pairs = sum(len(comparison.detected) for comparison in trends.comparisons)
    if overall is None or number == 1:
        yield f"Detected changes in {pairs}: {in_pairs:,}."
    else:
        yield (
            f"Changed: {len(trends.changed):,} of {len(overall):,} (false discovery rate {overall.fdr:.0%}). "
            f"Detected changes from {label_of(overall.a, by)} to {label_of(overall.b, by)}: {len(overall.detected):,}; in {pairs}: {in_pairs:,}."
        )
    if overall is not None:
        yield f"From {label_of(overall.a, by)} (a) to {label_of(overall.b, by)} (b): {overlap_line(overall)}"


@one_blas_thread()
def decode_each(
    summaries: Iterable[Collected],
    candidates: Iterable[str] | DesignMatrix | None = None,
    *,
    by: str = PERIOD,
    progress: Progress = ignore_progress,
    **options: Unpack[OptionFields],
) -> Trends:
    """Decode each period, or each value of a metric's group, and estimate the changes from each to the next and over all.

    Parameters
    ----------
    summaries
        Counts or reports of one definition, each of one period or of one value of the group. Those of the same period
        or value are added up.
    candidates
        Strings to look for, or a design matrix of them. For a categorical metric, the categories to show (None: all).
    by
        What to divide by: "period", or the name of the metric's group, such as "version".
    progress
        Function that is called at the start of each stage.
    **options
        Keywords `confidence`, `fdr`, `target` and `same_clients`, which `Options` describes.

    Returns
    -------
    Trends
        Decoding of each period in order of time, or of each value with reports in the order of the definition, its
        comparison with the one before, and that of the last periods with the first.

    Raises
    ------
    SummaryError
        A summary has no period or several, or no value of the group, or the definitions differ.
    ParameterError
        An argument is out of range, or the metric has no group of the name `by`.
    CandidateError
        The candidates cannot be tested.

    Notes
    -----
    A client has one value of a group in a period. In several periods it may have moved to another one: the covariance
    that this gives is estimated as that of two periods, and not taken off where the reports do not show it.

    A candidate is found to change if its change over all periods, or one from a period to the next, is large. The false
    discovery rate is that of the candidates, however many periods there are.
    """
    chosen = read_options(options, OptionFields)
    metric, samples = divide(summaries, by)
    operations = operations_of(metric)
    operations.check_comparable()
    evidence = [collect_evidence(sample, chosen) for sample in samples]
    names = operations.rows(candidates)
    has_overall = by == PERIOD and len(evidence) > 2
    stages, labels = 2 * len(evidence) - 1 + has_overall, [label_of(sample, by) for sample in samples]
    decodings = []
    for i, of_one in enumerate(evidence):
        progress(f"decoding {labels[i]}", i / stages)
        decodings.append(decode_evidence(of_one, names, chosen))
    known = None if chosen.same_clients and _span_periods(samples) else Overlap.known(0.0)
    comparisons = []
    for i, (before, after) in enumerate(pairwise(range(len(samples)))):
        progress(f"comparing {labels[before]} and {labels[after]}", (len(samples) + i) / stages)
        pair = (evidence[before], evidence[after]), (decodings[before], decodings[after])
        comparisons.append(compare_decodings(*pair, names, known))
    if len(comparisons) < 2:
        return Trends(metric, tuple(decodings), tuple(comparisons), comparisons[0] if comparisons else None)
    if not has_overall:
        return Trends(metric, tuple(decodings), tuple(_with_common_rate(comparisons, chosen)), None)
    progress(f"comparing {labels[0]} and {labels[-1]}", (stages - 1) / stages)
    ends, of_ends = [evidence[0], evidence[-1]], [decodings[0], decodings[-1]]
    size = _end_size(evidence)
    if size > 1:
        ends = [collect_evidence(combine(part), chosen) for part in (samples[:size], samples[-size:])]
        of_ends = [decode_evidence(end, names, chosen) for end in ends]
    overall = compare_decodings((ends[0], ends[1]), (of_ends[0], of_ends[1]), names, known)
    overall, *comparisons = _with_common_rate(comparisons, chosen, overall)
    return Trends(metric, tuple(decodings), tuple(comparisons), overall)


def _end_size(evidence: Sequence[Evidence]) -> int:
    """Number M of periods at either end that shows a steady change of a rare candidate best. docs/explanation/mathematics.md, equation (19.6).

        (T - M) / (T - 1) of the change, with variance (D + R_M G) / M at either end

    D, G : instantaneous and permanent noise of a report      R_M : `Repetition` of M periods, in either end
    """
    metric, number = evidence[0].metric, len(evidence)
    periods = [period for sample in evidence for period in sample.periods]
    instantaneous, permanent = (float(noise[0]) for noise in evidence[0].params.mechanism.noise_variances(np.zeros(1)))

    def variance(size: int) -> float:
        noise = 2 * instantaneous
        for end in (periods[:size], periods[-size:]):
            repetition = Repetition.from_periods(metric, end if evidence[0].same_clients else ())
            noise += repetition.per_response * permanent
        return noise / (size * (number - size) ** 2)

    return min(range(1, number // 2 + 1), key=variance)


def _with_common_rate(
    pairs: Sequence[Comparison], options: Options, overall: Comparison | None = None
) -> list[Comparison]:
    """Comparisons over all periods, if there is one, and of each pair, with the q-values of all; the first has half of the weight."""
    tests, weights = [*pairs], np.full(len(pairs), 1 / len(pairs))
    if overall is not None:
        tests, weights = [overall, *pairs], np.array([0.5, *weights / 2])
    changes = [{change.candidate: change for change in test} for test in tests]
    names = list(changes[0])
    p = np.array([[of_test[name].p_value for of_test in changes] for name in names])
    q = family_q_values(p, weights)
    return [
        replace(
            test,
            changes=detect_changes([of_test[name] for name in names], column.tolist(), options.fdr, options.confidence),
        )
        for test, of_test, column in zip(tests, changes, q.T, strict=True)
    ]


def divide(summaries: Iterable[Collected], by: str) -> tuple[Metric, list[Collected]]:
    """Definition of what is compared, and the sum of the summaries of each period or value that has reports, in order."""
    definitions: list[Metric] = []
    parts: dict[str, list[Collected]] = {}
    for summary in summaries:
        if by != PERIOD:
            _check_value(Evidence(summary).metric, by)
        elif len(collect("a summary", summary).periods) != 1:
            raise _not_one_period(summary)
        definitions.append(summary.metric.in_group(None))
        if summary.num_reports:
            parts.setdefault(label_of(summary, by), []).append(summary)
    if not parts:
        raise SummaryError(f"There is no summary with reports, so nothing can be decoded. Pass one for each {by}.")
    metric = _only_definition(definitions)
    values = metric.group.values if by != PERIOD and metric.group is not None else sorted(parts)
    samples = [collect(value, parts[value]) for value in values if value in parts]
    return metric if by != PERIOD else _only_definition([sample.metric for sample in samples]), samples


def _only_definition(definitions: Sequence[Metric]) -> Metric:
    """First of several equal definitions; raises SummaryError if they differ."""
    first = definitions[0]
    for other in definitions:
        if other.digest != first.digest:
            raise SummaryError(
                f"{first.name}: the summaries have different definitions ({first.digest[:12]}, {other.digest[:12]}). "
                "Decode the summaries of each definition separately."
            )
    return first


def _check_value(metric: Metric, by: str) -> None:
    """Raise ParameterError if a metric has no group of the name `by`, and SummaryError if its counts are not of one value."""
    if metric.group is None or metric.group.name != by:
        known = "no group" if metric.group is None else f"the group {metric.group.name!r}"
        raise ParameterError(f'by must be "{PERIOD}" or the name of a group, got {by!r}: {metric.name} has {known}')
    if metric.group.value is None:
        raise SummaryError(
            f"{metric.name}: a summary adds up all values of {by}, and its counts cannot be divided. Pass a file for each value: "
            "`hubbub pull --by-group`, or `hubbub simulate --group VALUE`."
        )


def _span_periods(samples: Sequence[Collected]) -> bool:
    return len({period for sample in samples for period in sample.periods}) > 1


def label_of(of: Collected | Decoding, by: str) -> str:
    """First day of the period, or of the first and the last one; or value of the group."""
    group = of.metric.group
    if by == PERIOD or group is None:
        return " .. ".join(dict.fromkeys((of.periods[0], of.periods[-1])))
    return group.value or ""


def _not_one_period(summary: Collected) -> SummaryError:
    """Error of a summary that has no period, or several."""
    periods, name = summary.periods, summary.metric.name
    if not periods:
        return SummaryError(
            f"{name}: a summary has no period, so its place in time is unknown. Pass summaries of `hubbub pull`, or simulate with "
            "`hubbub simulate --period YYYY-MM-DD`."
        )
    names = ", ".join(periods[:3]) + (", ..." if len(periods) > 3 else "")
    return SummaryError(
        f"{name}: a summary has {len(periods):,} periods ({names}), and their counts cannot be divided. "
        "Pass a file for each period: `hubbub pull --period YYYY-MM-DD`, or `hubbub simulate --out-dir DIRECTORY`."
    )
