"""What differs between databases, all of it: how one is opened, how a transaction begins, what an insert ignores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import SQLAlchemyError

from hubbub_aggregator.store import StoreError

_WAIT_FOR_LOCK = 10.0  # seconds
_PRAGMAS = (
    "PRAGMA journal_mode = WAL",  # readers see a snapshot and never wait for the writer
    "PRAGMA synchronous = FULL",  # a commit is on the disk before it returns
    "PRAGMA foreign_keys = ON",
)


def open_sqlite(path: Path) -> Engine:
    """Open a SQLite file, made if it is not there. Errors never carry the parameters of a statement."""
    engine = create_engine(
        URL.create("sqlite", database=str(path)), hide_parameters=True, connect_args={"timeout": _WAIT_FOR_LOCK}
    )
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


@contextmanager
def transaction(engine: Engine, *, writes: bool) -> Iterator[Connection]:
    """Commit all or nothing; whatever the database says against it is a StoreError.

    A reading transaction sees one moment; a writing one has the write lock from its first statement on.
    """
    try:
        with engine.execution_options(hubbub_writes=writes).begin() as connection:
            yield connection
    except SQLAlchemyError as problem:
        said = getattr(problem, "orig", None) or type(problem).__name__
        raise StoreError(f"the database cannot do it: {said}") from problem


def insert_new(table: Table) -> Any:
    """INSERT that passes over rows whose key is there already."""
    return sqlite.insert(table).on_conflict_do_nothing()


def _prepare(connection: Any, _record: object) -> None:
    for pragma in _PRAGMAS:
        connection.execute(pragma)


def _begin(connection: Connection) -> None:
    # By itself sqlite3 begins at the first write only: two reads would see two moments.
    writes = connection.get_execution_options().get("hubbub_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
