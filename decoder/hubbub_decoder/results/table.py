"""Terminal and notebook table of a decoding, with the summary lines above and below it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from hubbub.privacy import privacy_figures
from hubbub.privacy.policy import Policy
from hubbub.text import escape_untrusted, format_count
from hubbub_decoder.inference.intervals import reports_to_detect
from hubbub_decoder.results.estimates import Estimate, ShareEstimate
from hubbub_decoder.results.ordinal import mean_lines, quantile_lines

if TYPE_CHECKING:
    from hubbub_decoder.results.decoding import Decoding

_BAR_WIDTH = 24
_EXAMPLE_LIMIT = 0.01
_NUM_SMALLER_LIMITS = 4
_UNDETERMINED = "not determined"
_OTHER_WIDTH = 53  # columns for a name of 12, a share, an interval, a q value and the gaps between them
_NARROW = 50  # below this console width an interval takes two lines
_Q_WIDTH = 9  # columns for a q value and its gap
_SECOND_WIDTH = 20  # columns for a second interval and its gap
_MIN_BAR_WIDTH = 18  # of the bar beside a second interval


@dataclass(frozen=True)
class DecodingTable:
    """Table of a decoding as a rich renderable: headline, candidates, totals, detection limit and warnings.

    everything : show all candidates of a string metric; otherwise the detected ones. Categories are always shown
    top        : largest number of rows, the largest shares; None: all
    """

    decoding: Decoding
    everything: bool = False
    top: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(headline(self.decoding), style="bold")
        tested = self.decoding.metric.kind.needs_candidates
        rows = self.decoding.detected if tested and not self.everything else in_order(self.decoding)
        every, rows = rows, largest_rows(rows, self.top)
        if rows or self.decoding.unlisted_strings:
            yield self._table(rows, options.max_width)
        yield from hidden_rows(len(every) - len(rows))
        yield from (Text(line) for line in match_lines(self.decoding))
        yield from (Text(line) for line in summary_lines(self.decoding))
        for warning in self.decoding.warnings:
            yield Text(f"Warning: {warning}", style="yellow")

    def _table(self, rows: tuple[Estimate, ...], width: int) -> Table:
        decoding = self.decoding
        tested = decoding.metric.kind.needs_candidates
        wide = width >= _OTHER_WIDTH + _SECOND_WIDTH + _MIN_BAR_WIDTH
        second = wide if tested else width >= _OTHER_WIDTH + _SECOND_WIDTH - _Q_WIDTH and len(rows) > 1
        taken = _OTHER_WIDTH + _SECOND_WIDTH * second - _Q_WIDTH * (not tested)
        bar_width = min(_BAR_WIDTH, max(0, width - taken))
        between = " .. " if width >= _NARROW else " ..\n"
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column(decoding.metric.kind.value_noun, overflow="fold", min_width=9)
        table.add_column("share", justify="right", no_wrap=True)
        table.add_column(f"{100 * decoding.confidence:.4g}%{between[-1]}interval", justify="right", no_wrap=True)
        if second:
            table.add_column("selection-adjusted" if tested else "simultaneous", justify="right", no_wrap=True)
        if tested:
            table.add_column(f"q{between[-1]}value", justify="right", no_wrap=True)
        if bar_width:
            table.add_column("", width=bar_width, no_wrap=True)
        unlisted = decoding.unlisted_strings
        scale = max((e.high for e in (*rows, *unlisted) if math.isfinite(e.high)), default=1.0)
        for e in rows:
            name = escape(" = ".join(map(escape_untrusted, (e.candidate, *e.indistinguishable_from))))
            if math.isnan(e.share):
                table.add_row(name, "-", "not estimated", *([""] if second else []), "-", style="dim")
                continue
            other = (
                (e.selection_adjusted_low, e.selection_adjusted_high)
                if tested
                else (e.simultaneous_low, e.simultaneous_high)
            )
            table.add_row(
                name,
                f"{e.share:z.2%}",
                _format_interval(e.low, e.high, between),
                *([_format_interval(*other, between)] if second else []),
                *([format_q_value(e.q_value)] if tested else []),
                *([interval_bar(e, scale, bar_width)] if bar_width else []),
                style="dim" if tested and not e.detected else "",
            )
        for string in unlisted:
            table.add_row(
                string.label,
                f"{string.share:z.2%}",
                _format_interval(string.low, string.high, between),
                *(["-"] if second else []),
                "-",
                *([interval_bar(string, scale, bar_width)] if bar_width else []),
            )
        return table


def hidden_rows(number: int) -> Iterator[Text]:
    """Yield a line with the number of rows that --top hides, if there are any."""
    if number:
        yield Text(f"{format_count(number, 'more row')} not shown.", style="dim")


def largest_rows(rows: tuple[Estimate, ...], top: int | None) -> tuple[Estimate, ...]:
    """Return the rows with the `top` largest shares, in their order; None: all."""
    largest = sorted(rows, key=lambda e: (math.isnan(e.share), -e.share))[:top]
    kept = {e.candidate for e in largest}
    return tuple(e for e in rows if e.candidate in kept)


def in_order(decoding: Decoding) -> tuple[Estimate, ...]:
    """Return the estimates in descending order of share, those of buckets in the order of their edges."""
    if decoding.numbers is None:
        return decoding.estimates
    position = {bucket.label: i for i, bucket in enumerate(decoding.numbers.buckets)}
    return tuple(sorted(decoding.estimates, key=lambda e: position[e.candidate]))


def format_q_value(q: float) -> str:
    """Q-value as text.

    >>> format_q_value(0.04), format_q_value(2e-7), format_q_value(0.0)
    ('0.040', '2e-07', '<1e-99')
    """
    return "<1e-99" if q < 1e-99 else f"{q:.0e}" if q < 0.001 else f"{q:.3f}"


def _format_interval(low: float, high: float, between: str) -> str:
    return "" if math.isnan(low) else f"{low:z.2%}{between}{high:z.2%}"


def interval_bar(estimate: ShareEstimate, scale: float, width: int = _BAR_WIDTH) -> str:
    """Return a bar of `width` characters from 0 to `scale`: solid up to `low`, shaded up to `high`, `|` at the estimate.

    >>> interval_bar(ShareEstimate(share=0.5, std_error=0.1, low=0.3, high=0.7), scale=1, width=10)
    '███░░|░   '
    """
    low, middle, high = (
        min(max(round(edge / scale * width), 0), width) if scale > 0 else 0
        for edge in (estimate.low, estimate.share, estimate.high)
    )
    cells = ["█"] * low + ["░"] * (high - low) + [" "] * (width - high)
    if estimate.share > 0 and cells:
        cells[min(middle, width - 1)] = "|"
    return "".join(cells)


def headline(decoding: Decoding) -> str:
    """Return metric name, number of reports, and the epsilons of a client under the default policy.

    >>> from hubbub.metrics.metric import Metric
    >>> from hubbub_decoder import Decoding
    >>> survey = Metric.boolean("from_jfk", prob_p=0, prob_q=1, prob_f=0.5)
    >>> nothing = ShareEstimate(0, 0, 0, 0)
    >>> headline(Decoding(survey, 1000, 0.95, 0.05, (), nothing, nothing, nothing, 0.1)).partition("; enrollment and")[0]
    'from_jfk: 1,000 reports; epsilon 1.099 per report, 1.099 per value, 2.198 per enrollment (2 values), lifetime epsilon 39.551 (36 values)'
    """
    figures = privacy_figures(decoding.metric, Policy())
    return f"{decoding.metric.name}: {format_count(decoding.num_reports, 'report')}; {figures.sentence()}"


def match_lines(decoding: Decoding) -> Iterator[str]:
    """Yield the words that match each unlisted string, if words were compared."""
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
    kind = decoding.metric.kind
    buckets = decoding.metric.buckets
    if kind.num_bits > 1:  # one bit has one share, which is in the table
        listed = kind.value_nouns
        unlisted = "unlisted strings" if kind.needs_candidates else f"other {listed}"
        if decoding.num_kept is not None:
            listed = format_count(decoding.num_kept, "kept candidate")
            unlisted = "other candidates and unlisted strings"
        totals = [(listed, decoding.listed_total)]
        if kind.needs_candidates or decoding.unlisted.std_error != 0:
            totals.append((unlisted, decoding.unlisted))
        totals.append(("no value", decoding.no_value))
        if all(math.isnan(total.share) for _, total in totals):
            yield "Total shares are not determined."
        else:
            yield "Total shares: " + ", ".join(f"{name} {_format_share(total)}" for name, total in totals) + "."
    if decoding.numbers is not None and buckets is not None:
        yield from mean_lines(decoding.numbers, buckets, decoding.confidence)
        if quantiles:
            yield from quantile_lines(decoding.numbers, buckets, decoding.confidence)
    if not kind.needs_candidates:
        return
    detected, tested = len(decoding.detected), len(decoding.estimates)
    yield f"Detected: {detected:,} of {tested:,} (false discovery rate {decoding.fdr:.0%}); {tested - detected:,} not detected."
    if decoding.target == "population":
        yield "Intervals are for the population, of which the reporters are taken for a random sample."
    if decoding.same_clients is not None:
        yield _period_assumption(decoding)
    limit = decoding.detection_limit
    if 1 <= limit < math.inf:
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
    if not 0 < limit < math.inf:
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
        return _UNDETERMINED
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
