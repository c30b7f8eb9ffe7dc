"""Check a database for damage: SQLite's page structure, and whether every summary can be read."""

from __future__ import annotations

import sqlite3

from sqlalchemy import Connection, Engine, inspect, select

from hubbub.errors import HubbubError
from hubbub.summary import summary_from_bytes
from hubbub_aggregator.database.engine import transaction
from hubbub_aggregator.database.schema import collection
from hubbub_aggregator.errors import StoreError

_MAX_DAMAGES = 10
"""Most damages that are reported."""
NEXT_STEP = "stop the aggregator, keep the file, and restore the last backup into a new file with `hubbub db restore`"


def find_damage(engine: Engine) -> list[str]:
    """Return descriptions of damage, at most 10.

    Reads all of a SQLite file (`PRAGMA quick_check`); of a PostgreSQL database it reads the summaries.
    """
    found: list[str] = []
    for check in (page_damage, summary_damage):
        try:
            with transaction(engine, writes=False) as connection:
                found += check(connection)
        except StoreError as problem:
            error = _sqlite_error(problem)
            if error is None or error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT:
                raise
            found += [] if found else [str(error)]
    return found[:_MAX_DAMAGES]


def _sqlite_error(problem: StoreError) -> sqlite3.Error | None:
    """Return the driver's error behind a StoreError; None: it has another cause."""
    error = getattr(problem.__cause__, "orig", None)
    return error if isinstance(error, sqlite3.Error) else None


def page_damage(connection: Connection, pragma: str = "quick_check") -> list[str]:
    """Return the damage that SQLite finds in its pages; [] on PostgreSQL.

    pragma : "quick_check", or "integrity_check", which also compares indexes with their tables
    """
    if connection.dialect.name != "sqlite":
        return []
    results = connection.exec_driver_sql(f"PRAGMA {pragma}({_MAX_DAMAGES})").scalars().all()
    return [line for text in results for line in text.splitlines() if line != "ok" and not line.startswith("***")]


def summary_damage(connection: Connection) -> list[str]:
    """Return which summaries cannot be read."""
    if not inspect(connection).has_table(collection.name):
        return []
    found = []
    query = select(collection.c.metric, collection.c.period, collection.c.summary).where(
        collection.c.summary.is_not(None)
    )
    for metric, period, summary in connection.execution_options(yield_per=8).execute(query):
        try:
            summary_from_bytes(summary)
        except HubbubError:
            found.append(f"the summary of {metric!r:.80}, {period!r:.20}, cannot be read")
    return found
