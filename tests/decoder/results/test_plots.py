"""Plots: axes in and axes out, labels as text, marks of detected candidates, and equal intervals in table, plot, page and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console

from hubbub import Buckets, Metric, Params, UnaryResponse
from hubbub.cli import main
from hubbub.privacy import epsilon
from hubbub.privacy.loss import epsilon_of_periods
from hubbub.summary import BitCounts, write_summary
from hubbub.text import short_labels
from hubbub_decoder import Decoding, compare, decode, decode_each, plots, simulate
from hubbub_decoder.documents.terminal import TerminalDocument
from hubbub_decoder.results import plot_style
from hubbub_decoder.results.plot_style import figure_of
from hubbub_decoder.results.residuals import bit_residuals
from tests.support.every_kind import METRICS

METRIC = Metric.string(
    "homepage", Params(num_bits=32, num_hashes=2, num_cohorts=16, prob_p=0.25, prob_q=0.75, prob_f=0.25), period="week"
)
NAMES = ["https://example.org/", "$HOME$ and $5", "<b>&", "a_{b}^c", "absent", "also absent"]
COUNTS = dict(zip(NAMES, (40_000, 30_000, 20_000, 10_000), strict=False))
SURVEY = Metric.categorical("os", ("linux", "macos", "windows"), UnaryResponse(prob_p=0.1, prob_q=0.9, prob_f=0.5))


@pytest.fixture(autouse=True)
def figures() -> Iterator[None]:
    matplotlib.use("agg")
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def summary() -> BitCounts:
    return simulate(METRIC, COUNTS, np.random.default_rng(3), periods=["2026-03-02"])


@pytest.fixture(scope="module")
def decoding(summary: BitCounts) -> Decoding:
    return decode(summary, NAMES)


def empty_axes() -> Axes:
    """Axes of a figure that pyplot does not manage."""
    return Figure(layout="constrained").subplots()


def labels(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def drawn_intervals(axes: Axes) -> dict[str, tuple[float, float]]:
    """Ends of the horizontal error bars, by the label of their row."""
    names, found = labels(axes), {}
    for container in axes.containers:
        for collection in container.lines[2]:  # type: ignore[attr-defined]
            for (low, row), (high, _) in collection.get_segments():
                found[names[round(row)]] = (float(low), float(high))
    return found


def test_plots_draw_on_the_given_axes_and_return_them(summary: BitCounts, decoding: Decoding) -> None:
    trends = decode_each([summary], NAMES)
    changed = compare(summary, simulate(METRIC, COUNTS, np.random.default_rng(4)), NAMES)
    draws: list[Callable[[Axes], Axes]] = [
        lambda ax: decoding.plot(ax),
        lambda ax: plots.plot_against_truth(decoding, {}, ax=ax),
        lambda ax: plots.plot_epsilon(METRIC, ax=ax),
        lambda ax: plots.plot_residuals(summary, decoding, ax=ax),
        lambda ax: trends.plot(ax),
        lambda ax: changed.plot(ax),
    ]
    for draw in draws:
        given = empty_axes()
        assert draw(given) is given
        figure_of(given).canvas.draw()
    assert pyplot.get_fignums() == []
    assert figure_of(decoding.plot()).number in pyplot.get_fignums()


def test_table_plot_page_and_csv_show_the_same_intervals(decoding: Decoding, tmp_path: Path) -> None:
    drawn = drawn_intervals(decoding.plot(empty_axes()))
    decoding.save(tmp_path / "estimates.csv")
    with (tmp_path / "estimates.csv").open(newline="", encoding="utf-8") as file:
        saved = {row["candidate"]: (float(row["low"]), float(row["high"])) for row in csv.DictReader(file)}
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(TerminalDocument(decoding.document(everything=True)))
    table, page = console.export_text(clear=False), decoding._repr_html_()
    assert {*drawn} == {*saved} == {*NAMES}
    for estimate in decoding:
        low, high = saved[estimate.candidate]
        assert drawn[estimate.candidate] == pytest.approx((low, high), abs=1e-12)
        assert (low, high) == (estimate.low, estimate.high)
        shown = f"{low:z.2%} .. {high:z.2%}"
        (line,) = [line for line in table.splitlines() if line.startswith(estimate.candidate)]
        assert shown in line
        assert (shown in page) is estimate.detected


def test_labels_are_text_without_mathematics_or_markup(decoding: Decoding) -> None:
    axes = decoding.plot(empty_axes())
    figure_of(axes).canvas.draw()
    assert {*labels(axes)} == {*NAMES}
    assert not any(label.get_parse_math() for label in axes.get_yticklabels())
    page = decoding._repr_html_()
    assert "&lt;b&gt;&amp;" in page
    assert "<b>&" not in page


@pytest.mark.parametrize(
    "name", ["中文", "שלום", "مرحبا", "\U0001f600", "x" * 500, "a\nb\x00\u202e", "\ud800", "", "\ufffe"]
)
def test_any_label_is_drawn_without_a_warning(name: str, decoding: Decoding) -> None:
    odd = replace(decoding, estimates=(replace(decoding[0], candidate=name),), metric=replace(METRIC, name="m"))
    axes = odd.plot(empty_axes())
    figure_of(axes).canvas.draw()
    (label,) = labels(axes)
    assert 0 < len(label) <= 60


def test_characters_without_a_glyph_are_shown_as_their_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot_style, "_FALLBACK_FONTS", ())
    assert plot_style.printable("a中$") == (r"a\u4e2d$", matplotlib.rcParams["font.family"])


def test_shortened_labels_keep_both_ends() -> None:
    (shown,) = short_labels(["a" * 40 + "z" * 40], 44)
    assert (shown[:3], shown[-3:], len(shown)) == ("aaa", "zzz", 44)


words = st.text("abcdefgh", min_size=1, max_size=6)


@given(
    st.sampled_from(["https://example.org/", "/home/user/documents/", "", "x" * 60]),
    st.lists(words, min_size=2, max_size=12, unique=True),
    st.sampled_from(["/index.html", "?page=1&sort=name", "", "y" * 60]),
    st.lists(st.text(max_size=40), max_size=4),
    st.integers(16, 44),
)
def test_shortened_labels_differ(start: str, words: list[str], end: str, others: list[str], longest: int) -> None:
    """Pages of one site differ in the middle of their addresses, where labels are cut."""
    labels = [f"{start}{word}{end}" for word in words]
    shown = short_labels([*labels, *others], longest)
    assert max(map(len, shown)) <= longest
    assert len({*shown[: len(labels)]}) == len(labels)
    whole = [label for label in [*labels, *others] if len(label) <= longest]
    assert {*whole} <= {*shown}


def test_detected_and_other_candidates_differ_in_their_marks(decoding: Decoding) -> None:
    axes = decoding.plot(empty_axes())
    _, names = axes.get_legend_handles_labels()
    assert {"detected", "not detected"} <= {*names}
    faces = {container.get_label(): container.lines[0].get_markerfacecolor() for container in axes.containers}  # type: ignore[attr-defined]
    assert faces["not detected"] == "white" != faces["detected"]
    assert axes.get_title(loc="left") == "homepage\n100,000 reports"


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 50])
def test_labels_and_legend_do_not_overlap(number: int, summary: BitCounts) -> None:
    names = [f"https://example.org/{i}" for i in range(number)]
    axes = decode(summary, names).plot(top=number)
    figure = figure_of(axes)
    figure.canvas.draw()
    rows = sorted((label.get_window_extent() for label in axes.get_yticklabels()), key=lambda box: box.y0)
    assert all(below.y1 <= above.y0 + 1 for below, above in pairwise(rows))
    legend = axes.get_legend()
    assert legend is not None
    assert legend.get_window_extent().y0 >= axes.get_window_extent().y1
    assert axes.get_title(loc="left")
    title = next(
        child for child in axes.get_children() if getattr(child, "get_text", str)() == axes.get_title(loc="left")
    )
    assert title.get_window_extent().y0 >= legend.get_window_extent().y1 - 1
    assert min(box.x0 for box in rows) >= 0


def test_top_keeps_the_largest_and_rejects_none(decoding: Decoding) -> None:
    axes = decoding.plot(empty_axes(), top=2)
    assert labels(axes) == [estimate.candidate for estimate in decoding[:2]]
    assert "the 2 largest of 6" in axes.get_title(loc="left")
    with pytest.raises(ValueError, match="top must be an integer >= 1, got 0"):
        decoding.plot(top=0)


def test_categories_and_buckets_have_one_mark() -> None:
    os = decode(simulate(SURVEY, {"linux": 600, "macos": 400}, np.random.default_rng(1)))
    _, names = os.plot(empty_axes()).get_legend_handles_labels()
    assert names == ["simultaneous interval", "estimate with interval"]
    ages = Metric.ordinal("age", Buckets((0, 1, 5)), UnaryResponse(prob_p=0.1, prob_q=0.9, prob_f=0.5))
    numbers = decode(simulate(ages, {"0.5": 100, "3": 900}, np.random.default_rng(1)))
    assert numbers.numbers is not None
    assert labels(numbers.plot(empty_axes())) == [bucket.label for bucket in numbers.numbers.buckets]
    assert len(plots.plot_numbers(numbers).axes) == 2


def test_mean_has_no_plot() -> None:
    buckets = Buckets((0, 10), default=0, estimate="mean")  # type: ignore[arg-type]
    mean = Metric.ordinal("speed", buckets, UnaryResponse(prob_p=0.1, prob_q=0.9, prob_f=0.5))
    with pytest.raises(ValueError, match="estimates a mean"):
        decode(simulate(mean, {"3": 500}, np.random.default_rng(1))).plot()


def test_truth_axes_are_logarithmic_and_show_zero(decoding: Decoding) -> None:
    truth = {name: number / 100_000 for name, number in COUNTS.items()}
    axes = plots.plot_against_truth(decoding, truth, ax=empty_axes())
    assert (axes.get_xscale(), axes.get_yscale()) == ("symlog", "symlog")
    low, high = axes.get_xlim()
    assert low < 0 < 0.4 < high
    assert plots.plot_against_truth(decoding, truth, log=False, ax=empty_axes()).get_xscale() == "linear"


def test_epsilon_of_an_epoch_adds_to_those_before() -> None:
    monthly = replace(SURVEY, hold=30)
    (line,) = plots.plot_epsilon(monthly, periods=60, ax=empty_axes()).lines
    reports, values = map(np.asarray, line.get_data())
    assert (reports[0], reports[-1]) == (1, 60)
    assert values[-1] == pytest.approx(2 * epsilon(monthly.params, 30))
    assert values[0] == pytest.approx(epsilon(monthly.params))
    for wrong in ([], [SURVEY] * 9):
        with pytest.raises(ValueError, match=r"number of metrics must be an integer in \[1, 8\]"):
            plots.plot_epsilon(wrong)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_epsilon_of_every_kind_is_drawn(metric: Metric) -> None:
    line = plots.plot_epsilon(metric, periods=60, ax=empty_axes()).lines[0]
    assert float(np.asarray(line.get_ydata())[-1]) == pytest.approx(epsilon_of_periods(metric, 60))


def test_residuals_of_a_complete_list_are_noise(summary: BitCounts, decoding: Decoding) -> None:
    """Of 512 counts, those without the largest candidate are far outside of 2 standard errors."""
    image = plots.plot_residuals(summary, decoding, ax=empty_axes()).images[0]
    complete = bit_residuals(summary, decoding)
    assert complete is not None
    np.testing.assert_array_equal(image.get_array(), complete)
    missing = replace(decoding, estimates=decoding.estimates[1:], unlisted=replace(decoding.unlisted, share=0.0))
    lacking = bit_residuals(summary, missing)
    assert lacking is not None
    assert np.abs(complete).max() < 6 < 10 < np.abs(lacking).max()
    with pytest.raises(ValueError, match="Pass the summary that was decoded"):
        plots.plot_residuals(simulate(SURVEY, {}, np.random.default_rng(1), no_value=9), decoding)


def test_missing_period_is_a_gap(summary: BitCounts) -> None:
    weeks = [replace(summary, periods=(day,)) for day in ("2026-03-02", "2026-03-09", "2026-03-23")]
    decodings = tuple(decode(week, NAMES) for week in weeks)
    trends = replace(decode_each(weeks[:1], NAMES), decodings=decodings)
    lines = trends.plot(empty_axes(), top=2).lines
    assert [int(np.isnan(line.get_xdata()).sum()) for line in lines] == [1, 1]
    with pytest.raises(ValueError, match="top must be 1 to 8, got 9"):
        trends.plot(top=9)


def test_data_frames_hold_the_estimates(decoding: Decoding) -> None:
    pandas, polars = decoding.to_pandas(), decoding.to_polars()
    assert isinstance(pandas, pd.DataFrame)
    assert pandas["candidate"].tolist() == polars["candidate"].to_list() == [e.candidate for e in decoding]
    assert pandas["low"].tolist() == polars["low"].to_list() == [e.low for e in decoding]
    assert math.isnan(pandas["simultaneous_low"][0])
    assert pandas["detected"].sum() == len(decoding.detected)


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_decode_shows_and_draws_the_top_rows(suffix: str, summary: BitCounts, tmp_path: Path) -> None:
    write_summary(summary, tmp_path / "week.parquet")
    (tmp_path / "names.txt").write_text("\n".join(NAMES) + "\n")
    files = [str(tmp_path / "week.parquet"), "--candidates", str(tmp_path / "names.txt")]
    out = tmp_path / f"plot.{suffix}"
    done = CliRunner().invoke(
        main, ["decode", *files, "--all", "--top", "2", "--plot", str(out)], env={"COLUMNS": "150"}
    )
    assert done.exit_code == 0, done.output
    assert "https://example.org/" in done.stdout
    assert "also absent" not in done.stdout
    assert "4 more rows not shown." in done.stdout
    assert out.stat().st_size > 1000
    assert CliRunner().invoke(main, ["decode", *files, "--top", "0"]).exit_code == 2
