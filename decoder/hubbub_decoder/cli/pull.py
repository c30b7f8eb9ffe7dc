"""`hubbub pull`: download a summary or retained reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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

    FILE says whether the aggregator had closed its periods, so that no report of them can come. Such a file is final: the command keeps it,
    and asks for nothing. Delete it to download it again.

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
    from hubbub_decoder.data.output_files import check_parquet_path

    check_parquet_path(out)
    stderr = Console(stderr=True)
    request = _Request(url, metric, periods, digest, content)
    pulled = request.final_files(out, by_group=by_group)
    if pulled:
        print_message(stderr, f"kept {out}: its counts are final, because the aggregator had closed the period")
    else:
        columns = (SpinnerColumn("line"), TextColumn("{task.description}", markup=False), DownloadColumn())
        with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
            task = progress.add_task(f"downloading {metric}", total=None)
            pulled = request.download(out, lambda size: progress.advance(task, size), by_group=by_group)
        for path, found in pulled.items():
            open_ = "" if isinstance(found, ReportFile) or found.closed else ", which may still grow"
            print_message(
                stderr,
                f"wrote {path}: {format_count(found.num_reports, 'report')} of {found.metric.title}{open_}",
            )
    present = {period for found in pulled.values() for period in found.periods}
    missing = [period for period in periods if period not in present] or ([] if present else [metric])
    told = f"the aggregator has no reports of {', '.join(missing)}"
    if missing and allow_missing:
        print_message(stderr, f"Warning: {told}.")
    if as_json:
        results = [
            {
                "out": str(path),
                "metric": metric,
                **({"group": found.metric.group.value} if found.metric.group is not None else {}),
                "digest": found.metric.digest,
                "num_reports": found.num_reports,
                "periods": list(found.periods),
                **({} if isinstance(found, ReportFile) else {"closed": found.closed}),
            }
            for path, found in pulled.items()
        ]
        print_json({"files": results} if by_group else results[0])
    if missing and not allow_missing:
        raise click.ClickException(f"{told}. Check the period and the metric, or pass --allow-missing.")


@dataclass(frozen=True)
class _Request:
    """What is downloaded."""

    url: str
    metric: str
    periods: tuple[str, ...]
    digest: str | None
    content: str | None

    def final_files(self, out: Path, *, by_group: bool) -> dict[Path, ReportFile | Summary]:
        """Files of an earlier download whose counts are final and complete; none: download."""
        whole = self._final(out)
        if whole is None:
            return {}
        values = whole.metric.group.values if by_group and whole.metric.group is not None else ()
        of_values = {path: found for path in _paths(out, values) if (found := self._final(path)) is not None}
        if values and sum(found.num_reports for found in of_values.values()) != whole.num_reports:
            return {}
        return {**of_values, out: whole}

    def _final(self, path: Path) -> Summary | None:
        """Summary of a file of these periods that the aggregator had closed."""
        from hubbub.errors import SummaryError
        from hubbub.summary import BitCounts, PatternCounts, read_summary

        if not path.exists():
            return None
        try:
            found = read_summary(path)
        except SummaryError:
            return None
        is_asked = {None: True, "bits": isinstance(found, BitCounts), "patterns": isinstance(found, PatternCounts)}
        is_this = found.metric.name == self.metric and self.digest in (None, found.metric.in_group(None).digest)
        is_whole = bool(self.periods) and {*self.periods} == {*found.periods}
        return found if found.closed and is_this and is_whole and is_asked.get(self.content, False) else None

    def download(
        self, out: Path, count_bytes: Callable[[int], None], *, by_group: bool
    ) -> dict[Path, ReportFile | Summary]:
        """Download and write one file, or one for each value of the group that has reports, and last their sum."""
        from hubbub_decoder.data.output_files import write_summary_file
        from hubbub_decoder.data.pull import pull_summary
        from hubbub_decoder.model.evidence import combine

        values: tuple[str, ...] = ()
        if by_group:
            whole = pull_summary(
                self.url, self.metric, periods=self.periods, digest=self.digest, count_bytes=count_bytes
            )
            values = whole.metric.group.values if whole.metric.group is not None and whole.num_reports else ()
        if values:
            out.unlink(missing_ok=True)  # it is there when all values are
        files: dict[Path, str | None] = {out: None}
        if values:
            files = dict(zip(_paths(out, values), values, strict=True))
        pulled = {
            path: found
            for path, value in files.items()
            if (found := self._download_one(path, value, count_bytes)) is not None
        }
        if values and pulled and self.content != "reports":
            total = cast("Summary", combine(cast("list[Summary]", list(pulled.values()))))
            whole = replace(total, metric=total.metric.in_group(None))  # also if one value has all reports
            write_summary_file(whole, out)
            pulled[out] = whole
        return pulled

    def _download_one(
        self, path: Path, value: str | None, count_bytes: Callable[[int], None]
    ) -> ReportFile | Summary | None:
        """Write a file; None: no report has this value, and there is no file."""
        from hubbub.summary import ReportFile
        from hubbub_decoder.data.output_files import write_summary_file
        from hubbub_decoder.data.pull import pull_reports, pull_summary

        found: ReportFile | Summary
        if self.content == "reports":
            found = pull_reports(
                self.url,
                self.metric,
                path,
                periods=self.periods,
                digest=self.digest,
                group=value,
                count_bytes=count_bytes,
            )
        else:
            found = pull_summary(
                self.url,
                self.metric,
                periods=self.periods,
                digest=self.digest,
                group=value,
                kind=self.content,
                count_bytes=count_bytes,
            )
        if value is not None and not found.num_reports:
            path.unlink(missing_ok=True)
            return None
        if not isinstance(found, ReportFile):
            write_summary_file(found, path)
        return found


def _paths(out: Path, values: Sequence[str]) -> list[Path]:
    """Files of the values of a group."""
    return [out.with_stem(f"{out.stem}-{value}") for value in values]
