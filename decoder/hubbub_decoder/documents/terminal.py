"""Documents on a terminal, with rich: tables that fit its width, bars and sparklines of characters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from hubbub_decoder.documents.document import Bar, Cell, Column, Document, Shade, Sparkline, Table
from hubbub_decoder.documents.finding import Severity

_NARROW = 50  # below this console width an interval takes two lines
_GAP = 2
_NAME_WIDTH = 9  # to which a column of names may shrink
_BLOCKS = "▁▂▃▄▅▆▇█"
_STYLES = {"": "", "dim": "dim", "missed": "yellow"}
_STYLES_BY_SEVERITY = {Severity.NOTE: "dim", Severity.WARNING: "yellow", Severity.PROBLEM: "bold red"}


@dataclass(frozen=True, slots=True)
class TerminalDocument:
    """Document as a rich renderable."""

    document: Document

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        document = self.document
        if document.headline:
            yield Text(document.headline, style="bold")
        if document.table.rows:
            yield _rich_table(document.table, options.max_width)
        if document.table.hidden:
            yield Text(document.table.hidden_line, style="dim")
        yield from map(Text, document.lines)
        for finding in document.findings:
            yield Text(finding.line, style=_STYLES_BY_SEVERITY[finding.severity])


def print_document(document: Document) -> None:
    """Print a document on stdout."""
    Console(highlight=False).print(TerminalDocument(document))


def _rich_table(table: Table, width: int) -> RichTable:
    """Table of the columns that fit."""
    drawn = RichTable(title=Text(table.title, "table.title") if table.title else None, title_justify="left")
    shown, bar_width = [*range(len(table.columns))], 0
    if not table.has_grid:
        drawn.box, drawn.pad_edge, drawn.header_style = None, False, "dim"
        shown, bar_width = _fitting_columns(table.columns, width)
    narrow, plain = width < _NARROW, not table.has_grid
    for column in (table.columns[i] for i in shown):
        match column.kind:
            case "text":
                drawn.add_column(Text(column.heading), overflow="fold", min_width=_NAME_WIDTH if plain else None)
            case "number":
                heading = column.heading.replace(" ", "\n") if narrow and plain else column.heading
                drawn.add_column(Text(heading), justify="right", overflow="fold", no_wrap=plain)
            case "sparkline":
                drawn.add_column(Text(column.heading), width=column.width, no_wrap=True)
            case "bar":
                drawn.add_column(Text(column.heading), width=bar_width, no_wrap=True)
    for row in table.rows:
        cells = [_drawn_cell(table.columns[i], row.cells[i], bar_width, narrow=narrow) for i in shown]
        drawn.add_row(*cells, style=_STYLES[row.look], end_section=row.is_total)
    return drawn


def _fitting_columns(columns: Sequence[Column], width: int) -> tuple[list[int], int]:
    """Positions of the columns that fit, and the width of the bars.

    Optional columns are added from the right as long as they leave the room that they spare for the bars.
    """
    left = width - sum(column.width + _GAP for column in columns if column.spare is None and column.kind != "bar")
    shown = []
    for i, column in reversed(list(enumerate(columns))):
        if column.spare is not None:
            if left - column.width - _GAP < column.spare:
                continue
            left -= column.width + _GAP
        shown.append(i)
    bar_width = 0
    for column in columns:
        if column.kind == "bar":
            most = min(left, column.width)
            bar_width = max(0, most - (column.width % 2 > most % 2))  # an odd number has a middle
    return [i for i in reversed(shown) if bar_width or columns[i].kind != "bar"], bar_width


def _drawn_cell(column: Column, cell: Cell, bar_width: int, *, narrow: bool) -> Text:
    match cell:
        case tuple():
            ends = column.ends(cell)
            return Text("" if ends is None else (" ..\n" if narrow else " .. ").join(ends))
        case Bar():
            return Text(change_bar(cell, bar_width) if cell.start < 0 else interval_bar(cell, bar_width))
        case Sparkline():
            return Text(sparkline(cell))
        case Shade():
            style = Style(bgcolor=cell.color, color="#ffffff" if cell.is_dark else "#000000")
            return Text(column.text(cell), style=style)
        case _:
            return Text(column.text(cell))


def interval_bar(bar: Bar, width: int) -> str:
    """Return a bar of `width` characters: solid up to `low`, shaded up to `high`, `|` at the estimate.

    >>> interval_bar(Bar(low=0.3, value=0.5, high=0.7, end=1), width=10)
    '███░░|░   '
    >>> interval_bar(Bar(low=-math.inf, value=0.5, high=math.inf, end=1), width=10)
    '░░░░░|░░░░'
    """
    low, middle, high = (
        round(min(max(edge, 0), bar.end) / bar.end * width) if bar.end > 0 else 0
        for edge in (bar.low, bar.value, bar.high)
    )
    cells = ["█"] * low + ["░"] * (high - low) + [" "] * (width - high)
    if bar.value > 0 and cells:
        cells[min(middle, width - 1)] = "|"
    return "".join(cells)


def change_bar(bar: Bar, width: int) -> str:
    """Return a bar of `width` characters, an odd number, around 0: `·` at 0, shaded from `low` to `high`, `|` at the change.

    >>> change_bar(Bar(low=0.05, value=0.1, high=0.15, end=0.15, start=-0.15), width=13)
    '      · ░░|░░'
    """
    middle = width // 2

    def cell(x: float) -> int:
        return middle + min(max(round(x / bar.end * middle), -middle), middle) if bar.end > 0 else middle

    cells = [" "] * width
    cells[middle] = "·"
    low, high = cell(bar.low), cell(bar.high)
    cells[low : high + 1] = "░" * (high + 1 - low)
    cells[cell(bar.value)] = "|"
    return "".join(cells)


def sparkline(line: Sparkline) -> str:
    """Return a block of an eighth to a whole for each share, by its place on the axis; a space where it is not known.

    >>> sparkline(Sparkline((0.0, 0.1, 0.2, float("nan"), 0.4), axis=(0.0, 0.4)))
    '▁▃▅ █'
    >>> sparkline(Sparkline((0.54, 0.56), axis=(0.52, 0.58)))
    '▃▆'
    """
    last = len(_BLOCKS) - 1

    def block(height: float) -> str:
        return _BLOCKS[min(max(round(height * last), 0), last)] if math.isfinite(height) else " "

    return "".join(map(block, line.heights))
