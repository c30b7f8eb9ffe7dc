"""Documents as HTML fragments, which notebooks display: every column, with bars and sparklines as small SVG images."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from markupsafe import Markup, escape

from hubbub_decoder.documents.document import Bar, Cell, Column, Document, Row, Shade, Sparkline, Table
from hubbub_decoder.documents.finding import Severity

_BAR_WIDTH, _POINT_WIDTH, _HEIGHT = 144.0, 6.0, 12.0  # pixels
_LOOKS = {"": "", "dim": "opacity: 0.75", "missed": "font-weight: bold"}
# the text has the notebook's own color, which is readable in its light and its dark theme
_STYLES_BY_SEVERITY = {
    severity: f"border-left: 4px solid {colour}; padding-left: 0.6em"
    for severity, colour in ((Severity.NOTE, "#868e96"), (Severity.WARNING, "#d99b00"), (Severity.PROBLEM, "#d9480f"))
}


def html_fragment(document: Document) -> str:
    """Document as HTML with its styles in it: no script, and nothing that changes the page around it."""
    parts = [Markup("<p><b>{}</b></p>").format(document.headline)] if document.headline else []
    if document.table.rows:
        parts.append(_table(document.table))
    if document.table.hidden:
        parts.append(_paragraph(document.table.hidden_line, "opacity: 0.75"))
    parts += [_paragraph(line) for line in document.lines]
    parts += [_paragraph(finding.line, _STYLES_BY_SEVERITY[finding.severity]) for finding in document.findings]
    return Markup('<div style="max-width: 60em">{}</div>').format(Markup("\n").join(parts))


def _paragraph(text: str, style: str = "") -> Markup:
    return Markup('<p style="margin: 0.2em 0; {}">{}</p>').format(style, _with_code(text))


def _with_code(text: str) -> Markup:
    """Text as HTML, with what stands between backticks as code; `typeset` does so for whole pages."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704  (escaped)


def _table(table: Table) -> Markup:
    caption = Markup('<caption style="text-align: left">{}</caption>').format(table.title) if table.title else Markup()
    heads = (
        Markup('<th style="text-align: {}">{}</th>').format(_side(column), column.heading) for column in table.columns
    )
    rows = (_row(row, table.columns) for row in table.rows)
    return Markup(
        '<div style="overflow-x: auto"><table>{}<thead><tr>{}</tr></thead>\n<tbody>\n{}\n</tbody></table></div>'
    ).format(caption, Markup().join(heads), Markup("\n").join(rows))


def _row(row: Row, columns: Iterable[Column]) -> Markup:
    cells = (_cell(column, cell) for column, cell in zip(columns, row.cells, strict=True))
    return Markup('<tr style="{}">{}</tr>').format(_LOOKS[row.look], Markup().join(cells))


def _cell(column: Column, cell: Cell) -> Markup:
    style, content = f"text-align: {_side(column)}", ""
    match cell:
        case tuple():
            ends = column.ends(cell)
            style, content = f"{style}; white-space: nowrap", "" if ends is None else " .. ".join(ends)
        case Bar():
            content = _bar(cell)
        case Sparkline():
            content = _sparkline(cell)
        case Shade():
            style += f"; background: {cell.color}; color: {'#fff' if cell.is_dark else '#000'}"
            content = column.text(cell)
        case _:
            style += "; white-space: pre-wrap" if column.kind == "text" else ""
            content = column.text(cell)
    return Markup('<td style="{}">{}</td>').format(style, content)


def _side(column: Column) -> str:
    return "right" if column.kind == "number" else "left"


def _bar(bar: Bar) -> Markup:
    """Line at 0, interval as a light box, and the estimate as a dark mark, cut to the scale."""

    def place(number: float) -> float:
        inside = (number - bar.start) / (bar.end - bar.start) if bar.end > bar.start else 0.0
        return _BAR_WIDTH * min(max(inside, 0.0), 1.0)

    low, value, high, zero = map(place, (bar.low, bar.value, bar.high, 0.0))
    return _image(
        _BAR_WIDTH,
        _box(zero, 0, 1, _HEIGHT, "#868e96"),
        _box(low, 3, high - low, _HEIGHT - 6, "#9ec1e6"),
        _box(min(value, _BAR_WIDTH - 2), 1, 2, _HEIGHT - 2, "#2563a8"),
    )


def _sparkline(line: Sparkline) -> Markup:
    """Column for each known share, by its place on the axis."""
    known = [(i, height) for i, height in enumerate(line.heights) if math.isfinite(height)]
    heights = ((i, max(1.0, height * _HEIGHT)) for i, height in known)
    boxes = (_box(i * _POINT_WIDTH, _HEIGHT - height, _POINT_WIDTH - 1, height, "#2563a8") for i, height in heights)
    return _image(_POINT_WIDTH * len(line.shares), *boxes)


def _image(width: float, *shapes: Markup) -> Markup:
    return Markup('<svg width="{:.0f}" height="{:.0f}" aria-hidden="true">{}</svg>').format(
        width, _HEIGHT, Markup().join(shapes)
    )


def _box(x: float, y: float, width: float, height: float, color: str) -> Markup:
    return Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}"/>').format(
        x, y, width, height, color
    )
