"""Database for the results of `hubbub decode-all` and the looks of `hubbub watch`: a file of SQLite, or a schema of PostgreSQL, with the same tables and views."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from hubbub.metrics.metric import Metric
from hubbub.text import install_hint
from hubbub.wire.urls import mask_url, mask_urls
from hubbub_decoder.errors import OutputError
from hubbub_decoder.results_store.schema import APPLICATION_ID, POSTGRES_VERSION, postgres_migration
from hubbub_decoder.results_store.store import (
    SELECT_DECODING,
    SELECT_KNOWN_RESULTS,
    SELECT_LOOKS,
    KnownResult,
    Look,
    PeriodKey,
    ResultsStore,
    Statements,
    StoredResult,
    known_results,
    look_statements,
    looks_of,
    only_document,
    statements_of,
)

if TYPE_CHECKING:
    import psycopg

_EXPECTED = "Write the name of a file, or postgresql://user@host/database"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/|postgres(?:ql)?:")
_CONNECTION_DEFAULTS = {
    "connect_timeout": "10",  # seconds, for each host
    "keepalives_idle": "60",  # seconds: a decoding may take minutes, and a router forgets connections
    "target_session_attrs": "read-write",
    "application_name": "hubbub decode-all",
}
"""Parameters of libpq that a URL may override."""
_KEYWORDS = re.compile(r"\s*(?:dbname|host|hostaddr|password|port|service|user)\s*=")
"""How a connection string of libpq begins that is no URL."""
_REMEDIES = {
    "42501": "Let this user create tables in the schema, or read and write those of hubbub, with GRANT",  # insufficient_privilege
    "3F000": "Create the schema that the URL names",  # invalid_schema_name
}


class ResultsDatabase(Protocol):
    """Results of which each has its newest decoding only. Use it in a `with` block, which closes it.

    Its methods raise OutputError if the database cannot be read or written.
    """

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def known_results(self) -> dict[PeriodKey, KnownResult]:
        """What is known of each result."""

    def recorded_document(self, key: PeriodKey) -> str:
        """JSON of the decoding of a period; raises OutputError if there is none."""

    def write_result(self, result: StoredResult) -> None:
        """Write a result in place of the one of its period, all or nothing."""

    def looks(self, metric: Metric) -> dict[str, Look]:
        """Looks of `hubbub watch` at the periods of a metric, by period."""

    def write_looks(self, metric: Metric, looks: Iterable[Look]) -> None:
        """Remember looks at periods of a metric, all or nothing."""


def is_postgres(database: str) -> bool:
    """Whether a database is one of PostgreSQL; else it is a file. Raises OutputError for a name that is neither."""
    is_name = database.strip() and database != ":memory:" and not _KEYWORDS.match(database)
    if is_name and not _SCHEME.match(database):
        return False
    if not database.startswith(("postgresql://", "postgres://")):
        raise OutputError(f"{mask_url(database)!r} is neither a file nor a URL of PostgreSQL. {_EXPECTED}.")
    return True


def open_results_database(database: str) -> ResultsDatabase:
    """Open the database with this file name or URL; make its tables if there are none.

    Raises OutputError if it cannot be written, is of another program or a later release, or has the results of `hubbub publish`.
    """
    if is_postgres(database):
        return PostgresResults(database)
    path = Path(database)
    if path.is_dir():
        raise OutputError(f"{database} is a directory. Name a file in it.")
    if not path.parent.is_dir():
        raise OutputError(f"{database}: there is no directory {path.parent}. Create it, or name another file.")
    store = ResultsStore(path)
    try:
        store.require_decodings_only()
    except BaseException:
        store.close()
        raise
    return store


class PostgresResults:
    """Results in the first schema of the search path of a PostgreSQL database."""

    def __init__(self, url: str) -> None:
        try:
            import psycopg
            from psycopg.conninfo import conninfo_to_dict
        except ImportError:
            raise OutputError(f"PostgreSQL needs psycopg: {install_hint('postgres')}.") from None
        self._error: type[Exception] = psycopg.Error
        self._name = mask_url(url)
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error:  # its text repeats parts of the URL, as a password with a % sign
            given = {"host": "@"}
        if "@" in str(given.get("host", "")):
            raise OutputError(
                f"{self._name} is no URL of PostgreSQL. {_EXPECTED}, and special characters of a password as %XX."
            )
        with self._translated_errors():
            parameters: dict[str, Any] = {**_CONNECTION_DEFAULTS, **given, "client_encoding": "utf8"}
            self._connection: psycopg.Connection[tuple[Any, ...]] = psycopg.connect(**parameters, autocommit=True)
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def known_results(self) -> dict[PeriodKey, KnownResult]:
        """What is known of each result."""
        with self._translated_errors():
            return known_results(self._connection.execute(SELECT_KNOWN_RESULTS).fetchall())

    def recorded_document(self, key: PeriodKey) -> str:
        """JSON of the decoding of a period; raises OutputError if there is none."""
        with self._translated_errors():
            rows = self._connection.execute(_with_markers(SELECT_DECODING), key).fetchall()
        return only_document(rows, key)

    def write_result(self, result: StoredResult) -> None:
        """Write a result in place of the one of its period, all or nothing."""
        self._write(statements_of(result))

    def looks(self, metric: Metric) -> dict[str, Look]:
        """Looks of `hubbub watch` at the periods of a metric, by period."""
        with self._translated_errors():
            key = PeriodKey.of(metric, "")
            return looks_of(self._connection.execute(_with_markers(SELECT_LOOKS), key[:2]).fetchall())

    def write_looks(self, metric: Metric, looks: Iterable[Look]) -> None:
        """Remember looks at periods of a metric, all or nothing."""
        self._write(look_statements(metric, looks))

    def _write(self, statements: Statements) -> None:
        with self._writing() as cursor:
            for statement, rows in statements:
                cursor.executemany(_with_markers(statement), rows)

    def _prepare(self) -> None:
        """Make the tables that the schema does not have, and check that they are ours and that this user may write."""
        with self._translated_errors(), self._connection.transaction():
            self._connection.execute("SELECT pg_advisory_xact_lock(%s)", (APPLICATION_ID,))  # two first runs at once
            ((encoding, schema, num_tables, is_ours),) = self._connection.execute(_SELECT_STATE).fetchall()
            if encoding != "UTF8":
                raise OutputError(
                    f"{self._name} has the encoding {encoding}, which cannot hold all texts. "
                    "Create a database with ENCODING 'UTF8' TEMPLATE template0, and name it."
                )
            if num_tables and not is_ours:
                raise OutputError(
                    f"{self._name}: schema {schema} has tables of another program. Create a schema for the results, and name it "
                    "in the URL by the parameter options=-csearch_path%3DSCHEMA."
                )
            if not is_ours:
                self._connection.execute("CREATE TABLE hubbub_results_version AS SELECT 0::bigint AS version")
            (version,) = self._connection.execute("SELECT version FROM hubbub_results_version").fetchone() or (0,)
            if version > POSTGRES_VERSION:
                raise OutputError(
                    f"{self._name} has version {version} of the schema, but this version knows {POSTGRES_VERSION}: install the newer hubbub."
                )
            if version < POSTGRES_VERSION:
                self._connection.execute(postgres_migration(version).encode())
                self._connection.execute("UPDATE hubbub_results_version SET version = %s", (POSTGRES_VERSION,))
        with self._writing():
            pass

    @contextmanager
    def _writing(self) -> Iterator[psycopg.Cursor[tuple[Any, ...]]]:
        """A transaction that waits until no other one writes. Readers do not wait."""
        with self._translated_errors(), self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.execute("LOCK TABLE results IN SHARE ROW EXCLUSIVE MODE")
            yield cursor

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except self._error as problem:
            raise self._output_error(problem) from None

    def _output_error(self, problem: Exception) -> OutputError:
        """Error with the reason, without values of a statement, and what to do."""
        primary = getattr(getattr(problem, "diag", None), "message_primary", None)
        reason = " ".join(mask_urls(primary or str(problem)).split())
        remedy = _REMEDIES.get(
            getattr(problem, "sqlstate", None) or "",
            "Check the URL, that PostgreSQL runs and has room, and its log. Run the command again, and it continues",
        )
        return OutputError(f"{self._name}: {reason.rstrip('.')}. {remedy}.")


def _with_markers(statement: str) -> bytes:
    """Statement with the marker of psycopg for each parameter."""
    return statement.replace("?", "%s").encode()


_SELECT_STATE = (
    "SELECT current_setting('server_encoding'), current_schema(), count(*), "
    "coalesce(bool_or(tablename = 'hubbub_results_version'), false) FROM pg_tables WHERE schemaname = current_schema()"
)
