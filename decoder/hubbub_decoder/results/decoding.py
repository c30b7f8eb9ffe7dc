"""`Decoding`: estimates, totals, tests and warnings of one metric, and the document that shows them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import TYPE_CHECKING, Any

from hubbub.errors import SummaryError
from hubbub.metrics.metric import Metric
from hubbub.number_checks import check_number
from hubbub.privacy import privacy_figures
from hubbub.privacy.policy import Policy
from hubbub.text import escape_untrusted, format_count
from hubbub.wire.json_values import from_json_value, json_value
from hubbub_decoder.array_types import Floats
from hubbub_decoder.data.candidates import distinct_candidates
from hubbub_decoder.documents.document import (
    INTERVAL_WIDTH,
    Bar,
    Cell,
    Column,
    Document,
    Row,
    Table,
    check_top,
    format_level,
    group_name,
)
from hubbub_decoder.documents.finding import Finding
from hubbub_decoder.errors import OutputError
from hubbub_decoder.inference.goodness_of_fit import FitTest
from hubbub_decoder.inference.intervals import detection_level, reports_to_detect
from hubbub_decoder.options import Target
from hubbub_decoder.result import Result
from hubbub_decoder.results.diagnosis import Diagnosis, Residuals
from hubbub_decoder.results.estimates import Estimate, ShareEstimate, read_detected, share_text
from hubbub_decoder.results.loadable import Loadable
from hubbub_decoder.results.ordinal import Numbers, mean_lines, quantile_lines
from hubbub_decoder.results.suggestions import Suggestion, suggestion_lines
from hubbub_decoder.results.table_result import TableResult, columns_of
from hubbub_decoder.results.unlisted_strings import UnlistedString, matching_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SPARE_FOR_BARS = 18
_EXAMPLE_LIMIT = 0.01
_NUM_SMALLER_LIMITS = 4
_NUM_SUMMARIZED = 5
ESTIMATE_COLUMNS = columns_of(
    Estimate,
    "candidate",
    "share",
    "std_error",
    "low",
    "high",
    "selection_adjusted_low",
    "selection_adjusted_high",
    "p_value",
    "q_value",
    "posterior_median",
    "credible_low",
    "credible_high",
    "posterior_mean",
    "simultaneous_low",
    "simultaneous_high",
    "detected",
    "forged_reports_needed",
    "indistinguishable_from",
)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Decoding(TableResult[Estimate], Loadable, Result):
    """Result of `decode`: estimates of one metric, totals, tests and warnings.

    It is a sequence of its estimates in descending order of share (`TableResult`). `decoding[0]` has the largest
    share. `decoding["a"]` is the estimate of candidate "a", or of the group that it is indistinguishable from.

    Attributes
    ----------
    metric
        Definition of the metric.
    num_reports
        Number of reports, N.
    confidence
        Confidence level of all intervals, in (0, 1).
    fdr
        False discovery rate of `detected`, in (0, 1).
    estimates
        Estimate of each candidate, in descending order of share.
    listed_total
        Total share of the candidates. After screening, of the kept candidates only. Of sets, the mean number of items
        of a client.
    unlisted
        Share of the reports with a string (or category) that is not a candidate. Candidates that were screened out
        count as unlisted.
    no_value
        Share of the reports in which nothing was recorded. For a boolean metric, the share of false; for sets, unknown.
    detection_limit
        Smallest share that is detected with probability 0.9, even if no other candidate is present. It is nan for
        categories, and infinite if too few cohorts tell a candidate from a random string (`collision_probability`).
    warnings
        Findings to read before using the estimates.
    periods
        First days of the reporting periods, as the summary lists them.
    fit_tests
        Goodness-of-fit tests. Each with p < 1e-6 adds a warning.
    num_kept
        Number of candidates that a lasso kept. None: all candidates were estimated.
    lowest_detection_limit
        Detection limit below which no number of reports leads, because of unlisted strings.
    collision_probability
        Probability that a random string has the bits of a given candidate in all cohorts, C(k, h)**-m.
    same_clients
        Whether reports of different periods were taken for those of the same clients with the same values. None: there
        is one period.
    target
        Population of the shares: "reporters" or "population".
    unlisted_strings
        Frequent strings that are not candidates, found by their bits. Their shares belong to `unlisted`.
    num_more_candidates
        Number of words that `match_unlisted` compared with them.
    suggestions
        Other spellings of candidates that were probably reported, tried where unlisted strings are frequent or nothing
        is detected.
    numbers
        Mean, quantiles and distribution function of an ordinal metric, or the mean alone (estimate = "mean"). None:
        the metric is of another kind.
    residuals
        Summary of the residuals of the bit counts of a string metric. None: the metric is of another kind.
    fabricated
        Share of the reports that may be forged without invalidating intervals and tests.
    """

    metric: Metric
    num_reports: int
    confidence: float
    fdr: float
    estimates: tuple[Estimate, ...]
    listed_total: ShareEstimate
    unlisted: ShareEstimate
    no_value: ShareEstimate
    detection_limit: float
    warnings: tuple[Finding, ...] = ()
    periods: tuple[str, ...] = ()
    fit_tests: tuple[FitTest, ...] = ()
    num_kept: int | None = None
    lowest_detection_limit: float = 0.0
    collision_probability: float = 0.0
    same_clients: bool | None = None
    target: Target = "reporters"
    unlisted_strings: tuple[UnlistedString, ...] = ()
    num_more_candidates: int = 0
    suggestions: tuple[Suggestion, ...] = ()
    numbers: Numbers | None = None
    residuals: Residuals | None = None
    fabricated: float = 0.0
    _intervals: Callable[[float], tuple[Floats, Floats]] | None = field(default=None, compare=False)

    @property
    def detected(self) -> tuple[Estimate, ...]:
        """Estimates of the detected candidates, in descending order of share."""
        return tuple(estimate for estimate in self.estimates if estimate.detected)

    @property
    def _columns(self) -> Mapping[str, str]:
        return ESTIMATE_COLUMNS

    @property
    def _rows(self) -> tuple[Estimate, ...]:
        return self.estimates

    def _names(self, row: Estimate) -> tuple[str, ...]:
        return row.group

    @property
    def is_tested(self) -> bool:
        """Whether candidates were tested for their presence; categories are not."""
        return not math.isnan(self.detection_limit)

    @property
    def is_ambiguous(self) -> bool:
        """Whether a detected candidate may as well be another string with the same bits: a random string has them too often."""
        return self.collision_probability > detection_level(len(self.estimates), self.fdr, self.confidence)

    def in_display_order(self, estimates: Iterable[Estimate]) -> tuple[Estimate, ...]:
        """Return estimates in the order of tables and plots.

        Parameters
        ----------
        estimates
            Estimates of this decoding.

        Returns
        -------
        tuple[Estimate, ...]
            Estimates of buckets by their edges, the others as they are.
        """
        labels = () if self.numbers is None else (bucket.label for bucket in self.numbers.buckets)
        position = {label: i for i, label in enumerate(labels)}
        return tuple(sorted(estimates, key=lambda estimate: position.get(estimate.candidate, 0)))

    def __repr__(self) -> str:
        candidates = format_count(len(self), "candidate")
        shown = f"{len(self.detected):,} of {candidates} detected" if self.is_tested else candidates
        return f"<Decoding of {self.metric.title}: {format_count(self.num_reports, 'report')}, {shown}>"

    def match_unlisted(self, words: Iterable[str]) -> Decoding:
        """Return the decoding with the words that match each unlisted string.

        Parameters
        ----------
        words
            Strings that may be among the unlisted ones.

        Returns
        -------
        Decoding
            Decoding with `UnlistedString.matches`. A false match has probability at most 1/1,000.

        Raises
        ------
        CandidateError
            `words` is not a non-empty collection of strings.
        """
        distinct, _ = distinct_candidates(words)
        strings = tuple(
            replace(string, matches=matching_words(string, distinct, self.metric.params))
            for string in self.unlisted_strings
        )
        return replace(self, unlisted_strings=strings, num_more_candidates=len(distinct))

    def summary(self) -> str:
        """Return the result in a few lines of text.

        Returns
        -------
        str
            Headline, the five largest shares with their intervals, the totals, and the verdict of `diagnose`.
        """
        shown = [e for e in self.estimates if not math.isnan(e.share)][:_NUM_SUMMARIZED]
        rows = (f"  {group_name(e.group)}: {share_text(e.share, e.low, e.high)}" for e in self.in_display_order(shown))
        return "\n".join([headline(self), *rows, *summary_lines(self, quantiles=False), self.diagnose().verdict])

    def diagnose(self) -> Diagnosis:
        """Return whether the estimates can be used.

        Returns
        -------
        Diagnosis
            Goodness-of-fit tests, findings, residuals, and a verdict.

        Examples
        --------
        >>> from hubbub.summary import BitCounts
        >>> from hubbub_decoder import decode
        >>> from hubbub import UnaryResponse
        >>> survey = Metric.boolean("from_jfk", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
        >>> decode(BitCounts(survey, [1000], [[400]])).diagnose().verdict
        "The reports fit the metric's parameters, and there is no finding. The estimates and intervals can be used."
        """
        return Diagnosis(self.fit_tests, self.warnings, self.residuals)

    def intervals(self, level: float) -> tuple[tuple[float, float], ...]:
        """Return the confidence intervals of the estimates at another level.

        Parameters
        ----------
        level
            Confidence level, in (0, 1).

        Returns
        -------
        tuple[tuple[float, float], ...]
            (low, high) of each estimate, in the order of `estimates`, not clipped. Empty: the metric estimates a mean.

        Raises
        ------
        ParameterError
            `level` is outside (0, 1).
        SummaryError
            The decoding was loaded from a file, which holds the intervals at `confidence` alone.

        Examples
        --------
        >>> from hubbub.summary import BitCounts
        >>> from hubbub_decoder import decode
        >>> from hubbub import UnaryResponse
        >>> survey = Metric.boolean("from_jfk", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
        >>> [[round(end, 2) for end in interval] for interval in decode(BitCounts(survey, [1000], [[400]])).intervals(0.5)]
        [[0.28, 0.32]]
        """
        check_number("level", level, "(0, 1)", hint="pass 0.99, for example")
        if not self.estimates:
            return ()
        if self._intervals is None:
            raise SummaryError(
                f"{self.metric.name}: a file of a decoding holds its intervals at {self.confidence:g} alone. Decode the summary again."
            )
        low, high = self._intervals(level)
        return tuple(zip(low.tolist(), high.tolist(), strict=True))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Decoding:
        numbers, metric = values.get("numbers"), Metric.from_dict(values["metric"])
        return cls._from_values(
            values,
            {
                "metric": metric,
                "numbers": None if numbers is None else Numbers.from_dict(numbers, metric),
                "estimates": tuple(from_json_value(Estimate, read_detected(row)) for row in values["estimates"]),
            },
        )

    def to_dict(self) -> dict[str, Any]:
        return self._about() | {"estimates": json_value(self.estimates)}

    def _about(self) -> dict[str, Any]:
        return {
            "metric": self.metric.to_dict(),
            "periods": list(self.periods),
            "same_clients": self.same_clients,
            "num_reports": self.num_reports,
            "target": self.target,
            "confidence": self.confidence,
            "fdr": self.fdr,
            "fabricated": self.fabricated,
            "listed_total": json_value(self.listed_total),
            "unlisted": json_value(self.unlisted),
            "no_value": json_value(self.no_value),
            "num_kept": self.num_kept,
            "detection_limit": json_value(self.detection_limit),
            "lowest_detection_limit": json_value(self.lowest_detection_limit),
            "collision_probability": self.collision_probability,
            "unlisted_strings": json_value(self.unlisted_strings),
            "num_more_candidates": self.num_more_candidates,
            "suggestions": json_value(self.suggestions),
            **({} if self.numbers is None else {"numbers": self.numbers.to_dict()}),
            "warnings": json_value(self.warnings),
            "fit_tests": json_value(self.fit_tests),
            "residuals": json_value(self.residuals),
        }

    def document(self, *, everything: bool = False, top: int | None = None) -> Document:
        every = self.detected if self.is_tested and not everything else self.estimates
        check_top(top)
        rows = self.in_display_order(every[:top])
        lines = (*unlisted_lines(self), *summary_lines(self))
        return Document(headline(self), _table(self, rows, len(every) - len(rows)), lines, self.warnings)

    def plot(
        self,
        ax: Axes | Figure | None = None,
        *,
        top: int | None = None,
        truth: Mapping[str, float] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> Axes:
        """Draw the largest estimates with their confidence intervals.

        Detected candidates have filled circles, the others open ones. Categories, which are not tested, also have thin
        simultaneous intervals. Buckets are in the order of their edges.

        Parameters
        ----------
        ax
            Axes to draw on, or an empty figure, which gets the size that the plot needs. None: a new pyplot figure,
            which a notebook displays.
        top
            Largest number of candidates, the largest shares. None: 40.
        truth
            True shares by candidate, drawn as ticks. None: they are unknown.
        names
            Long names of candidates for the labels.

        Returns
        -------
        Axes
            The axes with the plot.

        Raises
        ------
        ParameterError
            `top` is below 1.
        SummaryError
            No share is known, because the metric estimates a mean or the reports determine none.
        """
        from hubbub_decoder.results.plots import MAX_INTERVALS, Interval, checked_top, draw_intervals

        if not self.estimates:
            raise SummaryError(
                f'{self.metric.name} estimates a mean (estimate = "mean"), so there is no share to draw: print decoding.numbers.'
            )
        known = [estimate for estimate in self.estimates if not math.isnan(estimate.share)]
        rows = self.in_display_order(known[: checked_top(top, MAX_INTERVALS)])
        intervals = [
            Interval(
                "  ".join([*([names[e.candidate]] if names and e.candidate in names else []), " = ".join(e.group)]),
                (e.low, e.share, e.high),
                is_marked=e.detected is not False,
                outer=(e.simultaneous_low, e.simultaneous_high),
                truth=None if truth is None else e.true_share(truth),
            )
            for e in rows
        ]
        shown = f", the {len(rows)} largest of {len(self):,} estimates" if len(rows) < len(self) else ""
        return draw_intervals(
            ax,
            intervals,
            title=self.metric.title,
            about=f"{format_count(self.num_reports, 'report')}{shown}",
            label=f"share of {'population' if self.target == 'population' else 'reports'}",
            confidence=self.confidence,
            marks=("detected", "not detected") if self.is_tested else ("estimate with interval", ""),
            limit=self.detection_limit,
        )

    def _check_format(self, suffix: str) -> None:
        if not self.estimates and suffix != ".json":
            raise OutputError(
                f'A {suffix} file would have no rows: {self.metric.name} estimates a mean (estimate = "mean"). Use .json.'
            )


def _table(decoding: Decoding, estimates: Sequence[Estimate], hidden: int) -> Table:
    """Table of some estimates, and of the frequent unlisted strings."""
    tested, unlisted = decoding.is_tested, decoding.unlisted_strings
    end = max((e.high for e in (*estimates, *unlisted) if math.isfinite(e.high)), default=1.0)
    rows = [_candidate_row(estimate, end) for estimate in estimates]
    rows += [_unlisted_row(string, end) for string in unlisted]
    columns = [
        (True, Column.names(decoding.metric.kind.value_noun)),
        (True, Column.shares("share")),
        (True, Column.shares(f"{format_level(decoding.confidence)} interval", width=INTERVAL_WIDTH)),
        (tested, Column.shares("selection-adjusted", width=INTERVAL_WIDTH, spare=_SPARE_FOR_BARS)),
        (tested, Column.q_values()),
        (
            tested and any(e.forged_reports_needed is not None for e in estimates),
            Column.counts("forged", spare=_SPARE_FOR_BARS),
        ),
        (not tested and len(estimates) > 1, Column.shares("simultaneous", width=INTERVAL_WIDTH, spare=0)),
        (True, Column.bars()),
    ]
    shown = [is_shown for is_shown, _ in columns]
    return Table(
        tuple(compress((column for _, column in columns), shown)),
        tuple(replace(row, cells=tuple(compress(row.cells, shown))) for row in rows),
        hidden=hidden,
    )


def _candidate_row(estimate: Estimate, end: float) -> Row:
    """Row of an estimate with a cell for every column that a table of estimates may have; bars up to `end`."""
    e, is_known = estimate, not math.isnan(estimate.low)
    cells: tuple[Cell, ...] = (
        group_name(e.group),
        e.share,
        (e.low, e.high) if is_known else "not estimated" if math.isnan(e.share) else "not known",
        (e.selection_adjusted_low, e.selection_adjusted_high),
        e.q_value,
        forged_text(e),
        (e.simultaneous_low, e.simultaneous_high),
        Bar(e.low, e.share, e.high, end) if is_known else "",
    )
    return Row(cells, "" if is_known and e.detected is not False else "dim")


def _unlisted_row(string: UnlistedString, end: float) -> Row:
    """Row of an unlisted string, which is not tested."""
    s = string
    return Row((s.label, s.share, (s.low, s.high), "-", "-", "-", "-", Bar(s.low, s.share, s.high, end)))


def forged_text(estimate: Estimate) -> str:
    """Number of forged reports that the detection of a candidate would need, for a table."""
    needed = estimate.forged_reports_needed
    return "-" if needed is None else f"{needed:,}"


def headline(decoding: Decoding, num_all_reports: int | None = None) -> str:
    """Return metric name, number of reports, and the epsilons of a client under the default policy.

    num_all_reports : of a metric with `discover`, the reports of all groups, if they are known

    >>> from hubbub.metrics.metric import Metric
    >>> from hubbub_decoder import Decoding
    >>> from hubbub import UnaryResponse
    >>> survey = Metric.boolean("from_jfk", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
    >>> nothing = ShareEstimate(0, 0, 0, 0)
    >>> headline(Decoding(survey, 1000, 0.95, 0.05, (), nothing, nothing, nothing, 0.1)).partition("; enrollment and")[0]
    'from_jfk: 1,000 reports; no epsilon whatever is recorded; epsilon 1.099 per report, 1.099 per value, 2.198 per enrollment (2 values), lifetime epsilon 39.551 (36 values)'
    """
    reports = format_count(decoding.num_reports, "report")
    if decoding.metric.kind.has_held_out_group and num_all_reports is not None:
        reports = (
            f"{format_count(num_all_reports, 'report')}, of which {decoding.num_reports:,} (held out) give these shares"
        )
    elif decoding.metric.kind.has_held_out_group:
        reports = f"{reports} of the held-out group"
    return f"{decoding.metric.title}: {reports}; {privacy_figures(decoding.metric, Policy()).sentence()}"


def unlisted_lines(decoding: Decoding) -> Iterator[str]:
    """Yield the suggested spellings, and the words that match each unlisted string if words were compared."""
    yield from suggestion_lines(decoding.suggestions)
    words = format_count(decoding.num_more_candidates, "word")
    if not decoding.num_more_candidates:
        return
    if not decoding.unlisted_strings:
        yield f"There is no frequent unlisted string to compare with {words}."
    for string in decoding.unlisted_strings:
        subject = "An unlisted string" if string.num_strings == 1 else "Two unlisted strings together"
        found = " and ".join(escape_untrusted(repr(word)) for word in string.matches)
        yield f"{subject} ({string.share:z.2%}): {f'{found} of {words}' if found else f'none of {words} matches'}."


def summary_lines(decoding: Decoding, *, quantiles: bool = True) -> Iterator[str]:
    """Yield the lines below the table: totals, mean and `quantiles`, number of detected candidates, detection limit."""
    tested, kind = decoding.is_tested, decoding.metric.kind
    if not kind.has_exclusive_values:
        mean = decoding.listed_total
        known = f"{mean.share:z.3f} ({mean.low:z.3f} .. {mean.high:z.3f})"
        unknown = f"unknown, because no client was asked about some of the {kind.value_nouns}"
        if not decoding.fabricated:
            yield f"{kind.value_nouns.capitalize()} of a client, on average: {unknown if math.isnan(mean.share) else known}."
    elif decoding.metric.params.num_bits > 1:  # one bit has one share, which is in the table
        listed = decoding.metric.kind.value_nouns
        unlisted = "unlisted strings" if tested else f"other {listed}"
        if decoding.num_kept is not None:
            listed = format_count(decoding.num_kept, "kept candidate")
            unlisted = "other candidates and unlisted strings"
        totals = [(listed, decoding.listed_total)]
        if tested or decoding.unlisted.std_error != 0:
            totals.append((unlisted, decoding.unlisted))
        totals.append(("no value", decoding.no_value))
        if decoding.fabricated:
            yield "Total shares and posterior shares are left out, because the bound on forged reports is one for single shares."
        elif all(math.isnan(total.share) for _, total in totals):
            yield "Total shares are not determined."
        else:
            yield "Total shares: " + ", ".join(f"{name} {_format_share(total)}" for name, total in totals) + "."
    if decoding.fabricated:
        yield f"Intervals and tests hold for the other reports if up to {100 * decoding.fabricated:.3g}% of the {decoding.num_reports:,} are forged."
    if decoding.numbers is not None:
        yield from mean_lines(decoding.numbers, decoding.confidence)
        if quantiles:
            yield from quantile_lines(decoding.numbers, decoding.confidence)
    if not tested:
        return
    detected, number = len(decoding.detected), len(decoding)
    untested = sum(estimate.detected is None for estimate in decoding)
    yield (
        f"Detected: {detected:,} of {number:,} (false discovery rate {decoding.fdr:.0%}); "
        f"{number - detected - untested:,} not detected{f', {untested:,} not tested' if untested else ''}."
    )
    yield from forged_lines(decoding)
    if decoding.target == "population":
        yield "Intervals are for the population, of which the reporters are taken for a random sample."
    if decoding.same_clients is not None:
        yield _period_assumption(decoding)
    yield from detection_limit_lines(decoding)


def forged_lines(decoding: Decoding) -> Iterator[str]:
    """Yield how many forged reports the detections would need; nothing if no detection has a bound."""
    needed = [e.forged_reports_needed for e in decoding.detected if e.forged_reports_needed is not None]
    if needed:
        least, most = f"{min(needed):,}", f"{max(needed):,}"
        yield (
            f"Forged reports that a detection would need: {least if least == most else f'{least} to {most}'} "
            f"of the {decoding.num_reports:,}."
        )


def detection_limit_lines(decoding: Decoding) -> Iterator[str]:
    """Yield the detection limit, and the reports that a smaller one needs; nothing if it is not determined."""
    limit = decoding.detection_limit
    if decoding.is_ambiguous:
        yield (
            f"Detection limit: none, because a random string has the bits of a given candidate in all cohorts with "
            f"probability {decoding.collision_probability:.2g}. A detected candidate is not to be told from a string that is not listed and "
            "has the same bits. Use a metric with more cohorts (num_cohorts), or pass fewer candidates."
        )
    elif decoding.fabricated:
        yield f"Detection limit: {limit:.2%}, most of it by what forged reports could add."
    elif 1 <= limit < math.inf:
        yield (
            f"Detection limit: above 100%, so no candidate can be detected. {_lower_limit(decoding, _EXAMPLE_LIMIT)}"
        )
    elif 0 < limit < 1:
        yield (
            f"Detection limit: {limit:.2%} (a candidate with this share is detected with probability 0.9). "
            f"{_lower_limit(decoding, _round_below(limit / 2))}"
        )


def _period_assumption(decoding: Decoding) -> str:
    """Return which reports of several periods the intervals take for independent."""
    periods = format_count(len(decoding.periods), "period")
    if decoding.same_clients:
        return (
            f"Intervals assume that the same clients report in all {periods}, with the same values. "
            "If each period has other clients, pass --independent-clients (same_clients=False) for narrower intervals."
        )
    return f"Intervals assume that each of {periods} has other clients. They are too narrow if clients report in several periods."


def needed_reports(decoding: Decoding) -> Iterator[tuple[str, str]]:
    """Yield smaller detection limits of a string metric with the number of reports that each needs, as text."""
    limit, lowest = decoding.detection_limit, decoding.lowest_detection_limit
    if not 0 < limit < math.inf or decoding.fabricated or decoding.metric.kind.has_held_out_group:
        return
    share = _EXAMPLE_LIMIT if limit >= 1 else _round_below(limit / 2)
    for _ in range(_NUM_SMALLER_LIMITS):
        needed = reports_to_detect(share, limit, decoding.num_reports, lowest)
        if needed is None:
            yield _format_percent(share), f"not possible: unlisted strings keep the limit above {lowest:.2%}"
            return
        yield _format_percent(share), f"{'at least ' if lowest else ''}{_round_up(needed)}"
        share = _round_below(share / 2)


def _lower_limit(decoding: Decoding, share: float) -> str:
    """Return how many reports a detection limit of `share` needs, or that unlisted strings prevent it."""
    if decoding.metric.kind.has_held_out_group:
        return (
            "The search for strings without a list has a limit of its own: "
            "`hubbub plan METRICS.toml NAME --reports N` prints it for any number of reports."
        )
    lowest = decoding.lowest_detection_limit
    needed = reports_to_detect(share, decoding.detection_limit, decoding.num_reports, lowest)
    if needed is None:
        return (
            f"More reports do not lower this limit below {lowest:.2%}: unlisted strings cause it. "
            "Add frequent strings to the candidates, or use a metric with more cohorts."
        )
    at_least = "at least " if lowest else ""
    return f"A limit of {_format_percent(share)} needs {at_least}{_round_up(needed)} reports."


def _format_share(total: ShareEstimate) -> str:
    if math.isnan(total.share):
        return "not determined"
    return f"{total.share:z.1%} ({total.low:z.1%} .. {total.high:z.1%})"


def _round_below(share: float) -> float:
    """Return the largest of 1, 2 and 5 times a power of ten that is at most `share`."""
    power = 10.0 ** math.floor(math.log10(share))
    return max(step * power for step in (1, 2, 5) if step * power <= share * (1 + 1e-9))


def _format_percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _round_up(number: int) -> str:
    """Round up to two significant digits."""
    unit = 10 ** max(len(str(number)) - 2, 0)
    return f"{-(-number // unit) * unit:,}"
