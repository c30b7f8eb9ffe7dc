"""Schema version of a database, and whether this release works with it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from sqlalchemy import Connection, inspect, select
from sqlalchemy.exc import SAWarning, SQLAlchemyError

from hubbub.text import format_count, format_names
from hubbub_aggregator.database.engine import insert_new
from hubbub_aggregator.database.failpoints import reach
from hubbub_aggregator.database.schema import (
    FIRST_SCHEMA_VERSION,
    OLDEST_COMPATIBLE,
    SCHEMA_VERSION,
    alembic_version,
    schema,
    tables,
)
from hubbub_aggregator.errors import SchemaError


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """Version of a database's tables.

    number            : the version itself
    oldest_compatible : oldest schema version whose release works with these tables
    """

    number: int
    oldest_compatible: int


def version_of(connection: Connection) -> SchemaVersion | None:
    """Return the schema version of a database; None: it has no tables.

    Raises SchemaError if the tables are another program's, an unreleased hubbub's, or have no valid version.
    """
    found = set(inspect(connection).get_table_names())
    if not found:
        return None
    if not found & set(tables.tables):
        raise SchemaError(
            f"the database belongs to another program, its tables are {format_names(sorted(found))}: "
            "give an empty database, or an aggregator's"
        )
    numbers = list(connection.scalars(select(alembic_version))) if alembic_version.name in found else []
    if len(numbers) != 1 or not numbers[0].isdecimal():
        raise SchemaError(_unknown(numbers))
    number = int(numbers[0])
    if number < FIRST_SCHEMA_VERSION:
        raise SchemaError(
            f"the database has schema version {number} of an unreleased hubbub; this hubbub has schema version "
            f"{SCHEMA_VERSION} and cannot read or upgrade it: create a new one with `hubbub db create`"
        )
    oldest = list(connection.scalars(select(schema.c.oldest_compatible))) if schema.name in found else []
    if len(oldest) != 1:
        raise SchemaError(_unknown([str(number), *map(str, oldest)]))
    return SchemaVersion(number, oldest[0])


def _unknown(found: list[str]) -> str:
    return (
        f"the database has an unknown schema version ({', '.join(found) or 'none'}), this hubbub has schema version "
        f"{SCHEMA_VERSION}: give the --database of an aggregator, or create a new one with `hubbub db create`"
    )


def prepare(connection: Connection) -> bool:
    """Create the tables of an empty database; return whether they were created.

    Raises SchemaError if this release does not work with the tables that exist.
    """
    created = version_of(connection) is None
    if created:
        tables.create_all(connection)
        reach("start: between tables and version")
        new = {"oldest_compatible": OLDEST_COMPATIBLE, "write_probes": 0}
        connection.execute(insert_new(connection, schema), new)
        connection.execute(insert_new(connection, alembic_version), {"version_num": f"{SCHEMA_VERSION:04}"})
    require_served(connection)
    return created


def require_tables(connection: Connection) -> SchemaVersion:
    """Return the schema version of a database; raise SchemaError if it has no tables."""
    version = version_of(connection)
    if version is None:
        raise SchemaError("the database has no tables: create them with `hubbub db create` and the same --database")
    return version


def require_served(connection: Connection) -> None:
    """Raise SchemaError unless this release works with the tables."""
    version = require_tables(connection)
    if version.number < SCHEMA_VERSION:
        raise SchemaError(
            f"the database has schema version {version.number}, this hubbub has schema version {SCHEMA_VERSION}: "
            "run `hubbub db upgrade` with the same --database"
        )
    if version.oldest_compatible > SCHEMA_VERSION:
        raise SchemaError(
            f"the database has schema version {version.number}, and works with hubbub of schema version "
            f"{version.oldest_compatible} or later, but this hubbub has {SCHEMA_VERSION}: install the newer hubbub"
        )


def require_same_schema(connection: Connection) -> None:
    """Raise SchemaError unless the version is that of this release, and so are all columns, keys, constraints and indexes of its tables."""
    from alembic.autogenerate import compare_metadata  # its import takes .2 s
    from alembic.migration import MigrationContext

    require_served(connection)
    number = require_tables(connection).number
    if number != SCHEMA_VERSION:
        raise SchemaError(
            f"the database has schema version {number}, this hubbub has schema version {SCHEMA_VERSION}: "
            "use the newer hubbub"
        )
    options = {"compare_type": True, "compare_server_default": True, "include_name": _is_of_this_release}
    context = MigrationContext.configure(connection, opts=options)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SAWarning)  # about an index of an expression, which is not compared
            differences = compare_metadata(context, tables)
    except SQLAlchemyError as problem:  # a key that names a missing column, for example
        differences = [type(problem).__name__]
    if differences:
        raise SchemaError(
            f"the tables are not exactly those of schema version {SCHEMA_VERSION} "
            f"({format_count(len(differences), 'difference')}): use another database or backup"
        )


def _is_of_this_release(name: str | None, kind: str, _parents: object) -> bool:
    """Return whether a name of the database is compared: tables of other programs are not."""
    return kind != "table" or name in tables.tables
