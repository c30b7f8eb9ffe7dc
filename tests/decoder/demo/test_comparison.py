"""Tables, plots and pages of the demo."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from hubbub import Metric, Params, UnaryResponse
from hubbub.privacy.pricing import shown_epsilon
from hubbub_decoder import decode
from hubbub_decoder.demo.comparison import Comparison, privacy_document
from hubbub_decoder.demo.page import write_pages
from hubbub_decoder.documents.document import Document
from hubbub_decoder.documents.terminal import TerminalDocument
from hubbub_decoder.plots import plot_against_truth
from hubbub_decoder.results.plot_style import figure_of
from hubbub_decoder.simulation import simulate

PARAMS = Params(num_bits=16, num_hashes=2, num_cohorts=8, prob_p=0.25, prob_q=0.75, prob_f=0.5)


def compared(metric: Metric, population: dict[str, int], candidates: list[str] | None) -> Comparison:
    total = sum(population.values())
    counts = simulate(metric, population, np.random.default_rng(0))
    return Comparison(decode(counts, candidates), {value: n / total for value, n in population.items()})


STRING = compared(Metric.string("homepage", PARAMS), {"a": 60_000, "b": 40_000}, ["a", "b", "absent"])
BOOLEAN = compared(
    Metric.boolean("yes", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5)), {"true": 600, "false": 400}, None
)


def rendered(document: Document, width: int = 140) -> str:
    console = Console(width=width, file=io.StringIO(), no_color=True)
    console.print(TerminalDocument(document))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_comparison_table_marks_detected_candidates() -> None:
    lines = [line.split() for line in rendered(STRING.document({})).splitlines()]
    marked = {words[0]: "yes" in words for words in lines if words and words[0] in ("a", "b", "absent")}
    assert marked == {"a": True, "b": True, "absent": False}


def test_privacy_table_names_both_epsilons() -> None:
    text = rendered(privacy_document([STRING]))
    assert "epsilon per report" in text
    assert "epsilon per value" in text


def test_narrow_tables_cut_no_figure() -> None:
    names = {"a": "an airport with a rather long name", "b": "another one"}
    text = rendered(STRING.document(names), 100) + rendered(privacy_document([STRING]), 80)
    assert "…" not in text
    for estimate in STRING.decoding.estimates:
        assert f"{estimate.low:z.2%} .. {estimate.high:z.2%}" in text
    assert shown_epsilon(STRING.privacy.epsilon_permanent) in text


def test_legend_of_the_scatter_plot_is_above_the_points() -> None:
    axes = plot_against_truth(STRING.decoding, STRING.truth, ax=Figure(figsize=(8, 5), layout="constrained").subplots())
    figure, legend = figure_of(axes), axes.get_legend()
    figure.canvas.draw()
    assert legend is not None
    assert legend.get_window_extent().y0 >= axes.get_window_extent().y1
    assert legend.get_window_extent().x1 <= figure.bbox.x1
    assert legend.get_window_extent().y1 <= figure.bbox.y1


def test_pages_mark_intervals_that_miss_the_true_share(tmp_path: Path) -> None:
    wrong = Comparison(BOOLEAN.decoding, {"true": 0.01})
    write_pages(tmp_path, [STRING, wrong], {"a": "a long name"})
    assert "a long name" in (tmp_path / "homepage.html").read_text()
    assert 'class="missed"' in (tmp_path / "yes.html").read_text()
    assert 'class="missed"' not in (tmp_path / "homepage.html").read_text()
    assert all(f'href="{name}.html"' in (tmp_path / "index.html").read_text() for name in ("homepage", "yes"))
