"""Self-contained HTML page of the demo, with a plot for each comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.axes import Axes

from hubbub.metrics.metric import Kind
from hubbub.privacy.pricing import shown_epsilon
from hubbub_decoder.demo.comparison import Comparison
from hubbub_decoder.demo.tables import privacy_rows, summary_line
from hubbub_decoder.results.plot_style import detached_axes, figure_of, row_height
from hubbub_decoder.results.plots import plot_against_truth, plot_intervals, to_svg


@dataclass(frozen=True, slots=True)
class Plot:
    """An SVG plot with its caption."""

    svg: str
    caption: str


@dataclass(frozen=True, slots=True)
class Section:
    """Section of the page for one metric."""

    comparison: Comparison
    summary_line: str
    plots: tuple[Plot, ...]


def render_page(comparisons: Sequence[Comparison], names: Mapping[str, str], flights: int) -> str:
    """Return the HTML page.

    names : long names of candidates
    flights : number of flights that reported
    """
    environment = Environment(
        loader=PackageLoader("hubbub_decoder.demo", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("page.html.j2").render(
        flights=flights,
        names=names,
        sections=[_section(comparison, names) for comparison in comparisons],
        privacy=[
            (*names, shown_epsilon(report), shown_epsilon(value)) for *names, report, value in privacy_rows(comparisons)
        ],
    )


def _section(comparison: Comparison, names: Mapping[str, str]) -> Section:
    decoding, truth = comparison.decoding, comparison.truth
    plots = [
        Plot(
            _svg(plot_intervals(decoding, truth, names=names, ax=detached_axes(row_height(min(40, len(decoding)))))),
            "The estimate with its 95 % confidence interval, and the true share."
            if decoding.metric.kind is Kind.BOOLEAN
            else "The largest estimates with 95 % confidence intervals, and the true shares.",
        )
    ]
    if decoding.metric.kind is Kind.STRING:
        plots.append(
            Plot(
                _svg(plot_against_truth(decoding, truth, ax=detached_axes(5))),
                "Estimates of all candidates over their true shares; absent candidates have a true share of 0.",
            )
        )
    return Section(comparison, summary_line(comparison, len(decoding.estimates)), tuple(plots))


def _svg(axes: Axes) -> str:
    return to_svg(figure_of(axes))
