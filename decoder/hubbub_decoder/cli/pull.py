"""`hubbub pull`: download a summary or retained reports, or the summaries of everything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hubbub.cli.output import PATH, json_option, print_json
from hubbub_decoder.cli.mirror import Download, mirror_periods
from hubbub_decoder.cli.shared import Day, print_message

if TYPE_CHECKING:
    from rich.console import Console

    from hubbub.summary import ReportFile, Summary


@click.command(short_help="Download counts or reports from an aggregator.")
@click.argument("url")
@click.argument("metric", required=False)
@click.option("--out", type=PATH, metavar="FILE", help="Output file (.parquet) of the counts or reports of METRIC.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Everything: download what --out-dir does not have of each metric, closed period and value of a group.",
)
@click.option("--open", "with_open", is_flag=True, help="With --all: also periods of which reports are still accepted.")
@click.option(
    "--out-dir",
    type=PATH,
    metavar="DIRECTORY",
    help="Output directory for the summaries of --all; created if it does not exist.",
)
@click.option(
    "--period",
    "days",
    multiple=True,
    metavar="YYYY-MM-DD",
    type=Day(),
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
    metric: str | None,
    out: Path | None,
    everything: bool,
    with_open: bool,
    out_dir: Path | None,
    days: tuple[date, ...],
    digest: str | None,
    by_group: bool,
    content: str | None,
    allow_missing: bool,
    as_json: bool,
) -> None:
    """Download the counts or the reports of METRIC from the aggregator at URL, or with --all the counts of all metrics.

    Set the environment variable HUBBUB_TOKEN to a token with read permission.

    FILE says whether the aggregator had closed its periods, so that no report of them can come. Such a file is final: the command keeps it,
    and asks for nothing. Delete it to download it again.

    The exit code is 1 if there are no reports, or none of one of the periods. The file then has the others.

    With --all, DIRECTORY gets a file for each metric version and period, one for each value of its group, and their sum. What is there and
    has the reports of the aggregator is not downloaded again. The exit code is 1 if a period could not be downloaded.

    \b
    Example:
      hubbub pull https://telemetry.example.org homepage --period 2026-03-01 --out homepage.parquet
      hubbub pull https://telemetry.example.org homepage --by-group --out homepage.parquet
      hubbub pull https://telemetry.example.org --all --out-dir summaries/
    """
    given = {
        "METRIC": metric,
        "--out": out,
        "--period": days,
        "--digest": digest,
        "--by-group": by_group,
        "--content": content,
        "--allow-missing": allow_missing,
    }
    if everything:
        if other := [name for name, value in given.items() if value]:
            raise click.UsageError(f"{other[0]} chooses a part, and --all downloads everything. Leave one of them out.")
        if out_dir is None:
            raise click.UsageError("--all needs --out-dir DIRECTORY for the summaries.")
        pull_all(url, out_dir, with_open=with_open, as_json=as_json)
        return
    if with_open or out_dir is not None:
        raise click.UsageError(f"{'--open' if with_open else '--out-dir'} needs --all.")
    if metric is None or out is None:
        raise click.UsageError("Pass METRIC and --out FILE, or --all and --out-dir DIRECTORY.")
    _pull_one(Download(url, metric, tuple(map(str, days)), digest, content), out, by_group, allow_missing, as_json)


def _pull_one(request: Download, out: Path, by_group: bool, allow_missing: bool, as_json: bool) -> None:
    from rich.console import Console

    from hubbub_decoder.data.output_files import check_parquet_path

    check_parquet_path(out)
    stderr = Console(stderr=True)
    metric, periods = request.metric, request.periods
    pulled = request.complete_files(out, by_group=by_group)
    if pulled:
        print_message(stderr, f"kept {out}: its counts are final, because the aggregator had closed the period")
    else:
        with _progress(stderr, metric) as count_bytes:
            pulled = request.download(out, count_bytes, by_group=by_group)
        for path, found in pulled.items():
            print_message(stderr, _written(path, found))
        for line in _other_versions(request, pulled.values()):
            print_message(stderr, line)
        if out not in pulled and request.content != "reports" and out.exists():
            print_message(stderr, f"kept {out}: it has reports that the aggregator does not have")
    present = {period for found in pulled.values() for period in found.periods}
    missing = [period for period in periods if period not in present] or ([] if present else [metric])
    told = f"the aggregator has no reports of {', '.join(missing)}"
    if missing and allow_missing:
        print_message(stderr, f"Warning: {told}.")
    if as_json:
        results = [_about(path, found) for path, found in pulled.items()]
        nothing = {"out": str(out), "metric": metric, "num_reports": 0, "periods": []}
        print_json({"files": results} if by_group else results[0] if results else nothing)
    if missing and not allow_missing:
        raise click.ClickException(f"{told}. Check the period and the metric, or pass --allow-missing.")


def _other_versions(request: Download, pulled: Iterable[ReportFile | Summary]) -> list[str]:
    """Return a line for each other version of the metric that has reports in the periods, unless one was asked for."""
    from hubbub.text import format_count
    from hubbub_decoder.data.pull import pull_periods
    from hubbub_decoder.errors import PullError

    if request.digest is not None:
        return []
    here = {found.metric.in_group(None).digest for found in pulled}
    try:
        listed = pull_periods(request.url)
    except PullError:
        # What was asked for is there.
        return []
    others: dict[str, int] = {}
    for period in listed:
        is_asked = not request.periods or period.period in request.periods
        if period.metric == request.metric and period.digest not in here and is_asked:
            others[period.digest] = others.get(period.digest, 0) + (period.num_reports or 0)
    return [
        f"{format_count(number, 'report')} of version {digest[:8]} {'is' if number == 1 else 'are'} not in it: pass --digest {digest}, or "
        "--all for every version"
        for digest, number in others.items()
        if number
    ]


def pull_all(url: str, directory: Path, *, with_open: bool, as_json: bool = False) -> None:
    """Download what a directory does not have, and say what became of each period. Raises ClickException if one failed."""
    from rich.console import Console

    from hubbub.text import format_count
    from hubbub_decoder.data.pull import pull_periods

    stderr = Console(stderr=True)
    listed = [found for found in pull_periods(url) if found.num_reports != 0]
    wanted = [found for found in listed if found.closed or with_open]
    with _progress(stderr, "all metrics") as count_bytes:
        mirror = mirror_periods(url, wanted, directory, count_bytes)
    for path, found in mirror.written.items():
        print_message(stderr, _written(path, found))
    for period, reason in mirror.failed:
        print_message(stderr, f"failed: {period.metric} of {period.period}: {reason}")
    num_open = len(listed) - len(wanted)
    left_out = f", {format_count(num_open, 'period')} still open (--open downloads those, too)" if num_open else ""
    print_message(
        stderr,
        f"{format_count(len(mirror.written), 'file')} written, {format_count(mirror.kept, 'period')} kept{left_out}",
    )
    if as_json:
        failed = [
            {"metric": period.metric, "digest": period.digest, "period": period.period, "reason": reason}
            for period, reason in mirror.failed
        ]
        files = [_about(path, found) for path, found in mirror.written.items()]
        print_json({"files": files, "kept": mirror.kept, "open": num_open, "failed": failed})
    if mirror.failed:
        raise click.ClickException(
            f"{len(mirror.failed)} of {format_count(len(wanted), 'period')} could not be downloaded. Run the command again: it continues with them."
        )


@contextmanager
def _progress(stderr: Console, what: str) -> Iterator[Callable[[int], None]]:
    """Show the size of what arrives, on a terminal."""
    from rich.progress import DownloadColumn, Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn("line"), TextColumn("{task.description}", markup=False), DownloadColumn())
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        task = progress.add_task(f"downloading {what}", total=None)
        yield lambda size: progress.advance(task, size)


def _written(path: Path, found: ReportFile | Summary) -> str:
    from hubbub.summary import ReportFile
    from hubbub.text import format_count

    grows = not isinstance(found, ReportFile) and found.num_reports and not found.closed
    counted = f"{format_count(found.num_reports, 'report')} of {found.metric.title}"
    return f"wrote {path}: {counted}{', which may still grow' if grows else ''}"


def _about(path: Path, found: ReportFile | Summary) -> dict[str, object]:
    from hubbub.summary import ReportFile

    return {
        "out": str(path),
        "metric": found.metric.name,
        **({"group": found.metric.group.value} if found.metric.group is not None else {}),
        "digest": found.metric.digest,
        "num_reports": found.num_reports,
        "periods": list(found.periods),
        **({} if isinstance(found, ReportFile) else {"closed": found.closed}),
    }
