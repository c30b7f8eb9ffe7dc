"""Terminal table of shares by period, with a sparkline and the last change of each candidate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from hubbub.text import escape_untrusted, format_count
from hubbub_decoder.comparison.table import overlap_line
from hubbub_decoder.results.table import format_q_value

if TYPE_CHECKING:
    from hubbub_decoder.comparison.results import Comparison
    from hubbub_decoder.comparison.trends import Trends

_BLOCKS = "▁▂▃▄▅▆▇█"
_MAX_POINTS = 24
_OTHER_WIDTH = 52  # columns for a name of 12, the last change, its interval, a q value and gaps
_SHARE_WIDTH = 12


@dataclass(frozen=True)
class TrendTable:
    """Table of shares by period as a rich renderable.

    everything : show all candidates of a string metric; otherwise those detected in a period, or with a detected change
    top        : largest number of rows, the largest mean shares; None: all
    """

    trends: Trends
    everything: bool = False
    top: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        trends = self.trends
        reports = sum(decoding.num_reports for decoding in trends.decodings)
        yield Text(
            f"{trends.metric.name}: {format_count(len(trends), 'period')}, {trends.periods[0]} .. {trends.periods[-1]}, "
            f"{format_count(reports, 'report')}",
            style="bold",
        )
        every = self.everything or not trends.metric.kind.needs_candidates
        rows = [name for name in trends.candidates if every or trends.has_signal(name)][: self.top]
        if rows:
            yield self._table(rows, options.max_width)
        number, *last = change_lines(trends.comparisons)
        yield Text(f"Candidates shown: {len(rows):,} of {len(trends.candidates):,}. {number}")
        yield from map(Text, last)
        for decoding in trends.decodings:
            for warning in decoding.warnings:
                yield Text(f"Warning: {decoding.periods[0]}: {warning}", style="yellow")

    def _table(self, rows: Sequence[str], width: int) -> Table:
        trends = self.trends
        points = min(len(trends), _MAX_POINTS)
        room = max(1, (width - _OTHER_WIDTH - points) // _SHARE_WIDTH)
        shown = trends.decodings[-room:]
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column(trends.metric.kind.value_noun, overflow="fold", min_width=9)
        table.add_column("", width=points, no_wrap=True)
        for decoding in shown:
            table.add_column(decoding.periods[0], justify="right", no_wrap=True)
        if trends.comparisons:
            confidence = trends.decodings[0].confidence
            for name in ("last change", f"{100 * confidence:.4g}% interval", "q value"):
                table.add_column(name, justify="right", no_wrap=True)
        for name in rows:
            shares = [decoding[name].share for decoding in trends.decodings]
            others = trends.decodings[0][name].indistinguishable_from
            cells = [
                " = ".join(escape(escape_untrusted(each)) for each in (name, *others)),
                sparkline(shares[-points:]),
            ]
            cells += [f"{decoding[name].share:z.2%}" for decoding in shown]
            style = "dim"
            if trends.comparisons:
                row = trends.comparisons[-1][name]
                cells += [f"{row.change:+z.2%}", f"{row.low:+z.2%} .. {row.high:+z.2%}", format_q_value(row.q_value)]
                style = "" if row.detected else "dim"
            table.add_row(*cells, style=style)
        return table


def change_lines(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Yield the number of detected changes, and what the intervals of the last comparison assume."""
    changed = sum(len(comparison.detected) for comparison in comparisons)
    yield f"Detected changes in {format_count(len(comparisons), 'pair')} of successive periods: {changed:,}."
    if comparisons:
        yield f"Last change: {overlap_line(comparisons[-1])}"


def sparkline(shares: Sequence[float]) -> str:
    """A block of an eighth to a whole for each share, from 0 to the largest; a space where it is not known.

    >>> sparkline([0.0, 0.1, 0.2, float("nan"), 0.4])
    '▁▃▅ █'
    """
    known = [share for share in shares if math.isfinite(share)]
    top = max(known, default=0.0)
    if top <= 0:
        return "".join("▁" if math.isfinite(share) else " " for share in shares)
    return "".join(
        _BLOCKS[min(max(round(share / top * (len(_BLOCKS) - 1)), 0), len(_BLOCKS) - 1)] if math.isfinite(share) else " "
        for share in shares
    )
