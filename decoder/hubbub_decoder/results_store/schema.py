"""Schema of the results: tables and views, said once for SQLite and PostgreSQL. docs/reference/results-schema.md describes it.

A file of `hubbub publish` also has what it read, withdrew and ran. The version of a file is in `PRAGMA user_version`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from hubbub_decoder.errors import OutputError

APPLICATION_ID = int.from_bytes(b"hbrs")
"""`PRAGMA application_id` of a file of results."""

_BUSY_SECONDS = 30
"""Time to wait for another program that reads the file."""

_TABLES = """
CREATE TABLE definitions (
    digest TEXT NOT NULL,
    group_value TEXT NOT NULL,
    metric TEXT NOT NULL,
    definition TEXT NOT NULL,
    PRIMARY KEY (digest, group_value)
) WITHOUT ROWID;

CREATE TABLE results (
    digest TEXT NOT NULL,
    group_value TEXT NOT NULL,
    period TEXT NOT NULL,
    counts_hash TEXT NOT NULL,
    inputs_hash TEXT NOT NULL,
    closed INTEGER NOT NULL,
    num_reports INTEGER NOT NULL,
    confidence REAL NOT NULL,
    fdr REAL NOT NULL,
    target TEXT NOT NULL,
    epsilon REAL NOT NULL,
    mean REAL,
    mean_low REAL,
    mean_high REAL,
    warnings TEXT NOT NULL,
    decoding TEXT NOT NULL,
    PRIMARY KEY (digest, group_value, period),
    FOREIGN KEY (digest, group_value) REFERENCES definitions
);

CREATE TABLE estimates (
    digest TEXT NOT NULL,
    group_value TEXT NOT NULL,
    period TEXT NOT NULL,
    position INTEGER NOT NULL,
    value TEXT NOT NULL,
    share REAL,
    low REAL,
    high REAL,
    p_value REAL,
    q_value REAL,
    detected INTEGER,
    PRIMARY KEY (digest, group_value, period, position),
    FOREIGN KEY (digest, group_value, period) REFERENCES results ON DELETE CASCADE
) WITHOUT ROWID;

CREATE TABLE releases (
    id INTEGER PRIMARY KEY,
    digest TEXT NOT NULL,
    group_value TEXT NOT NULL,
    period TEXT NOT NULL,
    counts_hash TEXT NOT NULL,
    result_hash TEXT NOT NULL,
    num_reports INTEGER NOT NULL,
    smallest_cohort INTEGER NOT NULL,
    epsilon REAL NOT NULL,
    composed_epsilon REAL NOT NULL,
    FOREIGN KEY (digest, group_value) REFERENCES definitions
);
"""

_TABLES_OF_PUBLISH = """
CREATE TABLE summaries (
    path TEXT PRIMARY KEY,
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    ctime_ns INTEGER NOT NULL,
    inode INTEGER NOT NULL,
    content_hash TEXT NOT NULL,
    digest TEXT NOT NULL,
    group_value TEXT NOT NULL,
    period TEXT NOT NULL,
    closed INTEGER NOT NULL,
    counts_hash TEXT NOT NULL,
    num_reports INTEGER NOT NULL,
    cohort_reports BLOB NOT NULL,
    bit_ones BLOB NOT NULL,
    FOREIGN KEY (digest, group_value) REFERENCES definitions
);

CREATE TABLE withdrawals (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
);

CREATE TABLE last_run (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    inputs_hash TEXT NOT NULL,
    site_version TEXT NOT NULL,
    periods TEXT NOT NULL
);

CREATE TRIGGER releases_are_not_changed BEFORE UPDATE ON releases
BEGIN SELECT RAISE(ABORT, 'releases are append-only'); END;
CREATE TRIGGER releases_are_not_deleted BEFORE DELETE ON releases
BEGIN SELECT RAISE(ABORT, 'releases are append-only'); END;
CREATE TRIGGER withdrawals_are_not_changed BEFORE UPDATE ON withdrawals
BEGIN SELECT RAISE(ABORT, 'withdrawals are append-only'); END;
CREATE TRIGGER withdrawals_are_not_deleted BEFORE DELETE ON withdrawals
BEGIN SELECT RAISE(ABORT, 'withdrawals are append-only'); END;
"""

_LOOKS = """
CREATE TABLE looks (
    digest TEXT NOT NULL,
    group_value TEXT NOT NULL,
    period TEXT NOT NULL,
    num_reports INTEGER NOT NULL,
    alarms TEXT NOT NULL,
    PRIMARY KEY (digest, group_value, period),
    FOREIGN KEY (digest, group_value) REFERENCES definitions
) WITHOUT ROWID;
"""

_VIEWS = """
CREATE VIEW shares AS
SELECT metric, digest, nullif(group_value, '') AS group_value, period, value, share, low, high, p_value, q_value,
    detected, num_reports, closed
FROM estimates JOIN results USING (digest, group_value, period) JOIN definitions USING (digest, group_value);

CREATE VIEW means AS
SELECT metric, digest, nullif(group_value, '') AS group_value, period, mean AS value, mean_low AS low,
    mean_high AS high, num_reports, closed
FROM results JOIN definitions USING (digest, group_value)
WHERE mean IS NOT NULL;

CREATE VIEW epsilons AS
WITH pages AS (
    SELECT digest, group_value, period, max(id) AS last, count(DISTINCT counts_hash) AS versions,
        max(composed_epsilon) AS composed_epsilon
    FROM releases GROUP BY digest, group_value, period
), periods AS (
    SELECT digest, period, max(versions) > 1 AS replaced FROM pages GROUP BY digest, period
)
SELECT metric, digest, nullif(group_value, '') AS group_value, period, versions,
    (SELECT epsilon FROM releases WHERE id = last) AS epsilon,
    CASE WHEN replaced THEN results.epsilon ELSE pages.composed_epsilon END AS composed_epsilon
FROM pages JOIN periods USING (digest, period) JOIN definitions USING (digest, group_value)
    JOIN results USING (digest, group_value, period);
"""

_WIDEN_MEANS_IN_POSTGRES = """
UPDATE results SET mean_low = (decoding::json #>> '{numbers,mean,lowest}')::double precision,
    mean_high = (decoding::json #>> '{numbers,mean,highest}')::double precision
WHERE mean IS NOT NULL;
"""

_POSTGRES = {
    " WITHOUT ROWID": "",
    "INTEGER": "BIGINT",
    "REAL": "DOUBLE PRECISION",
    "TEXT": 'TEXT COLLATE "C"',  # the order of SQLite
}

_POSTGRES_MIGRATIONS = (_TABLES + _VIEWS, _LOOKS, _WIDEN_MEANS_IN_POSTGRES)
"""The statements at index n take a schema of version n to version n + 1; the first ones make an empty schema."""

POSTGRES_VERSION = len(_POSTGRES_MIGRATIONS)
"""Version of the schema in PostgreSQL, in its table `hubbub_results_version`."""


def postgres_migration(version: int) -> str:
    """Statements that bring a schema of PostgreSQL from a version to this one; its types have the size of those of SQLite."""
    script = "".join(_POSTGRES_MIGRATIONS[version:])
    for sqlite_word, word in _POSTGRES.items():
        script = script.replace(sqlite_word, word)
    return script


Migration = Callable[[sqlite3.Connection], None]


def _create(connection: sqlite3.Connection) -> None:
    _execute_each(connection, _TABLES + _TABLES_OF_PUBLISH + _VIEWS)


def _add_looks(connection: sqlite3.Connection) -> None:
    _execute_each(connection, _LOOKS)


def _widen_means(connection: sqlite3.Connection) -> None:
    """Take the interval wherever the numbers are in their buckets; earlier versions stored the one with each at the middle of its bucket.

    The numbers are parsed by Python, because SQLite's own conversion may round the last digit.
    """
    rows = connection.execute("SELECT rowid, decoding FROM results WHERE mean IS NOT NULL").fetchall()
    for row, decoding in rows:
        mean = json.loads(decoding)["numbers"]["mean"]
        connection.execute(
            "UPDATE results SET mean_low = ?, mean_high = ? WHERE rowid = ?", (mean["lowest"], mean["highest"], row)
        )


def _execute_each(connection: sqlite3.Connection, script: str) -> None:
    """Execute statements inside the open transaction, which `executescript` would commit."""
    statement = ""
    for line in script.splitlines():
        statement += f"{line}\n"
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""


MIGRATIONS: Sequence[Migration] = (_create, _add_looks, _widen_means)
"""The migration at index n takes a file of version n to version n + 1; the first one makes an empty file."""


def open_database(path: Path | None, migrations: Sequence[Migration] = MIGRATIONS) -> sqlite3.Connection:
    """Open a file of results of this or an earlier version, and bring it to this one; a file that does not exist is made, None is in memory.

    The connection is in autocommit mode. Deleted rows are overwritten with zeros in the file.

    Raises OutputError for a file of a later version, of another program or with damage, and for one that cannot be opened.
    """
    try:
        connection = _connect(":memory:" if path is None else path)
    except sqlite3.Error as problem:
        raise store_error(path, problem) from None
    return _prepared(connection, path, migrations)


def open_copy(path: Path) -> sqlite3.Connection:
    """Copy of a file of results in memory, in this version; an empty one if there is no file. Nothing is written.

    Raises OutputError as `open_database`, and if a program that wrote was killed: only another one that writes can roll that back.
    """
    journal = Path(f"{path}-journal")
    if journal.exists():
        raise OutputError(
            f"{journal} is left of a run that was killed. Run the command without --check, which rolls it back."
        )
    connection = _connect(":memory:")
    try:
        if path.exists():
            with closing(_connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
                file.backup(connection)
    except sqlite3.Error as problem:
        connection.close()
        raise store_error(path, problem) from None
    return _prepared(connection, path, MIGRATIONS)


def _connect(place: str | Path, *, uri: bool = False) -> sqlite3.Connection:
    return sqlite3.connect(place, timeout=_BUSY_SECONDS, isolation_level=None, uri=uri)


def _prepared(connection: sqlite3.Connection, path: Path | None, migrations: Sequence[Migration]) -> sqlite3.Connection:
    try:
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA synchronous = FULL")
        _migrate(connection, path, migrations)
        connection.execute("PRAGMA foreign_keys = ON")
    except sqlite3.DatabaseError as problem:
        connection.close()
        raise store_error(path, problem) from None
    except OutputError:
        connection.close()
        raise
    return connection


def store_error(path: Path | None, problem: sqlite3.Error) -> OutputError:
    """Error of a file of results with the reason, and what to do."""
    code = (problem.sqlite_errorcode if hasattr(problem, "sqlite_errorcode") else sqlite3.SQLITE_ERROR) & 0xFF
    return OutputError(f"{path}: {problem}. {_REMEDIES.get(code, _DAMAGED)}.")


_DAMAGED = (
    "Restore it from a backup: without a file of `hubbub publish`, nobody knows which counts were published. "
    "For `hubbub decode-all`, you can name another file: everything is decoded again"
)
_REMEDIES = {
    sqlite3.SQLITE_NOTADB: f"It is no file of results, or its first page is damaged. {_DAMAGED}",
    sqlite3.SQLITE_BUSY: "Another program is using it. Wait until it ends",
    sqlite3.SQLITE_LOCKED: "Another program is using it. Wait until it ends",
    sqlite3.SQLITE_FULL: "Make room on its disk, and run the command again",
    sqlite3.SQLITE_IOERR: "Check whether its disk is full or failing, and run the command again",
    sqlite3.SQLITE_READONLY: "Let this user write to the file and to its directory",
    sqlite3.SQLITE_CANTOPEN: "Let this user write to the file and to its directory",
}


def _migrate(connection: sqlite3.Connection, path: Path | None, migrations: Sequence[Migration]) -> None:
    def pragma(name: str) -> int:
        (value,) = connection.execute(f"PRAGMA {name}").fetchone()
        return int(value)

    (num_tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    version, application = pragma("user_version"), pragma("application_id")
    if (num_tables or version or application) and application != APPLICATION_ID:
        raise OutputError(
            f"{path} is the database of another program. Name a file of results, or one that does not exist."
        )
    if version > len(migrations):
        raise OutputError(
            f"{path} has version {version} of the schema, but this version knows {len(migrations)}: install the newer hubbub."
        )
    if version == len(migrations):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for migration in migrations[version:]:
            migration(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
