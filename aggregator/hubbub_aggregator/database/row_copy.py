"""Copy a database row by row: from one engine to the other, or between two PostgreSQL databases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, Table, insert, select

from hubbub_aggregator.database.backup import DATA_TABLES, new_file, require_readable_summaries, require_sound
from hubbub_aggregator.database.engine import (
    continue_ids,
    lock_for_setup,
    open_existing,
    open_postgres,
    open_sqlite,
    transaction,
)
from hubbub_aggregator.database.location import is_postgres
from hubbub_aggregator.database.schema_version import prepare, require_same_schema
from hubbub_aggregator.errors import SchemaError, StoreError

_MAX_LARGE_ROWS = 8
"""Rows in memory at once of tables whose rows may have several megabytes."""
_MAX_SMALL_ROWS = 1_000


def copy_rows(source: str, target: str) -> dict[str, int]:
    """Copy all rows of a database as of one moment; return the number of rows of each table.

    target : a SQLite file that does not exist, or a PostgreSQL database without rows

    Both must have this release's schema version. If anything fails, the target is as before.
    """
    with (
        open_existing(source, read_only=True) as origin,
        _new_database(target) as destination,
        transaction(origin, writes=False) as reading,
        transaction(destination, writes=True) as writing,
    ):
        if not is_postgres(source):
            require_sound(reading, Path(source))
        require_same_schema(reading)
        require_readable_summaries(reading)
        lock_for_setup(writing)
        prepare(writing)
        require_same_schema(writing)
        _require_empty(writing)
        return {table.name: _copy_table(reading, writing, table) for table in DATA_TABLES}


def _read_rows(connection: Connection, table: Table) -> Iterator[list[dict[str, object]]]:
    """Yield all rows of a table in the order of its primary key, a few at a time.

    Raises SchemaError if a value does not have the type of its column.
    """
    is_small = not any(column.name in ("summary", "reports") for column in table.c)
    size = _MAX_SMALL_ROWS if is_small else _MAX_LARGE_ROWS
    rows = connection.execution_options(yield_per=size).execute(select(table).order_by(*table.primary_key))
    try:
        for part in rows.mappings().partitions():
            yield [dict(row) for row in part]
    except (TypeError, ValueError):
        raise SchemaError(f"the table {table.name} has a value of a wrong type: use another database") from None


def _copy_table(reading: Connection, writing: Connection, table: Table) -> int:
    copied = 0
    for rows in _read_rows(reading, table):
        writing.execute(insert(table), rows)
        copied += len(rows)
    continue_ids(writing, table)
    return copied


def _require_empty(connection: Connection) -> None:
    for table in DATA_TABLES:
        if connection.execute(select(*table.primary_key).limit(1)).first() is not None:
            raise StoreError(f"the table {table.name} has rows already: give an empty database")


@contextmanager
def _new_database(database: str) -> Iterator[Engine]:
    """Open the target of a copy; a SQLite file appears under its name when it is complete."""
    if is_postgres(database):
        engine = open_postgres(database)
        try:
            yield engine
        finally:
            engine.dispose()
        return
    with new_file(Path(database)) as file:
        engine = open_sqlite(file, durable=False)
        try:
            yield engine
        finally:
            engine.dispose()
