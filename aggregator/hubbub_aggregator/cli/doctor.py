"""The aggregator's checks for `hubbub doctor DEFINITIONS`, registered as an entry point of the group `hubbub.checks`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from hubbub.cli.findings import Checks, Finding
from hubbub.errors import ParameterError
from hubbub_aggregator.cli.serve import command as serve
from hubbub_aggregator.settings import Settings

_NOT_ASKED = {"definitions", "print_config"}
_WATCH = click.Option(
    ["--watch"],
    type=click.FloatRange(0, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between two looks at what is refused.",
)
_URL = click.Option(["--url"], help="URL at which clients reach the aggregator: checks what the proxy there passes on.")


def _run(
    definitions: Path,
    now: datetime,
    *,
    watch: float,
    url: str | None,
    host: str,
    port: int,
    database: str,
    **others: Any,
) -> Iterator[Finding]:
    """Check an aggregator that is started with these options of `hubbub serve`."""
    import time
    from functools import partial

    from hubbub_aggregator.cli.deployment_checks import Asked, of_aggregator

    told = {name: value for name, value in others.items() if name in Settings.__dataclass_fields__}
    try:
        asked = Asked(definitions, database, host, Settings(**told), port, url)
    except ParameterError as problem:
        raise click.UsageError(str(problem)) from None
    return of_aggregator(asked, now, partial(time.sleep, watch))


_PARAMETERS = (*(parameter for parameter in serve.params if parameter.name not in _NOT_ASKED), _WATCH, _URL)
checks = Checks([*_PARAMETERS], _run)
