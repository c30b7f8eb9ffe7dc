"""`hubbub compare`: estimate the changes of shares between two periods or two groups."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hubbub.cli.output import PATH, json_option, print_json

if TYPE_CHECKING:
    from hubbub_decoder.inference.intervals import Target


@click.command(short_help="Compare two periods or groups.")
@click.argument("a", type=PATH)
@click.argument("b", type=PATH)
@click.option(
    "--and-a",
    "more_a",
    multiple=True,
    type=PATH,
    help="Another file of the first sample; repeatable. Files are added up.",
)
@click.option("--and-b", "more_b", multiple=True, type=PATH, help="Another file of the second sample; repeatable.")
@click.option(
    "--candidates",
    "candidates_path",
    type=PATH,
    help="Candidates: one per line, or a .csv with a column `candidate`; - reads stdin. Required for string metrics.",
)
@json_option
@click.option("--out", type=PATH, help="Also save the changes to this .csv or .json file.")
@click.option("--plot", type=PATH, help="Also save a plot of the largest changes to this .svg, .png or .pdf file.")
@click.option("--all", "everything", is_flag=True, help="Show every candidate, not only those with a detected change.")
@click.option(
    "--confidence", default=0.95, show_default=True, type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Confidence level of the intervals.",
)  # fmt: skip
@click.option(
    "--fdr", default=0.05, show_default=True, type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="False discovery rate: the expected share of false positives among the detected changes.",
)  # fmt: skip
@click.option(
    "--target", default="reporters", show_default=True, type=click.Choice(["reporters", "population"]),
    help="Changes among the reporters, or in the populations of which they are random samples (wider intervals).",
)  # fmt: skip
@click.option(
    "--independent-clients", is_flag=True,
    help="No client is in both A and B: two groups. Default if both have the same periods.",
)  # fmt: skip
@click.option(
    "--overlap", type=click.FloatRange(0, 1),
    help="Share of the clients with the same value in A and B, if known. Default: estimated; 0 if the reports do not show it.",
)  # fmt: skip
def command(
    a: Path,
    b: Path,
    more_a: tuple[Path, ...],
    more_b: tuple[Path, ...],
    candidates_path: Path | None,
    as_json: bool,
    out: Path | None,
    plot: Path | None,
    everything: bool,
    confidence: float,
    fdr: float,
    target: Target,
    independent_clients: bool,
    overlap: float | None,
) -> None:
    """Estimate how the share of each candidate changes from A to B.

    A and B are files of counts or of individual reports, of two periods or of two groups of clients.

    \b
    Example:
      hubbub compare march.parquet april.parquet --candidates names.txt --plot changes.svg
    """
    from rich.console import Console

    from hubbub.summary import read_collected
    from hubbub_decoder.cli.progress import elapsed_time
    from hubbub_decoder.comparison.compare import compare
    from hubbub_decoder.comparison.table import ComparisonTable
    from hubbub_decoder.data.candidates import read_candidates
    from hubbub_decoder.data.output_files import check_plot_path, check_table_path, write_figure

    if out is not None:
        check_table_path(out)
    if plot is not None:
        check_plot_path(plot)
    candidates = None if candidates_path is None else read_candidates(candidates_path)
    stderr = Console(stderr=True)
    with elapsed_time(stderr) as show_stage:
        show_stage("reading")
        samples = [[read_collected(path) for path in paths] for paths in ((a, *more_a), (b, *more_b))]
        show_stage("comparing")
        comparison = compare(
            samples[0],
            samples[1],
            candidates,
            confidence=confidence,
            fdr=fdr,
            target=target,
            same_clients=False if independent_clients else None,
            overlap=overlap,
        )
    if out is not None:
        comparison.save(out)
        stderr.print(f"wrote {out}", highlight=False)
    if plot is not None:
        from hubbub_decoder.comparison.plots import plot_changes

        write_figure(plot_changes(comparison), plot)
        stderr.print(f"wrote {plot}", highlight=False)
    if as_json:
        print_json(comparison.to_dict())
    else:
        Console(highlight=False).print(ComparisonTable(comparison, everything))
