"""Self-contained HTML page of descriptions: figures and curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle

from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, ScalarFormatter

from hubbub.text import visible_text, visible_value
from hubbub_decoder.planning.description import Description
from hubbub_decoder.planning.tables import figure_rows
from hubbub_decoder.results.plot_style import ESTIMATE, TRUTH
from hubbub_decoder.results.plots import to_svg

_COLOURS = (ESTIMATE, TRUTH, "#2b8a3e", "#862e9c")

_LINEAR_RANGE = 20  # largest ratio of epsilons on a linear axis


def render_page(descriptions: Sequence[Description], toml: str = "", notes: Sequence[str] = ()) -> str:
    """Return the HTML page of one or several definitions.

    toml : definition to show      notes : sentences below it
    """
    environment = Environment(
        loader=PackageLoader("hubbub_decoder.planning", "."),
        autoescape=True,
        finalize=visible_value,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    plots = [
        (
            _plot_epsilon(descriptions),
            "Epsilon of t reports of one value. Seeing them changes the odds between any two values by at most e to this power.",
        ),
        (
            _plot_accuracy(descriptions),
            "Standard error of a small share (line) and smallest share detected with probability .9 (dashed), by the reports of a period.",
        ),
    ]
    if any(each.recovery for each in descriptions):
        caption = (
            "Probability that an observer of t linked reports of a known value knows the whole permanent response."
        )
        plots.append((_plot_recovery(descriptions), caption))
    return environment.get_template("page.html.j2").render(
        names=[each.label for each in descriptions],
        rows=list(figure_rows(descriptions)),
        plots=[(to_svg(figure), caption) for figure, caption in plots],
        toml=toml,
        notes=notes,
    )


def _plot_epsilon(descriptions: Sequence[Description]) -> Figure:
    figure, axes = _axes()
    for each, colour in zip(descriptions, cycle(_COLOURS), strict=False):
        points = [(t, epsilon) for t, epsilon in each.epsilons if math.isfinite(t)]
        axes.plot(*zip(*points, strict=True), marker="o", markersize=4, color=colour, label=_plain(each.label))
        if each.metric.hold is None and math.isfinite(each.privacy.epsilon_permanent):
            axes.axhline(each.privacy.epsilon_permanent, color=colour, linewidth=0.8, linestyle=":")
    axes.set(xscale="log", xlabel="reports t of one value", ylabel="epsilon")
    shown = [epsilon for each in descriptions for t, epsilon in each.epsilons if math.isfinite(t)]
    if max(shown) > _LINEAR_RANGE * min(shown):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(ScalarFormatter())
    else:
        axes.set_ylim(bottom=0)
    return _finish(figure)


def _plot_accuracy(descriptions: Sequence[Description]) -> Figure:
    figure, axes = _axes()
    for each, colour in zip(descriptions, cycle(_COLOURS), strict=False):
        points = [point for point in each.by_reports() if math.isfinite(point[1])]
        numbers, errors = ([point[i] for point in points] for i in (0, 1))
        axes.plot(numbers, errors, color=colour, label=f"{_plain(each.label)}: standard error")
        limits = [(number, limit) for number, _, limit in points if limit <= 1]
        if limits:
            label = f"{_plain(each.label)}: detection limit"
            axes.plot(*zip(*limits, strict=True), color=colour, linestyle="--", label=label)
        axes.axvline(each.num_reports, color="#9aa5b1", linewidth=0.8)
    axes.set(xscale="log", xlabel="reports of a period", ylabel="share")
    if any(math.isfinite(each.accuracy.std_error(0.0)) for each in descriptions):
        axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
    return _finish(figure)


def _plot_recovery(descriptions: Sequence[Description]) -> Figure:
    figure, axes = _axes()
    for each, colour in zip(descriptions, cycle(_COLOURS), strict=False):
        if each.recovery:
            axes.plot(
                *zip(*each.recovery, strict=True), marker="o", markersize=4, color=colour, label=_plain(each.label)
            )
    axes.set(xscale="log", xlabel="linked reports t", ylabel="probability", ylim=(-0.02, 1.02))
    return _finish(figure)


def _plain(label: str) -> str:
    """Label without matplotlib's mathematics and without invisible characters."""
    return visible_text(label).replace("$", r"\$")


def _axes() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, color="#e6e9ec", linewidth=0.8)
    axes.set_axisbelow(True)
    return figure, axes


def _finish(figure: Figure) -> Figure:
    for axes in figure.axes:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.0f}"))
    figure.legend(loc="outside upper right", ncols=2, frameon=False)
    return figure
