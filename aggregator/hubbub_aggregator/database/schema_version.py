"""Which schema a database has, and whether this hubbub works with it."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, inspect, select

from hubbub_aggregator.database.backup_digest import break_seal
from hubbub_aggregator.database.engine import insert_new
from hubbub_aggregator.database.failpoints import reach
from hubbub_aggregator.database.schema import OLDEST_SERVING, SCHEMA_VERSION, alembic_version, schema, tables
from hubbub_aggregator.errors import SchemaError

_NAMED = 3


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """number : of the tables as they are      oldest : the oldest schema whose hubbub still works with them"""

    number: int
    oldest: int


def version_of(connection: Connection) -> SchemaVersion | None:
    """Return the version of a database's tables; None: it has none. What cannot be told is a SchemaError.

    Before Alembic, in version 2, `hubbub_schema` alone said it.
    """
    found = set(inspect(connection).get_table_names())
    if not found:
        return None
    if not found & set(tables.tables):
        some = sorted(found)
        told = ", ".join(some[:_NAMED]) + (f" and {len(some) - _NAMED} more" if len(some) > _NAMED else "")
        raise SchemaError(
            f"the database is another program's, it has {told}: give one that is empty, or an aggregator's"
        )
    said = list(connection.scalars(select(alembic_version))) if alembic_version.name in found else []
    oldest = list(connection.scalars(select(schema.c.oldest))) if schema.name in found else []
    number = said[0] if said else "0002" if oldest == [2] else ""
    if len(said) > 1 or len(oldest) != 1 or not number.isdecimal():
        told = ", ".join([*said, *map(str, oldest)]) or "none"
        raise SchemaError(
            f"the database has an unknown schema ({told}), this hubbub has schema {SCHEMA_VERSION}: "
            "give the --database of an aggregator"
        )
    return SchemaVersion(int(number), oldest[0])


def prepare(connection: Connection) -> bool:
    """Make the tables of an empty database, and say whether they were; refuse tables that this hubbub does not work with."""
    made = version_of(connection) is None
    if made:
        tables.create_all(connection)
        reach("start: between tables and version")
        connection.execute(insert_new(connection, schema), {"oldest": OLDEST_SERVING, "probes": 0})
        connection.execute(insert_new(connection, alembic_version), {"version_num": f"{SCHEMA_VERSION:04}"})
    require_served(connection)
    break_seal(connection)
    return made


def require_tables(connection: Connection) -> SchemaVersion:
    """Return the version of a database's tables; refuse a database without tables."""
    version = version_of(connection)
    if version is None:
        raise SchemaError("the database has no tables: `hubbub db create` makes them, with the same --database")
    return version


def require_served(connection: Connection) -> None:
    """Refuse tables that are older than this hubbub's, or so new that they have lost something it needs."""
    version = require_tables(connection)
    if version.number < SCHEMA_VERSION:
        raise SchemaError(
            f"the database has schema {version.number}, this hubbub has schema {SCHEMA_VERSION}: "
            "run `hubbub db upgrade` with the same --database"
        )
    if version.oldest > SCHEMA_VERSION:
        raise SchemaError(
            f"the database has schema {version.number}, which serves hubbubs of schema {version.oldest} and newer, "
            f"this hubbub has schema {SCHEMA_VERSION}: install the newer one"
        )
