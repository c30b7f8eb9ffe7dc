"""Whether a database still holds what was put there: its pages fit together, and its summaries can be read."""

from __future__ import annotations

import sqlite3

from sqlalchemy import Connection, Engine, inspect, select

from hubbub.errors import HubbubError
from hubbub.summary import summary_from_bytes
from hubbub_aggregator.database.engine import transaction
from hubbub_aggregator.database.schema import collection
from hubbub_aggregator.errors import StoreError

_MOST = 10
"""Damages that are told: there is always a next one."""
NEXT_STEP = "stop the aggregator, keep the file, and `hubbub db restore` the last backup into a new one"


def find_damage(engine: Engine) -> list[str]:
    """Return what is damaged, at most a few; reads all of a SQLite file, and of PostgreSQL the summaries."""
    found: list[str] = []
    for look in (_of_pages, _of_summaries):
        try:
            with transaction(engine, writes=False) as connection:
                found += look(connection)
        except StoreError as problem:
            said = getattr(problem.__cause__, "orig", None)
            if getattr(said, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_CORRUPT:
                raise
            found += [] if found else [str(said)]
    return found[:_MOST]


def _of_pages(connection: Connection) -> list[str]:
    if connection.dialect.name != "sqlite":
        return []
    said = connection.exec_driver_sql(f"PRAGMA quick_check({_MOST})").scalars().all()
    return [line for text in said for line in text.splitlines() if line != "ok" and not line.startswith("***")]


def _of_summaries(connection: Connection) -> list[str]:
    if not inspect(connection).has_table(collection.name):
        return []
    found = []
    asked = select(collection.c.metric, collection.c.period, collection.c.summary).where(
        collection.c.summary.is_not(None)
    )
    for metric, period, summary in connection.execution_options(yield_per=8).execute(asked):
        try:
            summary_from_bytes(summary)
        except HubbubError:
            found.append(f"the summary of {metric!r:.80}, {period!r:.20}, cannot be read")
    return found
