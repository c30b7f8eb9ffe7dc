"""The demo's page: the same comparisons as pictures, one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from hubbub.metrics.metric import Kind
from hubbub.privacy.pricing import shown_epsilon
from hubbub_decoder.demo.comparison import Comparison
from hubbub_decoder.demo.tables import privacy_rows, summary_line
from hubbub_decoder.results.plots import plot_against_truth, plot_intervals, to_svg


@dataclass(frozen=True, slots=True)
class Picture:
    svg: str
    caption: str


@dataclass(frozen=True, slots=True)
class Part:
    """One metric's section."""

    comparison: Comparison
    summary_line: str
    pictures: tuple[Picture, ...]


def render_page(comparisons: Sequence[Comparison], names: Mapping[str, str], people: int) -> str:
    """Return the page."""
    environment = Environment(
        loader=PackageLoader("hubbub_decoder.demo", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("page.html.j2").render(
        people=people,
        names=names,
        parts=[_part(comparison, names) for comparison in comparisons],
        privacy=[
            (*names, shown_epsilon(report), shown_epsilon(value)) for *names, report, value in privacy_rows(comparisons)
        ],
    )


def _part(comparison: Comparison, names: Mapping[str, str]) -> Part:
    decoding, truth = comparison.decoding, comparison.truth
    pictures = [
        Picture(
            to_svg(plot_intervals(decoding, truth, names=names)),
            "The largest estimates, 95 % intervals, and the truth.",
        )
    ]
    if decoding.metric.kind is Kind.STRING:
        pictures.append(
            Picture(to_svg(plot_against_truth(decoding, truth)), "Every candidate, those that nobody reported at zero.")
        )
    return Part(comparison, summary_line(comparison, len(decoding.estimates)), tuple(pictures))
