"""`hubbub ledger`: epsilon that one client has spent and reserved."""

from __future__ import annotations

from pathlib import Path

import click

from hubbub.cli.output import PATH, json_option, print_json
from hubbub.privacy.pricing import shown_epsilon
from hubbub.sdk.storage.state import State
from hubbub.text import format_count


@click.command()
@click.argument("directory", metavar="STATE", type=PATH)
@json_option
def command(directory: Path, *, as_json: bool) -> None:
    """Show what a client, whose state is in STATE, has spent.

    \b
    Example:
      hubbub ledger ~/.local/state/my-app/hubbub
    """
    from hubbub.sdk.storage.state_reader import ledger_report, read_state

    state = read_state(directory)
    if as_json:
        print_json(ledger_report(state))
        return
    click.echo(f"consent {state.consent}, enrollments {state.enrollments}")
    print_damage(state)
    for each in state.accounts.values():
        click.echo(
            f"{each.metric:20} {each.digest[:12]}  {format_count(each.units, each.unit)} x {shown_epsilon(each.epsilon_per_unit)} = eps {shown_epsilon(each.spent)} "
            f"of {shown_epsilon(each.reserved_epsilon)} reserved, {format_count(each.reports, 'report')}{_of(each.subject)}"
        )
        if each.refused:
            click.echo(f"not collected{_of(each.subject)}: {each.refused}")
    for subject in sorted(state.digests):
        click.echo(
            f"in total eps {shown_epsilon(state.spent(subject))}, drafts included, of {shown_epsilon(state.reserved(subject))} reserved{_of(subject)}: "
            "what tells apart two histories that change at the same times; more is lost where they do not"
        )
    for each in state.accounts.values():
        if each.unit == "value" and each.units > 1:
            click.echo(
                f"{each.metric} changed{_of(each.subject)}: memoization does not hide that from who can link its reports; "
                "a `hold` in its definition does"
            )


def print_damage(state: State) -> None:
    """Say that records were lost, and with them what they had spent."""
    if state.damaged:
        click.echo(
            f"{format_count(state.damaged, 'record')} damaged: what they said was spent, formed or sent is not known any more"
        )


def _of(subject: str) -> str:
    return f"  (subject {subject[:8]})" if subject else ""
