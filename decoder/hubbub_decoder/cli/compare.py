"""`hubbub compare`: estimate the changes of shares between two periods or two groups."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hubbub.cli.output import PATH, json_option
from hubbub_decoder.cli.shared import (
    Share,
    candidates_option,
    elapsed_time,
    everything_option,
    fdr_option,
    interval_options,
    output_options,
    print_result,
    read_all,
    top_option,
    write_outputs,
)

if TYPE_CHECKING:
    from hubbub_decoder.options import Target


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
@candidates_option
@json_option
@output_options("the changes", ".csv, .json, .parquet or .html", "the largest changes")
@everything_option("every candidate, not only those with a detected change")
@top_option("detected changes first, then the largest; also in --plot")
@interval_options
@fdr_option("changes")
@click.option(
    "--independent-clients",
    is_flag=True,
    help="Different clients: no client is in both A and B. Default if both have the same periods.",
)
@click.option(
    "--overlap",
    metavar="SHARE",
    type=Share(may_be_all=True),
    help="Part of the clients with the same value in A and B, if known. Default: estimated; 0 if the reports do not show it.",
)
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
    top: int | None,
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
    from datetime import UTC, datetime

    from rich.console import Console

    from hubbub_decoder.comparison.compare import compare
    from hubbub_decoder.data.candidates import read_candidates
    from hubbub_decoder.data.output_files import PAGE, TABLES, check_result_paths
    from hubbub_decoder.report.about import provenance_rows
    from hubbub_decoder.report.write import write_comparison_report

    inputs = (a, *more_a, b, *more_b)
    check_result_paths(out, plot, (*TABLES, PAGE), (*inputs, candidates_path))
    candidates = None if candidates_path is None else read_candidates(candidates_path)
    stderr = Console(stderr=True)
    with elapsed_time(stderr) as show_stage:
        samples = [read_all(paths, show_stage) for paths in ((a, *more_a), (b, *more_b))]
        show_stage("comparing")
        comparison = compare(
            samples[0],
            samples[1],
            candidates,
            confidence=confidence,
            fdr=fdr,
            target=target,
            same_clients=not independent_clients,
            overlap=overlap,
        )

    def save(path: Path) -> None:
        if path.suffix.lower() == PAGE:
            rows = provenance_rows(
                comparison.b, inputs, [candidates_path] if candidates_path else [], datetime.now(UTC).date()
            )
            write_comparison_report(comparison, path, rows)
        else:
            comparison.save(path)

    write_outputs(stderr, out, save, plot, lambda figure: comparison.plot(figure, top=top))
    print_result(comparison, as_json=as_json, everything=everything, top=top)
