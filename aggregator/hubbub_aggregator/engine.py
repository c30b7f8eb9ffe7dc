"""What differs between databases, all of it: how one is opened, how a transaction begins, what an insert ignores."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
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

from hubbub_aggregator.database_name import is_postgres, postgres_url, without_password
from hubbub_aggregator.store import StoreError

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
    require_place(path, read_only=read_only)
    if not read_only:
        _claim(path)
    mode = "ro" if read_only else "rwc"
    engine = create_engine(
        URL.create("sqlite", database=f"file:{quote(str(path.absolute()))}", query={"mode": mode, "uri": "true"}),
        hide_parameters=True,
        connect_args={"timeout": _WAIT_FOR_LOCK},
    )
    writing = _LASTING if lasting else _FLEETING

    def prepare(connection: Any, _record: object) -> None:
        pragmas = () if read_only or _is_of_another(connection) else writing
        for pragma in (*pragmas, _FOREIGN_KEYS):
            _patiently(connection, pragma)

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", _begin)
    return engine


def require_place(file: Path, *, read_only: bool = False) -> None:
    """Say what is in the way of a file: SQLite says `unable to open database file` of all that."""
    if _is_directory(file):
        raise StoreError("is a directory: name a file in it")
    if read_only:
        return
    if not _is_directory(file.parent):
        raise StoreError(
            f"there is no directory {file.parent} that this user can reach: make it, or give another --database"
        )
    for place in (file.parent, file):
        if is_there(place) and not os.access(place, os.W_OK, effective_ids=True):
            raise StoreError(
                f"this user may not write to {place}: change its owner or mode, or give another --database "
                "(SQLite keeps two files beside its own)"
            )


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
        raise StoreError(f"the database cannot do it: {_told(problem)}") from problem
    except UnicodeDecodeError:  # the bytes are in it
        raise StoreError("the database is damaged: a text in it is no UTF-8; restore a backup") from None


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
        raise StoreError("PostgreSQL needs psycopg: pip install 'hubbub[postgres]'") from None
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


def is_there(path: Path) -> bool:
    """Say whether a file can be seen; Path.exists raises where a directory may not be looked into."""
    return os.path.exists(path)  # noqa: PTH110


def _is_directory(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112  (Path's raises where a directory may not be looked into)


def _claim(file: Path) -> None:
    """Make a new file, for its owner alone: SQLite gives those beside it the same mode."""
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        pass  # and is not opened: closing it would drop the locks that this process has on it
    except OSError as problem:
        raise StoreError(f"cannot be made: {problem.strerror}: give another --database") from None


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
