"""Plots of changes and of trends (matplotlib)."""

from __future__ import annotations

from datetime import date

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hubbub_decoder.comparison.results import Comparison
from hubbub_decoder.comparison.trends import Trends
from hubbub_decoder.results.plot_style import (
    ESTIMATE,
    FAINT,
    INK,
    MARKERS,
    SERIES,
    axes_or_new,
    detached_axes,
    figure_of,
    finish_axes,
    label_columns,
    label_rows,
    percent_axis,
    row_height,
)

_TOP = 40
_MAX_TICKS = 12


def plot_changes(comparison: Comparison, *, top: int = _TOP, ax: Axes | None = None) -> Axes:
    """Draw the changes with their confidence intervals, detected ones first, then the largest, and return the axes.

    Detected changes have filled circles, the others open ones.

    top : largest number of candidates
    ax  : axes to draw on; None: those of a new pyplot figure

    Raises ValueError for top < 1.
    """
    if top < 1:
        raise ValueError(f"top must be at least 1, got {top}. It is the largest number of candidates in the plot.")
    rows = [row for row in comparison.changes if row.change == row.change][:top]
    axes = axes_or_new(ax, row_height(len(rows)))
    for detected, colour, face, label in (
        (True, ESTIMATE, ESTIMATE, "changed"),
        (False, FAINT, "white", "no change detected"),
    ):
        group = [(i, row) for i, row in enumerate(rows) if row.detected is detected]
        if group:
            axes.errorbar(
                [row.change for _, row in group], [i for i, _ in group],
                xerr=[[row.change - row.low for _, row in group], [row.high - row.change for _, row in group]],
                fmt="o", markersize=4.5, linewidth=1.6, color=colour, markerfacecolor=face, label=label,
            )  # fmt: skip
    axes.axvline(0, color=INK, linewidth=0.8)
    label_rows(axes, [" = ".join((row.candidate, *row.indistinguishable_from)) or '""' for row in rows])
    axes.set_xlabel(f"change of the share from a to b, {100 * comparison.confidence:.4g} % confidence interval")
    percent_axis(axes.xaxis)
    shown = f", {len(rows)} of {len(comparison.changes):,} candidates" if len(rows) < len(comparison.changes) else ""
    reports = f"{comparison.a.num_reports:,} and {comparison.b.num_reports:,} reports"
    finish_axes(axes, f"{comparison.metric.name}: changes", f"{reports}{shown}", grid="x")
    return axes


def plot_trends(trends: Trends, *, top: int = len(SERIES), ax: Axes | None = None) -> Axes:
    """Draw the shares by period with their confidence intervals, of the candidates with the largest mean shares; return the axes.

    Of a string metric, candidates that are detected in some period. A missing period is a gap.

    top : largest number of candidates, at most 8
    ax  : axes to draw on; None: those of a new pyplot figure

    Raises ValueError for another number of candidates.
    """
    if not 1 <= top <= len(SERIES):
        raise ValueError(f"top must be 1 to {len(SERIES)}, got {top}: more lines cannot be told apart.")
    axes = axes_or_new(ax, 4.5)
    days = np.array([date.fromisoformat(period).toordinal() for period in trends.periods], np.float64)
    names = [name for name in trends.candidates if any(decoding[name].detected for decoding in trends.decodings)]
    names = names or list(trends.candidates)  # categories are not tested
    usual = np.min(np.diff(days)) if len(days) > 1 else 1.0
    gaps = np.flatnonzero(np.diff(days) > 1.5 * max(usual, 1)) + 1  # months have 28 to 31 days
    places = np.insert(days, gaps, np.nan)
    for name, colour, marker in zip(names[:top], SERIES, MARKERS, strict=False):
        estimates = [decoding[name] for decoding in trends.decodings]
        shares, low, high = (
            np.insert(np.array([getattr(e, field) for e in estimates]), gaps, np.nan)
            for field in ("share", "low", "high")
        )
        axes.plot(places, shares, marker=marker, color=colour, linewidth=1.4, markersize=5, label=name or '""')
        axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
        if len(days) == 1:
            axes.errorbar(days, shares, yerr=[shares - low, high - shares], color=colour, linewidth=1.4)
    step = -(-len(days) // _MAX_TICKS)
    label_columns(axes, days[::step].tolist(), trends.periods[::step], rotated=len(days) > 6)
    axes.set_xlabel(f"first day of the {trends.metric.period}")
    confidence = f"{100 * trends.decodings[0].confidence:.4g} % confidence interval"
    axes.set_ylabel(f"share of reports, {confidence}")
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    percent_axis(axes.yaxis)
    finish_axes(axes, f"{trends.metric.name}: shares by {trends.metric.period}", grid="y")
    return axes


def changes_figure(comparison: Comparison, *, top: int = _TOP) -> Figure:
    """Return the figure of `plot_changes` for a file."""
    return figure_of(plot_changes(comparison, top=top, ax=detached_axes(row_height(min(top, len(comparison))))))


def trends_figure(trends: Trends, *, top: int = len(SERIES)) -> Figure:
    """Return the figure of `plot_trends` for a file."""
    return figure_of(plot_trends(trends, top=min(top, len(SERIES)), ax=detached_axes(4.5)))
