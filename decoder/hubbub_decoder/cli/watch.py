"""`hubbub watch`: say for each new period of a metric whether something has changed."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hubbub.cli.output import PATH, json_option, print_json
from hubbub_decoder.cli.shared import (
    DatabaseName,
    Share,
    candidates_option,
    elapsed_time,
    independent_clients_option,
    read_all,
    statistics_option,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hubbub_decoder.watch.look import Rules
    from hubbub_decoder.watch.watch import WatchResult

ALARM_EXIT_CODE = 3


def _webhook(_: click.Context, __: click.Parameter, url: str | None) -> str | None:
    from hubbub.errors import ParameterError
    from hubbub_decoder.watch.notifications import check_webhook

    try:
        return None if url is None else check_webhook(url)
    except ParameterError as problem:
        raise click.BadParameter(str(problem)) from None


@click.command(short_help="Raise an alarm when shares change.")
@click.argument("summaries", metavar="SUMMARY...", nargs=-1, required=True, type=PATH)
@click.option(
    "--database",
    required=True,
    type=DatabaseName(),
    help="SQLite file or postgresql://user@host/database. The periods that were looked at are recorded in it, with their alarms.",
)
@candidates_option
@click.option(
    "--band",
    "bands",
    multiple=True,
    metavar="VALUE LOW HIGH",
    type=(str, Share(may_be_all=True), Share(may_be_all=True)),
    help="Lowest and highest share of a value, such as dark 20% 40%; repeatable. An alarm says that the share is outside.",
)
@click.option(
    "--smallest-change",
    default="0%",
    show_default=True,
    metavar="SHARE",
    type=Share(),
    help="Smallest change of a share that matters. A change that may be smaller raises no alarm.",
)
@click.option(
    "--fewest-reports",
    default="50%",
    show_default=True,
    metavar="SHARE",
    type=Share(),
    help="Raise an alarm if a period has fewer reports than this part of the median of the baseline.",
)
@click.option(
    "--open-after",
    metavar="DAYS",
    type=click.IntRange(min=0),
    help="Look at a period so many days after its end, although reports may still come. Default: when it is closed.",
)
@click.option(
    "--webhook",
    metavar="URL",
    envvar="HUBBUB_WEBHOOK",
    show_envvar=True,
    callback=_webhook,
    help="POST new alarms to this URL as JSON. Nothing is recorded unless it answers 2xx, so that the next run sends them again.",
)
@click.option(
    "--atom",
    "atom_path",
    type=PATH,
    metavar="FILE",
    help="Write an Atom feed of all alarms of the metric in the database.",
)
@click.option(
    "--out",
    type=PATH,
    metavar="FILE",
    help="Output file (.csv) of all alarms of the metric in the database, as events that `hubbub explore --events` marks in charts.",
)
@json_option
@statistics_option(
    "--false-alarms",
    default=0.05,
    show_default=True,
    metavar="RATE",
    type=Share(may_be_none=False),
    help="Largest probability of a false alarm of any share in a year.",
)
@statistics_option(
    "--baseline",
    default=26,
    show_default=True,
    metavar="N",
    type=click.IntRange(min=1),
    help="Compare with at most N earlier periods together.",
)
@independent_clients_option("the same clients may report in several periods, for which intervals are wider")
def command(
    summaries: tuple[Path, ...],
    database: str,
    candidates_path: Path | None,
    bands: tuple[tuple[str, float, float], ...],
    smallest_change: float,
    fewest_reports: float,
    open_after: int | None,
    webhook: str | None,
    atom_path: Path | None,
    out: Path | None,
    as_json: bool,
    false_alarms: float,
    baseline: int,
    independent_clients: bool,
) -> None:
    """Look at each new period of a metric, and raise an alarm if a share has changed or left its band, or if reports have stopped.

    A SUMMARY is a file of counts or of individual reports of one period. Several files of a period are added up.

    Each period is looked at once, when no more reports of it can come. A run looks at all periods that no earlier run has
    recorded in the database, so a second run of a night finds nothing new. An alarm that continues in the next period is
    not raised again.

    The exit code is 3 if there is a new alarm.

    \b
    Example:
      hubbub watch summaries/theme@*/*.parquet --database watch.sqlite --band dark 20% 40%
    """
    from rich.console import Console

    from hubbub.metrics.group import PERIOD
    from hubbub_decoder.comparison.trends import divide
    from hubbub_decoder.data.candidates import read_candidates
    from hubbub_decoder.data.events import format_events
    from hubbub_decoder.data.output_files import atomic_write, check_output_path, check_result_paths
    from hubbub_decoder.results_store.database import open_results_database
    from hubbub_decoder.watch.look import Rules
    from hubbub_decoder.watch.notifications import alarm_events, alarm_feed, post_alarms
    from hubbub_decoder.watch.watch import watch

    inputs = (*summaries, candidates_path, Path(database))  # a PostgreSQL database is no path that exists
    if atom_path is not None:
        check_output_path(atom_path, inputs)
    check_result_paths(out, suffixes=(".csv",), inputs=inputs)
    limits = {value: (low, high) for value, low, high in bands}
    rules = Rules(false_alarms, baseline, limits, smallest_change, fewest_reports, not independent_clients)
    candidates = None if candidates_path is None else read_candidates(candidates_path)
    with open_results_database(database) as store, elapsed_time(Console(stderr=True)) as show_stage:
        metric, samples = divide(read_all(summaries, show_stage), PERIOD)
        wait = None if open_after is None else timedelta(days=open_after)
        now = datetime.now(UTC)
        found = watch(
            metric, samples, candidates, rules, store.looks(metric), now, open_after=wait, progress=show_stage
        )
    if as_json:
        print_json(found.to_dict())
    else:
        for line in _lines(found, rules):
            click.echo(line)
    # Recorded after they are printed and sent: a run that ends between raises its alarms once more.
    if webhook is not None and found.new_alarms:
        post_alarms(webhook, metric, found.new_alarms)
    with open_results_database(database) as store:
        store.write_looks(metric, [look.stored() for look in found.looks])
        looks = store.looks(metric)
    if atom_path is not None:
        with atomic_write(atom_path) as file:
            file.write(alarm_feed(metric, looks))
    if out is not None:
        with atomic_write(out) as file:
            file.write(format_events(alarm_events(metric, looks)))
    if found.new_alarms:
        raise SystemExit(ALARM_EXIT_CODE)


def _lines(found: WatchResult, rules: Rules) -> Iterator[str]:
    """Yield what a person reads: what was looked at, each alarm with its next step, and what the looks can find."""
    from hubbub.text import format_count
    from hubbub_decoder.watch.notifications import alarm_sentence

    known = f"{format_count(found.num_known, 'period')} looked at before, {found.num_waiting:,} still open"
    if not found.looks:
        yield f"{found.metric.title}: no new period; {known}."
        return
    first, last = found.looks[0], found.looks[-1]
    days = first.period if first is last else f"{first.period} .. {last.period}"
    yield f"{found.metric.title}: looked at {format_count(len(found.looks), 'period')}, {days}; {known}."
    for look in found.looks:
        for alarm in look.alarms:
            if alarm.is_new:
                yield f"ALARM {alarm.period}: {alarm_sentence(alarm)}"
            elif look is last:
                yield f"continues since {alarm.since}: {alarm_sentence(alarm)}"
    number = len(found.new_alarms)
    yield f"New alarms: {number:,}. In a year without a change, a share raises one with probability {rules.false_alarms:g} at most."
    yield _power([look.detectable for look in found.looks if not math.isnan(look.detectable)])
    if number:
        yield "Next: `hubbub decode SUMMARY... --by period` shows all periods. Compare the day of the alarm with releases of your app."


def _power(detectable: Sequence[float]) -> str:
    """What the last look could find; detectable : of each look that has it."""
    from hubbub_decoder.documents.document import format_share

    if not detectable:
        return "Which change is found with probability 0.9 is printed at the fourth period with reports and each later one."
    if detectable[-1] >= 1:
        return "With so few reports, no change at all is found within three periods with probability 0.9."
    return f"A lasting change of {format_share(detectable[-1])} is found within three periods with probability 0.9."
