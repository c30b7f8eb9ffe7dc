"""`hubbub pull`: download a summary or retained reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from hubbub.cli.output import PATH, json_option, print_json
from hubbub_decoder.cli.shared import Day, print_message

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
    metric: str,
    out: Path,
    days: tuple[date, ...],
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
    periods = tuple(map(str, days))
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
            grows = not isinstance(found, ReportFile) and found.num_reports and not found.closed
            counted = f"{format_count(found.num_reports, 'report')} of {found.metric.title}"
            print_message(stderr, f"wrote {path}: {counted}{', which may still grow' if grows else ''}")
        if out not in pulled and content != "reports" and out.exists():
            print_message(stderr, f"kept {out}: it has reports that the aggregator does not have")
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
        nothing = {"out": str(out), "metric": metric, "num_reports": 0, "periods": []}
        print_json({"files": results} if by_group else results[0] if results else nothing)
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
        whole = self._final(out, None)
        if whole is None or not self.periods or {*self.periods} != {*whole.periods}:
            return {}
        values = whole.metric.group.values if by_group and whole.metric.group is not None else ()
        finals = {path: self._final(path, value) for path, value in zip(_paths(out, values), values, strict=True)}
        of_values = {path: found for path, found in finals.items() if found is not None}
        if values and sum(found.num_reports for found in of_values.values()) != whole.num_reports:
            return {}
        return {**of_values, out: whole}

    def _final(self, path: Path, value: str | None) -> Summary | None:
        """Summary of a file of this metric, value of its group and periods, or some of them, that the aggregator had closed."""
        from hubbub.summary import BitCounts, PatternCounts

        found = self._held(path, value)
        is_asked = {None: True, "bits": isinstance(found, BitCounts), "patterns": isinstance(found, PatternCounts)}
        return found if found is not None and found.closed and is_asked.get(self.content, False) else None

    def _held(self, path: Path, value: str | None) -> Summary | None:
        """Summary of a file with reports of this metric, value of its group and periods, or some of them."""
        from hubbub.errors import SummaryError
        from hubbub.summary import read_summary

        try:
            found = read_summary(path)
        except SummaryError:
            return None
        group = None if found.metric.group is None else found.metric.group.value
        is_this = (found.metric.name, group) == (self.metric, value) and found.num_reports > 0
        is_version = self.digest in (None, found.metric.in_group(None).digest)
        return found if is_this and is_version and {*found.periods} <= {*(self.periods or found.periods)} else None

    def download(
        self, out: Path, count_bytes: Callable[[int], None], *, by_group: bool
    ) -> dict[Path, ReportFile | Summary]:
        """Download and write one file, or one for each value of the group that has reports, and last their sum.

        Counts only grow, so a file with more reports than the answer stays: the aggregator has deleted some.
        """
        from hubbub_decoder.data.output_files import write_summary_file
        from hubbub_decoder.data.pull import pull_summary
        from hubbub_decoder.model.evidence import combine

        values: tuple[str, ...] = ()
        is_closed = False
        if by_group:
            whole = pull_summary(
                self.url, self.metric, periods=self.periods, digest=self.digest, count_bytes=count_bytes
            )
            is_closed = whole.closed
            values = whole.metric.group.values if whole.metric.group is not None and whole.num_reports else ()
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
            whole = replace(total, metric=total.metric.in_group(None), closed=total.closed and is_closed)
            held = self._held(out, None)
            if held is None or held.num_reports <= whole.num_reports:
                write_summary_file(whole, out)  # of all values, also if one has all reports
                pulled[out] = whole
        return pulled

    def _download_one(
        self, path: Path, value: str | None, count_bytes: Callable[[int], None]
    ) -> ReportFile | Summary | None:
        """Write a file; None: the file has more reports, and stays, or no report has this value.

        A file of a value without reports is deleted, if it is of something else: it is no part of the sum.
        """
        from hubbub_decoder.data.output_files import write_summary_file
        from hubbub_decoder.data.pull import pull_reports, pull_summary

        if self.content == "reports":
            reports = pull_reports(
                self.url,
                self.metric,
                path,
                periods=self.periods,
                digest=self.digest,
                group=value,
                count_bytes=count_bytes,
            )
            if value is None or reports.num_reports:
                return reports
            path.unlink(missing_ok=True)
            return None
        found = pull_summary(
            self.url,
            self.metric,
            periods=self.periods,
            digest=self.digest,
            group=value,
            kind=self.content,
            count_bytes=count_bytes,
        )
        held = self._held(path, value)
        if held is not None and held.num_reports > found.num_reports:
            return None
        if not found.num_reports and value is not None:
            path.unlink(missing_ok=True)
            return None
        write_summary_file(found, path)
        return found


def _paths(out: Path, values: Sequence[str]) -> list[Path]:
    """Files of the values of a group."""
    return [out.with_stem(f"{out.stem}-{value}") for value in values]
