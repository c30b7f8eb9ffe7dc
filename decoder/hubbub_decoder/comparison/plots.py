"""Plots of changes and of trends (matplotlib)."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from hubbub_decoder.comparison.results import Comparison
from hubbub_decoder.data.output_files import atomic_write
from hubbub_decoder.errors import OutputError

_CHANGED, _UNCHANGED = "#2563a8", "#9aa5b1"
_SUFFIXES = (".svg", ".png", ".pdf")


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


def save_plot(figure: Figure, path: str | Path) -> None:
    """Write a figure to a .svg, .png or .pdf file; raises OutputError for another suffix, or if it cannot be written."""
    path = Path(path)
    if path.suffix.lower() not in _SUFFIXES:
        raise OutputError(f"{path} must end in .svg, .png or .pdf. The suffix selects the format.")
    data = io.BytesIO()
    figure.savefig(data, format=path.suffix.lower()[1:], dpi=150)
    with atomic_write(path) as file:
        file.write(data.getvalue())
