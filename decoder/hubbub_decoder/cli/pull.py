"""`hubbub pull`: an aggregator's summary -> a file."""

from __future__ import annotations

from pathlib import Path

import click

from hubbub.cli.output import json_option, print_json


@click.command()
@click.argument("url")
@click.argument("metric")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The summary file to write.")
@click.option(
    "--period",
    "periods",
    multiple=True,
    metavar="YYYY-MM-DD",
    help="First day of a period; may be repeated. Default: all.",
)
@click.option("--digest", help="The definition's digest, where several are collected under one name.")
@click.option("--counts", type=click.Choice(["bits", "patterns"]), help="Which counts to ask for.")
@json_option
def command(
    url: str, metric: str, out: Path, periods: tuple[str, ...], digest: str | None, counts: str | None, as_json: bool
) -> None:
    """Fetch the summary of a METRIC from the aggregator at URL.

    \b
    Example:
      hubbub pull https://telemetry.example.org homepage --period 2026-03-01 --out homepage.parquet
    """

    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, SpinnerColumn, TextColumn

    from hubbub_decoder.output import write_summary_file
    from hubbub_decoder.pull import pull_summary

    talk = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), DownloadColumn())
    with Progress(*columns, console=talk, transient=True, disable=not talk.is_terminal) as progress:
        task = progress.add_task(f"pulling {metric}", total=None)
        summary = pull_summary(
            url, metric, periods=periods, digest=digest, counts=counts, progress=lambda n: progress.advance(task, n)
        )
    write_summary_file(summary, out)
    talk.print(f"wrote {out}: {summary.num_reports:,} reports of {metric}", highlight=False)
    if as_json:
        told = {
            "out": str(out),
            "metric": metric,
            "digest": summary.metric.digest,
            "num_reports": summary.num_reports,
            "periods": list(summary.periods),
        }
        print_json(told)
