"""Plots of a decoding: confidence intervals, estimates against true shares, distributions of numbers (matplotlib)."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.estimates import Estimate

ESTIMATE, TRUTH, FAINT = "#2563a8", "#d9480f", "#9aa5b1"


def plot_intervals(
    decoding: Decoding,
    truth: Mapping[str, float] | None = None,
    *,
    limit: int = 40,
    names: Mapping[str, str] | None = None,
) -> Figure:
    """Figure of the largest estimates with their confidence intervals, and thin simultaneous intervals of categories.

    truth : true shares by candidate, drawn as ticks; None if unknown
    limit : largest number of candidates, in descending order of the estimate
    names : long names of candidates for the labels
    """
    rows = [estimate for estimate in decoding.estimates if estimate.share == estimate.share][:limit]
    figure = Figure(figsize=(8, 1.1 + 0.23 * len(rows)), layout="constrained")
    axes = figure.subplots()
    _draw_rows(axes, rows, truth)
    axes.set_yticks(range(len(rows)), [_label(estimate, names or {}) for estimate in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(left=min(0.0, *(np.fmin(e.low, e.simultaneous_low) for e in rows)) if rows else 0)
    axes.set_xlabel(f"share of reports, {decoding.confidence:.0%} confidence interval")
    figure.legend(loc="outside upper right", ncols=3, frameon=False)
    _format_axes(axes)
    return figure


def plot_against_truth(decoding: Decoding, truth: Mapping[str, float]) -> Figure:
    """Figure of the estimate and confidence interval of every candidate over its true share.

    truth : true shares by candidate; 0 if missing
    """
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    rows = [estimate for estimate in decoding.estimates if estimate.share == estimate.share]
    true = [
        sum(truth.get(name, 0.0) for name in (estimate.candidate, *estimate.indistinguishable_from))
        for estimate in rows
    ]
    for present, colour, label in ((False, FAINT, "absent candidates"), (True, ESTIMATE, "reported candidates")):
        group = [(x, e) for x, e in zip(true, rows, strict=True) if (x > 0) is present]
        axes.errorbar(
            [x for x, _ in group],
            [e.share for _, e in group],
            yerr=[[e.share - e.low for _, e in group], [e.high - e.share for _, e in group]],
            fmt="o", markersize=3, linewidth=0.7, color=colour, label=f"{label} ({len(group)})",
        )  # fmt: skip
    top = max([*true, *(e.share for e in rows), 0.0])
    axes.plot([0, top], [0, top], color=TRUTH, linewidth=1, label="estimate = true share")
    axes.set_xlabel("true share")
    axes.set_ylabel(f"estimated share, {decoding.confidence:.0%} confidence interval")
    axes.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    figure.legend(loc="outside upper right", ncols=3, frameon=False)
    _format_axes(axes)
    return figure


def plot_numbers(decoding: Decoding) -> Figure:
    """Figure of an ordinal metric: shares of the buckets with their intervals, and the distribution function with its intervals.

    Raises ValueError for the decoding of another kind.
    """
    numbers, buckets = decoding.numbers, decoding.metric.buckets
    if numbers is None or buckets is None or buckets.is_mean:
        raise ValueError(
            f"{decoding.metric.name} is no ordinal metric, or estimates a mean alone, and has no distribution function. Use plot_intervals."
        )
    figure = Figure(figsize=(8, 6), layout="constrained")
    histogram, distribution = figure.subplots(2, 1)
    rows = [decoding[bucket.label] for bucket in numbers.buckets if bucket.label in decoding]
    positions = range(len(rows))
    histogram.errorbar(
        positions, [e.share for e in rows], yerr=[[e.share - e.low for e in rows], [e.high - e.share for e in rows]],
        fmt="o", markersize=4, linewidth=1.6, color=ESTIMATE, label="estimate with interval",
    )  # fmt: skip
    smoothed = {bucket.label: bucket.smoothed for bucket in numbers.buckets}
    histogram.bar(positions, [smoothed[e.candidate] for e in rows], color=FAINT, alpha=0.5, label="smoothed")
    histogram.set_xticks(positions, [e.candidate for e in rows], rotation=30, ha="right", fontsize=8)
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
    distribution.set_ylabel(f"share below, {decoding.confidence:.0%} interval")
    figure.legend(loc="outside upper right", ncols=2, frameon=False)
    for axes in (histogram, distribution):
        axes.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def to_svg(figure: Figure) -> str:
    """Return the figure as an `<svg>` element for an HTML page."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    document = text.getvalue()
    return document[document.index("<svg") :]


def _draw_rows(axes: Axes, rows: Sequence[Estimate], truth: Mapping[str, float] | None) -> None:
    positions = range(len(rows))
    joint = [(position, e) for position, e in zip(positions, rows, strict=True) if e.simultaneous_low < e.low]
    if joint:
        lows, highs = [e.simultaneous_low for _, e in joint], [e.simultaneous_high for _, e in joint]
        axes.hlines([i for i, _ in joint], lows, highs, linewidth=0.6, color=ESTIMATE, label="simultaneous interval")
    axes.errorbar(
        [e.share for e in rows], positions, xerr=[[e.share - e.low for e in rows], [e.high - e.share for e in rows]],
        fmt="o", markersize=4, linewidth=1.6, color=ESTIMATE, label="estimate with interval", zorder=2,
    )  # fmt: skip
    if truth is not None:
        true = [sum(truth.get(name, 0.0) for name in (e.candidate, *e.indistinguishable_from)) for e in rows]
        axes.plot(true, positions, "|", markersize=11, markeredgewidth=2, color=TRUTH, label="true share", zorder=3)


def _label(estimate: Estimate, names: Mapping[str, str]) -> str:
    label = " = ".join((estimate.candidate, *estimate.indistinguishable_from))
    return f"{names[estimate.candidate]}  {label}" if estimate.candidate in names else label


def _format_axes(axes: Axes) -> None:
    axes.xaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, axis="x", color="#e6e9ec", linewidth=0.8)
    axes.set_axisbelow(True)
