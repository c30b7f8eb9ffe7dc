"""`hubbub doctor`: what is wrong with an aggregator, or with a client's state, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from hubbub.cli.output import PATH, json_option, print_json
from hubbub.errors import ParameterError
from hubbub_aggregator.cli import command as serve
from hubbub_aggregator.settings import Settings

_NOT_ASKED = {"definitions", "print_config"}
_COLOUR = {"fine": "green", "warning": "yellow", "wrong": "red"}


@click.command(params=[parameter for parameter in serve.params if parameter.name not in _NOT_ASKED])
@click.argument("definitions", required=False, type=PATH)
@click.option("--state", type=PATH, help="Directory of a client's state; instead of DEFINITIONS.")
@click.option(
    "--watch",
    type=click.FloatRange(0, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between two looks at what is refused.",
)
@json_option
def command(
    definitions: Path | None,
    state: Path | None,
    watch: float,
    host: str,
    database: str,
    as_json: bool,
    **others: Any,
) -> None:
    """Look for what is wrong with an aggregator, or a client's state.

    Exit code 1 if something is; nothing is changed. Takes the options of `hubbub serve`: give those that the aggregator
    is started with.

    \b
    Example:
      hubbub doctor metrics.toml --database reports.db
      hubbub doctor --state ~/.local/state/my-app/hubbub
    """
    import os
    import time
    from datetime import UTC, datetime
    from functools import partial

    from hubbub.checkup import of_state
    from hubbub.findings import Health

    if (definitions is None) == (state is None):
        raise click.UsageError("give the DEFINITIONS of an aggregator, or the --state of a client")
    now = datetime.now(UTC)
    if definitions is not None:
        from hubbub_aggregator.checkup import Asked, of_aggregator

        told = {name: value for name, value in others.items() if name in Settings.__dataclass_fields__}
        try:
            asked = Asked(definitions, database, host, Settings(**told))
        except ParameterError as problem:
            raise click.UsageError(str(problem)) from None
        findings = list(of_aggregator(asked, now, partial(time.sleep, watch)))
    elif state is not None:
        findings = list(of_state(state, now, os.environ))
    ill = any(finding.health is Health.WRONG for finding in findings)
    if as_json:
        print_json({"wrong": ill, "findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            health = click.style(f"{finding.health:8}", fg=_COLOUR[finding.health])
            click.echo(f"{health} {finding.about:12} {finding.what}")
            for line in filter(None, (finding.why, finding.next_step and f"-> {finding.next_step}")):
                click.echo(f"{'':8} {'':12}   {line}")
    raise SystemExit(ill)
