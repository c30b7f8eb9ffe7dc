"""`hubbub ledger`: epsilon that a client has spent and reserved."""

from __future__ import annotations

from pathlib import Path

import click

from hubbub.cli.output import PATH, json_option, print_json
from hubbub.metrics.kinds.kind import SAME_PATTERN
from hubbub.privacy.pricing import shown_epsilon
from hubbub.sdk.storage.state import State
from hubbub.text import format_count


@click.command()
@click.argument("directory", metavar="STATE", type=PATH)
@json_option
def command(directory: Path, *, as_json: bool) -> None:
    """Show the epsilon spent and reserved by a client.

    STATE is the state directory of the client.

    \b
    Example:
      hubbub ledger ~/.local/state/my-app/hubbub
    """
    from hubbub.sdk.storage.state_reader import read_state
    from hubbub.sdk.transparency.state_reports import ledger_of_state

    state = read_state(directory)
    if as_json:
        print_json(ledger_of_state(state).to_dict())
    else:
        _print_ledger(state)
    require_undamaged(state)


def _print_ledger(state: State) -> None:
    click.echo(f"consent {state.consent}, enrollments {state.enrollments}")
    for account in state.accounts.values():
        click.echo(
            f"{account.metric:20} {account.digest[:12]}  {format_count(account.units, account.unit)} x {shown_epsilon(account.epsilon_per_unit)} = epsilon {shown_epsilon(account.spent)} "
            f"of {shown_epsilon(account.reserved_epsilon)} reserved, {format_count(account.reports, 'report')}{_subject_suffix(account.subject)}"
        )
        if account.refused:
            click.echo(f"not collected{_subject_suffix(account.subject)}: {account.refused}")
    for subject in sorted(state.digests):
        click.echo(
            f"total epsilon {shown_epsilon(state.spent(subject))} (with drafts) of {shown_epsilon(state.reserved(subject))} reserved{_subject_suffix(subject)}. "
            f"It bounds the difference between histories whose values {SAME_PATTERN}"
        )
    for account in state.accounts.values():
        if account.unit == "value" and account.units > 1:
            click.echo(
                f"{account.metric} changed{_subject_suffix(account.subject)}: an observer of linked reports can see the change. "
                "Set `hold` in the definition to hide changes"
            )


def require_undamaged(state: State) -> None:
    """Raise ClickException with the number of damaged records, if any: what was shown is not all that the client stored."""
    if state.damaged:
        raise click.ClickException(
            f"{format_count(state.damaged, 'record')} damaged: the epsilon, reports and uploads in them are lost, so the figures can be too low"
        )


def _subject_suffix(subject: str) -> str:
    return f"  (subject {subject[:8]})" if subject else ""
