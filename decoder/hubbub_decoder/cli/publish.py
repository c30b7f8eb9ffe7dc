"""`hubbub publish`: a static site of the closed periods of a directory of summaries."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hubbub.cli.output import PATH, jobs_option, json_option, print_json
from hubbub_decoder.cli.shared import (
    candidates_directory_option,
    events_option,
    fdr_option,
    interval_options,
    textfile_option,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hubbub_decoder.batch_decoding.run import Outcome
    from hubbub_decoder.data.prometheus_textfile import RunFigures
    from hubbub_decoder.options import Target
    from hubbub_decoder.publishing.plan import Change, PeriodResult


@click.command()
@click.argument("directory", type=PATH)
@click.option(
    "--out-dir",
    "site",
    required=True,
    type=PATH,
    metavar="DIRECTORY",
    help="Output directory for the site: a link, which changes by one rename. DIRECTORY.files, to which it links, does not belong below a document root.",
)
@candidates_directory_option
@click.option(
    "--min-reports",
    default=1_000,
    show_default=True,
    type=click.IntRange(1),
    metavar="REPORTS",
    help="Reports below which a period is withheld.",
)
@click.option(
    "--withhold",
    multiple=True,
    metavar="METRIC[/PERIOD]",
    help="Metric or period that is not shown by this run, also if it was published; repeatable.",
)
@click.option(
    "--withdraw",
    multiple=True,
    metavar="METRIC[/PERIOD]",
    help="Metric or period that is taken off the site for good; repeatable.",
)
@click.option(
    "--replace",
    multiple=True,
    metavar="METRIC[/PERIOD]",
    help="Metric or period of which changed counts replace the published ones; repeatable.",
)
@click.option(
    "--check",
    "is_check",
    is_flag=True,
    help="Print what would appear, change and disappear, with the reasons, and write nothing.",
)
@events_option
@textfile_option
@interval_options
@fdr_option("candidates")
@jobs_option("number of processors")
@json_option
def command(
    directory: Path,
    site: Path,
    candidates_path: Path | None,
    min_reports: int,
    withhold: tuple[str, ...],
    withdraw: tuple[str, ...],
    replace: tuple[str, ...],
    is_check: bool,
    event_paths: tuple[Path, ...],
    prometheus_textfile: Path | None,
    confidence: float,
    target: Target,
    fdr: float,
    jobs: int | None,
    *,
    as_json: bool,
) -> None:
    """Publish the closed periods of all summaries below a directory as a static site.

    A period is published when the aggregator has closed it, 30 days after its end, and then with the same counts for good. The site has a
    front page, a page for each metric and period, JSON and CSV files, and a feed. It changes by one rename. Its versions, and the results and
    releases in one SQLite file, are in a directory beside it, DIRECTORY.files.

    A summary says whether the aggregator had closed its period; this machine's clock plays no part. The file of results knows this site
    alone, so publish a metric on one site.

    What was published stays until --withhold or --withdraw names it. If its summary or its candidates are missing, damaged or changed, the
    period stays as it was, and has failed.

    Pages of metrics show the events of --events to everyone, with their labels.

    A period waits while it is open, or has fewer reports than --min-reports. Joint metrics and those with `discover` are skipped, because
    `hubbub associate` and `hubbub discover` estimate them. Neither changes the exit code. It is 1 if a period failed, for example because a
    closed period of strings has enough reports and no candidates.

    \b
    Example:
      hubbub publish summaries/ --candidates approved/ --out-dir /srv/www/metrics
    """
    from hubbub_decoder.data.events import read_events
    from hubbub_decoder.data.prometheus_textfile import write_run_textfile
    from hubbub_decoder.options import Options
    from hubbub_decoder.publishing.plan import Terms
    from hubbub_decoder.publishing.site import Inputs, preview, publish

    if is_check and prometheus_textfile is not None:
        raise click.UsageError("--check writes nothing. Leave out --prometheus-textfile.")
    inputs = Inputs(directory, candidates_path, Options(confidence, fdr, target), read_events(event_paths))
    terms = Terms(min_reports, frozenset(withhold), frozenset(withdraw), frozenset(replace))
    if is_check:
        results, changes = preview(inputs, site, terms)
    else:
        results = publish(inputs, site, terms, processes=jobs or os.cpu_count() or 1, show=_progress)
        changes = None
    try:
        _finish(results, changes, site, as_json=as_json)
    finally:
        if prometheus_textfile is not None:
            write_run_textfile(prometheus_textfile, figures_of(results, ended=time.time()))


def figures_of(results: Sequence[PeriodResult], *, ended: float) -> RunFigures:
    """Figures of a run for Prometheus; ended : POSIX seconds."""
    from hubbub_decoder.data.prometheus_textfile import RunFigures, newest_days
    from hubbub_decoder.publishing.names import short_names
    from hubbub_decoder.publishing.plan import PeriodStatus

    numbers = {str(status): sum(period.status is status for period in results) for status in PeriodStatus}
    names = [period.name for period in results if period.status is PeriodStatus.PUBLISHED]
    newest = newest_days((short_names(name)[0], name.rpartition("/")[2]) for name in names)
    return RunFigures("publish", "periods", numbers, newest, ended)


def _progress(outcomes: Iterator[tuple[Outcome, str]], number: int) -> Iterable[tuple[Outcome, str]]:
    from rich.console import Console

    from hubbub_decoder.cli.shared import tracked

    return tracked(outcomes, number, Console(stderr=True))


def _finish(results: Sequence[PeriodResult], changes: Sequence[Change] | None, site: Path, *, as_json: bool) -> None:
    """Print what became of each period that is not published, and exit with 1 if one failed."""
    from dataclasses import asdict

    from hubbub_decoder.publishing.plan import PeriodStatus

    counts: dict[str, Any] = {status: sum(period.status is status for period in results) for status in PeriodStatus}
    if as_json:
        document = {"site": str(site), "counts": counts, "periods": [asdict(period) for period in results]}
        print_json(document if changes is None else document | {"changes": [asdict(change) for change in changes]})
    else:
        for change in changes or ():
            click.echo(f"{change.kind}: {change.name}: {change.reason}")
        for period in results:
            if period.reason:
                click.echo(f"{period.status}: {period.name}: {period.reason}", err=True)
        place = "in" if changes is None else f"after {len(changes):,} changes of"
        click.echo(
            ", ".join(f"{number:,} {status}" for status, number in counts.items() if number) + f" {place} {site}"
        )
    if counts[PeriodStatus.FAILED]:
        raise SystemExit(1)
