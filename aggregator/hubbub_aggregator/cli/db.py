"""`hubbub db`: create, check, upgrade, back up, restore and copy an aggregator's database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from hubbub.cli.output import json_option, print_json
from hubbub.text import format_count
from hubbub_aggregator.cli.database_option import DatabaseName, database_option

if TYPE_CHECKING:
    from collections.abc import Callable


@click.group()
def command() -> None:
    """Create, check, upgrade, back up, restore and copy a database.

    \b
    Example:
      hubbub db backup /backups/reports-2026-03-01.db --database reports.db
    """


@command.command()
@database_option
@json_option
def create(database: str, as_json: bool) -> None:
    """Create a database.

    Creates a new SQLite file, or the tables of an empty PostgreSQL database. A database that exists is not changed.

    \b
    Example:
      hubbub db create --database /var/lib/hubbub/reports.db
    """
    from pathlib import Path

    from hubbub.wire.urls import mask_url
    from hubbub_aggregator.database.engine import open_existing, prefix_errors, transaction
    from hubbub_aggregator.database.location import is_postgres, is_there
    from hubbub_aggregator.database.schema_version import version_of
    from hubbub_aggregator.store.sql_store import SqlStore

    exists = False
    if is_postgres(database) or is_there(Path(database)):
        with (
            prefix_errors(database),
            open_existing(database, read_only=True) as engine,
            transaction(engine, writes=False) as connection,
        ):
            exists = version_of(connection) is not None
    if not exists:
        SqlStore.open(database).close()
    shown = mask_url(database)
    if as_json:
        print_json({"database": shown, "created": not exists})
    else:
        click.echo(f"{shown} exists already: nothing was changed" if exists else f"created a new database at {shown}")


@command.command()
@click.argument("file", required=False, type=DatabaseName())
@database_option
@json_option
def check(file: str | None, database: str, as_json: bool) -> None:
    """Check a database and print its schema version.

    FILE is a database, such as one that `hubbub db restore` wrote, in place of --database.

    Reads the whole database to find damage. Exits with 1 if `hubbub serve` would refuse the database, or if it is damaged.

    \b
    Example:
      hubbub db check --database reports.db --json
    """
    from hubbub_aggregator.database.engine import open_existing, prefix_errors, transaction
    from hubbub_aggregator.database.integrity import NEXT_STEP, find_damage
    from hubbub_aggregator.database.schema import SCHEMA_VERSION
    from hubbub_aggregator.database.schema_version import require_served, version_of
    from hubbub_aggregator.errors import SchemaError

    if file is not None and click.get_current_context().get_parameter_source("database") is ParameterSource.COMMANDLINE:
        raise click.UsageError("FILE and --database exclude each other. Pass one of them.")
    database = database if file is None else file
    refused = version = None
    with prefix_errors(database), open_existing(database, read_only=True) as engine:
        damaged = find_damage(engine)
        if damaged:
            refused = f"the database is damaged: {NEXT_STEP}"
        else:
            with transaction(engine, writes=False) as connection:
                version = version_of(connection)
                try:
                    require_served(connection)
                except SchemaError as problem:
                    refused = str(problem)
    number = 0 if version is None else version.number
    if as_json:
        print_json({"schema": number, "known": SCHEMA_VERSION, "refused": refused, "damaged": damaged})
    else:
        for line in damaged:
            click.echo(line)
        click.echo(refused if damaged else f"schema version {number}: {refused or 'no damage found'}")
    if refused:
        raise SystemExit(1)


@command.command()
@database_option
@json_option
def upgrade(database: str, as_json: bool) -> None:
    """Upgrade a database to the current schema.

    The upgrade is one transaction. Processes of the previous version can keep running. Take a backup first: there is no downgrade.

    \b
    Example:
      hubbub db backup before.db && hubbub db upgrade
    """
    from hubbub_aggregator.database.engine import open_existing, prefix_errors, transaction
    from hubbub_aggregator.database.schema_version import require_served
    from hubbub_aggregator.database.upgrade import upgrade as upgrade_tables

    with (
        prefix_errors(database),
        open_existing(database) as engine,
        transaction(engine, writes=True) as connection,
    ):
        before, after = upgrade_tables(connection)
        require_served(connection)
    if as_json:
        print_json({"from": before, "to": after})
    else:
        click.echo(
            f"upgraded from schema version {before} to {after}"
            if before < after
            else f"schema version {after}: nothing to upgrade"
        )


@command.command("accept-clock")
@database_option
@json_option
def accept_clock(database: str, as_json: bool) -> None:
    """Accept the wall clock as correct and resume deletion.

    After a jump of the clock, or a reboot with a downtime of more than 10 minutes, the aggregator pauses deletion for 24 hours.
    This command ends the pause in all processes within --fold-interval seconds.
    The clock is this machine's; with PostgreSQL, the database server's. Check it first: data that is deleted by a wrong clock is lost.

    \b
    Example:
      date --utc && hubbub db accept-clock --database reports.db
    """
    from contextlib import closing

    from hubbub_aggregator.database.engine import open_existing, prefix_errors
    from hubbub_aggregator.pipeline.credible_clock import accept
    from hubbub_aggregator.store.clock_state import time_text
    from hubbub_aggregator.store.sql_store import SqlStore

    with (
        prefix_errors(database),
        open_existing(database) as engine,
        closing(SqlStore(engine, create=False)) as store,
    ):
        before, now = accept(store)
    if as_json:
        print_json({"remembered": None if before is None else int(before), "accepted": int(now)})
    else:
        remembered = "" if before is None else f"; the remembered time was {time_text(before)}"
        click.echo(f"accepted {time_text(now)}{remembered}")


@command.command()
@click.argument("file", type=DatabaseName())
@database_option
@json_option
def backup(file: str, database: str, as_json: bool) -> None:
    """Write a backup of a SQLite database into a new FILE.

    The service may run: the backup is a snapshot of one moment. FILE is readable by its owner only. It contains reports and token hashes:
    protect it like the database. The database stores the time of the backup, and /metrics shows it.

    For PostgreSQL use pg_dump, then `hubbub db record-backup`.

    \b
    Example:
      hubbub db backup /backups/reports-2026-03-01.db --database reports.db
    """
    import time

    from hubbub_aggregator.database.backup import copy_file, record_backup
    from hubbub_aggregator.errors import StoreError

    _require_sqlite(database, "run pg_dump --format=custom --file FILE URL, then `hubbub db record-backup`")
    _require_sqlite(file, "a backup is a SQLite file; to copy the database to PostgreSQL use `hubbub db copy`")
    began = int(time.time())
    _copy(copy_file, database, file, as_json, "wrote backup")
    try:
        record_backup(database, began)
    except StoreError as problem:
        raise click.ClickException(
            f"the backup is complete, but its time could not be stored in the database: {problem}. "
            "/metrics shows the backup before. Run `hubbub db record-backup`"
        ) from None


@command.command("record-backup")
@click.option(
    "--began",
    type=click.IntRange(min=1),
    metavar="SECONDS",
    help="Start of the backup, in seconds since 1970.  [default: now]",
)
@database_option
@json_option
def record_backup_(began: int | None, database: str, as_json: bool) -> None:
    """Record a backup by another tool (pg_dump).

    Stores its time in the database. /metrics shows it as hubbub_last_backup_timestamp_seconds. `hubbub db backup` does this itself.

    \b
    Example:
      hubbub db record-backup --began "$began" --database postgresql://hubbub@db/hubbub
    """
    import time

    from hubbub_aggregator.database.backup import record_backup
    from hubbub_aggregator.database.engine import prefix_errors
    from hubbub_aggregator.store.clock_state import time_text

    now = int(time.time())
    seconds = now if began is None else began
    if seconds > now:
        raise click.BadParameter(
            f"{seconds} is after now, {now}: give the start of the backup in seconds since 1970, such as $(date +%s)",
            param_hint="--began",
        )
    with prefix_errors(database):
        record_backup(database, seconds)
    if as_json:
        print_json({"last_backup": seconds})
    else:
        click.echo(f"recorded a backup of {time_text(seconds)}")


@command.command()
@click.argument("file", type=DatabaseName())
@database_option
@json_option
def restore(file: str, database: str, as_json: bool) -> None:
    """Create a SQLite database from a backup FILE.

    --database must not exist. The backup is checked for damage first.

    For PostgreSQL use pg_restore; to move a backup to PostgreSQL use `hubbub db copy`.

    \b
    Example:
      hubbub db restore /backups/reports-2026-03-01.db --database reports.db
    """
    from hubbub_aggregator.database.backup import copy_file

    _require_sqlite(file, "a dump of PostgreSQL is restored with pg_restore")
    _require_sqlite(database, "use pg_restore for a dump, or `hubbub db copy FILE URL` for a SQLite backup")
    _copy(copy_file, file, database, as_json, "restored")


@command.command()
@click.argument("source", metavar="FROM", type=DatabaseName())
@click.argument("target", metavar="TO", type=DatabaseName())
@json_option
def copy(source: str, target: str, as_json: bool) -> None:
    """Copy a database, also between engines.

    FROM and TO are SQLite files or postgresql:// URLs. A SQLite TO must not exist; a PostgreSQL TO must have no tables, or empty ones.
    Stop the aggregator first: TO lacks the batches that it stores later.

    \b
    Example:
      hubbub db copy reports.db postgresql://hubbub@db/hubbub
    """
    from hubbub_aggregator.database.backup import copy_file
    from hubbub_aggregator.database.location import is_postgres
    from hubbub_aggregator.database.row_copy import copy_rows

    by_rows = is_postgres(source) or is_postgres(target)
    _copy(copy_rows if by_rows else copy_file, source, target, as_json, "copied to")


def _require_sqlite(database: str, advice: str) -> None:
    from hubbub.wire.urls import mask_url
    from hubbub_aggregator.database.location import is_postgres

    if is_postgres(database):
        raise click.UsageError(f"{mask_url(database)} is not a SQLite file: {advice}")


def _copy(run: Callable[[str, str], dict[str, int]], source: str, target: str, as_json: bool, action: str) -> None:
    from hubbub.wire.urls import mask_url
    from hubbub_aggregator.database.engine import prefix_errors

    with prefix_errors(source, target):
        rows = run(source, target)
    if as_json:
        print_json({"from": mask_url(source), "to": mask_url(target), "rows": rows})
    else:
        click.echo(f"{action} {mask_url(target)} ({format_count(sum(rows.values()), 'row')})")
