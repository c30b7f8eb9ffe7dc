"""`hubbub token`: create, list, rotate and revoke access tokens."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any

import click

from hubbub.cli.output import json_option, print_json
from hubbub.metrics.periods import utc_now
from hubbub_aggregator.cli.database_option import database_option, is_named

if TYPE_CHECKING:
    from hubbub_aggregator.store.tokens import Token

_UNKNOWN = "the token {!r} does not exist: list all tokens with `hubbub token list`"
_COLUMNS = ("name", "scopes", "created", "last_used", "expires")


class _Expiry(click.ParamType[str]):
    """Option type: a date after today, or `never`."""

    name = "date"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == "never":
            return value
        try:
            day = date.fromisoformat(value)
        except ValueError:
            self.fail(f"got {value!r}: write a date such as 2027-01-01, or never", param, ctx)
        if day <= utc_now().date():
            self.fail(f"got {value}: write a date after today, {utc_now().date()} (UTC)", param, ctx)
        return day.isoformat()


def _day(expires: str) -> date | None:
    return None if expires == "never" else date.fromisoformat(expires)


@click.group()
def command() -> None:
    """Create, list, rotate and revoke access tokens.

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
    help="Permission; may be repeated. read: summaries and reports; metrics: /metrics; report: sending batches with --require-report-token.",
)
@click.option(
    "--expires",
    type=_Expiry(),
    default="never",
    show_default=True,
    metavar="DATE",
    help="First day (UTC) on which the token is refused, such as 2027-01-01; or never.",
)
@database_option
@json_option
@click.pass_context
def create(
    context: click.Context, /, name: str, scopes: tuple[str, ...], expires: str, database: str, as_json: bool
) -> None:
    """Create a token and print it. It cannot be shown again, because only its hash is stored.

    A database named by --database must exist (`hubbub db create`). The default database is created if it is missing.

    \b
    Example:
      hubbub token create prometheus --scope metrics
    """
    from hubbub.wire.urls import mask_url
    from hubbub_aggregator.store.sql_store import SqlStore
    from hubbub_aggregator.store.tokens import Scope, Token, hash_secret, iso_date, new_token

    is_default = not is_named(context)
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
        raise click.UsageError(
            f"the token's name must have 1 to 64 letters, digits, '_', '.' or '-', got {name!r:.80}: give another name"
        )
    token = Token(name, frozenset(map(Scope, scopes)), created=utc_now().date(), expires=_day(expires))
    store, secret = SqlStore.open(database, create=is_default), new_token()
    try:
        if not store.add_token(token, hash_secret(secret)):
            raise click.ClickException(f"the token {name!r} exists already: rotate it, revoke it, or give another name")
    finally:
        store.close()
    if store.created:
        click.echo(f"created a new database at {mask_url(database)}", err=True)
    if as_json:
        print_json({"name": name, "scopes": sorted(set(scopes)), "expires": iso_date(token.expires), "token": secret})
    else:
        click.echo(secret)


@command.command("list")
@database_option
@json_option
def list_(database: str, as_json: bool) -> None:
    """List tokens with their scopes and dates (UTC).

    Dates: creation, last use and expiry. A token expires at the start of its expiry date.

    \b
    Example:
      hubbub token list --json
    """
    from hubbub_aggregator.database.engine import open_existing, prefix_errors
    from hubbub_aggregator.store.sql_store import SqlStore

    with prefix_errors(database), open_existing(database, read_only=True) as engine:
        store = SqlStore(engine, create=False)
        tokens = store.tokens()
    today = utc_now().date()
    if as_json:
        print_json([_json(token, today) for token in tokens])
    elif tokens:
        rows = [_COLUMNS, *(_row(token, today) for token in tokens)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _json(token: Token, today: date) -> dict[str, Any]:
    from hubbub_aggregator.store.tokens import iso_date

    return {
        "name": token.name,
        "scopes": sorted(token.scopes),
        "created": iso_date(token.created),
        "last_used": iso_date(token.last_used),
        "expires": iso_date(token.expires),
        "expired": token.has_expired(today),
    }


def _row(token: Token, today: date) -> tuple[str, ...]:
    expires = "never" if token.expires is None else str(token.expires)
    return (
        token.name,
        ",".join(sorted(token.scopes)),
        str(token.created or "unknown"),
        str(token.last_used or "never"),
        f"{expires} (expired)" if token.has_expired(today) else expires,
    )


@command.command()
@click.argument("name")
@click.option(
    "--expires",
    type=_Expiry(),
    metavar="DATE",
    help="First day (UTC) on which the new secret is refused; or never. Default: unchanged.",
)
@database_option
@json_option
def rotate(name: str, expires: str | None, database: str, as_json: bool) -> None:
    """Replace a token's secret and print the new one. It cannot be shown again.

    A running aggregator refuses the old secret within 5 seconds, and ends browser sessions of the token. To change a secret without an interruption,
    create a second token, switch its users to it, and revoke the first.

    \b
    Example:
      hubbub token rotate prometheus --expires 2027-01-01
    """
    from hubbub_aggregator.database.engine import open_existing, prefix_errors
    from hubbub_aggregator.store.sql_store import SqlStore
    from hubbub_aggregator.store.tokens import hash_secret, iso_date, new_token

    today, secret = utc_now().date(), new_token()
    with prefix_errors(database):
        with open_existing(database, read_only=True) as engine:
            known = {token.name: token for token in SqlStore(engine, create=False).tokens()}
        if name not in known:
            raise click.ClickException(_UNKNOWN.format(name))
        until = known[name].expires if expires is None else _day(expires)
        new = replace(known[name], created=today, expires=until)
        if new.has_expired(today):
            raise click.ClickException(
                f"the token {name!r} expired on {new.expires}, so its new secret would be refused: give --expires"
            )
        with open_existing(database) as engine:
            if not SqlStore(engine, create=False).rotate_token(new, hash_secret(secret)):
                raise click.ClickException(_UNKNOWN.format(name))
    if as_json:
        print_json({"name": name, "scopes": sorted(new.scopes), "expires": iso_date(new.expires), "token": secret})
    else:
        click.echo(secret)


@command.command()
@click.argument("name")
@database_option
@json_option
def revoke(name: str, database: str, as_json: bool) -> None:
    """Revoke a token. A running aggregator refuses it within 5 seconds.

    \b
    Example:
      hubbub token revoke analysts
    """
    from hubbub_aggregator.database.engine import open_existing, prefix_errors
    from hubbub_aggregator.store.sql_store import SqlStore

    with prefix_errors(database):
        with open_existing(database, read_only=True) as engine:
            SqlStore(engine, create=False)  # fails before an empty file would get tables
        with open_existing(database) as engine:
            revoked = SqlStore(engine, create=False).revoke_token(name)
        if not revoked:
            raise click.ClickException(_UNKNOWN.format(name))
    if as_json:
        print_json({"revoked": name})
    else:
        click.echo(f"revoked the token {name!r}: a running aggregator refuses it within 5 seconds")
