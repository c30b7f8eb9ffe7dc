"""`hubbub inspect`: what waits to be sent, and the exact bytes sent last."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from hubbub.cli.ledger import tell_damage
from hubbub.cli.output import json_option, print_json


@click.command()
@click.argument("directory", metavar="STATE", type=click.Path(path_type=Path))
@json_option
def command(directory: Path, *, as_json: bool) -> None:
    """Show what the client whose state is in STATE holds and sent; nothing is changed.

    \b
    Example:
      hubbub inspect ~/.local/state/my-app/hubbub
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
    last = None if state.last_sent is None else state.last_sent.to_json().decode()
    if as_json:
        print_json({"waiting": waiting, "quarantined": refused, "last_sent": last, "accounting": state.accounting()})
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
    click.echo("sent last: nothing" if last is None else f"sent last: {last}")
