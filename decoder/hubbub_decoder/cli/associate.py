"""`hubbub associate`: joint distribution of two parts of a joint metric."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hubbub.cli.output import PATH, json_option, print_json

if TYPE_CHECKING:
    from hubbub_decoder.inference.intervals import Target


@click.command(short_help="Estimate how two parts of a joint metric depend on each other.")
@click.argument("reports_path", metavar="REPORTS", type=PATH)
@click.option(
    "--candidates", "candidate_files", metavar="PART=FILE", multiple=True,
    help="Candidates of a string part: one per line, or a .csv with a column `candidate`. Repeat for each string part.",
)  # fmt: skip
@click.option("--parts", metavar="FIRST,SECOND", help="The two parts, of a metric with three. Default: the first two.")
@json_option
@click.option("--out", type=PATH, help="Also save all pairs to this .csv or .json file.")
@click.option("--plot", type=PATH, help="Also draw the joint guess as a heat map (.svg, .png or .pdf).")
@click.option(
    "--all", "everything", is_flag=True, help="Show all components, not only those with clearly positive shares."
)
@click.option(
    "--confidence", default=0.95, show_default=True, type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Confidence level of the intervals.",
)  # fmt: skip
@click.option(
    "--target", default="reporters", show_default=True, type=click.Choice(["reporters", "population"]),
    help="Shares among the reporters, or in the population of which they are a random sample (wider intervals).",
)  # fmt: skip
@click.option(
    "--independent-clients",
    is_flag=True,
    help="Several periods have different clients. Default: several periods are refused.",
)
def command(
    reports_path: Path,
    candidate_files: tuple[str, ...],
    parts: str | None,
    as_json: bool,
    out: Path | None,
    plot: Path | None,
    everything: bool,
    confidence: float,
    target: Target,
    independent_clients: bool,
) -> None:
    """Estimate the joint distribution of two parts of a joint metric, and test whether they are independent.

    REPORTS is a file of individual reports: hubbub pull --reports, or hubbub simulate --kind reports.

    \b
    Example:
      hubbub associate flight.parquet --candidates carrier=carriers.txt --candidates origin=airports.txt --plot flight.svg
    """
    from rich.console import Console

    from hubbub.summary import read_reports
    from hubbub_decoder.association.association import associate
    from hubbub_decoder.association.output import AssociationTable, check_paths, plot_heat_map, write_cells
    from hubbub_decoder.cli.progress import elapsed_time
    from hubbub_decoder.data.candidates import read_candidates
    from hubbub_decoder.data.output_files import write_figure

    check_paths(out, plot)
    candidates = {name: read_candidates(path) for name, path in map(_part_and_file, candidate_files)}
    stderr = Console(stderr=True)
    with elapsed_time(stderr) as show_stage:
        show_stage("reading")
        reports = read_reports(reports_path)
        show_stage(f"associating {reports.num_reports:,} reports")
        found = associate(
            reports,
            candidates,
            parts=None if parts is None else parts.split(","),
            confidence=confidence,
            target=target,
            same_clients=not independent_clients,
        )
    if out is not None:
        write_cells(found, out)
        stderr.print(f"wrote {out}", highlight=False)
    if plot is not None:
        write_figure(plot_heat_map(found, everything=everything), plot)
        stderr.print(f"wrote {plot}", highlight=False)
    if as_json:
        print_json(found.to_dict())
    else:
        Console(highlight=False).print(AssociationTable(found, everything))


def _part_and_file(text: str) -> tuple[str, Path]:
    name, separator, path = text.partition("=")
    if not separator or not name or not path:
        raise click.UsageError(
            f"--candidates must be PART=FILE, got {text!r}. Write --candidates carrier=names.txt, for example."
        )
    return name, Path(path)
