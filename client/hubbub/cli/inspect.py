"""`hubbub inspect`: what waits to be sent, and the exact bytes sent last."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from hubbub.cli.ledger import tell_damage
from hubbub.cli.output import PATH, json_option, print_json
from hubbub.state import KEPT_SENT, State, Waiting
from hubbub.words import counted


@click.command()
@click.argument("directory", metavar="STATE", type=PATH)
@click.option(
    "--last",
    "count",
    metavar="N",
    type=click.IntRange(1, KEPT_SENT),
    default=1,
    help=f"How many batches that were sent to show, the newest first; {KEPT_SENT} are kept.  [default: 1]",
)
@json_option
def command(directory: Path, *, count: int, as_json: bool) -> None:
    """Show what a client, whose state is in STATE, holds and sent.

    \b
    Example:
      hubbub inspect ~/.local/state/my-app/hubbub --last 3
    """
    from hubbub.inspection import read_state

    state = read_state(directory)
    waiting = [
        {
            "batch_id": batch_id,
            "metric": each.batch.metric,
            "period": each.batch.period,
            "reports": len(each.batch),
            "sent_from": _sent_from(state, each),
            "in_doubt": each.doubt,
            "body": each.batch.to_json().decode(),
        }
        for batch_id, each in state.waiting.items()
    ]
    refused = [
        {"metric": batch.metric, "period": batch.period, "problem": problem, "body": batch.to_json().decode()}
        for batch, problem in state.quarantine.values()
    ]
    sent = [batch.to_json().decode() for batch in state.last_sent.values()][: -count - 1 : -1]
    if as_json:
        trouble = {"failures": state.failures, "last": state.trouble}
        told = {"waiting": waiting, "trouble": trouble, "quarantined": refused, "last_sent": sent}
        print_json(told | {"accounting": state.accounting()})
        return
    counts = state.accounting()
    click.echo(
        ", ".join(f"{name} {counts[name]}" for name in ("recorded", "formed", "acknowledged", "spooled", "quarantined"))
    )
    if state.failures:
        click.echo(f"in vain: {counted(state.failures, 'time')}, the last time: {state.trouble or 'no answer'}")
    for each in sorted(waiting, key=lambda each: str(each["sent_from"])):
        doubt = ", may have arrived already" if each["in_doubt"] else ""
        when = f"from {each['sent_from']} on" if each["sent_from"] else "until the app's definition is the aggregator's"
        click.echo(f"waits: {each['metric']} of {each['period']}, {when}{doubt}")
    for batch in refused:
        click.echo(f"refused: {batch['metric']} of {batch['period']}: {batch['problem']}")
    tell_damage(state)
    for body in sent or ["nothing"]:
        click.echo(f"sent last: {body.rstrip()}")  # --json has the spaces that fill it up


def _sent_from(state: State, waiting: Waiting) -> str | None:
    """Return from when on a batch may be sent; None: not before the app's definition changes."""
    held = state.held.get(waiting.batch.digest, 0.0)
    if held is None:
        return None
    moment = datetime.fromtimestamp(max(waiting.at, state.not_before, held), UTC)
    return moment.isoformat(timespec="seconds")
