"""Plots of changes and of trends (matplotlib)."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from hubbub_decoder.comparison.results import Comparison
from hubbub_decoder.comparison.trends import Trends

_CHANGED, _UNCHANGED = "#2563a8", "#9aa5b1"
_LINES = ("#2563a8", "#d9480f", "#2b8a3e", "#862e9c", "#b08900", "#0b7285", "#a61e4d", "#495057")


def plot_changes(comparison: Comparison, *, limit: int = 40) -> Figure:
    """Figure of the changes with their confidence intervals: detected ones first, then the largest.

    limit : largest number of candidates
    """
    rows = [row for row in comparison.changes if row.change == row.change][:limit]
    figure = Figure(figsize=(8, 1.3 + 0.23 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for detected, colour, label in ((True, _CHANGED, "changed"), (False, _UNCHANGED, "not detected")):
        some = [(i, row) for i, row in enumerate(rows) if row.detected is detected]
        if some:
            axes.errorbar(
                [row.change for _, row in some], [i for i, _ in some],
                xerr=[[row.change - row.low for _, row in some], [row.high - row.change for _, row in some]],
                fmt="o", markersize=4, linewidth=1.6, color=colour, label=label,
            )  # fmt: skip
    axes.axvline(0, color="#495057", linewidth=0.8)
    axes.set_yticks(
        range(len(rows)), [" = ".join((row.candidate, *row.indistinguishable_from)) for row in rows], fontsize=8
    )
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel(f"change of the share from a to b, {comparison.confidence:.0%} confidence interval")
    axes.xaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, axis="x", color="#e6e9ec", linewidth=0.8)
    axes.set_axisbelow(True)
    figure.legend(loc="outside upper right", ncols=2, frameon=False)
    return figure


def plot_trends(trends: Trends, *, limit: int = len(_LINES)) -> Figure:
    """Figure of the shares by period with their confidence intervals, of the candidates with the largest mean shares.

    limit : largest number of candidates, at most 8
    """
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    places = range(len(trends))
    names = [name for name in trends.candidates if any(decoding[name].detected for decoding in trends.decodings)]
    names = names or list(trends.candidates)  # categories are not tested
    for name, colour in zip(names[:limit], _LINES, strict=False):
        estimates = [decoding[name] for decoding in trends.decodings]
        axes.plot(places, [e.share for e in estimates], "o-", color=colour, linewidth=1.4, markersize=4, label=name)
        axes.fill_between(
            places, [e.low for e in estimates], [e.high for e in estimates], color=colour, alpha=0.15, linewidth=0
        )
    axes.set_xticks(places, trends.periods, rotation=30 if len(trends) > 6 else 0, fontsize=8)
    axes.set_ylabel(f"share of reports, {trends.decodings[0].confidence:.0%} confidence interval")
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    axes.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, axis="y", color="#e6e9ec", linewidth=0.8)
    axes.set_axisbelow(True)
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return figure
