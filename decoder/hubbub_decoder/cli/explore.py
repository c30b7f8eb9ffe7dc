"""`hubbub explore`: look at the results of a directory of summaries in a browser."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hubbub.cli.output import PATH, jobs_option
from hubbub.defaults import EXPLORE_PORT
from hubbub_decoder.cli.shared import candidates_directory_option, events_option, fdr_option, interval_options

if TYPE_CHECKING:
    from hubbub_decoder.options import Target


@click.command()
@click.argument("directory", type=PATH)
@candidates_directory_option
@click.option(
    "--pull",
    "url",
    metavar="URL",
    help="First download what DIRECTORY does not have from the aggregator at URL, as `hubbub pull URL --all --open --out-dir DIRECTORY` does.",
)
@click.option(
    "--port",
    default=EXPLORE_PORT,
    show_default=True,
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "--cache",
    "cache_path",
    type=PATH,
    metavar="DIRECTORY",
    help="Directory that keeps what was decoded for the next time. Default: a temporary one.",
)
@click.option(
    "--hostname",
    "hostnames",
    multiple=True,
    metavar="NAME",
    help="Host name under which a proxy of this machine shows the pages, which signs readers in; repeatable.",
)
@events_option
@jobs_option("half of the processors")
@interval_options
@fdr_option("candidates and changes")
def command(
    directory: Path,
    candidates_path: Path | None,
    url: str | None,
    port: int,
    cache_path: Path | None,
    hostnames: tuple[str, ...],
    event_paths: tuple[Path, ...],
    jobs: int | None,
    confidence: float,
    target: Target,
    fdr: float,
) -> None:
    """Show the results of all summaries below a directory in a browser of this machine.

    The front page has a card for each metric. The page of a metric shows the shares of any periods, their changes, tests and warnings, and takes other strings.
    What is closed is shown first. New files appear when a page is loaded again.

    Only browsers of this machine are answered: others need a proxy that signs readers in, and --hostname. A process of its own decodes, without secrets, network and write access, with at most 2 GB and 60 seconds for a page.

    \b
    Example:
      hubbub explore summaries/ --candidates candidates/ --events releases.csv
      hubbub explore summaries/ --candidates candidates/ --pull https://telemetry.example.org
    """
    from hubbub_decoder.cli.pull import pull_all
    from hubbub_decoder.explore.serving import serve
    from hubbub_decoder.options import Options

    if url is not None:
        pull_all(url, directory, with_open=True)
    serve(
        directory,
        candidates_path,
        Options(confidence, fdr, target),
        cache=cache_path,
        port=port,
        hostnames=hostnames,
        events=event_paths,
        processes=jobs or max(1, (os.cpu_count() or 1) // 2),
        tell=click.echo,
    )
