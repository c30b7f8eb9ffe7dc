"""`hubbub inspect`: queued and recently sent batches of a client."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hubbub.cli.ledger import require_undamaged
from hubbub.cli.output import PATH, json_option, print_json, write_page
from hubbub.sdk.storage.state import MAX_SENT_BATCHES, State
from hubbub.text import format_count

if TYPE_CHECKING:
    from hubbub.sdk.transparency.state_reports import Inspection

_MAX_CONSENT_CHARACTERS = 200
"""Printed characters of the consent text; `--json` prints all of it."""


@click.command()
@click.argument("directory", metavar="STATE", type=PATH)
@click.option(
    "--last",
    "count",
    metavar="N",
    type=click.IntRange(1, MAX_SENT_BATCHES),
    help=f"Number of sent batches to show, newest first; the client keeps the last {MAX_SENT_BATCHES}.  [default: 1]",
)
@click.option(
    "--html",
    "html_file",
    type=PATH,
    metavar="FILE",
    help="HTML page to write: everything the client holds and of the batches it sent last (all of them without --last).",
)
@click.option(
    "--definitions", type=PATH, metavar="METRICS.TOML", help="With --html: show the descriptions of the app's metrics."
)
@json_option
def command(
    directory: Path, *, count: int | None, html_file: Path | None, definitions: Path | None, as_json: bool
) -> None:
    """Show queued and recently sent batches.

    STATE is the state directory of a client. Reports are shown as their randomized bits, never as values.

    \b
    Example:
      hubbub inspect ~/.local/state/my-app/hubbub --last 3
      hubbub inspect ~/.local/state/my-app/hubbub --html telemetry.html
    """
    from hubbub.sdk.storage.state_reader import read_state
    from hubbub.sdk.transparency.state_reports import inspect_state

    if definitions is not None and html_file is None:
        raise click.UsageError("--definitions needs --html FILE")
    state = read_state(directory)
    if html_file is not None:
        _write_page(state, MAX_SENT_BATCHES if count is None else count, html_file, definitions)
    report = inspect_state(state, 1 if count is None else count)
    if as_json:
        print_json(report.to_dict())
    elif html_file is None:
        _print_report(report, state)
    require_undamaged(state)


def _print_report(report: Inspection, state: State) -> None:
    from hubbub.sdk.runtime.automation import sign_of_automation

    consent, counts = report.consent, report.accounting
    since = f" since {consent.time.isoformat(timespec='seconds')}" if consent.time else ""
    text = f", text {json.dumps(consent.text[:_MAX_CONSENT_CHARACTERS])}" if consent.text else ""
    click.echo(f"consent: {consent.level}{since}{text}")
    if (sign := sign_of_automation(os.environ)) is not None:
        click.echo(f"paused: automation ({sign}): a client with this environment records, stores and sends nothing")
    ignored = sum(counts.ignored.values())
    click.echo(
        f"recorded {counts.recorded}{f' ({ignored} of them ignored)' if ignored else ''}, formed {counts.formed}, "
        f"acknowledged {counts.acknowledged}, queued {counts.queued}, quarantined {counts.quarantined}"
    )
    failed = ", ".join(f"{reason} {number}" for reason, number in counts.failed_uploads.items() if number)
    if failed:
        click.echo(f"failed uploads, whose reports were kept: {failed}")
    if report.machines > 1:
        click.echo(
            f"used on {report.machines} machines. Copies of a state directory report every period under one secret: run "
            "`hubbub state new-identity` in a copy, or `hubbub state keep-identity` if the directory was moved"
        )
    if report.failures:
        click.echo(
            f"last uploads failed: {format_count(report.failures, 'attempt')}, last error: {report.last_error or 'no response'}"
        )
    for name in state.unknown_metrics():
        click.echo(f"kept: {name}: the aggregator has no metric of this name. Add it to the aggregator's definitions")
    for queued in sorted(report.queued, key=lambda waiting: waiting.send_time or datetime.max.replace(tzinfo=UTC)):
        doubt = ", possibly delivered" if queued.possibly_delivered else ""
        click.echo(f"queued: {queued.metric} of {queued.period}, {_when(queued.send_time)}{doubt}")
    for batch in report.quarantined:
        click.echo(f"rejected: {batch.metric} of {batch.period}: {batch.problem}")
    for body in report.last_sent or ["nothing"]:
        click.echo(f"last sent: {body.rstrip()}")  # --json includes the padding


def _write_page(state: State, last: int, file: Path, definitions: Path | None) -> None:
    from hubbub.metrics.definitions import load_definitions
    from hubbub.sdk.transparency.state_page import state_page

    loaded = None if definitions is None else load_definitions(definitions)
    write_page(file, state_page(state, last=last, definitions=loaded), private=True)
    click.echo(f"wrote {file}", err=True)


def _when(send_time: datetime | None) -> str:
    if send_time is None:
        return "never sent: created under consent local"
    return f"to be sent after {send_time.isoformat(timespec='seconds')}"
