"""What differs between databases: how one is opened, how a transaction begins, what an insert ignores."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from sqlalchemy import (
    URL,
    ClauseElement,
    Connection,
    CursorResult,
    Engine,
    Row,
    Select,
    Table,
    create_engine,
    event,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.sql.compiler import SQLCompiler

from hubbub.text import install_hint
from hubbub_aggregator.database.database_url import is_postgres, postgres_url, without_password
from hubbub_aggregator.database.file_identity import FileIdentity
from hubbub_aggregator.database.sqlite_file import claim, is_there, require_place
from hubbub_aggregator.errors import StoreError

_WAIT_FOR_LOCK = 10.0  # seconds
_BETWEEN_TRIES = 0.01
BETWEEN_LOOKS = 0.025  # seconds
"""Whoever waits for SQLite's lock looks again at least so often for the first 150 ms: after 1, 2, 5, 10, 15, 20, 25, ... ms."""
_LASTING = (
    "PRAGMA journal_mode = WAL",  # readers see a snapshot and never wait for the writer
    "PRAGMA synchronous = FULL",  # a commit is on the disk before it returns
    "PRAGMA secure_delete = ON",  # what is dropped is overwritten, too
)
_LOOK = "`hubbub doctor` looks for the cause"
_NEXT_STEP = {
    sqlite3.SQLITE_NOTADB: "give the --database of an aggregator",
    sqlite3.SQLITE_CORRUPT: "it is damaged: `hubbub db check` says where, `hubbub db restore` makes it anew from a backup",
    sqlite3.SQLITE_FULL: "make room on its disk",
    sqlite3.SQLITE_IOERR: "see whether its disk is full or failing",
    sqlite3.SQLITE_CANTOPEN: "let this user write to the file and to its directory",
    sqlite3.SQLITE_READONLY: "let this user write to the file and to its directory",
    sqlite3.SQLITE_BUSY: "another program holds it: end that, or try again",
}
_FLEETING = ("PRAGMA synchronous = OFF",)
_FOREIGN_KEYS = "PRAGMA foreign_keys = ON"
_OPEN_WAL = "SELECT count(*) FROM sqlite_master"
_IDENTITY = "hubbub_file_identity"
"""Execution option of an engine that writes a SQLite file: its FileIdentity."""


def open_sqlite(path: Path, *, read_only: bool = False, lasting: bool = True) -> Engine:
    """Open a SQLite file, made if it is not there. Errors never carry the parameters of a statement.

    lasting : a commit survives a power cut; else the file is nothing yet, and whoever makes it will say when it is whole
    """
    require_place(path, read_only=read_only)
    if not read_only:
        claim(path)
    mode = "ro" if read_only else "rwc"
    identity = FileIdentity(path)
    engine = create_engine(
        URL.create("sqlite", database=f"file:{quote(str(path.absolute()))}", query={"mode": mode, "uri": "true"}),
        hide_parameters=True,
        connect_args={"timeout": _WAIT_FOR_LOCK},
        execution_options={} if read_only else {_IDENTITY: identity},
    )
    writing = _LASTING if lasting else _FLEETING

    counted: set[int] = set()  # connections that `identity` knows, by id

    def prepare(connection: Any, _record: object) -> None:
        try:
            identity.require_unmoved()  # before anything is read: SQLite would make the `-wal` anew
            pragmas = () if read_only or _is_of_another(connection) else writing
            for pragma in (*pragmas, _FOREIGN_KEYS, _OPEN_WAL):
                _patiently(connection, pragma)
            identity.connection_opened()
        except BaseException:
            connection.close()
            raise
        counted.add(id(connection))

    def forget(connection: Any, _record: object) -> None:
        if id(connection) in counted:
            counted.discard(id(connection))
            identity.connection_closed()

    event.listen(engine, "connect", prepare)
    event.listen(engine, "close", forget)
    event.listen(engine, "begin", _begin)
    return engine


@contextmanager
def transaction(engine: Engine, *, writes: bool) -> Iterator[Connection]:
    """Commit all or nothing; whatever the database says against it is a StoreError.

    A reading transaction sees one moment; a writing one has the write lock from its first statement on.
    A SQLite file that was moved meanwhile is a DatabaseMovedError, although the transaction was committed.
    """
    require_unmoved(engine)
    try:
        with engine.connect() as connection:
            connection.execution_options(hubbub_writes=writes)
            with connection.begin():
                yield connection
    except SQLAlchemyError as problem:
        raise StoreError(f"the database cannot do it: {_told(problem)}") from problem
    except UnicodeDecodeError:  # the bytes are in it
        raise StoreError("the database is damaged: a text in it is no UTF-8; restore a backup") from None
    require_unmoved(engine)


def require_unmoved(engine: Engine) -> None:
    """Raise DatabaseMovedError if the path of a SQLite file that is written no longer leads to it."""
    identity: FileIdentity | None = engine.get_execution_options().get(_IDENTITY)
    if identity is not None:
        identity.require_unmoved()


def fetched(engine: Engine, asked: Select[*tuple[Any, ...]]) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return all that a question finds, in a transaction of its own."""
    with transaction(engine, writes=False) as connection:
        return connection.execute(asked).all()


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
    named = postgres_url(url)
    if named is None:
        raise StoreError("is no URL of PostgreSQL: write postgresql://user@host/database")
    try:
        engine = create_engine(
            named,
            hide_parameters=True,
            connect_args={"client_encoding": "utf8"},  # a cluster of SQL_ASCII would else answer in bytes
        )
    except ImportError:
        raise StoreError(f"PostgreSQL needs psycopg: {install_hint('postgres')}") from None
    event.listen(engine, "begin", _begin_postgres)
    return engine


@contextmanager
def opened(database: str, *, read_only: bool = False) -> Iterator[Engine]:
    """Open a database that is there, and let go of it in the end."""
    if is_postgres(database):
        engine = open_postgres(database)
    elif is_there(Path(database)):
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


def checkpoint(engine: Engine) -> None:
    """Bring what was written into SQLite's file now, beside all others: else it is one of their commits that does it."""
    if engine.dialect.name == "sqlite":
        with closing(engine.raw_connection()) as connection:
            connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)")


def empty_log(engine: Engine) -> bool:
    """Empty SQLite's write-ahead log, where what was dropped still stands; False, at once, while others read or write."""
    if engine.dialect.name != "sqlite":
        return True
    checkpoint(engine)  # so that hardly anything is left to do while others would wait
    with closing(engine.raw_connection()) as connection:
        cursor = connection.cursor()
        ((patience,),) = cursor.execute("PRAGMA busy_timeout").fetchall()
        cursor.execute("PRAGMA busy_timeout = 0")
        try:
            ((busy, *_),) = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {patience}")
    return not busy


def _told(problem: SQLAlchemyError) -> str:
    """Return what the database says, in one line and without values, and the next step."""
    said = getattr(problem, "orig", None)
    if isinstance(said, sqlite3.Error):
        return f"{said}: {_NEXT_STEP.get((getattr(said, 'sqlite_errorcode', None) or 0) & 0xFF, _LOOK)}"
    if said is None:
        return f"{type(problem).__name__}: {_LOOK}"
    # Of a statement that failed the first line only: the next ones may have values. Of a connection that failed, all.
    primary = getattr(getattr(said, "diag", None), "message_primary", None)
    return f"{' '.join((primary or str(said)).split())}: see that PostgreSQL runs there, and what its log says"


def _is_of_another(connection: Any) -> bool:
    """Say whether another program made this file: even its journal is left as it is."""
    ours = "SELECT count(*), coalesce(sum(name = 'hubbub_schema'), 0) FROM sqlite_master WHERE type = 'table'"
    there, marked = connection.execute(ours).fetchone()
    return bool(there and not marked)


def _patiently(connection: Any, pragma: str) -> None:
    """Try until it is done: for a new file's journal mode SQLite does not wait, and several processes may open one at once."""
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
