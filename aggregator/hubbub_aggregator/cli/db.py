"""`hubbub db`: an aggregator's database, from one version to the next, and from one place to another."""

from __future__ import annotations

import click

from hubbub.cli.output import json_option, print_json
from hubbub_aggregator.cli.database_option import DatabaseName, database_option


@click.group()
def command() -> None:
    """Create, check, back up and upgrade a database.

    Also copies and restores it, and accepts its clock after a jump.

    \b
    Example:
      hubbub db upgrade --database reports.db
    """


@command.command()
@database_option
@json_option
def create(database: str, as_json: bool) -> None:
    """Create a database.

    It is a new SQLite file, or the tables of an empty PostgreSQL database.

    One that exists already is left as it is.

    \b
    Example:
      hubbub db create --database /var/lib/hubbub/reports.db
    """
    from pathlib import Path

    from hubbub_aggregator.database.database_url import is_postgres, without_password
    from hubbub_aggregator.database.engine import naming, opened, transaction
    from hubbub_aggregator.database.schema_version import version_of
    from hubbub_aggregator.database.sqlite_file import is_there
    from hubbub_aggregator.store.sql_store import SqlStore

    exists = False
    if is_postgres(database) or is_there(Path(database)):
        with naming(database), opened(database, read_only=True) as engine, transaction(engine, writes=False) as looking:
            exists = version_of(looking) is not None
    if not exists:
        SqlStore.open(database).close()
    shown = without_password(database)
    if as_json:
        print_json({"database": shown, "created": not exists})
    else:
        click.echo(f"{shown} exists already: nothing was changed" if exists else f"created a new database at {shown}")


@command.command()
@database_option
@json_option
def check(database: str, as_json: bool) -> None:
    """Say which schema a database has, and whether it is whole.

    Reads all of it; exit code 1 if `hubbub serve` would refuse it, or it is damaged.

    \b
    Example:
      hubbub db check --database reports.db --json
    """
    from hubbub_aggregator.database.backup import is_whole
    from hubbub_aggregator.database.engine import naming, opened, transaction
    from hubbub_aggregator.database.integrity import NEXT_STEP, damages
    from hubbub_aggregator.database.schema import SCHEMA_VERSION
    from hubbub_aggregator.database.schema_version import require_served, version_of
    from hubbub_aggregator.errors import SchemaError

    refused = version = whole = None
    with naming(database), opened(database, read_only=True) as engine:
        damaged = damages(engine)
        if damaged:
            refused = f"it is damaged: {NEXT_STEP}"
        else:
            with transaction(engine, writes=False) as connection:
                version = version_of(connection)
                try:
                    require_served(connection)
                except SchemaError as problem:
                    refused = str(problem)
            whole = is_whole(database)
    number = 0 if version is None else version.number
    if as_json:
        print_json({"schema": number, "known": SCHEMA_VERSION, "refused": refused, "damaged": damaged, "whole": whole})
    else:
        for line in damaged:
            click.echo(line)
        click.echo(refused if damaged else f"schema {number}: {refused or 'served'}")
        if whole is not None:
            click.echo(
                "a backup that holds what was written" if whole else "a backup that is damaged: take another one"
            )
    if refused or whole is False:
        raise SystemExit(1)


@command.command()
@database_option
@json_option
def upgrade(database: str, as_json: bool) -> None:
    """Bring a database to this hubbub's schema.

    Whole or not at all, while older processes go on.

    \b
    Example:
      hubbub db backup before.db && hubbub db upgrade
    """
    from hubbub_aggregator.database.engine import naming, opened, transaction
    from hubbub_aggregator.database.upgrade import upgrade as upgrade_tables

    with naming(database), opened(database) as engine, transaction(engine, writes=True) as connection:
        before, after = upgrade_tables(connection)
    if as_json:
        print_json({"from": before, "to": after})
    else:
        click.echo(f"schema {before} -> {after}" if before < after else f"schema {after}: nothing to do")


@command.command("accept-clock")
@database_option
@json_option
def accept_clock(database: str, as_json: bool) -> None:
    """Accept the wall clock as it is now.

    After a jump of the clock, and after a long downtime, the aggregator closes, purges and drops nothing for 24 hours. This ends the
    pause at once, in all processes that serve the database, within --fold-interval seconds. The clock is this machine's, or
    PostgreSQL's. See that it is right first: what is deleted by a wrong clock cannot be brought back.

    \b
    Example:
      date --utc && hubbub db accept-clock --database reports.db
    """
    from contextlib import closing

    from hubbub_aggregator.database.engine import naming, opened
    from hubbub_aggregator.store.credible_clock import accept, time_text
    from hubbub_aggregator.store.sql_store import SqlStore

    with naming(database), opened(database) as engine, closing(SqlStore(engine, making=False)) as store:
        before, now = accept(store)
    if as_json:
        print_json({"remembered": None if before is None else int(before), "accepted": int(now)})
    else:
        click.echo(f"accepted {time_text(now)}" + ("" if before is None else f"; remembered was {time_text(before)}"))


@command.command()
@click.argument("file", type=DatabaseName())
@database_option
@json_option
def backup(file: str, database: str, as_json: bool) -> None:
    """Write all that a database holds into a new FILE.

    It is served meanwhile. FILE is a SQLite file, whichever engine the database is on. It holds the reports and the tokens' hashes: keep it as
    closely as the database. The database remembers when its last backup began, and /metrics shows it.

    \b
    Example:
      hubbub db backup /backups/reports-2026-03-01.db --database postgresql://hubbub@db/hubbub
    """
    import time

    from hubbub_aggregator.database.backup import record_backup
    from hubbub_aggregator.errors import StoreError

    began = int(time.time())
    _copy(database, file, as_json, sealed=True)
    try:
        record_backup(database, began)
    except StoreError as problem:
        click.echo(f"the backup is complete, but its time could not be stored in the database: {problem}", err=True)


@command.command()
@click.argument("file", type=DatabaseName())
@database_option
@json_option
def restore(file: str, database: str, as_json: bool) -> None:
    """Make a database of what `hubbub db backup` wrote.

    A database that holds anything is left alone.

    \b
    Example:
      hubbub db restore /backups/reports-2026-03-01.db --database reports.db
    """
    _copy(file, database, as_json)


@command.command()
@click.argument("source", metavar="FROM", type=DatabaseName())
@click.argument("target", metavar="TO", type=DatabaseName())
@json_option
def copy(source: str, target: str, as_json: bool) -> None:
    """Copy a database to another engine.

    FROM and TO are SQLite files or postgresql:// addresses, and TO is empty. Stop the aggregator first: what it takes from FROM later is not in TO.

    \b
    Example:
      hubbub db copy reports.db postgresql://hubbub@db/hubbub
    """
    _copy(source, target, as_json)


def _copy(source: str, target: str, as_json: bool, *, sealed: bool = False) -> None:
    import sys

    from hubbub_aggregator.database import backup
    from hubbub_aggregator.database.database_url import without_password
    from hubbub_aggregator.database.engine import naming

    with click.progressbar(length=1, label="copying", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:

        def show(done: int, rows: int) -> None:
            bar.length = rows
            bar.update(done - bar.pos)

        with naming(source, target):
            rows = backup.copy(source, target, show, sealed=sealed)
    if as_json:
        print_json({"from": without_password(source), "to": without_password(target), "rows": rows})
    else:
        told = ", ".join(f"{count:,} in {name}" for name, count in rows.items() if count) or "no rows"
        click.echo(f"{without_password(target)} is whole: {told}")
