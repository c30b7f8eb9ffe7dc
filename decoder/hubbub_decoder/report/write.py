"""Write the page of one decoding, of one metric's periods, or of a comparison, to a self-contained HTML file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hubbub_decoder.comparison.results import Comparison
from hubbub_decoder.comparison.trends import Trends
from hubbub_decoder.data.events import Event
from hubbub_decoder.data.output_files import PAGE, atomic_write, check_table_path
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.evidence import Collected
from hubbub_decoder.report.comparison_page import render_comparison
from hubbub_decoder.report.decoding_page import render_decoding
from hubbub_decoder.report.metric_page import PeriodRow, render_metric
from hubbub_decoder.report.rendering import inline_scripts
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.residuals import bit_residuals


def write_report(
    decoding: Decoding,
    path: str | Path,
    summary: Collected | None = None,
    *,
    design: DesignMatrix | None = None,
    provenance: Iterable[tuple[str, str]] = (),
) -> None:
    """Write a self-contained HTML page with a chart, tables, tests, privacy and definition of one decoding.

    Parameters
    ----------
    decoding
        Result of `decode`.
    path
        Path of the page, with the suffix .html.
    summary
        Counts or reports that were decoded, for the residuals of the bits. None: the page has no residuals.
    design
        Design matrix of the candidates, if their bits are not those of the metric's hash scheme.
    provenance
        Rows of label and text, such as the names of the input files.

    Raises
    ------
    OutputError
        The suffix is another one, or the file cannot be written.
    """
    residuals = None if summary is None else bit_residuals(summary, decoding, design)
    write_page(Path(path), render_decoding(decoding, inline_scripts(), residuals=residuals, provenance=provenance))


def write_trend_report(
    trends: Trends, path: Path, provenance: Iterable[tuple[str, str]] = (), events: Iterable[Event] = ()
) -> None:
    """Write a self-contained HTML page of the shares by period, or by value of the group, and their changes.

    Raises OutputError for another suffix than .html, or if the file cannot be written.
    """
    labelled = zip(trends.decodings, trends.labels, strict=True)
    periods = [PeriodRow.from_decoding(decoding, label=label) for decoding, label in labelled]
    documents: list[dict[str, Any]] = [decoding.to_dict() for decoding in trends.decodings]
    page = render_metric(
        trends.metric,
        periods,
        documents,
        inline_scripts(),
        provenance=provenance,
        compared=trends,
        by=trends.by,
        events=events,
    )
    write_page(path, page)


def write_comparison_report(comparison: Comparison, path: Path, provenance: Iterable[tuple[str, str]] = ()) -> None:
    """Write a self-contained HTML page of the changes between two samples.

    Raises OutputError for another suffix than .html, or if the file cannot be written.
    """
    write_page(path, render_comparison(comparison, inline_scripts(), provenance=provenance))


def write_page(path: Path, page: str) -> None:
    """Write an HTML page. Raises OutputError for another suffix than .html, or if the file cannot be written."""
    check_table_path(path, (PAGE,))
    with atomic_write(path) as file:
        file.write(page.encode())
