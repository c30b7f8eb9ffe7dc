"""`hubbub decode-all`: decode all summaries in a directory, on all processors, and only what has changed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hubbub.cli.output import PATH, jobs_option, json_option, print_json
from hubbub_decoder.cli.shared import (
    DatabaseName,
    candidates_directory_option,
    fdr_option,
    independent_clients_option,
    interval_options,
    print_message,
    textfile_option,
    tracked,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console

    from hubbub_decoder.batch_decoding.run import Outcome
    from hubbub_decoder.batch_decoding.tasks import Task
    from hubbub_decoder.data.prometheus_textfile import RunFigures
    from hubbub_decoder.options import Target


@click.command()
@click.argument("directory", type=PATH)
@click.option(
    "--database",
    type=DatabaseName(),
    help="SQLite file or postgresql://user@host/database. The results are recorded in it. [default: results.sqlite in --out-dir]",
)
@click.option(
    "--out-dir",
    "out",
    type=PATH,
    metavar="DIRECTORY",
    help="Output directory for the files of the results; created if it does not exist.",
)
@candidates_directory_option
@click.option(
    "--format",
    "suffix",
    type=click.Choice(["json", "csv", "parquet"]),
    help="Format of the files in --out-dir. A metric that estimates a mean has no rows, so its file is JSON. [default: json]",
)
@jobs_option("number of processors")
@textfile_option
@json_option
@interval_options
@fdr_option("candidates")
@independent_clients_option("the same clients with the same values, for which intervals are wider")
def command(
    directory: Path,
    database: str | None,
    out: Path | None,
    candidates_path: Path | None,
    suffix: str | None,
    jobs: int | None,
    prometheus_textfile: Path | None,
    confidence: float,
    target: Target,
    fdr: float,
    *,
    as_json: bool,
    independent_clients: bool,
) -> None:
    """Decode all summaries below a directory into a database.

    Files of one definition and the same periods are added up. The sum over a group is that of the file of all values, and fails
    if the files of the values do not add up to it. Each result is recorded when it is complete, and replaces that of earlier
    counts. It is kept while its inputs, the options and the release of hubbub stay the same. So an interrupted run continues
    where it was. Results of open periods are recorded, too.

    Joint metrics and those with `discover` are skipped: `hubbub associate --out` and `hubbub discover --out` estimate them. The exit code
    is 1 if a task failed, or was skipped for another reason, such as missing candidates.

    \b
    Example:
      hubbub decode-all summaries/ --candidates candidates/ --database results.sqlite
    """
    from rich.console import Console

    from hubbub_decoder.batch_decoding.run import run_tasks
    from hubbub_decoder.batch_decoding.tasks import find_tasks
    from hubbub_decoder.data.output_files import make_directory
    from hubbub_decoder.data.prometheus_textfile import write_run_textfile
    from hubbub_decoder.options import Options
    from hubbub_decoder.results_store.database import open_results_database

    if suffix is not None and out is None:
        raise click.UsageError("--format is that of the files in --out-dir. Pass --out-dir, or leave out --format.")
    if database is None:
        if out is None:
            raise click.UsageError("Pass --database for the results, --out-dir for a file of each result, or both.")
        database = str(out / "results.sqlite")
    if suffix == "parquet" and out is not None and out.resolve().is_relative_to(directory.resolve()):
        raise click.UsageError(
            f"--out-dir {out} is in {directory}, so the next run would take its .parquet results for summaries. Pass a directory outside."
        )
    options = Options(confidence, fdr, target, not independent_clients)
    tasks, unreadable = find_tasks(directory, candidates_path, options)
    if out is not None:
        make_directory(out)
    with open_results_database(database) as store:
        outcomes = run_tasks(tasks, unreadable, store, jobs or os.cpu_count() or 1, out, f".{suffix or 'json'}")
        found = list(_shown(outcomes, len(tasks) + len(unreadable), Console(stderr=True)))
    try:
        finish(found, as_json=as_json)
    finally:
        if prometheus_textfile is not None:
            write_run_textfile(prometheus_textfile, figures_of(tasks, found, ended=time.time()))


def figures_of(tasks: Sequence[Task], outcomes: Sequence[Outcome], *, ended: float) -> RunFigures:
    """Figures of a run for Prometheus; ended : POSIX seconds."""
    from hubbub_decoder.batch_decoding.run import Status
    from hubbub_decoder.data.prometheus_textfile import RunFigures, newest_days

    numbers = {str(status): sum(outcome.status is status for outcome in outcomes) for status in Status}
    closed = {outcome.name for outcome in outcomes if outcome.closed}
    newest = newest_days((task.metric.name, day) for task in tasks if task.name in closed for day in task.periods)
    return RunFigures("decode_all", "results", numbers, newest, ended)


def finish(outcomes: Sequence[Outcome], *, as_json: bool) -> None:
    """Print the number of tasks of each status, and exit with 1 if one failed, or was skipped for another reason than its definition."""
    from dataclasses import asdict

    from hubbub_decoder.batch_decoding.run import Status

    counts = {status: sum(outcome.status is status for outcome in outcomes) for status in Status}
    if as_json:
        print_json({"counts": counts, "outcomes": [asdict(outcome) for outcome in outcomes]})
    else:
        click.echo(", ".join(f"{number:,} {status}" for status, number in counts.items() if number))
    incomplete = (Status.SKIPPED, Status.FAILED)
    if any(outcome.status in incomplete and not outcome.other_command for outcome in outcomes):
        raise SystemExit(1)


def _shown(outcomes: Iterable[Outcome], number: int, stderr: Console) -> Iterator[Outcome]:
    """Yield the outcomes; show their number on a terminal, and print which tasks were skipped or failed, with reasons."""
    for outcome in tracked(outcomes, number, stderr):
        if outcome.reason:
            print_message(stderr, f"{outcome.status}: {outcome.name}: {outcome.reason}")
        yield outcome
