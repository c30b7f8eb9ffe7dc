"""What differs between databases, all of it: how one is opened, how a transaction begins, what an insert ignores."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from sqlalchemy import (
    URL,
    ClauseElement,
    Connection,
    CursorResult,
    Engine,
    Table,
    create_engine,
    event,
    make_url,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.sql.compiler import SQLCompiler

from hubbub_aggregator.store import StoreError

_WAIT_FOR_LOCK = 10.0  # seconds
_BETWEEN_TRIES = 0.01
_LASTING = (
    "PRAGMA journal_mode = WAL",  # readers see a snapshot and never wait for the writer
    "PRAGMA synchronous = FULL",  # a commit is on the disk before it returns
    "PRAGMA secure_delete = ON",  # what is dropped is overwritten, too
)
_FLEETING = ("PRAGMA synchronous = OFF",)
_FOREIGN_KEYS = "PRAGMA foreign_keys = ON"
_GIVEN = """
    WITH RECURSIVE at(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM at WHERE i + 1 < :n),
    given(batch_id) AS (SELECT substr(:ids, 16 * i + 1, 16) FROM at)
"""
_STORED = text(_GIVEN + "SELECT batch_id FROM batch WHERE collection_id = :collection_id AND batch_id IN given")  # noqa: S608  (constants)
_INSERT = text("INSERT INTO batch (collection_id, batch_id)" + _GIVEN + "SELECT :collection_id, batch_id FROM given")  # noqa: S608
_INSERT_NEW = text(
    "INSERT INTO batch (collection_id, batch_id) SELECT :collection_id, unnest(CAST(:ids AS bytea[])) "
    "ON CONFLICT DO NOTHING RETURNING batch_id"
)


def open_sqlite(path: Path, *, read_only: bool = False, lasting: bool = True) -> Engine:
    """Open a SQLite file, made if it is not there. Errors never carry the parameters of a statement.

    lasting : a commit survives a power cut; else the file is nothing yet, and whoever makes it will say when it is whole
    """
    mode = "ro" if read_only else "rwc"
    engine = create_engine(
        URL.create("sqlite", database=f"file:{quote(str(path.absolute()))}", query={"mode": mode, "uri": "true"}),
        hide_parameters=True,
        connect_args={"timeout": _WAIT_FOR_LOCK},
    )
    pragmas = (_FOREIGN_KEYS,) if read_only else (*(_LASTING if lasting else _FLEETING), _FOREIGN_KEYS)

    def prepare(connection: Any, _record: object) -> None:
        for pragma in pragmas:
            _patiently(connection, pragma)

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", _begin)
    return engine


@contextmanager
def transaction(engine: Engine, *, writes: bool) -> Iterator[Connection]:
    """Commit all or nothing; whatever the database says against it is a StoreError.

    A reading transaction sees one moment; a writing one has the write lock from its first statement on.
    """
    try:
        with engine.connect() as connection:
            connection.execution_options(hubbub_writes=writes)
            with connection.begin():
                yield connection
    except SQLAlchemyError as problem:
        said = getattr(problem, "orig", None) or type(problem).__name__
        raise StoreError(f"the database cannot do it: {said}") from problem


class Statement:
    """A statement in its database's own words, found once: SQLAlchemy takes longer to look at one than SQLite to do it.

    columns : what an INSERT is given
    """

    def __init__(self, engine: Engine, statement: ClauseElement, columns: Sequence[str] | None = None) -> None:
        compiled = cast(SQLCompiler, statement.compile(dialect=engine.dialect, column_keys=columns))
        self._text, self._order = compiled.string, compiled.positiontup

    def on(self, connection: Connection, values: Mapping[str, Any]) -> CursorResult[*tuple[Any, ...]]:
        """Execute it with these values; what it returns is as the driver has it."""
        given = values if self._order is None else tuple([values[name] for name in self._order])
        return connection.exec_driver_sql(self._text, given)


def open_postgres(url: str) -> Engine:
    """Connect to a PostgreSQL database, `postgresql://user@host/database`."""
    try:
        engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"), hide_parameters=True)
    except ImportError:
        raise StoreError("PostgreSQL needs psycopg: pip install 'hubbub[postgres]'") from None
    except ArgumentError:
        raise StoreError("is not a database's URL: write postgresql://user@host/database") from None
    event.listen(engine, "begin", _begin_postgres)
    return engine


@contextmanager
def opened(database: str, *, read_only: bool = False) -> Iterator[Engine]:
    """Open a database that is there, and let go of it in the end."""
    if is_postgres(database):
        engine = open_postgres(database)
    elif Path(database).exists():
        engine = open_sqlite(Path(database), read_only=read_only)
    else:
        raise StoreError("there is no such file: give the --database of an aggregator")
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def naming(*databases: str) -> Iterator[None]:
    """Let what goes wrong say with which database, or from which to which."""
    try:
        yield
    except StoreError as problem:
        raise type(problem)(f"{' -> '.join(map(without_password, databases))}: {problem}") from None


def is_postgres(database: str | Path) -> bool:
    """Say whether this names a PostgreSQL database; else it is a SQLite file."""
    return str(database).startswith(("postgresql:", "postgres:"))


def without_password(database: str) -> str:
    """Return what may be shown of a database's name."""
    return re.sub(r"(?<=:)[^:@/]*(?=@)|(?<=password=)[^&]*", "***", database) if is_postgres(database) else database


def alone(connection: Connection) -> None:
    """Wait until no other process is setting the database up (on SQLite a writing transaction is alone anyway)."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(7235940)"))


def give_up_waiting(connection: Connection) -> None:
    """From now on do not wait long for a table: whoever comes after us waits as long (SQLite gives up by itself)."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL lock_timeout = '5s'"))


def insert_new(connection: Connection, table: Table) -> Any:
    """INSERT that passes over rows whose key is there already."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    return dialect.insert(table).on_conflict_do_nothing()


def continue_ids(connection: Connection, table: Table) -> None:
    """Let ids go on after those that were inserted with the rows (SQLite sees to that itself)."""
    if connection.dialect.name == "postgresql" and "id" in table.c:
        last = "SELECT setval(pg_get_serial_sequence(:name, 'id'), max(id)) FROM {} HAVING max(id) IS NOT NULL"
        connection.execute(text(last.format(table.name)), {"name": table.name})


class Ids:
    """Inserts the batch ids that are new to a collection, in at most two statements, however many they are.

    Each call of the database lets go of the interpreter, and has to get it back.
    """

    def __init__(self, engine: Engine) -> None:
        self._postgres = engine.dialect.name == "postgresql"
        self._insert = Statement(engine, _INSERT_NEW if self._postgres else _INSERT)
        self._stored = Statement(engine, _STORED)

    def insert(self, connection: Connection, collection_id: int, ids: Collection[bytes]) -> set[bytes]:
        """Return those that were new."""
        if self._postgres:  # in order, so that two who insert the same ids cannot block each other
            given = {"collection_id": collection_id, "ids": sorted(ids)}
            return {new for (new,) in self._insert.on(connection, given)}
        given = {"collection_id": collection_id, "ids": b"".join(ids), "n": len(ids)}
        new = set(ids).difference(stored for (stored,) in self._stored.on(connection, given))
        if new:
            self._insert.on(connection, given | {"ids": b"".join(new), "n": len(new)})
        return new


def _patiently(connection: Any, pragma: str) -> None:
    """Try until it is done: for a new file's journal mode SQLite does not wait, and several workers may open one at once."""
    give_up = time.monotonic() + _WAIT_FOR_LOCK
    while True:
        try:
            connection.execute(pragma)
        except sqlite3.OperationalError as problem:
            if problem.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(_BETWEEN_TRIES)
        else:
            return


def _begin_postgres(connection: Connection) -> None:
    if not connection.get_execution_options().get("hubbub_writes"):
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")


def _begin(connection: Connection) -> None:
    # By itself sqlite3 begins at the first write only: two reads would see two moments.
    writes = connection.get_execution_options().get("hubbub_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
