"""Plots that check a metric: epsilon over the number of reports, and residuals by cohort and bit (matplotlib)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from hubbub.metrics.metric import Metric
from hubbub.privacy import epsilon
from hubbub.privacy.loss import epsilon_permanent
from hubbub.privacy.pricing import shown_epsilon
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub.text import format_count
from hubbub_decoder.results.plot_style import MARKERS, SERIES, axes_or_new, figure_of, finish_axes
from hubbub_decoder.results.residuals import bit_residuals

if TYPE_CHECKING:
    from hubbub_decoder.results.decoding import Decoding

_LARGEST_RESIDUAL = 4.0


def plot_epsilon(metrics: Metric | Sequence[Metric], *, periods: int = 365, ax: Axes | None = None) -> Axes:
    """Draw epsilon of the first t reports of one unchanging value, one report per period, and return the axes.

    Without `hold`, it approaches the epsilon of the permanent response, which is dotted. With `hold`, each epoch adds the epsilon of its
    own permanent response. Formula: docs/privacy.md, "The mechanism".

    metrics : at most 8, for a comparison
    periods : largest t
    ax      : axes to draw on; None: those of a new pyplot figure

    Raises ValueError for no metric, more than 8, and periods < 2.
    """
    shown = [metrics] if isinstance(metrics, Metric) else list(metrics)
    if not 1 <= len(shown) <= len(SERIES) or periods < 2:
        raise ValueError(
            f"plot_epsilon draws 1 to {len(SERIES)} metrics over 2 or more periods, got {len(shown)} and {periods}."
        )
    axes = axes_or_new(ax, 4.0)
    points = np.unique(np.geomspace(1, periods, 60).round()).astype(int)
    for metric, colour, marker in zip(shown, SERIES, MARKERS, strict=False):
        values = [epsilon_after(metric, int(t)) for t in points]
        axes.plot(
            points, values, color=colour, marker=marker, markevery=6, markersize=4, linewidth=1.5,
            label=f"{metric.name}: {shown_epsilon(values[0])} per report",
        )  # fmt: skip
        limit = epsilon_permanent(metric.params)
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


def epsilon_after(metric: Metric, reports: int) -> float:
    """Return the epsilon of the first reports of one unchanging value, with the epochs of `hold`.

    >>> monthly = Metric.boolean("dark", prob_p=0, prob_q=1, prob_f=0.5, hold=30)
    >>> [round(math.exp(epsilon_after(monthly, t)), 6) for t in (1, 30, 31)]
    [3.0, 3.0, 9.0]
    """
    if metric.hold is None:
        return epsilon(metric.params, reports)
    epochs, rest = divmod(reports, metric.hold)
    return epochs * epsilon(metric.params, metric.hold) + (epsilon(metric.params, rest) if rest else 0.0)


def plot_residuals(summary: BitCounts | PatternCounts | Reports, decoding: Decoding, *, ax: Axes | None = None) -> Axes:
    """Draw the standardized residual of every bit count as a map of cohorts and bits, and return the axes.

    Residuals of correct parameters and complete candidates look like noise: 95 % are between -2 and 2. A dark column is a bit with another
    share than the estimates imply, a dark row a cohort. A frequent unlisted string is one dark cell (per hash) in every row.

    summary  : that was decoded      decoding : its result
    ax       : axes to draw on; None: those of a new pyplot figure

    Raises ValueError for the decoding of another metric, for a metric of another kind than string, whose estimates fit all counts exactly,
    and if the share of unlisted strings is not determined.
    """
    metric = summary.metric
    if metric.digest != decoding.metric.digest:
        raise ValueError(
            f"the summary is of {metric.name} ({metric.digest[:12]}), the decoding of {decoding.metric.name} "
            f"({decoding.metric.digest[:12]}). Pass the summary that was decoded."
        )
    residuals = bit_residuals(summary, decoding)
    if residuals is None:
        raise ValueError(
            f"{metric.name} has no residuals: the estimates fit all counts exactly, or the share of unlisted strings is not determined. "
            "Read decoding.fit_tests."
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
    finish_axes(axes, metric.name, about)
    axes.grid(visible=False)
    return axes
