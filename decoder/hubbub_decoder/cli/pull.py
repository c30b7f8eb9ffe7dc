"""`hubbub pull`: an aggregator's summary, or retained reports -> a file."""

from __future__ import annotations

from pathlib import Path

import click

from hubbub.cli.output import PATH, json_option, print_json


@click.command()
@click.argument("url")
@click.argument("metric")
@click.option("--out", required=True, type=PATH, help="The file to write.")
@click.option(
    "--period",
    "periods",
    multiple=True,
    metavar="YYYY-MM-DD",
    help="First day of a period; may be repeated. Default: all.",
)
@click.option("--digest", help="The definition's digest, where several are collected under one name.")
@click.option("--kind", type=click.Choice(["bits", "patterns"]), help="Which counts to ask for.")
@click.option("--reports", is_flag=True, help="Fetch the reports themselves, where the aggregator retains them.")
@json_option
def command(
    url: str,
    metric: str,
    out: Path,
    periods: tuple[str, ...],
    digest: str | None,
    kind: str | None,
    reports: bool,
    as_json: bool,
) -> None:
    """Fetch a METRIC's counts, or its reports, from an aggregator.

    The token that lets you read is taken from the environment: HUBBUB_TOKEN.

    \b
    Example:
      hubbub pull https://telemetry.example.org homepage --period 2026-03-01 --out homepage.parquet
    """

    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, SpinnerColumn, TextColumn

    from hubbub.summary import ReportFile, Summary
    from hubbub.text import format_count
    from hubbub_decoder.data.output_files import check_parquet_path, write_summary_file
    from hubbub_decoder.data.pull import pull_reports, pull_summary

    if reports and kind:
        raise click.UsageError("--kind is for summaries: leave it out, or --reports")
    check_parquet_path(out)
    talk = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), DownloadColumn())
    with Progress(*columns, console=talk, transient=True, disable=not talk.is_terminal) as progress:
        task = progress.add_task(f"pulling {metric}", total=None)

        def advance(size: int) -> None:
            progress.advance(task, size)

        pulled: ReportFile | Summary
        if reports:
            pulled = pull_reports(url, metric, out, periods=periods, digest=digest, progress=advance)
        else:
            pulled = pull_summary(url, metric, periods=periods, digest=digest, kind=kind, progress=advance)
            write_summary_file(pulled, out)
    talk.print(f"wrote {out}: {format_count(pulled.num_reports, 'report')} of {metric}", highlight=False)
    if lacking := [period for period in periods if period not in pulled.periods]:
        talk.print(f"of {', '.join(lacking)} there is nothing", highlight=False)
    if as_json:
        told = {
            "out": str(out),
            "metric": metric,
            "digest": pulled.metric.digest,
            "num_reports": pulled.num_reports,
            "periods": list(pulled.periods),
        }
        print_json(told)
