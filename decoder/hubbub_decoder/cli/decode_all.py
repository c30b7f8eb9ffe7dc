"""`hubbub decode-all`: decode all summaries in a directory, on all processors, and only what has changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hubbub.cli.output import PATH, jobs_option, json_option, print_json
from hubbub_decoder.cli.shared import (
    candidates_directory_option,
    fdr_option,
    independent_clients_option,
    interval_options,
    print_message,
    tracked,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console

    from hubbub_decoder.batch_decoding.run import Outcome
    from hubbub_decoder.options import Target


@click.command()
@click.argument("directory", type=PATH)
@click.option(
    "--out-dir",
    "out",
    required=True,
    type=PATH,
    metavar="DIRECTORY",
    help="Output directory for the results and their index; created if it does not exist.",
)
@candidates_directory_option
@click.option(
    "--format",
    "suffix",
    default="json",
    show_default=True,
    type=click.Choice(["json", "csv", "parquet"]),
    help="Format of the results. A metric that estimates a mean has no rows, so its result is JSON.",
)
@jobs_option("number of processors")
@json_option
@interval_options
@fdr_option("candidates")
@independent_clients_option("the same clients with the same values, for which intervals are wider")
def command(
    directory: Path,
    out: Path,
    candidates_path: Path | None,
    suffix: str,
    jobs: int | None,
    confidence: float,
    target: Target,
    fdr: float,
    *,
    as_json: bool,
    independent_clients: bool,
) -> None:
    """Decode all summaries below a directory.

    Files of one definition and the same periods are added up. A result is kept while its inputs, the options and the release of hubbub
    stay the same. So an interrupted run continues where it was. index.jsonl in --out-dir lists the outcome of each task.

    The exit code is 1 if a task was skipped or failed.

    \b
    Example:
      hubbub decode-all summaries/ --candidates candidates/ --out-dir estimates/
    """
    from rich.console import Console

    from hubbub_decoder.batch_decoding.run import run_tasks
    from hubbub_decoder.batch_decoding.tasks import find_tasks
    from hubbub_decoder.options import Options

    if suffix == "parquet" and out.resolve().is_relative_to(directory.resolve()):
        raise click.UsageError(
            f"--out-dir {out} is in {directory}, so the next run would take its .parquet results for summaries. Pass a directory outside."
        )
    options = Options(confidence, fdr, target, not independent_clients)
    tasks, unreadable = find_tasks(directory, candidates_path, options, (f".{suffix}",))
    outcomes = run_tasks(tasks, unreadable, out, jobs or os.cpu_count() or 1)
    _finish(list(_shown(outcomes, len(tasks) + len(unreadable), Console(stderr=True))), as_json=as_json)


def _finish(outcomes: Sequence[Outcome], *, as_json: bool) -> None:
    """Print the number of tasks of each status, and exit with 1 if one was skipped or failed."""
    from dataclasses import asdict

    from hubbub_decoder.batch_decoding.run import Status

    counts = {status: sum(outcome.status is status for outcome in outcomes) for status in Status}
    if as_json:
        print_json({"counts": counts, "outcomes": [asdict(outcome) for outcome in outcomes]})
    else:
        click.echo(", ".join(f"{number:,} {status}" for status, number in counts.items() if number))
    if counts[Status.SKIPPED] or counts[Status.FAILED]:
        raise SystemExit(1)


def _shown(outcomes: Iterable[Outcome], number: int, stderr: Console) -> Iterator[Outcome]:
    """Yield the outcomes; show their number on a terminal, and print which tasks were skipped or failed, with reasons."""
    for outcome in tracked(outcomes, number, stderr):
        if outcome.reason:
            print_message(stderr, f"{outcome.status}: {outcome.name}: {outcome.reason}")
        yield outcome
