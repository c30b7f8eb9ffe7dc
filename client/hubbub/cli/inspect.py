"""`hubbub inspect`: what a client's state directory holds, has spent and has sent, and the problems of the directory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from hubbub.cli.findings import Finding, Health, print_findings
from hubbub.cli.output import PATH, json_option, print_json, write_page
from hubbub.privacy.guarantee import SAME_RUNS, guarantee_of_ledger
from hubbub.privacy.pricing import shown_epsilon
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
    "--definitions",
    type=PATH,
    metavar="METRICS.TOML",
    help="With --html: show the descriptions of the app's metrics, and how much the reports made so far reveal, not any number of reports.",
)
@click.option(
    "--identity",
    type=click.Choice(["new", "keep"]),
    help="Change the directory instead of showing it. new, for a copy or an image: deletes the secret, the drafts and the queued reports, and keeps "
    "consent and the ledger. The app creates another secret at its next start, and reports under it spend more of the budget, within the app's "
    "policy. keep, for a moved directory: accepts this machine, and changes neither secret nor ledger.",
)
@json_option
def command(
    directory: Path,
    *,
    count: int | None,
    html_file: Path | None,
    definitions: Path | None,
    as_json: bool,
    identity: Literal["new", "keep"] | None,
) -> None:
    """Show what a client holds, has spent and has sent.

    STATE is the state directory of a client. Shows consent and counters, the ledger of the epsilon spent and reserved, queued and recently
    sent batches, and problems with their next steps. Reports are shown as their randomized bits, never as values.

    \b
    Example:
      hubbub inspect ~/.local/state/my-app/hubbub --last 3
      hubbub inspect ~/.local/state/my-app/hubbub --html telemetry.html
      hubbub inspect /var/lib/my-app/hubbub --identity new
    """
    from hubbub.cli.state_checks import check_read_state
    from hubbub.sdk.storage.state_reader import read_state
    from hubbub.sdk.transparency.state_reports import inspect_state, ledger_of_state

    if definitions is not None and html_file is None:
        raise click.UsageError("--definitions needs --html FILE")
    if identity is not None and (count is not None or html_file is not None):
        raise click.UsageError("--identity changes the directory and shows nothing. Leave out --last and --html.")
    state = read_state(directory)
    if identity is not None:
        _change_identity(directory, identity, as_json=as_json)
        return
    if html_file is not None:
        _write_page(state, MAX_SENT_BATCHES if count is None else count, html_file, definitions)
    report = inspect_state(state, 1 if count is None else count)
    findings = check_read_state(directory, state, datetime.now(UTC), os.environ)
    problems = [finding for finding in findings if finding.health is not Health.OK]
    if as_json:
        print_json({**report.to_dict(), "ledger": ledger_of_state(state).to_dict(), "problems": problems})
    elif html_file is None:
        _print_state(report, state)
        _print_ledger(state)
        _print_batches(report)
        _print_problems(problems)
    if state.damaged:
        raise click.ClickException(
            f"{format_count(state.damaged, 'record')} damaged: the epsilon, reports and uploads in them are lost, so the figures can be too low"
        )


def _change_identity(directory: Path, identity: Literal["new", "keep"], *, as_json: bool) -> None:
    from hubbub.cli.state_identity import keep_identity, renew_identity

    if identity == "new":
        renew_identity(directory)
        done = (
            "The directory has a new identity. The next start of the app creates a new secret and continues the ledger."
        )
    else:
        keep_identity(directory)
        done = "The directory keeps its identity on this machine."
    if as_json:
        print_json({"state": str(directory), "identity": identity})
    else:
        click.echo(done)


def _print_state(report: Inspection, state: State) -> None:
    consent, counts = report.consent, report.accounting
    since = f" since {consent.time.isoformat(timespec='seconds')}" if consent.time else ""
    text = f", text {json.dumps(consent.text[:_MAX_CONSENT_CHARACTERS])}" if consent.text else ""
    _print_heading("State")
    click.echo(f"consent: {consent.level}{since}{text}")
    click.echo(f"{format_count(state.enrollments, 'enrollment')}, used on {format_count(report.machines, 'machine')}")
    ignored = sum(counts.ignored.values())
    click.echo(
        f"recorded {counts.recorded}{f' ({ignored} of them ignored)' if ignored else ''}, formed {counts.formed}, "
        f"acknowledged {counts.acknowledged}, queued {counts.queued}, quarantined {counts.quarantined}"
    )
    failed = ", ".join(f"{reason} {number}" for reason, number in counts.failed_uploads.items() if number)
    if failed:
        click.echo(f"failed uploads, whose reports were kept: {failed}")
    if report.failures:
        click.echo(
            f"last uploads failed: {format_count(report.failures, 'attempt')}, last error: {report.last_error or 'no response'}"
        )


def _print_ledger(state: State) -> None:
    _print_heading("Ledger")
    if not state.accounts:
        click.echo("nothing spent or reserved")
    for account in state.accounts.values():
        click.echo(
            f"{account.metric:20} {account.digest[:12]}  {format_count(account.units, account.unit)} x {shown_epsilon(account.epsilon_per_unit)} = "
            f"epsilon {shown_epsilon(account.spent)} of {shown_epsilon(account.reserved_epsilon)} reserved, "
            f"{format_count(account.reports, 'report')}{_subject_suffix(account.subject)}"
        )
        if account.refused:
            click.echo(f"not collected{_subject_suffix(account.subject)}: {account.refused}")
    for subject in sorted(state.subjects):
        units = {account.unit for account in state.accounts.values() if account.subject == subject}
        guarantee = guarantee_of_ledger(units, state.spent(subject))
        click.echo(
            f"total epsilon {shown_epsilon(guarantee.epsilon)} (with drafts) of {shown_epsilon(state.reserved(subject))} reserved{_subject_suffix(subject)}. "
            f"It is a bound for the {guarantee.observer}, {guarantee.condition.sentence}, {SAME_RUNS}"
        )
    for account in state.accounts.values():
        if account.unit == "value" and account.units > 1:
            click.echo(
                f"{account.metric} changed{_subject_suffix(account.subject)}: an observer of linked reports can see the change. "
                "Set `hold` in the definition to hide changes"
            )


def _print_batches(report: Inspection) -> None:
    _print_heading("Batches")
    for queued in sorted(report.queued, key=lambda batch: batch.send_time or datetime.max.replace(tzinfo=UTC)):
        doubt = ", possibly delivered" if queued.possibly_delivered else ""
        click.echo(f"queued: {queued.metric} of {queued.period}, {_when(queued.send_time)}{doubt}")
    for batch in report.quarantined:
        click.echo(f"rejected: {batch.metric} of {batch.period}: {batch.problem}")
    for body in report.last_sent or ["nothing"]:
        click.echo(f"last sent: {body.rstrip()}")  # --json includes the padding


def _print_problems(problems: Iterable[Finding]) -> None:
    _print_heading("Problems")
    if not print_findings(problems):
        click.echo("none found")


def _print_heading(name: str) -> None:
    first = "" if name == "State" else "\n"
    click.echo(f"{first}{click.style(name, bold=True)}")


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


def _subject_suffix(subject: str) -> str:
    return f"  (subject {subject[:8]})" if subject else ""
