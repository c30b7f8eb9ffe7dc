"""`hubbub inspect`: what waits to be sent, and the exact bytes sent last."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from hubbub.cli.ledger import tell_damage
from hubbub.cli.output import json_option, print_json
from hubbub.state import KEPT_SENT


@click.command()
@click.argument("directory", metavar="STATE", type=click.Path(path_type=Path))
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
    """Show what the client whose state is in STATE holds and sent; nothing is changed.

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
            "sent_from": datetime.fromtimestamp(each.at, UTC).isoformat(timespec="seconds"),
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
        print_json({"waiting": waiting, "quarantined": refused, "last_sent": sent, "accounting": state.accounting()})
        return
    counts = state.accounting()
    click.echo(
        ", ".join(f"{name} {counts[name]}" for name in ("recorded", "formed", "acknowledged", "spooled", "quarantined"))
    )
    for each in sorted(waiting, key=lambda each: str(each["sent_from"])):
        doubt = ", may have arrived already" if each["in_doubt"] else ""
        click.echo(f"waits: {each['metric']} of {each['period']}, from {each['sent_from']} on{doubt}")
    for batch in refused:
        click.echo(f"refused: {batch['metric']} of {batch['period']}: {batch['problem']}")
    tell_damage(state)
    for body in sent or ["nothing"]:
        click.echo(f"sent last: {body}")
