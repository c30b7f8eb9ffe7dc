"""Self-contained HTML page of descriptions: the definition, its figures in words, and curves with their numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, ScalarFormatter

from hubbub.pages.html_page import STYLE, typeset
from hubbub.privacy.pricing import shown_epsilon
from hubbub.text import visible_text, visible_value
from hubbub_decoder.documents.finding import Finding
from hubbub_decoder.planning.description import Description
from hubbub_decoder.planning.law.accuracy import DETECTION_LIMIT, FORGED_REPORTS, percent_text
from hubbub_decoder.planning.tables import figure_rows
from hubbub_decoder.results.plot_style import ESTIMATE, TRUTH
from hubbub_decoder.results.plots import to_svg

_COLOURS = (ESTIMATE, TRUTH, "#2b8a3e", "#862e9c")
_GRID, _MARK, _INK = "#e6e9ec", "#9aa5b1", "#17202a"
_THEME = {
    **{colour: f"var(--line-{number})" for number, colour in enumerate(_COLOURS, 1)},
    _GRID: "var(--line)",
    _MARK: "var(--dim)",
    _INK: "var(--ink)",
}
"""Colours of the page's style in place of those of a drawing, which do not change with the color scheme."""

_LINEAR_RANGE = 20  # largest ratio of epsilons on a linear axis

_MEANINGS = {
    "epsilon of days": "All reports about any days in a row change the odds between two histories of a client by at most the factor e to this power.",
    "epsilon of a report": "The same for one report.",
    "epsilon of a value": "The same for all reports of one value.",
    "epsilon of an epoch": "The same for all reports of one epoch.",
    "lifetime epsilon": "The same for all reports that one client ever sends.",
    "observer": "Who sees the reports of these epsilons, and what two histories have in common.",
    "central epsilon": "For readers of totals, who do not see single reports.",
    "permanent response": "How well the permanent noise identifies a client whose reports are linked.",
    "effective group size of 2 reports": "Number of people among whom two reports of one value identify one.",
    "decoded": "Data that the following figures assume.",
    "standard error of a small share": "Typical error of the estimate of a rare value.",
    FORGED_REPORTS: "Number of forged reports from which a value is detected that nobody has.",
    DETECTION_LIMIT: "Smallest share that is detected with probability 0.9.",
    "two groups": "As in an A/B test: the interval of `hubbub compare --target population` is then on one side of 0.",
    "standard error of the mean": "Typical error of the estimated mean.",
}


@dataclass(frozen=True, slots=True)
class Curve:
    """A figure of the page, with its points as a table: heading, drawing, caption, names of the columns, rows."""

    heading: str
    svg: Markup
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def render_page(descriptions: Sequence[Description], toml: str = "", findings: Sequence[Finding] = ()) -> str:
    """Return the HTML page of one or several definitions.

    toml : definition to show      findings : about the plan
    """
    environment = Environment(
        loader=PackageLoader("hubbub_decoder.planning", "."),
        autoescape=True,
        finalize=visible_value,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    page = environment.get_template("page.html.j2").render(
        style=Markup(STYLE),  # noqa: S704  (our file)
        names=[description.label for description in descriptions],
        rows=[(name, _MEANINGS.get(name, ""), values) for name, values in figure_rows(descriptions)],
        curves=list(_curves(descriptions)),
        toml=toml,
        findings=findings,
    )
    return typeset(page)


def _curves(descriptions: Sequence[Description]) -> Iterator[Curve]:
    yield Curve(
        "Privacy loss by number of reports",
        _draw(_plot_epsilon(descriptions)),
        "Epsilon of t reports of one value, or of one epoch with hold. If they have one permanent response, epsilon does not grow without limit.",
        ("definition", "reports t", "epsilon"),
        tuple(
            (description.label, "unlimited" if math.isinf(t) else f"{t:,.0f}", shown_epsilon(epsilon))
            for description in descriptions
            for t, epsilon in description.epsilons
        ),
    )
    yield Curve(
        "Accuracy by number of reports",
        _draw(_plot_accuracy(descriptions)),
        "Standard error of a small share (line) and detection limit (dashed), by the reports of a period. The vertical line is the number of the figures above.",
        ("definition", "reports of a period", "standard error", "detection limit"),
        tuple(
            (description.label, f"{number:,}", percent_text(error), percent_text(limit))
            for description in descriptions
            for number, error, limit in description.by_reports()
            if math.isfinite(error)
        ),
    )
    if any(description.recovery for description in descriptions):
        yield Curve(
            "Recovery of the permanent response",
            _draw(_plot_recovery(descriptions)),
            "Probability that an observer of t linked reports of a known value knows the whole permanent response, and so recognizes the client.",
            ("definition", "linked reports t", "probability"),
            tuple(
                (description.label, f"{t:,}", f"{chance:.3f}")
                for description in descriptions
                for t, chance in description.recovery
            ),
        )


def _draw(figure: Figure) -> Markup:
    """Return a figure as an element in the colours of the page; its table has the same numbers, so screen readers skip it."""
    svg = to_svg(figure)
    for colour, name in _THEME.items():
        svg = svg.replace(colour, name)
    return Markup(svg.replace("<svg", '<svg aria-hidden="true"', 1))  # noqa: S704  (matplotlib escapes its texts)


def _plot_epsilon(descriptions: Sequence[Description]) -> Figure:
    figure, axes = _axes()
    for description, colour in zip(descriptions, cycle(_COLOURS), strict=False):
        points = [(t, epsilon) for t, epsilon in description.epsilons if math.isfinite(t)]
        axes.plot(*zip(*points, strict=True), marker="o", markersize=4, color=colour, label=_plain(description.label))
        if description.metric.hold is None and math.isfinite(description.privacy.epsilon_permanent):
            axes.axhline(description.privacy.epsilon_permanent, color=colour, linewidth=0.8, linestyle=":")
    axes.set(xscale="log", xlabel="reports t of one value or epoch", ylabel="epsilon")
    shown = [epsilon for description in descriptions for t, epsilon in description.epsilons if math.isfinite(t)]
    if max(shown) > _LINEAR_RANGE * min(shown):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(ScalarFormatter())
    else:
        axes.set_ylim(bottom=0)
    return _finish(figure)


def _plot_accuracy(descriptions: Sequence[Description]) -> Figure:
    figure, axes = _axes()
    for description, colour in zip(descriptions, cycle(_COLOURS), strict=False):
        points = [point for point in description.by_reports() if math.isfinite(point[1])]
        numbers, errors = ([point[i] for point in points] for i in (0, 1))
        axes.plot(numbers, errors, color=colour, label=f"{_plain(description.label)}: standard error")
        limits = [(number, limit) for number, _, limit in points if limit <= 1]
        if limits:
            label = f"{_plain(description.label)}: detection limit"
            axes.plot(*zip(*limits, strict=True), color=colour, linestyle="--", label=label)
        axes.axvline(description.num_reports, color=_MARK, linewidth=0.8)
    axes.set(xscale="log", xlabel="reports of a period", ylabel="share")
    if any(math.isfinite(description.accuracy.std_error(0.0)) for description in descriptions):
        axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
    return _finish(figure)


def _plot_recovery(descriptions: Sequence[Description]) -> Figure:
    figure, axes = _axes()
    for description, colour in zip(descriptions, cycle(_COLOURS), strict=False):
        if description.recovery:
            axes.plot(
                *zip(*description.recovery, strict=True),
                marker="o",
                markersize=4,
                color=colour,
                label=_plain(description.label),
            )
    axes.set(xscale="log", xlabel="linked reports t", ylabel="probability", ylim=(-0.02, 1.02))
    return _finish(figure)


def _plain(label: str) -> str:
    """Label without matplotlib's mathematics and without invisible characters."""
    return visible_text(label).replace("$", r"\$")


def _axes() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(8, 3.6), layout="constrained", facecolor="none")
    axes = figure.subplots()
    axes.set_facecolor("none")
    axes.tick_params(which="both", color=_INK, labelcolor=_INK)
    axes.xaxis.label.set_color(_INK)
    axes.yaxis.label.set_color(_INK)
    axes.spines[:].set_color(_INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    return figure, axes


def _finish(figure: Figure) -> Figure:
    for axes in figure.axes:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.0f}"))
    figure.legend(loc="outside upper right", ncols=2, frameon=False, labelcolor=_INK)
    return figure
