"""Plots that check a decoding or a metric: estimates against true shares, distributions of numbers, residuals, epsilon over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from hubbub.errors import DefinitionError, SummaryError
from hubbub.metrics.metric import Metric
from hubbub.number_checks import check_integer
from hubbub.privacy.loss import epsilon_of_periods, epsilon_permanent
from hubbub.privacy.pricing import shown_epsilon
from hubbub.text import format_count
from hubbub_decoder.model.evidence import Collected
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.plot_style import (
    ESTIMATE,
    FAINT,
    MARKERS,
    SERIES,
    TRUTH,
    axes_or_new,
    figure_of,
    finish_axes,
    label_columns,
    percent_axis,
    sized_figure,
)
from hubbub_decoder.results.plots import error_lengths, interval_name
from hubbub_decoder.results.residuals import bit_residuals

_LARGEST_RESIDUAL = 4.0


def plot_against_truth(
    decoding: Decoding, truth: Mapping[str, float], *, log: bool = True, ax: Axes | None = None
) -> Axes:
    """Draw the estimate and confidence interval of every candidate over its true share.

    Parameters
    ----------
    decoding
        Result of `decode`.
    truth
        True shares by candidate. A missing candidate has the share 0.
    log
        Whether the axes are logarithmic. They are linear near 0, so that absent candidates and negative estimates are
        shown.
    ax
        Axes to draw on. None: those of a new pyplot figure.

    Returns
    -------
    Axes
        The axes with the plot.
    """
    axes = axes_or_new(ax, 5.0)
    rows = [estimate for estimate in decoding.estimates if estimate.share == estimate.share]
    true = [estimate.true_share(truth) for estimate in rows]
    for present, colour, marker, label in (
        (False, FAINT, "x", "absent candidates"),
        (True, ESTIMATE, "o", "reported candidates"),
    ):
        group = [(x, e) for x, e in zip(true, rows, strict=True) if (x > 0) is present]
        if group:
            axes.errorbar(
                [x for x, _ in group],
                [e.share for _, e in group],
                yerr=error_lengths([(e.low, e.share, e.high) for _, e in group]),
                fmt=marker,
                markersize=3.5,
                linewidth=0.7,
                color=colour,
                label=f"{label} ({len(group)})",
            )
    top = max([*true, *(e.share for e in rows), 0.0])
    bottom = min([0.0, *(e.share for e in rows)])
    if log and any(true):
        near_zero = 10.0 ** math.floor(math.log10(min(share for share in true if share > 0)))
        axes.set_xscale("symlog", linthresh=near_zero)
        axes.set_yscale("symlog", linthresh=near_zero)
        axes.set_xlim(-near_zero / 2, top * 1.5)
        axes.set_ylim(min(bottom * 1.5, -near_zero / 2), top * 2)
        axes.minorticks_off()
    grid = np.concatenate([[0.0], np.geomspace(max(top, 1e-12) / 1e6, max(top, 1e-12), 200)])
    axes.plot(grid, grid, color=TRUTH, linewidth=1, label="estimate = true share")
    axes.set_xlabel("true share")
    of = "population" if decoding.target == "population" else "reports"
    axes.set_ylabel(f"estimated share of {of}, {interval_name(decoding.confidence)}")
    percent_axis(axes.xaxis)
    percent_axis(axes.yaxis)
    finish_axes(axes, decoding.metric.title, format_count(decoding.num_reports, "report"))
    return axes


def plot_numbers(decoding: Decoding, figure: Figure | None = None) -> Figure:
    """Draw the shares of the buckets and the distribution function of an ordinal metric, with their intervals.

    Parameters
    ----------
    decoding
        Result of `decode` for an ordinal metric.
    figure
        An empty figure, which gets the size of the plot. None: a new pyplot figure.

    Returns
    -------
    Figure
        The figure with the plots.

    Raises
    ------
    DefinitionError
        The metric is of another kind.
    """
    numbers = decoding.numbers
    if numbers is None or not numbers.distribution:
        raise DefinitionError(
            f"{decoding.metric.name}: plot_numbers needs an ordinal metric with buckets, got a {decoding.metric.kind.word} one without a distribution function: "
            "use decoding.plot(), or print decoding.numbers of a mean"
        )
    buckets = numbers.definition
    figure = sized_figure(figure, 6)
    histogram, distribution = figure.subplots(2, 1)
    rows = [decoding[bucket.label] for bucket in numbers.buckets if bucket.label in decoding]
    positions = range(len(rows))
    histogram.errorbar(
        positions,
        [e.share for e in rows],
        yerr=error_lengths([(e.low, e.share, e.high) for e in rows]),
        fmt="o",
        markersize=4,
        linewidth=1.6,
        color=ESTIMATE,
        label="estimate with interval",
    )
    smoothed = {bucket.label: bucket.smoothed for bucket in numbers.buckets}
    histogram.bar(positions, [smoothed[e.candidate] for e in rows], color=FAINT, alpha=0.4, label="smoothed")
    label_columns(histogram, positions, [e.candidate for e in rows], rotated=True)
    histogram.set_ylabel("share of reports")
    points = numbers.distribution
    places = [point.edge for point in points]
    distribution.errorbar(
        places,
        [point.share for point in points],
        yerr=error_lengths([(point.low, point.share, point.high) for point in points]),
        fmt="o",
        markersize=4,
        linewidth=1.6,
        color=ESTIMATE,
    )
    total = sum(smoothed.values())
    cumulative = np.concatenate([[0.0], np.cumsum(list(smoothed.values()))]) / (total or np.nan)
    distribution.plot(buckets.edges, cumulative, color=FAINT, linewidth=1)
    distribution.set_xlabel(" ".join(filter(None, (decoding.metric.name, buckets.unit and f"({buckets.unit})"))))
    distribution.xaxis.label.set_parse_math(False)
    distribution.set_ylabel(f"share below, {100 * decoding.confidence:.4g} % interval")
    for axes, title in (
        (histogram, (decoding.metric.title, format_count(decoding.num_reports, "report"))),
        (distribution, ("",)),
    ):
        percent_axis(axes.yaxis)
        finish_axes(axes, *title, grid="y")
    return figure


def plot_epsilon(metrics: Metric | Sequence[Metric], *, periods: int = 365, ax: Axes | None = None) -> Axes:
    """Draw epsilon of the first t reports of one unchanging value, one report per period.

    Parameters
    ----------
    metrics
        Metric, or at most 8 for a comparison.
    periods
        Largest t, at least 2.
    ax
        Axes to draw on. None: those of a new pyplot figure.

    Returns
    -------
    Axes
        The axes with the plot.

    Raises
    ------
    ParameterError
        There is no metric, or more than 8, or `periods` is below 2.

    Notes
    -----
    Without `hold`, it approaches the epsilon of the permanent response, which is dotted. With `hold`, each epoch adds
    the epsilon of its own permanent response. The formula is in docs/explanation/privacy.md, "The mechanism".
    """
    shown = [metrics] if isinstance(metrics, Metric) else list(metrics)
    check_integer("number of metrics", len(shown), 1, len(SERIES), hint="draw the others in a second plot")
    check_integer("periods", periods, 2, hint="pass 365, for example")
    axes = axes_or_new(ax, 4.0)
    points = np.unique(np.geomspace(1, periods, 60).round()).astype(int)
    for metric, colour, marker in zip(shown, SERIES, MARKERS, strict=False):
        values = [epsilon_of_periods(metric, int(t)) for t in points]
        axes.plot(
            points,
            values,
            color=colour,
            marker=marker,
            markevery=6,
            markersize=4,
            linewidth=1.5,
            label=f"{metric.name}: {shown_epsilon(values[0])} per report",
        )
        limit = epsilon_permanent(metric)
        if metric.hold is None and math.isfinite(limit):
            axes.axhline(limit, color=colour, linewidth=0.9, linestyle=":")
    units = {str(metric.period) for metric in shown}
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.0f}"))
    axes.set_xlabel(f"reports of one value, one per {' or '.join(sorted(units))}")
    axes.set_ylabel("epsilon of all these reports")
    finish_axes(axes, "Epsilon over time", columns=2)
    return axes


def plot_residuals(summary: Collected, decoding: Decoding, *, ax: Axes | None = None) -> Axes:
    """Draw the standardized residual of every bit count as a map of cohorts and bits.

    Parameters
    ----------
    summary
        Counts or reports that were decoded.
    decoding
        Their result.
    ax
        Axes to draw on. None: those of a new pyplot figure.

    Returns
    -------
    Axes
        The axes with the plot.

    Raises
    ------
    SummaryError
        The decoding is of another metric, or the share of unlisted strings is not determined, or the metric is not a
        string metric, so that its estimates fit all counts exactly.

    Notes
    -----
    Residuals of correct parameters and complete candidates look like noise: 95 % are between -2 and 2. A dark column
    is a bit with another share than the estimates imply, and a dark row is a cohort. A frequent unlisted string is one
    dark cell (per hash) in every row.
    """
    metric = summary.metric
    if metric.digest != decoding.metric.digest:
        raise SummaryError(
            f"the summary is of {metric.name} ({metric.digest[:12]}), the decoding of {decoding.metric.name} "
            f"({decoding.metric.digest[:12]}). Pass the summary that was decoded."
        )
    residuals = bit_residuals(summary, decoding)
    if residuals is None:
        raise SummaryError(
            f"{metric.name} has no residuals: the estimates fit all counts exactly, or the share of unlisted strings is not determined. "
            "Read decoding.diagnose()."
        )
    m, k = residuals.shape
    axes = axes_or_new(ax, min(2.2 + 0.08 * m, 8))
    image = axes.imshow(
        residuals,
        cmap="RdBu_r",
        vmin=-_LARGEST_RESIDUAL,
        vmax=_LARGEST_RESIDUAL,
        aspect="auto",
        interpolation="nearest",
    )
    figure_of(axes).colorbar(image, ax=axes, extend="both", label="residual, in standard errors")
    axes.set_xlabel("bit")
    axes.set_ylabel("cohort" if m > 1 else "")
    if m == 1:
        axes.set_yticks([])
    outside = float(np.mean(np.abs(residuals[np.isfinite(residuals)]) > 2)) if np.isfinite(residuals).any() else 0.0
    about = f"residuals of {format_count(m * k, 'bit count')}, {100 * outside:.1f} % beyond 2 standard errors"
    finish_axes(axes, metric.title, about)
    axes.grid(visible=False)
    return axes
