"""`hubbub pull`: download a summary or retained reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from hubbub.cli.output import PATH, json_option, print_json
from hubbub_decoder.cli.shared import print_message

if TYPE_CHECKING:
    from hubbub.summary import ReportFile, Summary


@click.command(short_help="Download counts or reports from an aggregator.")
@click.argument("url")
@click.argument("metric")
@click.option(
    "--out", required=True, type=PATH, metavar="FILE", help="Output file (.parquet) of the counts or reports."
)
@click.option(
    "--period",
    "periods",
    multiple=True,
    metavar="YYYY-MM-DD",
    help="First day of a period; repeatable. Default: all periods.",
)
@click.option("--digest", help="Digest of the definition, if several are collected under this name.")
@click.option(
    "--by-group",
    is_flag=True,
    help="Also write a file for each value of the metric's group that has reports, with the value in its name. FILE, their sum, is written "
    "last. With --content reports there is no sum.",
)
@click.option(
    "--content",
    type=click.Choice(["bits", "patterns", "reports"]),
    help="Content of the output file: bit counts, pattern counts, or individual reports if the aggregator retains them. "
    "Default: the counts that the aggregator chooses.",
)
@click.option(
    "--allow-missing",
    is_flag=True,
    help="Exit with 0 also if there are no reports, or none of one of the periods; a warning then names it.",
)
@json_option
def command(
    url: str,
    metric: str,
    out: Path,
    periods: tuple[str, ...],
    digest: str | None,
    by_group: bool,
    content: str | None,
    allow_missing: bool,
    as_json: bool,
) -> None:
    """Download the counts or the reports of METRIC from the aggregator at URL.

    Set the environment variable HUBBUB_TOKEN to a token with read permission.

    The exit code is 1 if there are no reports, or none of one of the periods. The file then has the others.

    \b
    Example:
      hubbub pull https://telemetry.example.org homepage --period 2026-03-01 --out homepage.parquet
      hubbub pull https://telemetry.example.org homepage --by-group --out homepage.parquet
    """

    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, SpinnerColumn, TextColumn

    from hubbub.summary import ReportFile
    from hubbub.text import format_count
    from hubbub_decoder.data.output_files import check_parquet_path, write_summary_file
    from hubbub_decoder.data.pull import pull_reports, pull_summary
    from hubbub_decoder.model.evidence import combine

    check_parquet_path(out)
    stderr = Console(stderr=True)
    columns = (SpinnerColumn("line"), TextColumn("{task.description}", markup=False), DownloadColumn())
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        task = progress.add_task(f"downloading {metric}", total=None)

        def advance(size: int) -> None:
            progress.advance(task, size)

        def pull(path: Path, value: str | None) -> ReportFile | Summary | None:
            """Write a file; None: no report has this value, and there is no file."""
            found: ReportFile | Summary
            if content == "reports":
                found = pull_reports(
                    url, metric, path, periods=periods, digest=digest, group=value, count_bytes=advance
                )
            else:
                found = pull_summary(
                    url, metric, periods=periods, digest=digest, group=value, kind=content, count_bytes=advance
                )
            if value is not None and not found.num_reports:
                path.unlink(missing_ok=True)
                return None
            if not isinstance(found, ReportFile):
                write_summary_file(found, path)
            return found

        values: tuple[str, ...] = ()
        if by_group:
            whole = pull_summary(url, metric, periods=periods, digest=digest, count_bytes=advance)
            values = whole.metric.group.values if whole.metric.group is not None and whole.num_reports else ()
        if values:
            out.unlink(missing_ok=True)  # it is there when all values are
        files: dict[Path, str | None] = {out.with_stem(f"{out.stem}-{value}"): value for value in values}
        pulled = {
            path: found for path, value in (files or {out: None}).items() if (found := pull(path, value)) is not None
        }
        if values and pulled and content != "reports":
            total = cast("Summary", combine(cast("list[Summary]", list(pulled.values()))))
            whole = replace(total, metric=total.metric.in_group(None))  # also if one value has all reports
            write_summary_file(whole, out)
            pulled[out] = whole
    for path, each in pulled.items():
        print_message(stderr, f"wrote {path}: {format_count(each.num_reports, 'report')} of {each.metric.title}")
    present = {period for each in pulled.values() for period in each.periods}
    missing = [period for period in periods if period not in present] or ([] if present else [metric])
    told = f"the aggregator has no reports of {', '.join(missing)}"
    if missing and allow_missing:
        print_message(stderr, f"Warning: {told}.")
    if as_json:
        results = [
            {
                "out": str(path),
                "metric": metric,
                **({"group": each.metric.group.value} if each.metric.group is not None else {}),
                "digest": each.metric.digest,
                "num_reports": each.num_reports,
                "periods": list(each.periods),
            }
            for path, each in pulled.items()
        ]
        print_json({"files": results} if by_group else results[0])
    if missing and not allow_missing:
        raise click.ClickException(f"{told}. Check the period and the metric, or pass --allow-missing.")
