"""`hubbub inspect`: what waits to be sent, and the exact bytes sent last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from hubbub.cli.ledger import print_damage
from hubbub.cli.output import PATH, json_option, print_json
from hubbub.sdk.storage.state import MAX_SENT_BATCHES
from hubbub.text import format_count

_SHOWN = 200
"""Characters of the consent text that are printed; `--json` has all of it."""


@click.command()
@click.argument("directory", metavar="STATE", type=PATH)
@click.option(
    "--last",
    "count",
    metavar="N",
    type=click.IntRange(1, MAX_SENT_BATCHES),
    default=1,
    help=f"How many batches that were sent to show, the newest first; {MAX_SENT_BATCHES} are kept.  [default: 1]",
)
@json_option
def command(directory: Path, *, count: int, as_json: bool) -> None:
    """Show what a client, whose state is in STATE, holds and sent.

    \b
    Example:
      hubbub inspect ~/.local/state/my-app/hubbub --last 3
    """
    from hubbub.sdk.storage.state_reader import inspection_report, read_state

    state = read_state(directory)
    report = inspection_report(state, count)
    if as_json:
        print_json(report)
        return
    consent, counts = report["consent"], report["accounting"]
    since = f" since {consent['time']}" if consent["time"] else ""
    text = f", text {json.dumps(consent['text'][:_SHOWN])}" if consent["text"] else ""
    click.echo(f"consent: {consent['level']}{since}{text}")
    click.echo(
        ", ".join(f"{name} {counts[name]}" for name in ("recorded", "formed", "acknowledged", "queued", "quarantined"))
    )
    if report["machines"] > 1:
        click.echo(
            f"used on {report['machines']} machines: if it is a copy, both copies report every period under one secret "
            "(`hubbub state new-identity`, or keep-identity if it was moved)"
        )
    if state.failures:
        click.echo(f"in vain: {format_count(state.failures, 'time')}, the last time: {state.last_error or 'no answer'}")
    for each in sorted(report["queued"], key=lambda each: str(each["send_time"])):
        doubt = ", may have arrived already" if each["possibly_delivered"] else ""
        click.echo(f"waits: {each['metric']} of {each['period']}, {_when(each)}{doubt}")
    for batch in report["quarantined"]:
        click.echo(f"refused: {batch['metric']} of {batch['period']}: {batch['problem']}")
    print_damage(state)
    for body in report["last_sent"] or ["nothing"]:
        click.echo(f"sent last: {body.rstrip()}")  # --json has the spaces that fill it up


def _when(queued: dict[str, Any]) -> str:
    if queued["local"]:
        return "never sent: it was made under consent local"
    if queued["send_time"]:
        return f"from {queued['send_time']} on"
    return "until the app's definition is the aggregator's"
