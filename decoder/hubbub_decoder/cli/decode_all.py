"""`hubbub decode-all`: decode all summaries in a directory, on all processors, and only what has changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hubbub.cli.output import PATH, json_option, print_json
from hubbub_decoder.cli.shared import fdr_option, independent_clients_option, interval_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console

    from hubbub_decoder.batch_decoding.run import Outcome
    from hubbub_decoder.inference.intervals import Target


@click.command()
@click.argument("directory", type=PATH)
@click.option(
    "--out", required=True, type=PATH, help="Directory for the results and their index; created if it does not exist."
)
@click.option(
    "--candidates", "candidates_path", type=PATH,
    help="Directory with a file METRIC.txt or METRIC.csv for each string metric, or one file for all of them.",
)  # fmt: skip
@click.option(
    "--format", "suffix", default="json", show_default=True, type=click.Choice(["json", "csv", "parquet"]),
    help="Format of the results.",
)  # fmt: skip
@click.option(
    "--jobs", default=None, type=click.IntRange(1), help="Processes at once.  [default: number of processors]"
)
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
    as_json: bool,
    confidence: float,
    target: Target,
    fdr: float,
    independent_clients: bool,
) -> None:
    """Decode all summaries below a directory.

    The results are written into the directory of --out. Files of one definition and the same periods are added up. A result is kept while its inputs, the options and the release of hubbub
    stay the same. So an interrupted run continues where it was. OUT/index.jsonl lists the outcome of each task.

    The exit code is 1 if a task failed.

    \b
    Example:
      hubbub decode-all summaries/ --candidates candidates/ --out estimates/
    """
    from dataclasses import asdict

    from rich.console import Console

    from hubbub_decoder.batch_decoding.run import Status, run_tasks
    from hubbub_decoder.batch_decoding.tasks import DecodingOptions, find_tasks

    options = DecodingOptions(confidence, fdr, target, not independent_clients, f".{suffix}")
    tasks, unreadable = find_tasks(directory, candidates_path, options)
    stderr = Console(stderr=True)
    outcomes = list(
        _shown(run_tasks(tasks, unreadable, out, jobs or os.cpu_count() or 1), len(tasks) + len(unreadable), stderr)
    )
    counts = {status: sum(outcome.status is status for outcome in outcomes) for status in Status}
    if as_json:
        print_json({"counts": counts, "outcomes": [asdict(outcome) for outcome in outcomes]})
    else:
        click.echo(", ".join(f"{number:,} {status}" for status, number in counts.items() if number))
    if counts[Status.FAILED]:
        raise SystemExit(1)


def _shown(outcomes: Iterable[Outcome], number: int, stderr: Console) -> Iterator[Outcome]:
    """Yield the outcomes; show their number on a terminal, and print which tasks were skipped or failed."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("decoding"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        for outcome in progress.track(outcomes, total=number):
            if outcome.reason:
                line = f"{outcome.status}: {outcome.name}: {outcome.reason}"
                progress.console.print(line, highlight=False, markup=False, soft_wrap=True)
            yield outcome
