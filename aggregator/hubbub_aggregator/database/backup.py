"""All that one database holds -> an empty one, on whichever engines: what backup, restore and copy have in common.

The copy is of one moment, and nobody waits for it: reports are taken meanwhile, and are not in it. It keeps the schema version
of its source, every id and every byte; rows pass through memory a few at a time.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, MetaData, Table, func, insert, select, update

from hubbub_aggregator.database.backup_digest import Digest, put_seal, seal_of
from hubbub_aggregator.database.database_url import is_postgres
from hubbub_aggregator.database.engine import (
    continue_ids,
    lock_for_setup,
    open_existing,
    open_postgres,
    open_sqlite,
    transaction,
)
from hubbub_aggregator.database.schema import SCHEMA_VERSION, alembic_version, schema, tables
from hubbub_aggregator.database.schema_version import version_of
from hubbub_aggregator.database.upgrade import upgrade
from hubbub_aggregator.errors import SchemaError, StoreError

_BYTES_A_STATEMENT = 4 << 20
_BYTES_A_ROW = 64
"""What a row weighs beside its bytes."""
_ROWS_A_FETCH = {"batch": 1_000}
_FEW = 8
"""Rows a fetch of tables whose rows may be of several megabytes."""

_FIRST_WITH_LAST_BACKUP = 5
"""The first schema that has the column."""

Progress = Callable[[int, int], None]


def copy(
    source: str, target: str, progress: Progress = lambda _done, _all: None, *, sealed: bool = False
) -> dict[str, int]:
    """Copy a database; return how many rows each table has. Whatever fails leaves the target as it was.

    target   : a SQLite file that is not there yet, or a PostgreSQL database that is empty
    progress : called with how many rows are done, and of how many
    sealed   : the copy is a backup, which is to say what it holds
    """
    with open_existing(source, read_only=True) as origin:
        if not is_postgres(source):
            _require_whole(origin, Path(source))
        with _filled(target) as place:
            return _copied(origin, place, progress, sealed=sealed)


def record_backup(database: str, began: int) -> None:
    """Store in a database that its backup of this time is complete; one of an older schema has no place for it.

    began : seconds since 1970
    """
    with open_existing(database) as engine, transaction(engine, writes=True) as connection:
        version = version_of(connection)
        if version is not None and version.number >= _FIRST_WITH_LAST_BACKUP:
            connection.execute(update(schema).values(last_backup=began))


def is_whole(database: str) -> bool | None:
    """Read all of a backup, and say whether it holds what was written; None: it is none."""
    with open_existing(database, read_only=True) as engine, transaction(engine, writes=False) as connection:
        said, version = seal_of(connection), version_of(connection)
        if said is None or version is None:
            return None
        digest = Digest(version.number)
        here = _tables(connection)
        for name in _in_order(here):
            digest.table(name, here[name].c.keys())
            for some in _pieces(_read(connection, here[name])):
                digest.rows(some)
        return said == digest.value()


def _require_whole(engine: Engine, file: Path) -> None:
    """Refuse what SQLite does not: a file whose last page was cut off in the middle, it reads as if zeros followed."""
    with transaction(engine, writes=False) as connection:
        page = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
        connection.exec_driver_sql("SELECT count(*) FROM sqlite_master")  # it is a database at all
        if file.stat().st_size % page:
            raise StoreError("the file is cut off at its end: take another backup")


def _copied(source: Engine, target: Engine, progress: Progress, *, sealed: bool) -> dict[str, int]:
    with transaction(source, writes=False) as reading, transaction(target, writes=True) as writing:
        version = version_of(reading)
        if version is None:
            raise SchemaError("there are no tables of an aggregator to copy")
        if version.number > SCHEMA_VERSION:
            raise SchemaError(
                f"the database has schema {version.number}, this hubbub has schema {SCHEMA_VERSION}: "
                "copy it with the newer one"
            )
        lock_for_setup(writing)
        _require_empty(writing)
        _, after = upgrade(writing, version.number)
        here, there = _tables(reading), _tables(writing)
        if after != version.number:
            raise SchemaError(
                f"one has schema {version.number}, the other has schema {after}: `hubbub db upgrade` the first"
            )
        if {name: set(table.c.keys()) for name, table in here.items()} != {
            name: set(table.c.keys()) for name, table in there.items()
        }:
            raise SchemaError(f"the tables are not those of schema {after}: this is not what `hubbub db backup` wrote")
        names = _in_order(here)
        digest = Digest(after)
        rows = {name: reading.scalar(select(func.count()).select_from(here[name])) or 0 for name in names}
        done = 0
        for name in names:
            digest.table(name, here[name].c.keys())
            for some in _pieces(_read(reading, here[name])):
                digest.rows(some)
                writing.execute(insert(there[name]), some)
                done += len(some)
                progress(done, sum(rows.values()))
            continue_ids(writing, there[name])
        if seal_of(reading) not in (None, digest.value()):
            raise StoreError("the backup is damaged, it does not hold what was written: take another one")
        if sealed:
            put_seal(writing, digest.value())
        return rows


def _in_order(here: dict[str, Table]) -> list[str]:
    """Return the tables' names, each after those it refers to."""
    return [table.name for table in tables.sorted_tables if table.name in here]


def _tables(connection: Connection) -> dict[str, Table]:
    """Return the tables that hold something, as they are in this database, by name."""
    found = MetaData()
    names = set(tables.tables) - {alembic_version.name, schema.name}
    found.reflect(connection, only=lambda name, _: name in names)
    return dict(found.tables)


def _require_empty(connection: Connection) -> None:
    for table in _tables(connection).values():
        if connection.execute(select(table).limit(1)).first() is not None:
            raise StoreError(f"the table {table.name} has rows already: give a database that is empty")


def _read(connection: Connection, table: Table) -> Iterator[dict[str, Any]]:
    few = connection.execution_options(yield_per=_ROWS_A_FETCH.get(table.name, _FEW))
    try:
        for row in few.execute(select(table).order_by(*table.primary_key)):
            yield row._asdict()
    except (TypeError, ValueError):
        raise SchemaError(f"the table {table.name} holds what no aggregator has put there") from None


def _pieces(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Cut rows into statements of a few megabytes."""
    piece: list[dict[str, Any]] = []
    weight = 0
    for row in rows:
        piece.append(row)
        weight += _BYTES_A_ROW + sum(len(value) for value in row.values() if isinstance(value, bytes))
        if weight >= _BYTES_A_STATEMENT:
            yield piece
            piece, weight = [], 0
    if piece:
        yield piece


@contextmanager
def _filled(database: str) -> Iterator[Engine]:
    """Open what is to be filled; a SQLite file appears under its name when it is whole, and on the disk."""
    if is_postgres(database):
        engine = open_postgres(database)
        try:
            yield engine
        finally:
            engine.dispose()
        return
    path = Path(database)
    if path.exists():
        raise StoreError("the file is there already: move it away, or give another name")
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # for its owner alone
    except OSError as problem:
        raise StoreError(f"cannot write into {path.parent}: {problem.strerror}") from None
    engine = open_sqlite(Path(name), durable=False)
    try:
        yield engine
        engine.dispose()
        os.fsync(descriptor)
        Path(name).rename(path)
    except OSError as problem:
        raise StoreError(f"cannot be written: {problem.strerror}") from None
    finally:
        engine.dispose()
        os.close(descriptor)
        for left in (name, f"{name}-journal"):
            Path(left).unlink(missing_ok=True)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
