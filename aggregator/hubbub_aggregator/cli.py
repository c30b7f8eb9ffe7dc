"""`hubbub serve`: collect reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from hubbub_aggregator.settings import Settings


def _settings_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for setting in reversed(fields(Settings)):
        option = click.option(
            f"--{setting.name.replace('_', '-')}",
            default=setting.default,
            show_default=True,
            help=setting.metadata["about"],
        )
        function = option(function)
    return function


@click.command()
@click.argument("definitions", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@click.option(
    "--database",
    type=click.Path(path_type=Path),
    default=Path("hubbub.db"),
    show_default=True,
    help="SQLite file; made if it is not there.",
)
@_settings_options
def command(definitions: Path, host: str, port: int, database: Path, **limits: Any) -> None:
    """Collect reports of the metrics in DEFINITIONS, a TOML file, and answer with their counts.

    \b
    Example:
      hubbub serve metrics.toml --database reports.db
    """
    import logging

    from hubbub.definitions import load_definitions
    from hubbub_aggregator.app import create_app
    from hubbub_aggregator.server import listen, run
    from hubbub_aggregator.sql_store import SqlStore

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    settings = Settings(**limits)
    metrics = load_definitions(definitions)
    store = SqlStore.open(database)
    try:
        with listen(host, port) as listener:
            run(
                create_app(metrics, store, settings),
                listener,
                announce=lambda url: click.echo(f"hubbub is listening on {url}", err=True),
            )
    finally:
        store.close()
