"""Documents on both surfaces: the terminal at any width, and HTML in a notebook."""

from __future__ import annotations

import io
import math
import xml.etree.ElementTree as ET
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.cells import cell_len
from rich.console import Console

from hubbub import Metric, Params, UnaryResponse
from hubbub.errors import ParameterError
from hubbub_decoder import decode, simulate
from hubbub_decoder.documents.document import Bar, Column, Document, Row, Shade, Sparkline, Table
from hubbub_decoder.documents.finding import Finding
from hubbub_decoder.documents.html import html_fragment
from hubbub_decoder.documents.terminal import TerminalDocument, interval_bar
from hubbub_decoder.results.table_result import TableResult


def printed(document: Document, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), no_color=True, highlight=False)
    console.print(TerminalDocument(document))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def html_rows(document: Document) -> list[list[str]]:
    """Texts of the cells of each row of the body; a fragment that is not well-formed raises ParseError."""
    body = ET.fromstring(html_fragment(document)).find(".//tbody")  # noqa: S314  (made here)
    assert body is not None
    return [["".join(cell.itertext()) for cell in row] for row in body]


def number_texts(document: Document) -> list[str]:
    """Numbers and ends of intervals of all cells, as texts."""
    texts: list[str] = []
    for row in document.table.rows:
        for column, cell in zip(document.table.columns, row.cells, strict=True):
            if isinstance(cell, tuple):
                texts += column.ends(cell) or ()
            elif isinstance(cell, float | Shade):
                texts.append(column.text(cell))
    return texts


def test_rows_have_a_cell_for_each_column(result: TableResult[Any]) -> None:
    document = result.document(everything=True)
    assert document.table.rows
    assert {len(row.cells) for row in document.table.rows} == {len(document.table.columns)}


def test_both_surfaces_show_every_number(result: TableResult[Any]) -> None:
    document = result.document(everything=True)
    shown, page = "\n".join(printed(document, 250)), "\n".join(map(" ".join, html_rows(document)))
    for text in number_texts(document):
        assert text in shown
        assert text in page
    for line in (*document.lines, *(finding.line for finding in document.findings)):
        text = "".join(ET.fromstring(html_fragment(document)).itertext())  # noqa: S314
        assert line.strip().replace("`", "") in text.replace("\n", " ")


@pytest.mark.parametrize("width", [30, 60, 80, 100, 150])
def test_tables_fit_any_terminal(result: TableResult[Any], width: int) -> None:
    for everything in (False, True):
        assert max(map(cell_len, printed(result.document(everything=everything), width))) <= width


def test_top_limits_the_rows_of_documents_and_plots(result: TableResult[Any]) -> None:
    document = result.document(everything=True, top=1)
    assert len([row for row in document.table.rows if not row.is_total and "unlisted" not in str(row.cells[0])]) == 1
    axes = result.plot(Figure(), top=1)
    assert isinstance(axes, Axes)
    with pytest.raises(ParameterError, match="top must be an integer >= 1, got 0"):
        result.plot(top=0)


def test_plot_sets_the_size_of_an_empty_figure(result: TableResult[Any]) -> None:
    figure = Figure(figsize=(1, 1))
    assert result.plot(figure).get_figure(root=True) is figure
    assert min(figure.get_size_inches()) > 1
    figure.canvas.draw()


@pytest.mark.parametrize(
    "noise", [{"prob_p": 0, "prob_q": 1}, {"prob_p": 0.25, "prob_q": 0.75}], ids=["exact", "noisy"]
)
def test_strings_are_tested_and_categories_are_not(noise: dict[str, Any], unseen_seed: int) -> None:
    """8 random tasks of one report to a thousand, in one cohort or several; the document of a string decoding has q-values."""
    rng = np.random.default_rng(unseen_seed)
    for _ in range(8):
        params = Params(num_bits=16, num_hashes=2, num_cohorts=int(rng.integers(1, 9)), prob_f=0, **noise)
        people = {"a": int(rng.integers(1, 1000)), "b": int(rng.integers(0, 100))}
        strings = decode(simulate(Metric.string("page", params), people, rng), ["a", "c"])
        dark = Metric.boolean("dark", UnaryResponse(prob_f=0, **noise))
        categories = decode(simulate(dark, {"true": people["a"]}, rng))
        for decoding, is_tested in ((strings, True), (categories, False)):
            headings = [column.heading for column in decoding.document(everything=True).table.columns]
            assert decoding.is_tested is ("q value" in headings) is is_tested


def test_optional_columns_are_added_from_the_right_while_they_fit() -> None:
    """A name of 13, a share of 7 and their gaps leave 0 of 24 characters, then 12 for each optional column of 10."""
    days = [Column.shares(f"2026-03-{day:02}", width=10, spare=0) for day in (2, 9, 16)]
    table = Table((Column.names("page"), *days, Column.shares("last")), (Row(("a", 0.1, 0.2, 0.3, 0.4)),))
    for number, width in enumerate((24, 36, 48, 60)):
        heading = printed(Document("", table, ()), width)[0].split()
        assert heading == ["page", *(day.heading for day in days[len(days) - number :]), "last"]


def test_bars_take_the_room_that_is_left() -> None:
    table = Table((Column.names("page"), Column.bars(24)), (Row(("a", Bar(0.5, 0.75, 1.0, end=1.0))),))
    rows = [printed(Document("", table, ()), width)[1].rstrip() for width in (25, 30, 60)]
    assert [len(row) - len("a".ljust(11)) for row in rows] == [10, 15, 24]
    assert all(
        row.endswith(interval_bar(Bar(0.5, 0.75, 1.0, end=1.0), size))
        for row, size in zip(rows, (10, 15, 24), strict=True)
    )


def test_undetermined_numbers_are_hyphens_on_both_surfaces() -> None:
    """Regression: the share of a period without an estimate was printed as nan%."""
    columns = (Column.names("page"), Column.shares("share"), Column.changes("change"), Column.q_values())
    document = Document("", Table(columns, (Row(("a", math.nan, math.nan, math.nan)),)), ())
    assert printed(document, 80)[2].split() == ["a", "-", "-", "-"]
    assert html_rows(document) == [["a", "-", "-", "-"]]


def test_hostile_texts_are_no_markup() -> None:
    hostile = "[red]</td><script>"
    columns = (Column.names(hostile), Column("", "sparkline"))
    table = Table(columns, (Row((hostile, Sparkline((0.1, math.nan), (0.0, 0.1)))),), title=hostile, hidden=2)
    document = Document(hostile, table, (hostile,), (Finding("kind", hostile),))
    assert "\n".join(printed(document, 120)).count(hostile) == 6
    page = html_fragment(document)
    assert "<script>" not in page
    assert page.count("[red]&lt;/td&gt;&lt;script&gt;") == 6
    assert "2 more rows not shown." in page


@pytest.mark.parametrize("seed", range(3))
def test_shades_are_darker_for_larger_shares(seed: int) -> None:
    shares = np.sort(np.random.default_rng(seed).uniform(-0.1, 1.1, 20)).tolist()
    brightness = [sum(bytes.fromhex(Shade(share).color[1:])) for share in shares]
    assert all(lighter >= darker for lighter, darker in pairwise(brightness))
    assert [Shade(share).is_dark for share in shares] == sorted(Shade(share).is_dark for share in shares)
