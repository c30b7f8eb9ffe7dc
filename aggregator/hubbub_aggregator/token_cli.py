"""`hubbub token`: who may read."""

from __future__ import annotations

import re

import click

from hubbub.cli.output import json_option, print_json
from hubbub_aggregator.database_option import database_option, is_named


@click.group()
def command() -> None:
    """Create, list and revoke the tokens that let someone read.

    \b
    Example:
      hubbub token create analysts --scope read
    """


@command.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(["read", "metrics", "report"]),
    multiple=True,
    required=True,
    help="What it allows; may be repeated. read: summaries; metrics: /metrics; report: sending, where that takes one.",
)
@database_option
@json_option
@click.pass_context
def create(context: click.Context, /, name: str, scopes: tuple[str, ...], database: str, as_json: bool) -> None:
    """Make a token and print it: this once, since only its hash is kept.

    A database that --database names must exist (`hubbub db create`). The default one is made.

    \b
    Example:
      hubbub token create prometheus --scope metrics
    """
    from hubbub_aggregator.database_name import without_password
    from hubbub_aggregator.sql_store import SqlStore
    from hubbub_aggregator.tokens import Scope, Token, hash_of, new_token

    is_default = not is_named(context)
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
        raise click.UsageError(f"a token's name is letters, digits, '_', '.', '-', at most 64; got {name!r:.80}")
    store, secret = SqlStore.open(database, create=is_default), new_token()
    try:
        if not store.add_token(Token(name, frozenset(map(Scope, scopes))), hash_of(secret)):
            raise click.ClickException(f"there is a token {name!r} already: revoke it first, or take another name")
    finally:
        store.close()
    if store.made:
        click.echo(f"created a new database at {without_password(database)}", err=True)
    if as_json:
        print_json({"name": name, "scopes": sorted(set(scopes)), "token": secret})
    else:
        click.echo(secret)


@command.command("list")
@database_option
@json_option
def list_(database: str, as_json: bool) -> None:
    """Say which tokens there are, and what they allow.

    \b
    Example:
      hubbub token list --json
    """
    from hubbub_aggregator.engine import naming, opened
    from hubbub_aggregator.sql_store import SqlStore

    with naming(database), opened(database, read_only=True) as engine:
        store = SqlStore(engine, making=False)
        tokens = [{"name": token.name, "scopes": sorted(token.scopes)} for token in store.tokens()]
    if as_json:
        print_json(tokens)
    else:
        for token in tokens:
            click.echo(f"{token['name']}  {' '.join(token['scopes'])}")


@command.command()
@click.argument("name")
@database_option
@json_option
def revoke(name: str, database: str, as_json: bool) -> None:
    """Make a token worthless.

    A running aggregator stops taking it within 5 seconds.

    \b
    Example:
      hubbub token revoke analysts
    """
    from hubbub_aggregator.engine import naming, opened
    from hubbub_aggregator.sql_store import SqlStore

    with naming(database):
        with opened(database, read_only=True) as engine:
            SqlStore(engine, making=False)  # an empty file stays empty
        with opened(database) as engine:
            revoked = SqlStore(engine, making=False).revoke_token(name)
        if not revoked:
            raise click.ClickException(f"there is no token {name!r}: `hubbub token list` has them all")
    if as_json:
        print_json({"revoked": name})
