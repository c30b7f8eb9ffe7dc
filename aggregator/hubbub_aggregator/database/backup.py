"""Copy a SQLite database into a new file (`VACUUM INTO`): backup, restore and compaction.

The copy is a snapshot of one moment, and batches are stored meanwhile. It has no free pages and no write-ahead log, so it
does not contain deleted data. It appears under its name when it is complete, checked and on the disk. It keeps the
schema version, all ids and the state of the clock. It does not keep the time of the last backup.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, LargeBinary, String, Table, func, or_, select, update

from hubbub_aggregator.database.engine import open_existing, open_sqlite, transaction, vacuum_into
from hubbub_aggregator.database.integrity import page_damage, summary_damage
from hubbub_aggregator.database.schema import SCHEMA_VERSION, alembic_version, schema, tables
from hubbub_aggregator.database.schema_version import require_same_schema, require_tables
from hubbub_aggregator.errors import SchemaError, StoreError

DATA_TABLES = tuple(table for table in tables.sorted_tables if table not in (alembic_version, schema))
"""Tables with data, each after the tables that it refers to."""
_USE_A_BACKUP = "keep it, and use the last sound backup"


def copy_file(source: str, target: str) -> dict[str, int]:
    """Copy a SQLite database into a new file of mode 0600; return the number of rows of each table.

    Raises StoreError, and leaves no file, if `target` exists, if the source is damaged or not an aggregator's, or if
    the disk is full.
    """
    with new_file(Path(target)) as copy:
        with open_existing(source, read_only=True) as engine:
            with transaction(engine, writes=False) as connection:
                require_sound(connection, Path(source))
                require_tables(connection)
            vacuum_into(engine, copy)
        engine = open_sqlite(copy, durable=False)
        try:
            with transaction(engine, writes=True) as connection:
                connection.execute(update(schema).values(last_backup=None))
                return _checked(connection)
        finally:
            engine.dispose()


def record_backup(database: str, began: int) -> None:
    """Store the start of a complete backup in its database, in seconds since 1970; /metrics shows it."""
    with open_existing(database) as engine, transaction(engine, writes=True) as connection:
        require_tables(connection)
        connection.execute(update(schema).values(last_backup=began))


def require_sound(connection: Connection, file: Path) -> None:
    """Raise StoreError if a SQLite file is damaged: a copy of all rows that can be read would be sound, and lack the others.

    SQLite reads zeros for the missing part of a last page.
    """
    page = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
    connection.exec_driver_sql("SELECT count(*) FROM sqlite_master")  # fails unless the file is a database
    if file.stat().st_size % page:
        raise StoreError("the file is truncated, its last page is incomplete: use another backup")
    if damage := page_damage(connection, "integrity_check"):
        raise StoreError(f"the database is damaged ({damage[0]}) and not copied: {_USE_A_BACKUP}")


def require_readable_summaries(connection: Connection) -> None:
    """Raise StoreError if a summary cannot be read."""
    if damage := summary_damage(connection):
        raise StoreError(f"{damage[0]}, and the database is not copied: {_USE_A_BACKUP}")


def _checked(connection: Connection) -> dict[str, int]:
    """Return the number of rows of each table of a copy; raise StoreError if the copy is not sound."""
    damage = page_damage(connection, "integrity_check")
    if damage or connection.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
        raise StoreError(
            f"the copy is damaged ({(damage or ['a row refers to a missing row'])[0]}): use another backup"
        )
    for _ in connection.exec_driver_sql("SELECT sql FROM sqlite_master"):
        pass  # the driver raises an error if a text is not UTF-8; reading the schema of a database then fails
    if require_tables(connection).number >= SCHEMA_VERSION:  # the columns of an older version are not known here
        require_same_schema(connection)
        for table in DATA_TABLES:
            _require_types(connection, table)
        require_readable_summaries(connection)
    return {table.name: connection.scalar(select(func.count()).select_from(table)) or 0 for table in DATA_TABLES}


def _require_types(connection: Connection, table: Table) -> None:
    """Raise StoreError if a value does not have the type of its column: SQLite stores any type in any column."""
    is_wrong = or_(*(func.typeof(column).not_in(_storage_classes(column)) for column in table.c))
    if connection.execute(select(is_wrong).where(is_wrong).limit(1)).first() is not None:
        raise SchemaError(f"the table {table.name} has a value of a wrong type: use another backup")
    texts = [column for column in table.c if isinstance(column.type, String)]
    for _ in connection.execute(select(*texts)) if texts else ():
        pass  # the driver raises an error if a text is not UTF-8


def _storage_classes(column: Column[Any]) -> list[str]:
    name = {LargeBinary: "blob", String: "text"}.get(type(column.type), "integer")
    return [name, "null"] if column.nullable else [name]


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """Yield an empty file beside `target`, of mode 0600; then fsync it and rename it to `target`.

    If the block raises, the file is deleted. Raises StoreError if `target` exists or the directory is not writable.
    """
    if target.exists():
        raise StoreError("the file exists already: move it away, or give another name")
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    except OSError as problem:
        raise StoreError(f"cannot write into {target.parent}: {problem.strerror}") from None
    try:
        yield Path(name)
        os.fsync(descriptor)
        Path(name).rename(target)
    except OSError as problem:
        raise StoreError(f"the file cannot be written: {problem.strerror}") from None
    finally:
        os.close(descriptor)
        for left in (name, f"{name}-journal"):
            Path(left).unlink(missing_ok=True)
    _fsync_directory(target.parent)


def _fsync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
