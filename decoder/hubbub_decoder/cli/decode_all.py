"""`hubbub decode-all` and `hubbub report`: decode all summaries in a directory, on all processors, and only what has changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hubbub.cli.output import PATH, jobs_option, json_option, print_json
from hubbub_decoder.cli.shared import (
    Decorator,
    candidates_directory_option,
    fdr_option,
    independent_clients_option,
    interval_options,
    print_message,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.console import Console

    from hubbub_decoder.batch_decoding.run import Outcome
    from hubbub_decoder.batch_decoding.tasks import Task, UnreadableFile
    from hubbub_decoder.options import Target


def batch_options(out: str) -> Decorator:
    """Argument and options of a command that decodes a directory; out : what is written into --out-dir."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(
            (
                click.argument("directory", type=PATH),
                click.option(
                    "--out-dir", "out", required=True, type=PATH, metavar="DIRECTORY", help=f"Output directory {out}"
                ),
                candidates_directory_option,
                jobs_option("number of processors"),
                json_option,
                interval_options,
                fdr_option("candidates"),
                independent_clients_option("the same clients with the same values, for which intervals are wider"),
            )
        ):
            function = option(function)
        return function

    return decorate


@click.command()
@batch_options("for the results and their index; created if it does not exist.")
@click.option(
    "--format", "suffix", default="json", show_default=True, type=click.Choice(["json", "csv", "parquet"]),
    help="Format of the results.",
)  # fmt: skip
def command(suffix: str, directory: Path, out: Path, *, as_json: bool, **options: Any) -> None:
    """Decode all summaries below a directory.

    Files of one definition and the same periods are added up. A result is kept while its inputs, the options and the release of hubbub
    stay the same. So an interrupted run continues where it was. index.jsonl in --out-dir lists the outcome of each task.

    The exit code is 1 if a task failed.

    \b
    Example:
      hubbub decode-all summaries/ --candidates candidates/ --out-dir estimates/
    """
    if suffix == "parquet" and out.resolve().is_relative_to(directory.resolve()):
        raise click.UsageError(
            f"--out-dir {out} is in {directory}, so the next run would take its .parquet results for summaries. Pass a directory outside."
        )
    _finish(_decode_directory(directory=directory, out=out, suffixes=(f".{suffix}",), **options)[2], as_json=as_json)


@click.command("report")
@batch_options("for the pages; created if it does not exist. Open index.html in it.")
def report(out: Path, *, as_json: bool, **options: Any) -> None:
    """Make HTML pages of all summaries below a directory.

    index.html in --out-dir lists the metrics with their status, and their definitions. Each metric has a page with its shares by period, and each
    period one like that of `hubbub decode --out FILE.html`. The pages need no network. Only what has changed is decoded again, as by
    `hubbub decode-all`. Its JSON results are kept beside the pages.

    The exit code is 1 if a task failed.

    \b
    Example:
      hubbub report summaries/ --candidates candidates/ --out-dir report/
    """
    from hubbub_decoder.batch_decoding.pages import write_pages

    tasks, unreadable, outcomes = _decode_directory(out=out, suffixes=(".json", ".html"), **options)
    index = write_pages(out, tasks, unreadable, {outcome.name: outcome for outcome in outcomes})
    click.echo(f"wrote {index}", err=True)
    _finish(outcomes, as_json=as_json)


def _decode_directory(
    *,
    directory: Path,
    out: Path,
    candidates_path: Path | None,
    jobs: int | None,
    confidence: float,
    target: Target,
    fdr: float,
    independent_clients: bool,
    suffixes: tuple[str, ...],
) -> tuple[list[Task], list[UnreadableFile], list[Outcome]]:
    """Decode all summaries below a directory, with progress on a terminal; tasks, files that are no summaries, and the outcomes of both."""
    from rich.console import Console

    from hubbub_decoder.batch_decoding.run import run_tasks
    from hubbub_decoder.batch_decoding.tasks import find_tasks
    from hubbub_decoder.options import Options

    options = Options(confidence, fdr, target, not independent_clients)
    tasks, unreadable = find_tasks(directory, candidates_path, options, suffixes)
    outcomes = run_tasks(tasks, unreadable, out, jobs or os.cpu_count() or 1)
    return tasks, unreadable, list(shown(outcomes, len(tasks) + len(unreadable), Console(stderr=True)))


def _finish(outcomes: Sequence[Outcome], *, as_json: bool) -> None:
    """Print the number of tasks of each status, and exit with 1 if one failed."""
    from dataclasses import asdict

    from hubbub_decoder.batch_decoding.run import Status

    counts = {status: sum(outcome.status is status for outcome in outcomes) for status in Status}
    if as_json:
        print_json({"counts": counts, "outcomes": [asdict(outcome) for outcome in outcomes]})
    else:
        click.echo(", ".join(f"{number:,} {status}" for status, number in counts.items() if number))
    if counts[Status.FAILED]:
        raise SystemExit(1)


def shown(outcomes: Iterable[Outcome], number: int, stderr: Console) -> Iterator[Outcome]:
    """Yield the outcomes; show their number on a terminal, and print which tasks were skipped or failed."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("decoding"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        for outcome in progress.track(outcomes, total=number):
            if outcome.reason:
                line = f"{outcome.status}: {outcome.name}: {outcome.reason}"
                print_message(progress.console, line)
            yield outcome
