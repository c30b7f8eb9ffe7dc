"""Drawing of results with matplotlib: rows of intervals, lines over time, and a map of shares. Each takes numbers and labels, no result."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hubbub.errors import SummaryError
from hubbub_decoder.array_types import Floats
from hubbub_decoder.documents.document import check_top, trend_axis
from hubbub_decoder.results.plot_style import (
    ESTIMATE,
    FAINT,
    INK,
    MARKERS,
    SERIES,
    TRUTH,
    axes_or_new,
    figure_of,
    finish_axes,
    label_columns,
    label_rows,
    percent_axis,
    row_height,
)

MAX_INTERVALS, MAX_LINES = 40, len(SERIES)
_MAX_TICKS = 12
_MAX_NUMBERS = 400  # in a map
_LETTERS_OF_AN_INCH, _MIN_LABEL_LETTERS = 8, 16  # of a label along the height of a figure, whose axes are lower


@dataclass(frozen=True, slots=True)
class Interval:
    """Row of a plot of intervals.

    ends      : low end, estimate and high end
    is_marked : whether its circle is filled
    outer     : ends of a second interval, drawn where it is wider; nan without one
    truth     : true number; None if it is unknown
    """

    label: str
    ends: tuple[float, float, float]
    is_marked: bool
    outer: tuple[float, float] = (np.nan, np.nan)
    truth: float | None = None


def checked_top(top: int | None, usual: int) -> int:
    """Return the largest number of rows of a plot, `usual` for None; raises ParameterError for less than 1."""
    check_top(top)
    return usual if top is None else top


def draw_intervals(
    ax: Axes | Figure | None,
    rows: Sequence[Interval],
    *,
    title: str,
    about: str,
    label: str,
    confidence: float,
    marks: tuple[str, str],
    limit: float = np.nan,
) -> Axes:
    """Draw rows of estimates with their intervals, from top to bottom, and return the axes.

    label : of the horizontal axis
    marks : meaning of a filled and of an open circle, for the legend
    limit : detection limit, drawn if it is inside of an interval
    """
    _check_not_empty(rows, title)
    axes = axes_or_new(ax, row_height(len(rows)))
    wider = [(i, row) for i, row in enumerate(rows) if row.outer[0] < row.ends[0]]
    if wider:
        lows, highs = zip(*(row.outer for _, row in wider), strict=True)
        axes.hlines([i for i, _ in wider], lows, highs, linewidth=0.6, color=ESTIMATE, label="simultaneous interval")
    looks = ((True, ESTIMATE, ESTIMATE, marks[0]), (False, FAINT, "white", marks[1]))
    for is_marked, colour, face, meaning in looks:
        group = [(i, row) for i, row in enumerate(rows) if row.is_marked is is_marked]
        if group:
            axes.errorbar(
                [row.ends[1] for _, row in group],
                [i for i, _ in group],
                xerr=error_lengths([row.ends for _, row in group]),
                fmt="o",
                markersize=4.5,
                linewidth=1.6,
                color=colour,
                markerfacecolor=face,
                label=meaning,
                zorder=2,
            )
    true = [(i, row.truth) for i, row in enumerate(rows) if row.truth is not None]
    if true:
        places, shares = zip(*true, strict=True)
        axes.plot(shares, places, "|", markersize=11, markeredgewidth=2, color=TRUTH, label="true share", zorder=3)
    if rows and 0 < limit <= max(row.ends[2] for row in rows):
        axes.axvline(limit, color=INK, linewidth=0.8, linestyle=":", label=f"detection limit {100 * limit:.2f} %")
    label_rows(axes, [row.label or '""' for row in rows])
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_xlabel(f"{label}, {interval_name(confidence)}")
    percent_axis(axes.xaxis)
    finish_axes(axes, title, about, grid="x")
    return axes


def _check_not_empty(rows: Sequence[object], title: str) -> None:
    """Raise SummaryError if no number of a result is known."""
    if not rows:
        raise SummaryError(
            f"{title}: the reports determine no number, so there is nothing to draw: print the result, whose warnings have the reasons"
        )


def error_lengths(ends: Sequence[tuple[float, float, float]]) -> list[list[float]]:
    """Return the distances from the estimates down to the low ends and up to the high ends, as `errorbar` takes them.

    >>> error_lengths([(1.0, 3.0, 4.0)])
    [[2.0], [1.0]]
    """
    return [[max(x - low, 0.0) for low, x, _ in ends], [max(high - x, 0.0) for _, x, high in ends]]


def interval_name(confidence: float) -> str:
    """Name of an interval on an axis.

    >>> interval_name(0.95)
    '95 % confidence interval'
    """
    return f"{100 * confidence:.4g} % confidence interval"


def draw_lines(
    ax: Axes | Figure | None,
    periods: Sequence[str],
    shares: Sequence[tuple[str, Floats]],
    *,
    title: str,
    unit: str,
    is_time: bool,
    confidence: float,
) -> Axes:
    """Draw shares by period with bands for their intervals, and return the axes. A missing period is a gap.

    The vertical axis is that of `trend_axis`.

    periods : first days; or names, whose points are not connected
    shares  : label, and (3, periods) low end, estimate and high end, of at most MAX_LINES lines
    unit    : of the periods, or what the names are
    is_time : whether these are periods
    """
    _check_not_empty([ends for _, ends in shares if not np.isnan(ends).all()], title)
    axes = axes_or_new(ax, 4.5)
    ordinals = (date.fromisoformat(period).toordinal() for period in periods) if is_time else range(len(periods))
    days = np.array(list(ordinals), np.float64)
    usual = np.min(np.diff(days)) if len(days) > 1 else 1.0
    gaps = np.flatnonzero(np.diff(days) > 1.5 * max(usual, 1)) + 1  # months have 28 to 31 days
    places = np.insert(days, gaps, np.nan)
    for number, ((label, ends), colour, marker) in enumerate(zip(shares, SERIES, MARKERS, strict=False)):
        low, share, high = np.insert(ends, gaps, np.nan, axis=1)
        style: dict[str, Any] = {"color": colour, "linewidth": 1.4, "markersize": 5, "label": label or '""'}
        if is_time and len(days) > 1:
            axes.plot(places, share, marker=marker, **style)
            axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
        else:
            beside = days + (0 if is_time else 0.6 * ((number + 0.5) / len(shares) - 0.5))
            axes.errorbar(beside, share, yerr=[share - low, high - share], fmt=marker, **style)
    step = -(-len(days) // _MAX_TICKS)
    label_columns(axes, days[::step].tolist(), periods[::step], rotated=len(days) > 6)
    axes.set_xlabel(f"first day of the {unit}" if is_time and unit != "day" else unit)
    start, _ = trend_axis(*(np.concatenate([ends[end] for _, ends in shares]).tolist() for end in (0, 2)))
    if start <= 0:
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    axes.set_ylabel(f"share of reports, {interval_name(confidence)}" + (", axis not from 0" if start > 0 else ""))
    percent_axis(axes.yaxis)
    finish_axes(axes, title, grid="y")
    return axes


def draw_map(
    ax: Axes | Figure | None,
    shares: Floats,
    labels: tuple[Sequence[str], Sequence[str]],
    names: tuple[str, str],
    meaning: str,
) -> Axes:
    """Draw a map of shares (rows, columns), darker for larger ones, and return the axes.

    labels  : of the rows and of the columns
    names   : of the vertical and the horizontal axis
    meaning : of the shares
    """
    num_rows, num_columns = shares.shape
    axes = axes_or_new(ax, 1.6 + 0.3 * num_rows, 3 + 0.5 * num_columns)
    largest = max(1e-9, float(shares.max()))
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=largest, aspect="auto")
    label_rows(axes, labels[0])
    axes.set_ylim(num_rows - 0.5, -0.5)
    label_columns(axes, range(num_columns), labels[1], rotated=True)
    axes.set_ylabel(names[0], parse_math=False)
    axes.set_xlabel(names[1], parse_math=False)
    for i, j in np.ndindex(shares.shape) if shares.size <= _MAX_NUMBERS else ():
        color = "white" if shares[i, j] > 0.6 * largest else "black"
        axes.text(j, i, f"{shares[i, j]:.0%}", ha="center", va="center", fontsize=7, color=color)
    bar = figure_of(axes).colorbar(image, ax=axes)
    letters = max(_MIN_LABEL_LETTERS, int(figure_of(axes).get_figheight() * _LETTERS_OF_AN_INCH))
    bar.set_label(textwrap.fill(meaning, letters), parse_math=False)  # it is as long as the bar at most
    percent_axis(bar.ax.yaxis)
    return axes


def to_svg(figure: Figure) -> str:
    """Return the figure as an `<svg>` element for an HTML page.

    Parameters
    ----------
    figure
        Figure to convert.

    Returns
    -------
    str
        An element with its own styles.
    """
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    document = text.getvalue()
    return document[document.index("<svg") :]
