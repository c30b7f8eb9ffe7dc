"""The aggregator's checks for `hubbub doctor DEFINITIONS`, registered as an entry point of the group `hubbub.checks`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from hubbub.cli.findings import Checks, Finding
from hubbub_aggregator.cli.database_option import is_named
from hubbub_aggregator.cli.serve import command as serve
from hubbub_aggregator.cli.serve import settings_of

_NOT_SHARED = {"definitions", "print_config"}
_REFUSAL_WINDOW = click.Option(
    ["--refusal-window"],
    metavar="SECONDS",
    allow_from_autoenv=False,
    type=click.FloatRange(0, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between two readings of the refusal counters, to find those that grow.",
)
_URL = click.Option(
    ["--url"],
    allow_from_autoenv=False,
    help="URL at which clients reach the aggregator; also checks the headers that its reverse proxy sets.",
)


def _run(definitions: Path, now: datetime, options: Mapping[str, Any]) -> Iterator[Finding]:
    """Check an aggregator that is started with these options of `hubbub serve`."""
    import time
    from functools import partial

    from hubbub_aggregator.cli.deployment_checks import DeploymentOptions, check_aggregator

    deployment = DeploymentOptions(
        definitions,
        database=options["database"],
        host=options["host"],
        settings=settings_of(options),
        port=options["port"],
        public_url=options["url"],
        creates_database=options["create"] or not is_named(click.get_current_context()),
        segments=options["segments"],
    )
    return check_aggregator(deployment, now, partial(time.sleep, options["refusal_window"]))


_PARAMETERS = (*(parameter for parameter in serve.params if parameter.name not in _NOT_SHARED), _REFUSAL_WINDOW, _URL)
checks = Checks([*_PARAMETERS], _run)
