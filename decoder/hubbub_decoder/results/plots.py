"""Plots of a decoding: confidence intervals, estimates against true shares, distributions of numbers (matplotlib)."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hubbub.metrics.buckets import Buckets
from hubbub.metrics.kinds import OrdinalKind
from hubbub.text import format_count
from hubbub_decoder.results.estimates import Estimate
from hubbub_decoder.results.ordinal import Numbers
from hubbub_decoder.results.plot_style import (
    ESTIMATE,
    FAINT,
    INK,
    TRUTH,
    axes_or_new,
    detached_axes,
    figure_of,
    finish_axes,
    label_columns,
    label_rows,
    percent_axis,
    row_height,
)

if TYPE_CHECKING:
    from hubbub_decoder.results.decoding import Decoding

_TOP = 40


def plot_intervals(
    decoding: Decoding,
    truth: Mapping[str, float] | None = None,
    *,
    top: int = _TOP,
    names: Mapping[str, str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the largest estimates with their confidence intervals, and return the axes.

    Detected candidates have filled circles, the others open ones. Categories, which are not tested, also have thin simultaneous intervals.
    Buckets are in the order of their edges.

    truth : true shares by candidate, drawn as ticks; None if unknown
    top   : largest number of candidates, in descending order of the estimate
    names : long names of candidates for the labels
    ax    : axes to draw on; None: those of a new pyplot figure

    Raises ValueError for top < 1, and for the decoding of a mean, which has no shares.
    """
    rows = _largest(decoding, top)
    axes = axes_or_new(ax, row_height(len(rows)))
    _draw_rows(axes, rows, truth, tested=decoding.metric.kind.needs_candidates)
    limit = decoding.detection_limit
    if rows and 0 < limit <= max(e.high for e in rows):
        axes.axvline(limit, color=INK, linewidth=0.8, linestyle=":", label=f"detection limit {100 * limit:.2f} %")
    label_rows(axes, [_label(estimate, names or {}) for estimate in rows])
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_xlabel(_share_label(decoding))
    percent_axis(axes.xaxis)
    shown = f", the {len(rows)} largest of {len(decoding):,} estimates" if len(rows) < len(decoding) else ""
    finish_axes(axes, decoding.metric.name, f"{_reports(decoding)}{shown}", grid="x")
    return axes


def plot_against_truth(
    decoding: Decoding, truth: Mapping[str, float], *, log: bool = True, ax: Axes | None = None
) -> Axes:
    """Draw the estimate and confidence interval of every candidate over its true share, and return the axes.

    truth : true shares by candidate; 0 if missing
    log   : whether the axes are logarithmic. They are linear near 0, so that absent candidates and negative estimates are shown
    ax    : axes to draw on; None: those of a new pyplot figure
    """
    axes = axes_or_new(ax, 5.0)
    rows = [estimate for estimate in decoding.estimates if estimate.share == estimate.share]
    true = [
        sum(truth.get(name, 0.0) for name in (estimate.candidate, *estimate.indistinguishable_from))
        for estimate in rows
    ]
    for present, colour, marker, label in (
        (False, FAINT, "x", "absent candidates"),
        (True, ESTIMATE, "o", "reported candidates"),
    ):
        group = [(x, e) for x, e in zip(true, rows, strict=True) if (x > 0) is present]
        if group:
            axes.errorbar(
                [x for x, _ in group], [e.share for _, e in group], yerr=_errors([e for _, e in group]),
                fmt=marker, markersize=3.5, linewidth=0.7, color=colour, label=f"{label} ({len(group)})",
            )  # fmt: skip
    top = max([*true, *(e.share for e in rows), 0.0])
    bottom = min([0.0, *(e.share for e in rows)])
    if log and any(true):
        near_zero = _power_below(min(share for share in true if share > 0))
        axes.set_xscale("symlog", linthresh=near_zero)
        axes.set_yscale("symlog", linthresh=near_zero)
        axes.set_xlim(-near_zero / 2, top * 1.5)
        axes.set_ylim(min(bottom * 1.5, -near_zero / 2), top * 2)
        axes.minorticks_off()
    grid = np.concatenate([[0.0], np.geomspace(max(top, 1e-12) / 1e6, max(top, 1e-12), 200)])
    axes.plot(grid, grid, color=TRUTH, linewidth=1, label="estimate = true share")
    axes.set_xlabel("true share")
    axes.set_ylabel(f"estimated {_share_label(decoding)}")
    percent_axis(axes.xaxis)
    percent_axis(axes.yaxis)
    finish_axes(axes, decoding.metric.name, _reports(decoding))
    return axes


def plot_numbers(decoding: Decoding) -> Figure:
    """Return a pyplot figure of an ordinal metric: shares of the buckets, and the distribution function, with their intervals.

    Raises ValueError for the decoding of another kind.
    """
    from matplotlib import pyplot

    _numbers_of(decoding)
    return _draw_numbers(decoding, pyplot.figure(figsize=(8, 6), layout="constrained"))


def decoding_figure(decoding: Decoding, *, top: int = _TOP) -> Figure:
    """Return the figure of a decoding for a file: `plot_numbers` of an ordinal metric, `plot_intervals` of the others."""
    if decoding.numbers is not None:
        return _draw_numbers(decoding, Figure(figsize=(8, 6), layout="constrained"))
    axes = detached_axes(row_height(len(_largest(decoding, top))))
    return figure_of(plot_intervals(decoding, top=top, ax=axes))


def to_svg(figure: Figure) -> str:
    """Return the figure as an `<svg>` element for an HTML page."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    document = text.getvalue()
    return document[document.index("<svg") :]


def _draw_numbers(decoding: Decoding, figure: Figure) -> Figure:
    numbers, buckets = _numbers_of(decoding)
    histogram, distribution = figure.subplots(2, 1)
    rows = [decoding[bucket.label] for bucket in numbers.buckets if bucket.label in decoding]
    positions = range(len(rows))
    histogram.errorbar(
        positions, [e.share for e in rows], yerr=_errors(rows),
        fmt="o", markersize=4, linewidth=1.6, color=ESTIMATE, label="estimate with interval",
    )  # fmt: skip
    smoothed = {bucket.label: bucket.smoothed for bucket in numbers.buckets}
    histogram.bar(positions, [smoothed[e.candidate] for e in rows], color=FAINT, alpha=0.4, label="smoothed")
    label_columns(histogram, positions, [e.candidate for e in rows], rotated=True)
    histogram.set_ylabel("share of reports")
    points = numbers.distribution
    places = [point.edge for point in points]
    shares = np.array([[point.share, point.low, point.high] for point in points])
    distribution.errorbar(
        places, shares[:, 0], yerr=np.maximum([shares[:, 0] - shares[:, 1], shares[:, 2] - shares[:, 0]], 0),
        fmt="o", markersize=4, linewidth=1.6, color=ESTIMATE,
    )  # fmt: skip
    total = sum(smoothed.values())
    cumulative = np.concatenate([[0.0], np.cumsum(list(smoothed.values()))]) / (total or np.nan)
    distribution.plot(buckets.edges, cumulative, color=FAINT, linewidth=1)
    distribution.set_xlabel(" ".join(filter(None, (decoding.metric.name, buckets.unit and f"({buckets.unit})"))))
    distribution.xaxis.label.set_parse_math(False)
    distribution.set_ylabel(f"share below, {100 * decoding.confidence:.4g} % interval")
    for axes, title in ((histogram, (decoding.metric.name, _reports(decoding))), (distribution, ("",))):
        percent_axis(axes.yaxis)
        finish_axes(axes, *title, grid="y")
    return figure


def _numbers_of(decoding: Decoding) -> tuple[Numbers, Buckets]:
    numbers, kind = decoding.numbers, decoding.metric.kind
    if numbers is None or not isinstance(kind, OrdinalKind):
        raise ValueError(
            f"{decoding.metric.name} is no ordinal metric, or estimates a mean alone, and has no distribution function. Use plot_intervals."
        )
    return numbers, kind.buckets


def _largest(decoding: Decoding, top: int) -> list[Estimate]:
    """Return the largest estimates; those of buckets in the order of their edges."""
    if top < 1:
        raise ValueError(f"top must be at least 1, got {top}. It is the largest number of candidates in the plot.")
    if not decoding.metric.kind.has_shares:
        raise ValueError(
            f'{decoding.metric.name} estimates a mean (estimate = "mean"), which has no plot. Print decoding.numbers.'
        )
    rows = [estimate for estimate in decoding.estimates if estimate.share == estimate.share][:top]
    if decoding.numbers is None:
        return rows
    position = {bucket.label: i for i, bucket in enumerate(decoding.numbers.buckets)}
    return sorted(rows, key=lambda estimate: position[estimate.candidate])


def _draw_rows(axes: Axes, rows: Sequence[Estimate], truth: Mapping[str, float] | None, *, tested: bool) -> None:
    positions = range(len(rows))
    joint = [(position, e) for position, e in zip(positions, rows, strict=True) if e.simultaneous_low < e.low]
    if joint:
        lows, highs = [e.simultaneous_low for _, e in joint], [e.simultaneous_high for _, e in joint]
        axes.hlines([i for i, _ in joint], lows, highs, linewidth=0.6, color=ESTIMATE, label="simultaneous interval")
    series = (
        ((True, ESTIMATE, ESTIMATE, "detected"), (False, FAINT, "white", "not detected"))
        if tested
        else ((False, ESTIMATE, ESTIMATE, "estimate with interval"),)
    )
    for detected, colour, face, label in series:
        group = [(i, e) for i, e in zip(positions, rows, strict=True) if e.detected is detected]
        if group:
            axes.errorbar(
                [e.share for _, e in group], [i for i, _ in group], xerr=_errors([e for _, e in group]),
                fmt="o", markersize=4.5, linewidth=1.6, color=colour, markerfacecolor=face, label=label, zorder=2,
            )  # fmt: skip
    if truth is not None:
        true = [sum(truth.get(name, 0.0) for name in (e.candidate, *e.indistinguishable_from)) for e in rows]
        axes.plot(true, positions, "|", markersize=11, markeredgewidth=2, color=TRUTH, label="true share", zorder=3)


def _errors(rows: Sequence[Estimate]) -> list[list[float]]:
    """Return the distances from the estimates down to `low` and up to `high`, as `errorbar` takes them."""
    return [[max(e.share - e.low, 0.0) for e in rows], [max(e.high - e.share, 0.0) for e in rows]]


def _label(estimate: Estimate, names: Mapping[str, str]) -> str:
    label = " = ".join((estimate.candidate, *estimate.indistinguishable_from))
    return f"{names[estimate.candidate]}  {label}" if estimate.candidate in names else label or '""'


def _reports(decoding: Decoding) -> str:
    return format_count(decoding.num_reports, "report")


def _share_label(decoding: Decoding) -> str:
    of = "population" if decoding.target == "population" else "reports"
    return f"share of {of}, {_confidence(decoding)}"


def _confidence(decoding: Decoding) -> str:
    return f"{100 * decoding.confidence:.4g} % confidence interval"


def _power_below(share: float) -> float:
    return float(10.0 ** math.floor(math.log10(share)))
