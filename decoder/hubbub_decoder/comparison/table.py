"""Terminal table of a comparison: changes with bars around 0, the overlap, totals and warnings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from hubbub.text import escape_untrusted, format_count
from hubbub_decoder.results.table import format_q_value, hidden_rows

if TYPE_CHECKING:
    from hubbub_decoder.comparison.results import Change, Comparison

_BAR_WIDTH = 25
_OTHER_WIDTH = 70  # columns for a name of 12, two shares, a change, an interval and a q value


@dataclass(frozen=True)
class ComparisonTable:
    """Table of a comparison as a rich renderable.

    everything : show all candidates of a string metric; otherwise those with a detected change. Categories are always shown
    top        : largest number of rows; None: all
    """

    comparison: Comparison
    everything: bool = False
    top: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        comparison = self.comparison
        yield Text(headline(comparison), style="bold")
        every = self.everything or not comparison.metric.kind.needs_candidates
        shown = comparison.changes if every else comparison.detected
        rows = shown[: self.top]
        if rows:
            yield self._table(rows, options.max_width)
        yield from hidden_rows(len(shown) - len(rows))
        yield from (Text(line) for line in summary_lines(comparison))
        for warning in comparison.warnings:
            yield Text(f"Warning: {warning}", style="yellow")

    def _table(self, rows: tuple[Change, ...], width: int) -> Table:
        bar_width = min(_BAR_WIDTH, max(0, width - _OTHER_WIDTH))
        bar_width -= 1 - bar_width % 2  # an odd number has a middle
        table = Table(box=None, pad_edge=False, header_style="dim")
        kind = self.comparison.metric.kind.value_noun
        table.add_column(kind, overflow="fold", min_width=9)
        interval = f"{100 * self.comparison.confidence:.4g}% interval"
        for name in ("a", "b", "change", interval, "q value"):
            table.add_column(name, justify="right", no_wrap=True)
        if bar_width > 0:
            table.add_column("", width=bar_width, no_wrap=True)
        scale = max((max(abs(row.low), abs(row.high)) for row in rows if math.isfinite(row.high)), default=1.0)
        for row in rows:
            name = escape(" = ".join(map(escape_untrusted, (row.candidate, *row.indistinguishable_from))))
            if math.isnan(row.change):
                table.add_row(name, "-", "-", "-", "not determined", "-", style="dim")
                continue
            table.add_row(
                name,
                f"{row.share_a:z.2%}",
                f"{row.share_b:z.2%}",
                f"{row.change:+z.2%}",
                f"{row.low:+z.2%} .. {row.high:+z.2%}",
                format_q_value(row.q_value),
                *([change_bar(row, scale, bar_width)] if bar_width > 0 else []),
                style="" if row.detected else "dim",
            )
        return table


def change_bar(row: Change, scale: float, width: int) -> str:
    """Bar of `width` characters, an odd number, from -scale to scale: `·` at 0, shaded from `low` to `high`, `|` at the change.

    >>> from hubbub_decoder.comparison.results import Change
    >>> change_bar(Change("a", .1, .2, .1, .025, .05, .15, 0, 0, detected=True), scale=.15, width=13)
    '      · ░░|░░'
    """
    middle = width // 2

    def cell(x: float) -> int:
        return middle + min(max(round(x / scale * middle), -middle), middle) if scale > 0 else middle

    cells = [" "] * width
    cells[middle] = "·"
    low, high = cell(row.low), cell(row.high)
    cells[low : high + 1] = "░" * (high + 1 - low)
    cells[cell(row.change)] = "|"
    return "".join(cells)


def headline(comparison: Comparison) -> str:
    """Return the metric's name and the periods and numbers of reports of both samples."""
    a, b = (
        f"{name}: {_periods(decoding.periods)}{format_count(decoding.num_reports, 'report')}"
        for name, decoding in (("a", comparison.a), ("b", comparison.b))
    )
    return f"{comparison.metric.name}; {a}; {b}"


def _periods(periods: tuple[str, ...]) -> str:
    if not periods:
        return ""
    return f"{periods[0]}, " if len(periods) == 1 else f"{periods[0]} .. {periods[-1]}, "


def summary_lines(comparison: Comparison) -> Iterator[str]:
    """Yield the lines below the table: changes of totals, number of detected changes, and the overlap."""
    labels = {"listed_total": "candidates", "unlisted": "unlisted strings", "no_value": "no value"}
    totals = [
        f"{labels[row.candidate]} {row.change:+z.1%} ({row.low:+z.1%} .. {row.high:+z.1%})"
        for row in comparison.totals
        if math.isfinite(row.change + row.std_error)
    ]
    if totals:
        yield f"Changes of total shares: {', '.join(totals)}."
    detected, tested = len(comparison.detected), len(comparison)
    yield f"Changed: {detected:,} of {tested:,} (false discovery rate {comparison.fdr:.0%})."
    yield overlap_line(comparison)


def overlap_line(comparison: Comparison) -> str:
    """Return the share of clients with the same value in both samples, and its use."""
    overlap = comparison.overlap
    if overlap.std_error == 0:
        if overlap.estimate == 0:
            return "Intervals take a and b for different clients."
        return f"Intervals assume that {overlap.estimate:.0%} of the clients have the same value in a and b."
    if overlap.low == 0 and overlap.high == 1:
        return (
            "The reports do not show how many clients have the same value in a and b. "
            "Intervals assume none (overlap 0), which is never too narrow."
        )
    return (
        f"Clients with the same value in a and b: {overlap.estimate:.0%} (standard error {overlap.std_error:.1%}). "
        f"Intervals assume {overlap.low:.0%}."
    )
