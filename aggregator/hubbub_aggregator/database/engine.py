"""Open SQLite and PostgreSQL databases, run transactions, and hide the differences of the two engines."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, cast
from urllib.parse import quote

from sqlalchemy import (
    URL,
    ClauseElement,
    Connection,
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
from hubbub.wire.urls import mask_url, mask_urls
from hubbub_aggregator.database.location import (
    FIND_OR_CREATE,
    claim,
    is_postgres,
    is_there,
    postgres_url,
    require_place,
)
from hubbub_aggregator.database.served_files import ServedFiles
from hubbub_aggregator.errors import StoreError

_LOCK_TIMEOUT_SECONDS = 10.0
_RETRY_SECONDS = 0.01
SQLITE_LOCK_POLL_SECONDS = 0.025
"""Longest interval at which SQLite polls for its lock in the first 150 ms: after 1, 2, 5, 10, 15, 20, 25, ... ms."""
DURABLE_PRAGMAS = (
    "PRAGMA journal_mode = WAL",  # readers see a snapshot and never wait for the writer
    "PRAGMA synchronous = FULL",  # a commit is on the disk before it returns
    "PRAGMA secure_delete = ON",  # deleted data is overwritten
)
FAST_PRAGMAS = ("PRAGMA synchronous = OFF",)
_DOCTOR = "run `hubbub doctor` to find the cause"
_NEXT_STEP = {
    sqlite3.SQLITE_NOTADB: "give the --database of an aggregator",
    sqlite3.SQLITE_CORRUPT: (
        "it is damaged: `hubbub db check` lists the damage, `hubbub db restore` creates a new database from a backup"
    ),
    sqlite3.SQLITE_FULL: "make room on its disk",
    sqlite3.SQLITE_IOERR: "check whether its disk is full or failing",
    sqlite3.SQLITE_CANTOPEN: "let this user write to the file and to its directory",
    sqlite3.SQLITE_READONLY: "let this user write to the file and to its directory",
    sqlite3.SQLITE_BUSY: "another program holds its lock: end that program, or try again",
}
_POSTGRES_DEFAULTS = {
    "target_session_attrs": "read-write",  # with several hosts, or a name that moves, never stay at a standby
    "connect_timeout": 5,  # seconds, for each host
    "keepalives_idle": 5,  # seconds; with the next two, a server that vanished is noticed after 5 + 2 * 5 seconds
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 15_000,  # milliseconds for an acknowledgement of what was sent
}
"""Parameters of libpq that a URL may override. libpq's own are to wait for hours, and to accept a read-only server."""
_BEGIN_WRITING = "BEGIN IMMEDIATE"
_FOREIGN_KEYS = "PRAGMA foreign_keys = ON"
_FIRST_READ = "SELECT count(*) FROM sqlite_master"
"""Creates the `-wal` of a database in WAL mode."""
_SERVED_FILES = "hubbub_served_files"
"""Execution option of an engine of a SQLite file: its ServedFiles."""
_WRITE_TURN = "hubbub_write_turn"
"""Execution option of an engine of a SQLite file: the lock that the threads that write take in turn."""


DriverConnection = Connection | sqlite3.Connection
"""Connection of a `driver_transaction`: on SQLite the driver's, on PostgreSQL SQLAlchemy's."""


class Result(Protocol):
    """Rows that a statement returned, of the driver's types."""

    def fetchone(self) -> Any:
        """Return the next row; None: there is none."""

    def fetchall(self) -> Sequence[Any]:
        """Return all rows."""


def open_sqlite(path: Path, *, read_only: bool = False, durable: bool = True) -> Engine:
    """Open a SQLite file; create it unless it exists. Errors never carry the parameters of a statement.

    durable : commits survive a power loss; False: for a new file, which the caller fsyncs when it is complete
    """
    require_place(path, read_only=read_only)
    if not read_only:
        claim(path)
    mode = "ro" if read_only else "rwc"
    files = ServedFiles(path)
    engine = create_engine(
        URL.create("sqlite", database=f"file:{quote(str(path.absolute()))}", query={"mode": mode, "uri": "true"}),
        hide_parameters=True,
        connect_args={"timeout": _LOCK_TIMEOUT_SECONDS},
        execution_options={_SERVED_FILES: files, _WRITE_TURN: Lock()},
    )
    write_pragmas = DURABLE_PRAGMAS if durable else FAST_PRAGMAS
    counted: set[int] = set()  # connections that `files` counts, by id

    def prepare(connection: Any, _record: object) -> None:
        try:
            files.require_intact()  # before the first read: SQLite would create the `-wal` again
            pragmas = () if read_only or _belongs_to_another_program(connection) else write_pragmas
            for statement in (*pragmas, _FOREIGN_KEYS, _FIRST_READ):
                _retry_when_busy(connection, statement)
            files.connection_opened()
        except BaseException:
            connection.close()
            raise
        counted.add(id(connection))

    def forget(connection: Any, _record: object) -> None:
        if id(connection) in counted:
            counted.discard(id(connection))
            files.connection_closed()

    event.listen(engine, "connect", prepare)
    event.listen(engine, "close", forget)
    event.listen(engine, "begin", _begin)
    return engine


@contextmanager
def transaction(engine: Engine, *, writes: bool) -> Iterator[Connection]:
    """Run a transaction; commit it, or roll it back if the block raises.

    writes : True: it has SQLite's write lock from its start; False: all its reads see one snapshot

    Raises StoreError for every error of the database. Raises FilesInDoubtError if a SQLite file was moved or truncated in the
    meantime, although the transaction was committed.
    """
    require_intact(engine)
    with _store_errors(), _write_turn(engine, writes=writes), engine.connect() as connection:
        connection.execution_options(hubbub_writes=writes)
        with connection.begin():
            yield connection
    require_intact(engine)


@contextmanager
def driver_transaction(engine: Engine) -> Iterator[DriverConnection]:
    """Run a writing transaction as `transaction`, with the same errors; on SQLite with the connection of the driver.

    SQLAlchemy's own steps take ten times as long as SQLite's, and ingestion needs none of them.
    """
    if engine.dialect.name != "sqlite":
        with transaction(engine, writes=True) as connection:
            yield connection
        return
    require_intact(engine)
    with _store_errors(), _write_turn(engine, writes=True), closing(engine.raw_connection()) as pooled:
        driver = cast(sqlite3.Connection, pooled.driver_connection)
        driver.execute(_BEGIN_WRITING)
        yield driver
        driver.commit()  # without it, the pool rolls back
    require_intact(engine)


@contextmanager
def _store_errors() -> Iterator[None]:
    """Raise a StoreError for every error of the database."""
    try:
        yield
    except SQLAlchemyError as problem:
        raise StoreError(f"the database reported an error: {_describe(problem)}") from problem
    except sqlite3.Error as problem:
        raise StoreError(f"the database reported an error: {_describe_sqlite(problem)}") from problem
    except UnicodeDecodeError:  # its text contains the bytes
        raise StoreError("the database is damaged, a text in it is not UTF-8: restore a backup") from None


@contextmanager
def _write_turn(engine: Engine, *, writes: bool) -> Iterator[None]:
    """Wait for the other threads that write, as long as for another process. SQLite polls for its lock: a thread that writes without pause would keep the others out."""
    turn: Lock | None = engine.get_execution_options().get(_WRITE_TURN) if writes else None
    has_turn = turn is not None and turn.acquire(timeout=_LOCK_TIMEOUT_SECONDS)
    try:
        yield
    finally:
        if turn is not None and has_turn:
            turn.release()


def served_files(engine: Engine) -> ServedFiles | None:
    """Return the files of a SQLite database; None: PostgreSQL."""
    files: ServedFiles | None = engine.get_execution_options().get(_SERVED_FILES)
    return files


def require_intact(engine: Engine) -> None:
    """Raise FilesInDoubtError if a SQLite file that is open was moved, truncated or found to be damaged."""
    if (files := served_files(engine)) is not None:
        files.require_intact()


def close(engine: Engine) -> None:
    """Close all connections.

    Raises FilesInDoubtError, and leaves the connections open, if SQLite would copy a damaged log into the database file. Only the end
    of the process, without finalization (`os._exit`), closes them without a copy.
    """
    if (files := served_files(engine)) is not None:
        files.require_closable()
    engine.dispose()


def fetch_all(engine: Engine, query: Select[*tuple[Any, ...]]) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return all rows of a query, run in its own transaction."""
    with transaction(engine, writes=False) as connection:
        return connection.execute(query).all()


class Statement:
    """A statement compiled once: compiling takes SQLAlchemy longer than executing takes SQLite.

    columns : columns of an INSERT
    """

    def __init__(self, engine: Engine, statement: ClauseElement, columns: Sequence[str] | None = None) -> None:
        compiled = cast(SQLCompiler, statement.compile(dialect=engine.dialect, column_keys=columns))
        self._text, self._order = compiled.string, compiled.positiontup

    def execute(self, connection: DriverConnection, values: Mapping[str, Any]) -> Result:
        """Execute it with these values."""
        parameters = values if self._order is None else tuple([values[name] for name in self._order])
        if isinstance(connection, sqlite3.Connection):
            return connection.execute(self._text, cast(Sequence[Any], parameters))
        return connection.exec_driver_sql(self._text, parameters)


def open_postgres(url: str) -> Engine:
    """Connect to a PostgreSQL database, `postgresql://user@host/database`.

    Several hosts, `postgresql://user@host1,host2/database`, are tried in order until one accepts writes.
    """
    parsed = postgres_url(url)
    if parsed is None:
        raise StoreError("not a PostgreSQL URL: write postgresql://user@host/database")
    try:
        engine = create_engine(
            parsed,
            hide_parameters=True,
            connect_args={name: value for name, value in _POSTGRES_DEFAULTS.items() if name not in parsed.query}
            | {"client_encoding": "utf8"},  # with a SQL_ASCII cluster psycopg would return bytes for text
        )
    except ImportError:
        raise StoreError(f"PostgreSQL needs psycopg: {install_hint('postgres')}") from None
    event.listen(engine, "begin", _begin_postgres)
    return engine


@contextmanager
def open_existing(database: str, *, read_only: bool = False) -> Iterator[Engine]:
    """Open a database that exists; close it at the end of the block."""
    if is_postgres(database):
        engine = open_postgres(database)
    elif is_there(Path(database)):
        engine = open_sqlite(Path(database), read_only=read_only)
    else:
        raise StoreError(f"the file does not exist: {FIND_OR_CREATE}")
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def prefix_errors(*databases: str) -> Iterator[None]:
    """Prefix the message of a StoreError with the database, or with 'source -> target'."""
    try:
        yield
    except StoreError as problem:
        raise type(problem)(f"{' -> '.join(map(mask_url, databases))}: {problem}") from None


def lock_for_setup(connection: Connection) -> None:
    """Take the lock for creating and upgrading tables, until the transaction ends (SQLite: it has the write lock)."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(7235940)"))


def limit_lock_wait(connection: Connection) -> None:
    """Wait at most 5 seconds for a lock on a table: later transactions queue behind this one (SQLite has a timeout)."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL lock_timeout = '5s'"))


def insert_new(database: Connection | Engine, table: Table) -> Any:
    """Return an INSERT that skips rows with an existing key."""
    dialect = postgresql if database.dialect.name == "postgresql" else sqlite
    return dialect.insert(table).on_conflict_do_nothing()


def continue_ids(connection: Connection, table: Table) -> None:
    """Set the table's id sequence after the largest inserted id (SQLite does this itself)."""
    if connection.dialect.name == "postgresql" and "id" in table.c:
        last = "SELECT setval(pg_get_serial_sequence(:name, 'id'), max(id)) FROM {} HAVING max(id) IS NOT NULL"
        connection.execute(text(last.format(table.name)), {"name": table.name})


def checkpoint(engine: Engine) -> None:
    """Copy SQLite's write-ahead log into the database file now, so that no other thread's commit has to do it."""
    if engine.dialect.name == "sqlite":
        require_intact(engine)
        with closing(engine.raw_connection()) as connection:
            connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)")


def truncate_wal(engine: Engine) -> bool:
    """Truncate SQLite's write-ahead log, which still has deleted data; return False if another connection is active."""
    if engine.dialect.name != "sqlite":
        return True
    checkpoint(engine)  # leaves little to do while writers wait
    with closing(engine.raw_connection()) as connection:
        cursor = connection.cursor()
        ((timeout,),) = cursor.execute("PRAGMA busy_timeout").fetchall()
        cursor.execute("PRAGMA busy_timeout = 0")
        try:
            ((busy, *_),) = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {timeout}")
    return not busy


def vacuum_into(engine: Engine, file: Path) -> None:
    """Write a snapshot of a SQLite database, without free pages, into an empty file; writers do not wait."""
    with closing(engine.raw_connection()) as connection:
        try:
            connection.cursor().execute("VACUUM INTO ?", (str(file),))
        except sqlite3.Error as problem:
            raise StoreError(f"the database cannot be copied: {_describe_sqlite(problem)}") from None


def _describe(problem: SQLAlchemyError) -> str:
    """Return the database's error message in one line and without values, and the next step."""
    error = getattr(problem, "orig", None)
    if isinstance(error, sqlite3.Error):
        return _describe_sqlite(error)
    if error is None:
        return f"{type(problem).__name__}: {_DOCTOR}"
    # Of a failed statement the first line only: the others may contain values. Of a failed connection the whole text.
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    return f"{' '.join(mask_urls(primary or str(error)).split())}: check that PostgreSQL runs, and read its log"


def _describe_sqlite(error: sqlite3.Error) -> str:
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    return f"{error}: {_NEXT_STEP.get(code, _DOCTOR)}"


def _belongs_to_another_program(connection: Any) -> bool:
    """Return whether a file has tables, but none of an aggregator's; not even its journal mode is changed."""
    ours = "SELECT count(*), coalesce(sum(name = 'hubbub_schema'), 0) FROM sqlite_master WHERE type = 'table'"
    num_tables, is_ours = connection.execute(ours).fetchone()
    return bool(num_tables and not is_ours)


def _retry_when_busy(connection: Any, pragma: str) -> None:
    """Execute a pragma, and retry while the file is locked: SQLite does not wait when it sets a new file's journal mode."""
    give_up = time.monotonic() + _LOCK_TIMEOUT_SECONDS
    while True:
        try:
            connection.execute(pragma)
        except sqlite3.OperationalError as problem:
            if problem.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(_RETRY_SECONDS)
        else:
            return


def _begin_postgres(connection: Connection) -> None:
    if not connection.get_execution_options().get("hubbub_writes"):
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")


def _begin(connection: Connection) -> None:
    # By default sqlite3 begins a transaction at the first write: two reads would see two snapshots.
    writes = connection.get_execution_options().get("hubbub_writes")
    connection.exec_driver_sql(_BEGIN_WRITING if writes else "BEGIN")
