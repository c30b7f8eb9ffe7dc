"""`hubbub associate`: joint distribution of the parts of a joint metric."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from hubbub.cli.output import PATH, json_option
from hubbub_decoder.cli.shared import (
    elapsed_time,
    everything_option,
    independent_clients_option,
    interval_options,
    output_options,
    print_result,
    write_outputs,
)

if TYPE_CHECKING:
    from hubbub_decoder.options import Target


@click.command(short_help="Estimate how the parts of a joint metric depend on each other.")
@click.argument("reports_path", metavar="REPORTS", type=PATH)
@click.option(
    "--part-candidates",
    "candidate_files",
    metavar="PART=FILE",
    multiple=True,
    help="Candidates of a string part, in a file like that of `hubbub decode --candidates`. Repeat for each string part.",
)
@click.option(
    "--parts", metavar="NAMES", help="Two or three parts, in the order of the table: carrier,origin. Default: all."
)
@json_option
@output_options("all cells", ".csv, .json or .parquet", "the joint guess as a heat map")
@everything_option("all components, not only those with clearly positive shares")
@interval_options
@independent_clients_option("several periods are refused")
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
    """Estimate the joint distribution of the parts of a joint metric, and test whether they are independent.

    REPORTS is a file of individual reports: hubbub pull --content reports, or hubbub simulate --content reports.

    \b
    Example:
      hubbub associate flight.parquet --part-candidates carrier=carriers.txt --part-candidates origin=airports.txt --plot flight.svg
    """
    from rich.console import Console

    from hubbub.summary import Reports, read_collected
    from hubbub_decoder.association.association import associate
    from hubbub_decoder.data.candidates import read_candidates
    from hubbub_decoder.data.output_files import check_result_paths

    files = [_part_and_file(text) for text in candidate_files]
    check_result_paths(out, plot, inputs=[path for _, path in files])
    candidates = {name: read_candidates(path) for name, path in files}
    stderr = Console(stderr=True)
    with elapsed_time(stderr) as show_stage:
        show_stage("reading")
        reports = cast(Reports, read_collected(reports_path))  # `associate` refuses counts, and says why
        show_stage(f"associating {reports.num_reports:,} reports")
        found = associate(
            reports,
            candidates,
            parts=None if parts is None else parts.split(","),
            confidence=confidence,
            target=target,
            same_clients=not independent_clients,
        )
    write_outputs(stderr, out, found.save, plot, lambda figure: found.plot(figure, everything=everything))
    print_result(found, as_json=as_json, everything=everything)


def _part_and_file(text: str) -> tuple[str, Path]:
    name, separator, path = text.partition("=")
    if not separator or not name or not path:
        raise click.UsageError(
            f"--part-candidates must be PART=FILE, got {text!r}. Write --part-candidates carrier=names.txt, for example."
        )
    return name, Path(path)
