"""`hubbub db`: an aggregator's database, from one version to the next."""

from __future__ import annotations

import click

from hubbub.cli.output import json_option, print_json

_DATABASE = click.option(
    "--database",
    default="hubbub.db",
    show_default=True,
    envvar="HUBBUB_DATABASE",
    show_envvar=True,
    help="The aggregator's database; it may be running.",
)


@click.group()
def command() -> None:
    """Upgrade an aggregator's database.

    \b
    Example:
      hubbub db upgrade --database reports.db
    """


@command.command()
@_DATABASE
@json_option
def check(database: str, as_json: bool) -> None:
    """Say which schema a database has; exit code 1 if `hubbub serve` would refuse it.

    \b
    Example:
      hubbub db check --database reports.db --json
    """
    from hubbub_aggregator.engine import opened, transaction
    from hubbub_aggregator.schema import SCHEMA_VERSION
    from hubbub_aggregator.schema_version import require_served, version_of
    from hubbub_aggregator.store import SchemaError

    refused = None
    with opened(database) as engine, transaction(engine, writes=False) as connection:
        version = version_of(connection)
        try:
            require_served(connection)
        except SchemaError as problem:
            refused = str(problem)
    number = 0 if version is None else version.number
    if as_json:
        print_json({"schema": number, "known": SCHEMA_VERSION, "refused": refused})
    else:
        click.echo(f"schema {number}: {refused or 'served'}")
    if refused:
        raise SystemExit(1)


@command.command()
@_DATABASE
@json_option
def upgrade(database: str, as_json: bool) -> None:
    """Bring a database to this hubbub's schema, whole or not at all, while older workers go on.

    \b
    Example:
      hubbub db backup before.db && hubbub db upgrade
    """
    from hubbub_aggregator.engine import opened, transaction
    from hubbub_aggregator.upgrading import upgrade as upgrade_tables

    with opened(database) as engine, transaction(engine, writes=True) as connection:
        before, after = upgrade_tables(connection)
    if as_json:
        print_json({"from": before, "to": after})
    else:
        click.echo(f"schema {before} -> {after}" if before < after else f"schema {after}: nothing to do")
